//! What the long-running commands share: logs, signals, metrics and the API server.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use clap::Args;
use fleet_picker::service::HOLD_SECONDS;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Time between two updates of the process' own metrics and of the percentiles.
const UPKEEP: Duration = Duration::from_secs(5);

/// Upper ends of the buckets of the time that requests wait at a picker, in seconds.
const HOLD_BUCKETS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
];

/// Where objects are, and where this process answers.
#[derive(Args, Clone, Debug)]
pub struct ProcessArgs {
    /// Namespace of models, pools, plans and the Lease. Default: that of the service account or the kubeconfig.
    #[arg(long, value_name = "NAME", env = "TESSERA_NAMESPACE")]
    pub namespace: Option<String>,
}

/// Starts to write logs to standard error.
pub fn start_logs(json: bool) {
    // The client's own lines repeat what is logged here, without what it means for the fleet.
    let filter = Targets::new().with_default(Level::INFO).with_target("kube_client", LevelFilter::OFF);
    let logs = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    if json {
        registry.with(logs.json().flatten_event(true)).init();
    } else {
        registry.with(logs.with_ansi(std::io::stderr().is_terminal())).init();
    }
}

/// Runs a command to its end.
///
/// # Errors
/// The runtime cannot start, or the command failed.
pub fn run(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.install_default().map_err(|_| anyhow::anyhow!("another TLS provider is installed"))?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(command)
}

/// A client of the API server: of the cluster around this process, or of `KUBECONFIG`. Returns the namespace too.
///
/// # Errors
/// Neither is configured, or the configuration cannot be used. The API server itself may be away.
pub async fn client(arguments: &ProcessArgs) -> anyhow::Result<(kube::Client, String)> {
    let config = kube::Config::infer().await.context(
        "expected to run in a Kubernetes cluster with a service account, or KUBECONFIG with the path of a kubeconfig",
    )?;
    let namespace = arguments.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    Ok((kube::Client::try_from(config).context("the API server's configuration")?, namespace))
}

/// Cancelled by SIGTERM, SIGINT or SIGHUP.
///
/// # Errors
/// Signals cannot be received.
pub fn stop_signal() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let mut received = signal(kind)?;
        let stop = stop.clone();
        tokio::spawn(async move {
            if received.recv().await.is_some() {
                tracing::info!("stops");
                stop.cancel();
            }
        });
    }
    Ok(stop)
}

/// Cancels `stop` when standard input ends.
///
/// # Errors
/// A thread cannot be started.
pub fn stop_at_end_of_input(stop: CancellationToken) -> anyhow::Result<()> {
    std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        if let Err(error) = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()) {
            tracing::warn!(%error, "standard input cannot be read");
        }
        tracing::info!("the server that started this agent has stopped");
        stop.cancel();
    })?;
    Ok(())
}

/// A name that no other process has: that of the machine or pod, its process and the time.
#[must_use]
pub fn identity() -> String {
    let name = rustix::system::uname();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{:x}", name.nodename().to_string_lossy(), std::process::id(), since.as_nanos())
}

/// Answers `GET /metrics`, `GET /health/live`, and `GET /health/ready` as `is_ready` says. Returns the address.
///
/// # Errors
/// The address cannot be used.
pub async fn serve_metrics(
    address: SocketAddr,
    is_ready: Arc<AtomicBool>,
    stop: CancellationToken,
) -> anyhow::Result<SocketAddr> {
    let hold = Matcher::Full(HOLD_SECONDS.to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(hold, HOLD_BUCKETS).context("metrics")?;
    let handle = builder.install_recorder().context("metrics")?;
    let process = metrics_process::Collector::default();
    process.describe();
    let listener = TcpListener::bind(address).await.with_context(|| format!("--metrics {address}"))?;
    let address = listener.local_addr()?;
    tracing::info!(%address, "answers /metrics and /health");
    tokio::spawn(upkeep(handle.clone(), process));
    let router = Router::new()
        .route("/metrics", get(move || std::future::ready(handle.render())))
        .route("/health/live", get(|| std::future::ready("ok\n")))
        .route("/health/ready", get(move || std::future::ready(readiness(&is_ready))));
    tokio::spawn(async move {
        let served =
            axum::serve(listener, router).with_graceful_shutdown(async move { stop.cancelled().await });
        if let Err(error) = served.await {
            tracing::error!(%error, "metrics cannot be served");
        }
    });
    Ok(address)
}

fn readiness(is_ready: &AtomicBool) -> (StatusCode, &'static str) {
    match is_ready.load(Ordering::Acquire) {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

async fn upkeep(handle: PrometheusHandle, process: metrics_process::Collector) {
    let mut ticks = interval(UPKEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        process.collect();
        let mut violations: BTreeMap<&'static str, u64> = BTreeMap::new();
        for violation in invariant::violations() {
            *violations.entry(violation.id).or_default() += violation.count;
        }
        for (id, count) in violations {
            metrics::counter!("tessera_invariant_violations_total", "id" => id).absolute(count);
        }
        handle.run_upkeep();
    }
}
