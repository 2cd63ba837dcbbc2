//! The agent of a node: applies its plan to the server next to it, and reports what is in force.
//!
//! The API server may be away at any time. The agent then keeps the plan in force, and starts with the one on disk.

pub mod admin;
pub mod disk;
pub mod model_files;
pub mod node;
pub mod reconciler;
pub mod report;
#[cfg(test)]
mod simulation;
mod status_writer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use jiff::Timestamp;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use metrics::{counter, gauge};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant as TokioInstant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::disk::DiskError;
use self::node::Node;
use self::reconciler::{Accepted, Effect, Event, Reconciler, Settings};
use self::status_writer::{Report, StatusWriter};
use crate::requests;
use crate::resources::node_plan::NodePlan;

/// Time between two writes of the status that are not urgent.
pub const STATUS_PERIOD: Duration = Duration::from_secs(15);

/// What an agent needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the node, which is the name of its plan.
    pub node: String,
    /// Namespace of the plan.
    pub namespace: String,
    /// Labels of the plan, for the selectors of pools and models.
    pub labels: BTreeMap<String, String>,
    /// Folder for the last accepted plan.
    pub folder: PathBuf,
    /// How models are loaded.
    pub settings: Settings,
}

type Action = Pin<Box<dyn Future<Output = Event> + Send>>;

/// The agent of one node.
struct Agent<N> {
    node: Arc<N>,
    folder: PathBuf,
    reconciler: Reconciler,
    started: Instant,
    action: Option<Action>,
    store_error: Option<String>,
    status: watch::Sender<Report>,
}

/// Runs an agent until it is stopped.
///
/// # Errors
/// The folder for the plan cannot be read.
pub async fn run<N: Node>(
    client: Client,
    options: Options,
    node: N,
    stop: CancellationToken,
) -> Result<(), DiskError> {
    let stored = match disk::load(&options.folder) {
        Err(error @ DiskError::Io { .. }) => return Err(error),
        Err(error) => {
            counter!("tessera_fleet_agent_store_failures_total").increment(1);
            tracing::error!(%error, "the stored plan cannot be used");
            None
        }
        Ok(stored) => stored,
    };
    if let Some(Accepted { generation, plan }) = &stored {
        let models = plan.models.len();
        tracing::info!(generation, epoch = plan.epoch, models, "starts with the plan on disk");
    }
    let plans: Api<NodePlan> = Api::namespaced(client, &options.namespace);
    let (status, wanted) = watch::channel(Report::default());
    let writer = StatusWriter::new(plans.clone(), options.node.clone(), options.labels);
    let writing = tokio::spawn(writer.run(wanted, stop.clone()));
    let agent = Agent {
        node: Arc::new(node),
        folder: options.folder,
        reconciler: Reconciler::new(options.settings, stored, Duration::ZERO),
        started: Instant::now(),
        action: None,
        store_error: None,
        status,
    };
    agent.run(plans, &options.node, stop.clone()).await;
    stop.cancel();
    if let Err(error) = writing.await {
        tracing::error!(%error, "the writer of the status failed");
    }
    Ok(())
}

impl<N: Node> Agent<N> {
    async fn run(mut self, plans: Api<NodePlan>, name: &str, stop: CancellationToken) {
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut plans = pin!(watcher(plans, only).backoff(requests::watch_backoff()));
        self.handle(Event::Tick).await;
        loop {
            self.publish();
            let wakeup = self.reconciler.wakeup();
            let due = self.started + wakeup.unwrap_or_default();
            tokio::select! {
                () = stop.cancelled() => return,
                seen = plans.next() => match seen {
                    Some(seen) => self.seen(seen).await,
                    // The stream of a watcher has no end. Without it, the plan in force stays.
                    None => return tracing::error!("the watch of the plan ended"),
                },
                event = async { match &mut self.action { Some(action) => action.await, None => std::future::pending().await } } => {
                    self.action = None;
                    self.handle(event).await;
                }
                () = sleep_until(TokioInstant::from_std(due)), if wakeup.is_some() => self.handle(Event::Tick).await,
            }
        }
    }

    async fn seen(&mut self, seen: Result<watcher::Event<NodePlan>, watcher::Error>) {
        match seen {
            Ok(watcher::Event::Apply(plan) | watcher::Event::InitApply(plan)) => {
                let generation = plan.metadata.generation.unwrap_or_default();
                self.handle(Event::Plan(Accepted { generation, plan: plan.spec })).await;
            }
            Ok(watcher::Event::Delete(_)) => {
                counter!("tessera_fleet_agent_plan_deletions_total").increment(1);
                tracing::warn!("the plan was deleted; the last one stays in force");
                self.status.send_modify(|report| report.deletions += 1);
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
            Err(error) => {
                counter!("tessera_fleet_watch_failures_total", "kind" => "NodePlan").increment(1);
                let error = requests::chain(&error);
                tracing::warn!(error, "the plan cannot be watched; the last one stays in force");
            }
        }
    }

    async fn handle(&mut self, event: Event) {
        match &event {
            Event::Loaded(Err(error)) => failed("load", error),
            Event::Unloaded(Err(error)) => failed("unload", error),
            Event::Listed(Err(error)) => failed("list", error),
            _ => {}
        }
        for effect in self.reconciler.handle(self.started.elapsed(), event) {
            self.carry_out(effect).await;
        }
        gauge!("tessera_fleet_agent_epoch").set(self.reconciler.epoch() as f64);
        gauge!("tessera_fleet_agent_models_missing").set(self.reconciler.missing().len() as f64);
    }

    async fn carry_out(&mut self, effect: Effect) {
        let node = Arc::clone(&self.node);
        match effect {
            Effect::Store(accepted) => self.store(accepted).await,
            Effect::Refuse(outdated) => {
                counter!("tessera_fleet_agent_refused_plans_total").increment(1);
                tracing::warn!(error = %outdated, "plan refused");
            }
            Effect::List => self.action = Some(Box::pin(async move { Event::Listed(node.list().await) })),
            Effect::Load(model, source) => {
                tracing::info!(model, source = source.as_ref().map(|source| source.uri.as_str()), "load");
                self.action =
                    Some(Box::pin(async move { Event::Loaded(node.load(&model, source.as_ref()).await) }));
            }
            Effect::Unload(model) => {
                tracing::info!(model, "unload");
                self.action = Some(Box::pin(async move { Event::Unloaded(node.unload(&model).await) }));
            }
        }
    }

    async fn store(&mut self, accepted: Accepted) {
        let Accepted { generation, plan } = &accepted;
        tracing::info!(generation, epoch = plan.epoch, models = plan.models.len(), "plan accepted");
        counter!("tessera_fleet_agent_accepted_plans_total").increment(1);
        let folder = self.folder.clone();
        let stored = spawn_blocking(move || disk::store(&folder, &accepted)).await;
        let error = match stored {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = &error {
            counter!("tessera_fleet_agent_store_failures_total").increment(1);
            tracing::error!(%error, "the plan cannot be stored; it does not survive a restart of the agent");
        }
        self.store_error = error;
    }

    /// Hands the status to its writer if it changed.
    fn publish(&self) {
        let now = Timestamp::now();
        self.status.send_if_modified(|report| {
            let before =
                report.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            let status = report::status(&self.reconciler, self.store_error.as_deref(), before, now);
            let changed = report.status.as_ref() != Some(&status);
            report.status = Some(status);
            changed
        });
    }
}

fn failed(action: &'static str, error: &node::NodeError) {
    counter!("tessera_fleet_agent_action_failures_total", "action" => action).increment(1);
    tracing::warn!(%error, action, "the server did not do what the plan needs");
}
