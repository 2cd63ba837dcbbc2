//! `tessera-fleet pick`: the endpoint picker.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use clap::Args;
use fleet_core::pick::{PICKERS_MAX, Settings};
use fleet_kubernetes::members;
use fleet_picker::nodes::{Endpoint, Members, PlannedRate, parse_file};
use fleet_picker::peers::Peers;
use fleet_picker::service::{self, Key, Options};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use units::TimeSpan;

use crate::process::{self, ProcessArgs};

/// Largest file of nodes or of a key.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Options of `tessera-fleet pick`.
#[derive(Args, Debug)]
pub struct PickArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Headless Service of Kubernetes whose endpoints are the nodes.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["node", "nodes_file"])]
    service: Option<String>,
    /// A node, with the addresses of its REST and gRPC interfaces. Once for each node.
    #[arg(long, value_name = "NAME=HTTP_ADDRESS,GRPC_ADDRESS[,DEVICE_TYPE]")]
    node: Vec<Endpoint>,
    /// TOML file with the nodes: `nodes = [{ name = "a", http = "10.0.0.1:8000", grpc = "10.0.0.1:8001" }]`.
    #[arg(long, value_name = "FILE")]
    nodes_file: Option<PathBuf>,
    /// Time in which requests for a model must be answered if they bring no timeout. Once for each model.
    #[arg(long, value_name = "MODEL=TIME", value_parser = objective)]
    objective: Vec<(String, TimeSpan)>,
    /// Address of a picker, as HOST:PORT. Once for each picker of the fleet, this one included, in the order of their numbers.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    peer: Vec<String>,
    /// Headless Service of Kubernetes whose endpoints are the pickers: the pods of a StatefulSet.
    #[arg(long, value_name = "NAME", conflicts_with = "peer")]
    peers: Option<String>,
    /// Number of this picker, from 0. Default: the number at the end of the name of this machine or pod, such as 1 for `pick-1`.
    #[arg(long, value_name = "NUMBER")]
    number: Option<u32>,
    /// Time from a pick until the node has the request, and back. Batches are sent this long before a node is expected to be free.
    #[arg(long, value_name = "TIME", default_value = "500us")]
    travel: TimeSpan,
    /// File with a key or token of role `read`, with which the nodes are asked for their signals.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Address for gateways.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9002")]
    listen: SocketAddr,
    /// Address of /metrics, /health/live and /health/ready.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9003")]
    metrics: SocketAddr,
}

fn objective(text: &str) -> Result<(String, TimeSpan), String> {
    let (model, time) = text.split_once('=').filter(|(model, _)| !model.is_empty()).unwrap_or_default();
    let time =
        time.parse().map_err(|_| format!("expected MODEL=TIME such as `digits=50ms`, got `{text}`"))?;
    Ok((model.to_owned(), time))
}

/// The number at the end of a name such as `pick-1`.
fn ordinal(name: &str) -> Option<u32> {
    name.rsplit_once('-').and_then(|(_, number)| number.parse().ok())
}

fn address(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    match port.and_then(|port| port.parse::<u16>().ok()) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("expected HOST:PORT such as `pick-1.pickers:9002`, got `{text}`")),
    }
}

/// The number of this picker, which is below `pickers`. With one picker, it needs none.
fn number(given: Option<u32>, pickers: u32, host: &str) -> anyhow::Result<u32> {
    let most = pickers.saturating_sub(1);
    match given.or_else(|| if pickers <= 1 { Some(0) } else { ordinal(host) }) {
        Some(number) if number <= most => Ok(number),
        Some(number) => bail!("--number: expected 0 to {most}, got {number}"),
        None => bail!("--number: expected 0 to {most}, because the name `{host}` does not end in a number"),
    }
}

fn read(option: &str, path: &Path) -> anyhow::Result<String> {
    let size = std::fs::metadata(path).with_context(|| format!("{option} {}", path.display()))?.len();
    if size > FILE_BYTES_MAX {
        bail!("{option} {}: expected at most {FILE_BYTES_MAX} bytes, got {size}", path.display());
    }
    std::fs::read_to_string(path).with_context(|| format!("{option} {}", path.display()))
}

/// The key of a file.
///
/// # Errors
/// The file cannot be read, or does not have one line.
pub fn key(path: Option<&Path>) -> anyhow::Result<Key> {
    let Some(path) = path else { return Ok(None) };
    let value = format!("Bearer {}", read("--key-file", path)?.trim());
    let value = value.parse().with_context(|| format!("--key-file {}: expected one line", path.display()))?;
    Ok(Some(value))
}

