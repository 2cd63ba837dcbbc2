//! The leader's work: watches models, pools and nodes, has them planned, and writes plans and status.
//!
//! Standbys watch too, so that a new leader plans at once. It plans only after every copy is complete: a plan from half the
//! models would unload the other half.

pub mod inputs;
pub mod status;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::reflector::Store;
use kube::{Api, Client, ResourceExt as _};
use metrics::{counter, gauge, histogram};
use tokio::sync::{Mutex, Notify};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::inputs::{Inputs, NodeState, Planner, Plans, node_state};
use self::writer::{Wanted, Writer};
use crate::election::Term;
use crate::resources::model::{Model, ModelSpec};
use crate::resources::node_plan::{NodePlan, NodePlanSpec};
use crate::resources::serving_pool::ServingPool;
use crate::watches;

/// Time between two writes of a plan or status that are not urgent.
pub const WRITE_PERIOD: Duration = Duration::from_secs(15);
/// Time after which plans are made again, even if nothing changed.
const REPLAN: Duration = Duration::from_secs(15);

/// What a leader needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace of models, pools and plans.
    pub namespace: String,
    /// Whether Kubernetes nodes are watched, which needs the right to read them. Otherwise each node with a plan counts as working.
    pub watch_nodes: bool,
    /// Shortest time between two plannings.
    pub replan_min: Duration,
}

/// Copies of everything that is planned from, and the planner.
pub struct Leader<P> {
    client: Client,
    options: Options,
    models: Store<Model>,
    pools: Store<ServingPool>,
    plans: Store<NodePlan>,
    nodes: Option<Store<Node>>,
    changed: Arc<Notify>,
    planner: Mutex<Option<P>>,
    started: Instant,
}

impl<P: Planner> Leader<P> {
    /// Starts to watch. `stop` ends the watches.
    #[must_use]
    pub fn start(client: Client, options: Options, planner: P, stop: &CancellationToken) -> Arc<Self> {
        let changed = Arc::new(Notify::new());
        let namespace = &options.namespace;
        let (notify, token) = (|| Arc::clone(&changed), || stop.clone());
        let models = watches::copy(Api::namespaced(client.clone(), namespace), "Model", notify(), token());
        let pools =
            watches::copy(Api::namespaced(client.clone(), namespace), "ServingPool", notify(), token());
        let plans = watches::copy(Api::namespaced(client.clone(), namespace), "NodePlan", notify(), token());
        let nodes =
            options.watch_nodes.then(|| watches::copy(Api::all(client.clone()), "Node", notify(), token()));
        let planner = Mutex::new(Some(planner));
        let started = Instant::now();
        Arc::new(Self { client, options, models, pools, plans, nodes, changed, planner, started })
    }

    /// Waits until all copies are complete. False: a watch ended.
    async fn ready(&self) -> bool {
        let mut ready = self.models.wait_until_ready().await.is_ok()
            && self.pools.wait_until_ready().await.is_ok()
            && self.plans.wait_until_ready().await.is_ok();
        if let Some(nodes) = &self.nodes {
            ready = ready && nodes.wait_until_ready().await.is_ok();
        }
        ready
    }

    /// Leads until the term ends. Ends earlier if the planner fails.
    pub async fn lead(self: Arc<Self>, term: Term) {
        let ended = term.clone();
        tokio::select! {
            () = ended.ended() => {}
            () = self.work(term) => {}
        }
    }

    async fn work(&self, term: Term) {
        if !self.ready().await {
            return tracing::error!("the watches ended before their first list");
        }
        let mut writer = Writer::new(self.client.clone(), &self.options.namespace);
        let started = Instant::now();
        while term.is_valid() {
            let inputs = self.inputs(term.epoch());
            let Some(plans) = self.plan(&inputs).await else { return };
            measure(&plans);
            let wanted = wanted(&inputs, &plans, &term);
            let next = writer.write(started.elapsed(), wanted, &term).await;
            let wait = next.map_or(REPLAN, |at| at.saturating_sub(started.elapsed())).min(REPLAN);
            let changed = async {
                sleep(self.options.replan_min).await;
                self.changed.notified().await;
            };
            let _changed = timeout(wait.max(self.options.replan_min), changed).await;
        }
        // The time is over, as after a pause of the process. The election says so in a moment.
        term.ended().await;
    }

