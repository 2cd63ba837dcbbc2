//! `tessera-fleet fleet`: the leader and its standbys.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use fleet_core::lease::Settings;
use fleet_kubernetes::{election, leader};
use units::TimeSpan;

use crate::planner::Sticky;
use crate::process::{self, ProcessArgs};

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
    let stop = process::stop_signal()?;
    let (client, namespace) = process::client(&arguments.process).await?;
    process::serve_metrics(arguments.metrics, Arc::new(AtomicBool::new(true)), stop.clone()).await?;
    let replan_min = arguments.replan_min.0.max(Duration::from_millis(10));
    let options =
        leader::Options { namespace: namespace.clone(), watch_nodes: !arguments.no_watch_nodes, replan_min };
    let leader = leader::Leader::start(client.clone(), options, Sticky, &stop);
    let identity = arguments.identity.unwrap_or_else(process::identity);
    let options = election::Options { namespace, lease: arguments.lease, identity, settings };
    let lead = move |term| Arc::clone(&leader).lead(term);
    election::run(client, options, lead, stop).await?;
    Ok(())
}
