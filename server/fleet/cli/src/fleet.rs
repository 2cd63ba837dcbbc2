//! `tessera-fleet fleet`: the leader and its standbys.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use fleet_core::lease::Settings;
use fleet_kubernetes::{election, leader, members};
use fleet_picker::{demand, follow};
use metrics::counter;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use units::TimeSpan;

use crate::observed::Observed;
use crate::pick;
use crate::planner::FleetPlanner;
use crate::process::{self, ProcessArgs};

/// Time between two messages of a server.
const SIGNALS: Duration = Duration::from_secs(10);
/// Time between two questions to a picker.
const DEMAND: Duration = Duration::from_secs(10);

/// Options of `tessera-fleet fleet`.
#[derive(Args, Debug)]
pub struct FleetArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Name of the Lease.
    #[arg(long, value_name = "NAME", default_value = "tessera-fleet")]
    lease: String,
    /// Identity of this process in the election. No other process may ever have the same. Default: a new one.
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// Time without a sign of the leader after which a standby leads. Whole seconds.
    #[arg(long, value_name = "TIME", default_value = "15s")]
    lease_duration: TimeSpan,
    /// Time after its last successful renewal until which a leader leads, at most 90 % of the lease duration.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    renew_deadline: TimeSpan,
    /// Time between two renewals, at most half of the renew deadline.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    retry_period: TimeSpan,
    /// Shortest time between two plannings.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    replan_min: TimeSpan,
    /// Do not read Kubernetes nodes: every node with a plan counts as working.
    #[arg(long)]
    no_watch_nodes: bool,
    /// Headless Service of Kubernetes whose endpoints are the servers. Their rates and batch times are used to plan. Without it, models are
    /// planned by `rate` and `profile` of their resources.
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// File with a key or token of role `read`, with which the servers are asked for their signals.
    #[arg(long, value_name = "FILE", requires = "service")]
    key_file: Option<PathBuf>,
    /// Headless Service of Kubernetes whose endpoints are the pickers. Requests that they refuse count for plans too.
    #[arg(long, value_name = "NAME", conflicts_with = "picker")]
    pickers: Option<String>,
    /// Address of a picker, instead of `--pickers`. Once for each picker.
    #[arg(long, value_name = "HOST:PORT")]
    picker: Vec<String>,
    /// Address of /metrics and /health.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9004")]
    metrics: SocketAddr,
}

/// Takes part in the election until it is told to stop.
///
/// # Errors
/// It cannot start.
pub async fn run(arguments: FleetArgs) -> anyhow::Result<()> {
    let settings =
        Settings::new(arguments.lease_duration.0, arguments.renew_deadline.0, arguments.retry_period.0)
            .context("--lease-duration, --renew-deadline, --retry-period")?;
    let key = pick::key(arguments.key_file.as_deref())?;
    let stop = process::stop_signal()?;
    let (client, namespace) = process::client(&arguments.process).await?;
    process::serve_metrics(arguments.metrics, Arc::new(AtomicBool::new(true)), stop.clone()).await?;
    let replan_min = arguments.replan_min.0.max(Duration::from_millis(10));
    let options =
        leader::Options { namespace: namespace.clone(), watch_nodes: !arguments.no_watch_nodes, replan_min };
    let observed = Observed::default();
    if let Some(service) = &arguments.service {
        let members = pick::from_service(client.clone(), namespace.clone(), service, stop.clone());
        observed.follow_nodes();
        tokio::spawn(follow::run(members, observed.clone(), key, SIGNALS));
    }
    let pickers = match &arguments.pickers {
        Some(service) => pickers_of(client.clone(), namespace.clone(), service.clone(), stop.clone()),
        None => watch::channel(arguments.picker.iter().cloned().collect()).1,
    };
    tokio::spawn(ask_pickers(pickers, observed.clone(), stop.clone()));
    let planner = FleetPlanner::new(observed);
    let leader = leader::Leader::start(client.clone(), options, planner, &stop);
    let identity = arguments.identity.unwrap_or_else(process::identity);
    let options = election::Options { namespace, lease: arguments.lease, identity, settings };
    let lead = move |term| Arc::clone(&leader).lead(term);
    election::run(client, options, lead, stop).await?;
    Ok(())
}

/// The addresses of the pickers behind a Service, as they change.
fn pickers_of(
    client: kube::Client,
    namespace: String,
    service: String,
    stop: CancellationToken,
) -> watch::Receiver<BTreeSet<String>> {
    let (sender, pickers) = watch::channel(BTreeSet::new());
    tokio::spawn(async move {
        let each = |pickers: Vec<members::Picker>| {
            sender.send_replace(pickers.into_iter().map(|picker| picker.address).collect());
        };
        members::follow_pickers(client, &namespace, &service, stop, each).await;
    });
    pickers
}

/// Asks each picker for its demand again and again. A picker that does not answer keeps its last demand.
async fn ask_pickers(
    pickers: watch::Receiver<BTreeSet<String>>,
    observed: Observed,
    stop: CancellationToken,
) {
    loop {
        let addresses = pickers.borrow().clone();
        observed.keep_pickers(&addresses);
        for address in addresses {
            match demand::ask(&address).await {
                Ok(rates) => observed.demanded(&address, rates),
                Err(reason) => {
                    counter!("tessera_fleet_demand_failures_total").increment(1);
                    tracing::warn!(
                        picker = address,
                        reason,
                        "a picker does not tell its demand; the last one counts"
                    );
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(DEMAND) => {}
        }
    }
}