    /// One moment of all copies.
    fn inputs(&self, epoch: u64) -> Inputs {
        let known: Option<BTreeMap<String, Arc<Node>>> = self.nodes.as_ref().map(|nodes| {
            let nodes = nodes.state().into_iter();
            nodes.map(|node| (node.name_any(), node)).collect()
        });
        let mut nodes: Vec<_> =
            self.plans.state().iter().map(|plan| node_state(plan, known.as_ref())).collect();
        nodes.sort_by(|left, right| left.name.cmp(&right.name));
        let mut models = self.models.state();
        models.sort_by_key(|model| model.name_any());
        let mut pools = self.pools.state();
        pools.sort_by_key(|pool| pool.name_any());
        gauge!("tessera_fleet_nodes", "state" => "alive")
            .set(nodes.iter().filter(|node| node.alive).count() as f64);
        gauge!("tessera_fleet_nodes", "state" => "lost")
            .set(nodes.iter().filter(|node| !node.alive).count() as f64);
        gauge!("tessera_fleet_models").set(models.len() as f64);
        Inputs { epoch, now: self.started.elapsed(), pools, models, nodes }
    }

    /// Plans on a thread of its own: it may take seconds, while the Lease must be renewed.
    async fn plan(&self, inputs: &Inputs) -> Option<Plans> {
        let mut slot = self.planner.lock().await;
        let Some(mut planner) = slot.take() else {
            tracing::error!("the planner failed before; this process cannot lead");
            return None;
        };
        let inputs = inputs.clone();
        let started = Instant::now();
        let planned = spawn_blocking(move || {
            let plans = planner.plan(&inputs);
            (planner, plans)
        });
        match planned.await {
            Ok((planner, plans)) => {
                *slot = Some(planner);
                histogram!("tessera_fleet_plan_seconds").record(started.elapsed().as_secs_f64());
                Some(plans)
            }
            Err(error) => {
                tracing::error!(%error, "the planner failed");
                None
            }
        }
    }
}

/// Metrics of plans.
fn measure(plans: &Plans) {
    let Plans { need, moves, unplaced, problem, .. } = plans;
    gauge!("tessera_fleet_devices_wanted").set(need.devices_wanted as f64);
    gauge!("tessera_fleet_devices_used").set(need.devices_used as f64);
    gauge!("tessera_fleet_share").set(need.share);
    counter!("tessera_fleet_moves_total").increment(u64::try_from(moves.started).unwrap_or_default());
    gauge!("tessera_fleet_moves_waiting").set(moves.waiting as f64);
    gauge!("tessera_fleet_moves_blocked").set(moves.blocked as f64);
    gauge!("tessera_fleet_models_unplaced").set(unplaced.len() as f64);
    let failures = counter!("tessera_fleet_plan_failures_total");
    failures.increment(u64::from(problem.is_some()));
}

/// Everything that the API server should have.
fn wanted(inputs: &Inputs, plans: &Plans, term: &Term) -> Wanted {
    let now = Timestamp::now();
    let models: BTreeMap<String, &ModelSpec> =
        inputs.models.iter().map(|model| (model.name_any(), &model.spec)).collect();
    let known: BTreeMap<&str, &NodeState> =
        inputs.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
    let mut wanted = Wanted::default();
    for (node, plan) in &plans.nodes {
        let Some(state) = known.get(node.as_str()) else { continue };
        let mut spec = NodePlanSpec::from_core(plan, &models);
        spec.device_type = state.device_type().unwrap_or_default().to_owned();
        spec.epoch = i64::try_from(term.epoch()).unwrap_or(i64::MAX);
        wanted.plans.insert(node.clone(), spec);
    }
    for node in &inputs.nodes {
        // A new leader writes its epoch into every plan, so that no node accepts a late plan of the last one.
        // So is a model that the node does not have in its stored plan, until that plan is written.
        let has = |model: &str| node.plan.models.iter().any(|own| own.model == model);
        let new = plans.nodes.get(&node.name).into_iter().flat_map(|plan| &plan.models);
        let urgent = node.plan.epoch() != term.epoch() || new.into_iter().any(|planned| !has(&planned.model));
        wanted.stored_plans.insert(node.name.clone(), node.plan.clone());
        if urgent {
            wanted.urgent.insert(node.name.clone());
        }
    }
    for model in &inputs.models {
        let status = status::model(model, inputs, plans, now);
        wanted.models.insert(model.name_any(), (model.status.clone(), status));
    }
    for pool in &inputs.pools {
        let status = status::pool(pool, inputs, plans, term.identity(), now);
        wanted.pools.insert(pool.name_any(), (pool.status.clone(), status));
    }
    wanted
}