/// Chooses nodes until it is told to stop.
///
/// # Errors
/// It cannot start, or cannot go on.
pub async fn run(arguments: PickArgs) -> anyhow::Result<()> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let most = PICKERS_MAX as usize;
    if arguments.peer.len() > most {
        bail!("--peer: expected at most {most} pickers, got {}", arguments.peer.len());
    }
    let pickers = match arguments.peers {
        Some(_) => PICKERS_MAX,
        None => u32::try_from(arguments.peer.len())?,
    };
    let number = number(arguments.number, pickers, &host)?;
    let picker = Settings { number, travel: arguments.travel.0, ..Settings::default() };
    picker.validate().context("--number, --travel")?;
    let objectives: HashMap<_, _> =
        arguments.objective.into_iter().map(|(model, time)| (model, time.0)).collect();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let options = Options { picker, objectives, run: since.as_secs() };
    let key = key(arguments.key_file.as_deref())?;
    let stop = process::stop_signal()?;
    let members = match &arguments.service {
        Some(service) => {
            let (client, namespace) = process::client(&arguments.process).await?;
            from_service(client, namespace, service, stop.clone())
        }
        None => {
            let mut nodes = arguments.node;
            if let Some(path) = &arguments.nodes_file {
                let text = read("--nodes-file", path)?;
                nodes.extend(parse_file(&text).with_context(|| format!("--nodes-file {}", path.display()))?);
            }
            watch::channel(Members::fixed(nodes)?).1
        }
    };
    let peers = match &arguments.peers {
        Some(service) => pickers_of_service(&arguments.process, service, stop.clone()).await?,
        None => watch::channel((0..).zip(arguments.peer).collect()).1,
    };
    let listener = TcpListener::bind(arguments.listen)
        .await
        .with_context(|| format!("--listen {}", arguments.listen))?;
    tracing::info!(address = %listener.local_addr()?, number, "answers gateways");
    let is_ready = Arc::new(AtomicBool::new(false));
    // Until the end: a probe sees that the process is not ready any more.
    let until_end = CancellationToken::new();
    process::serve_metrics(arguments.metrics, Arc::clone(&is_ready), until_end).await?;
    service::run(listener, options, (members, peers), key, is_ready, stop).await?;
    Ok(())
}

/// The nodes behind a Service of Kubernetes, as they change.
pub fn from_service(
    client: kube::Client,
    namespace: String,
    service: &str,
    stop: CancellationToken,
) -> watch::Receiver<Members> {
    let (sender, members) = watch::channel(Members::default());
    let service = service.to_owned();
    tokio::spawn(async move {
        let each = |nodes: Vec<members::Member>, rates: Vec<members::Rate>| {
            let node = |node: members::Member| {
                let members::Member { name, http, grpc, device_type } = node;
                Arc::new(Endpoint { name, http, grpc, device_type })
            };
            let rate =
                |rate: members::Rate| PlannedRate { node: rate.node, model: rate.model, rate: rate.rate };
            sender.send_modify(|members| {
                members.is_known |= !nodes.is_empty();
                members.nodes = nodes.into_iter().map(node).collect();
                members.rates = rates.into_iter().map(rate).collect();
            });
        };
        members::follow(client, &namespace, &service, stop, each).await;
    });
    members
}

async fn pickers_of_service(
    arguments: &ProcessArgs,
    service: &str,
    stop: CancellationToken,
) -> anyhow::Result<watch::Receiver<Peers>> {
    let (client, namespace) = process::client(arguments).await?;
    let (sender, peers) = watch::channel(Peers::new());
    let service = service.to_owned();
    tokio::spawn(async move {
        let each = |pickers: Vec<members::Picker>| {
            let mut peers = BTreeMap::new();
            for members::Picker { name, address } in pickers {
                match ordinal(&name).filter(|number| *number < PICKERS_MAX) {
                    Some(number) => drop(peers.insert(number, address)),
                    None => tracing::warn!(
                        picker = name,
                        "expected a name that ends in a number below {PICKERS_MAX}, as pods of a StatefulSet have; this picker is not asked"
                    ),
                }
            }
            // An error would mean that the picker has ended.
            let _ = sender.send(peers);
        };
        members::follow_pickers(client, &namespace, &service, stop, each).await;
    });
    Ok(peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_given_or_at_the_end_of_the_name() {
        assert_eq!(number(Some(1), 2, "pick-0").unwrap(), 1);
        assert_eq!(number(None, 2, "tessera-picker-1").unwrap(), 1);
        assert_eq!(number(None, 1, "tessera-picker-7d9f-x2kvl").unwrap(), 0);
        let error = number(None, 2, "tessera-picker-7d9f-x2kvl").unwrap_err().to_string();
        assert!(error.starts_with("--number: expected 0 to 1"), "{error}");
        let error = number(Some(2), 2, "pick-0").unwrap_err().to_string();
        assert_eq!(error, "--number: expected 0 to 1, got 2");
    }

    #[test]
    fn a_picker_is_named_by_host_and_port() {
        assert_eq!(address("pick-1.pickers:9002").as_deref(), Ok("pick-1.pickers:9002"));
        for text in ["pick-1", ":9002", "pick-1:grpc"] {
            assert_eq!(
                address(text).unwrap_err(),
                format!("expected HOST:PORT such as `pick-1.pickers:9002`, got `{text}`")
            );
        }
    }

    #[test]
    fn an_objective_is_a_model_and_a_time() {
        assert_eq!(objective("a=50ms").unwrap().0, "a");
        let expected = "expected MODEL=TIME such as `digits=50ms`, got";
        for text in ["a", "=50ms", "a=soon"] {
            assert_eq!(objective(text).unwrap_err(), format!("{expected} `{text}`"));
        }
    }
}
