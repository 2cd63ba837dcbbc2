//! Writes the status of a node's plan: on change, and not often.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{Patch, PatchParams};
use metrics::counter;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::STATUS_PERIOD;
use super::report;
use crate::pacing::{Due, Pacer};
use crate::requests::{self, RequestError};
use crate::resources::node_plan::{NodePlan, NodePlanStatus};

/// Owner of the fields that agents write.
const MANAGER: &str = "tessera-agent";
/// Time between two writes that are urgent.
const URGENT_PERIOD: Duration = Duration::from_secs(1);
/// Longest time until a failed write is repeated.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// What an agent wants to be known.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The status; `None` before the first one.
    pub status: Option<NodePlanStatus>,
    /// How often the resource was deleted. It is created again, and gets its status from the start.
    pub deletions: u64,
}

/// Writes the status of one plan.
pub struct StatusWriter {
    plans: Api<NodePlan>,
    node: String,
    labels: BTreeMap<String, String>,
    pacer: Pacer<NodePlanStatus>,
    started: Instant,
}

impl StatusWriter {
    /// Nothing is written yet.
    pub fn new(plans: Api<NodePlan>, node: String, labels: BTreeMap<String, String>) -> Self {
        let pacer = Pacer::new(STATUS_PERIOD, URGENT_PERIOD);
        Self { plans, node, labels, pacer, started: Instant::now() }
    }

    /// Writes what is wanted until it is stopped.
    pub async fn run(mut self, mut wanted: watch::Receiver<Report>, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.write_all(&mut wanted) => {}
        }
    }

    async fn write_all(&mut self, wanted: &mut watch::Receiver<Report>) {
        let mut failures = 0;
        let mut deletions_seen = 0;
        loop {
            let Report { status, deletions } = wanted.borrow_and_update().clone();
            if deletions != deletions_seen {
                deletions_seen = deletions;
                self.pacer = Pacer::new(STATUS_PERIOD, URGENT_PERIOD);
            }
            let due = status.as_ref().map_or(Due::Never, |status| self.due(status));
            let wait = match (due, status) {
                (Due::Now, Some(status)) => match self.write(&status).await {
                    Ok(()) => {
                        failures = 0;
                        self.pacer.wrote(self.started.elapsed(), status);
                        continue;
                    }
                    Err(error) => {
                        counter!("tessera_fleet_write_failures_total", "kind" => "NodePlan").increment(1);
                        tracing::warn!(%error, "the status of the plan cannot be written");
                        failures = (failures + 1).min(8);
                        sleep((URGENT_PERIOD * (1 << failures) / 2).min(RETRY_MAX)).await;
                        continue;
                    }
                },
                (Due::At(at), _) => Some(at.saturating_sub(self.started.elapsed())),
                _ => None,
            };
            let changed = wanted.changed();
            let ended = match wait {
                Some(wait) => {
                    tokio::select! { changed = changed => changed.is_err(), () = sleep(wait) => false }
                }
                None => changed.await.is_err(),
            };
            if ended {
                return;
            }
        }
    }

    fn due(&self, status: &NodePlanStatus) -> Due {
        let urgent = self.pacer.written().is_none_or(|before| report::is_urgent(before, status));
        self.pacer.due(self.started.elapsed(), self.pacer.written(), status, urgent)
    }

    async fn write(&self, status: &NodePlanStatus) -> Result<(), RequestError> {
        let written = self.patch_status(status).await;
        if written.as_ref().is_err_and(|error| error.code() == Some(404)) {
            self.register().await?;
            return self.patch_status(status).await;
        }
        written
    }

    async fn patch_status(&self, status: &NodePlanStatus) -> Result<(), RequestError> {
        let patch = Patch::Apply(json!({
            "apiVersion": "tessera.dev/v1alpha1",
            "kind": "NodePlan",
            "metadata": {"name": self.node},
            "status": status,
        }));
        let parameters = PatchParams::apply(MANAGER).force();
        let request = self.plans.patch_status(&self.node, &parameters, &patch);
        requests::within(requests::TIMEOUT, request).await.map(drop)
    }

    /// Creates the resource without a plan, so that the leader knows of the node.
    async fn register(&self) -> Result<(), RequestError> {
        let patch = Patch::Apply(json!({
            "apiVersion": "tessera.dev/v1alpha1",
            "kind": "NodePlan",
            "metadata": {"name": self.node, "labels": self.labels},
            "spec": {},
        }));
        let parameters = PatchParams::apply(MANAGER).force();
        let request = self.plans.patch(&self.node, &parameters, &patch);
        requests::within(requests::TIMEOUT, request).await?;
        tracing::info!(node = self.node, "registered with the API server");
        Ok(())
    }
}
