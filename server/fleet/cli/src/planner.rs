//! Plans a fleet from its resources and from what servers and pickers say.
//!
//! Models with a rate and known batch times are planned together by `fleet_core::planner`. The others have `minReplicas` copies, which
//! stay where they are. The plans in force approach the result by `fleet_core::moves`.

mod site;
mod sticky;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::batch_times::{BatchTimes, Measured};
use fleet_core::moves::{MoveModel, MoveNode, Moves, Step, Transition};
use fleet_core::node_plan::{NodePlan, PlannedModel, Role};
use fleet_core::planner::{self as core, FleetNode, FleetPlan, Rules, Sharing, Spread};
use fleet_core::traffic::Traffic;
use fleet_kubernetes::leader::inputs::{Inputs, MoveCounts, Need, Planner, Plans};
use fleet_kubernetes::resources::serving_pool::ServingPoolSpec;
use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::problem::{Device, DeviceType, Workload};

use self::site::{MODELS_MAX, Site, Wanted};
use self::sticky::Placed;
use crate::observed::{Observed, Snapshot};

/// Plans by measured rates and batch times.
#[derive(Debug, Default)]
pub struct FleetPlanner {
    observed: Observed,
    epoch: u64,
    traffic: Traffic,
    measured: Measured,
    /// Lanes of nodes, as last heard.
    lanes: BTreeMap<String, usize>,
    moves: Moves,
    /// Why the last plan failed.
    problem: Option<String>,
}

impl FleetPlanner {
    /// Plans from what is observed.
    pub fn new(observed: Observed) -> Self {
        Self { observed, ..Self::default() }
    }
}

impl Planner for FleetPlanner {
    fn plan(&mut self, inputs: &Inputs) -> Plans {
        let stored: BTreeMap<String, NodePlan> =
            inputs.nodes.iter().map(|node| (node.name.clone(), node.plan.to_core())).collect();
        if self.epoch != inputs.epoch {
            self.epoch = inputs.epoch;
            self.moves = Moves::new(stored.clone());
        }
        let snapshot = self.observed.snapshot();
        for (node, models) in &snapshot.nodes {
            let lanes = models.values().map(|(view, _)| view.lanes as usize).max().unwrap_or_default();
            if lanes > 0 {
                self.lanes.insert(node.clone(), lanes);
            }
        }
        let pools = site::pools(inputs);
        let sites = site::sites(inputs, &pools, &self.lanes);
        let in_force: BTreeMap<String, NodePlan> = sites
            .iter()
            .filter_map(|site| {
                let name = &site.state.name;
                let plan = self.moves.plans().get(name).or_else(|| stored.get(name))?;
                Some((name.clone(), plan.clone()))
            })
            .collect();
        let models = self.models(inputs, &sites, &pools, &snapshot, &in_force);
        let kept = kept(&models, &sites, &snapshot, &in_force);
        let target = target(&models, &kept, &sites, &pools, &in_force);
        if self.problem != target.problem {
            self.problem.clone_from(&target.problem);
            match &target.problem {
                Some(problem) => {
                    tracing::warn!(problem, "models cannot be planned together; they keep their copies")
                }
                None => tracing::info!("models can be planned together again"),
            }
        }
        let step = self.approach(inputs, &models, &sites, &pools, (&target.plans, &stored));
        answer(target, step, &models, &sites)
    }
}

impl FleetPlanner {
    /// The models with their rates and batch times.
    fn models(
        &mut self,
        inputs: &Inputs,
        sites: &[Site<'_>],
        pools: &[ServingPoolSpec],
        snapshot: &Snapshot,
        in_force: &BTreeMap<String, NodePlan>,
    ) -> Vec<Wanted> {
        let types: BTreeMap<&str, &str> =
            sites.iter().map(|site| (site.state.name.as_str(), site.device_type.as_str())).collect();
        let heard = snapshot.nodes.iter().flat_map(|(node, models)| {
            let device_type = types.get(node.as_str()).copied();
            models.iter().filter_map(move |(model, (view, _))| {
                Some((model.as_str(), device_type?, BatchTimes::measured(view)?))
            })
        });
        self.measured.observe(heard);
        let mut models: Vec<Wanted> =
            inputs.models.iter().filter_map(|model| Wanted::new(model, sites, pools)).collect();
        for model in &mut models {
            if snapshot.follows_nodes || !snapshot.demand.is_empty() {
                self.observe(inputs, model, snapshot, in_force);
            }
            let stated = model.resource.spec.rate.filter(|rate| rate.is_finite()).unwrap_or(0.0);
            model.rate = self.traffic.rate(&model.name).max(stated);
            model.times = match (self.measured.of(&model.name), model.stated_times()) {
                _ if model.problem.is_some() => BTreeMap::new(),
                (Some(measured), _) => measured.clone(),
                (None, Some(stated)) => types.values().map(|name| ((*name).to_owned(), stated)).collect(),
                (None, None) => BTreeMap::new(),
            };
        }
        let names: BTreeSet<&str> = models.iter().map(|model| model.name.as_str()).collect();
        let exists = |name: &str| names.contains(name);
        self.traffic.retain(exists);
        self.measured.retain(exists);
        models
    }

    /// Measures the rate of a model. Nodes that are not heard count with the rate of their plan.
    fn observe(
        &mut self,
        inputs: &Inputs,
        model: &Wanted,
        snapshot: &Snapshot,
        in_force: &BTreeMap<String, NodePlan>,
    ) {
        let name = model.name.as_str();
        let planned = |plan: &NodePlan| plan.model(name).map_or(0.0, |planned| planned.rate / model.factor);
        // A new leader starts with the rates of its predecessor.
        let before: f64 = in_force.values().map(planned).sum();
        if !self.traffic.knows(name) && before > 0.0 {
            return self.traffic.observe(inputs.now, name, before);
        }
        let of_node = |(node, plan): (&String, &NodePlan)| match snapshot.nodes.get(node) {
            Some(models) => models.get(name).map_or(0.0, |(_, rate)| *rate),
            None if snapshot.follows_nodes => planned(plan),
            None => 0.0,
        };
        let served: f64 = in_force.iter().map(of_node).sum();
        let asked: f64 = snapshot.demand.values().filter_map(|models| models.get(name)).sum();
        self.traffic.observe(inputs.now, name, served.max(asked));
    }

    /// One step from the plans in force towards those that are wanted.
    fn approach(
        &mut self,
        inputs: &Inputs,
        models: &[Wanted],
        sites: &[Site<'_>],
        pools: &[ServingPoolSpec],
        (target, stored): (&BTreeMap<String, NodePlan>, &BTreeMap<String, NodePlan>),
    ) -> Step {
        let node = |site: &Site<'_>| {
            let status = &site.state.status;
            let node = MoveNode {
                group: site.group,
                models_max: MODELS_MAX,
                memory_bytes: site.memory_bytes.unwrap_or(u64::MAX),
                ready: status.ready.iter().cloned().collect(),
                refused: status.refusals.iter().map(|refusal| refusal.model.clone()).collect(),
            };
            (site.state.name.clone(), node)
        };
        let by_name: BTreeMap<&str, &Wanted> =
            models.iter().map(|model| (model.name.as_str(), model)).collect();
        let number = |model: &Wanted| MoveModel { bytes: model.bytes, copies_min: model.copies_min };
        let per_minute: Vec<usize> =
            pools.iter().map(|pool| usize::try_from(pool.moves_per_minute).unwrap_or(1)).collect();
        let transition = Transition {
            nodes: &sites.iter().map(node).collect(),
            models: &models.iter().map(|model| (model.name.clone(), number(model))).collect(),
            target,
            per_minute: &per_minute,
            excludes: &|left, right| {
                by_name.get(left).zip(by_name.get(right)).is_some_and(|(left, right)| left.excludes(right))
            },
            allows: &|model, node| by_name.get(model).is_some_and(|model| model.nodes.contains(node)),
        };
        self.moves.step(inputs.now, stored, &transition)
    }
}

/// Models that have copies on nodes which were not heard yet, and whose batch times are not known. A new leader keeps these copies.
fn kept(
    models: &[Wanted],
    sites: &[Site<'_>],
    snapshot: &Snapshot,
    in_force: &BTreeMap<String, NodePlan>,
) -> BTreeSet<String> {
    let is_open = |model: &Wanted| {
        let silent = sites.iter().filter(|site| !snapshot.nodes.contains_key(&site.state.name));
        let mut plans = silent.filter_map(|site| in_force.get(&site.state.name));
        snapshot.follows_nodes
            && model.times.is_empty()
            && plans.any(|plan| plan.model(&model.name).is_some())
    };
    models.iter().filter(|model| is_open(model)).map(|model| model.name.clone()).collect()
}

/// The plans that are wanted in the end.
#[derive(Debug, Default)]
struct Target {
    plans: BTreeMap<String, NodePlan>,
    unplaced: BTreeMap<String, String>,
    copies_most: usize,
    /// What the planner answered. `None`: no model can be planned.
    planned: Option<FleetPlan>,
    problem: Option<String>,
}

fn target(
    models: &[Wanted],
    kept: &BTreeSet<String>,
    sites: &[Site<'_>],
    pools: &[ServingPoolSpec],
    in_force: &BTreeMap<String, NodePlan>,
) -> Target {
    let is_known = |model: &&Wanted| model.rate > 0.0 && !model.times.is_empty() && !model.nodes.is_empty();
    let (known, others): (Vec<&Wanted>, Vec<&Wanted>) = models.iter().partition(is_known);
    let placed = sticky::place(&others, kept, sites, in_force);
    if known.is_empty() {
        return with(placed, None, None);
    }
    match planned(&known, &others, &placed, sites, pools, in_force) {
        Ok(planned) => with(placed, Some(planned), None),
        Err(problem) => {
            let all: Vec<&Wanted> = models.iter().collect();
            let kept = models.iter().map(|model| model.name.clone()).collect();
            with(sticky::place(&all, &kept, sites, in_force), None, Some(problem))
        }
    }
}

/// The plans of both planners together.
fn with(placed: Placed, planned: Option<FleetPlan>, problem: Option<String>) -> Target {
    let Placed { mut plans, unplaced, copies_most } = placed;
    for (node, plan) in planned.iter().flat_map(|planned| &planned.nodes) {
        let own = plans.entry(node.clone()).or_default();
        own.models.extend(plan.models.iter().cloned());
        own.gpulets.clone_from(&plan.gpulets);
    }
    Target { plans, unplaced, copies_most, planned, problem }
}

/// Plans models with rates and batch times in the space that the others leave.
fn planned(
    known: &[&Wanted],
    others: &[&Wanted],
    placed: &Placed,
    sites: &[Site<'_>],
    pools: &[ServingPoolSpec],
    in_force: &BTreeMap<String, NodePlan>,
) -> Result<FleetPlan, String> {
    let others: BTreeMap<&str, &Wanted> = others.iter().map(|model| (model.name.as_str(), *model)).collect();
    let held = |node: &str| -> Vec<&Wanted> {
        let models = placed.plans.get(node).into_iter().flat_map(|plan| &plan.models);
        models.filter_map(|planned| others.get(planned.model.as_str()).copied()).collect()
    };
    let cost = |site: &Site<'_>| pools.get(site.group).map_or(1.0, |pool| pool.device_cost);
    let nodes: Vec<FleetNode> =
        sites.iter().map(|site| fleet_node(site, cost(site), &held(&site.state.name))).collect();
    let mut rules =
        Rules { spread: if site::spreads(pools) { Spread::All } else { Spread::Few }, ..Rules::default() };
    let knows_memory = sites.iter().any(|site| site.memory_bytes.is_some());
    for model in known {
        let mut allowed = model.nodes.clone();
        allowed.retain(|node| !held(node).iter().any(|other| model.excludes(other)));
        if sites.iter().any(|site| site.is_used && !allowed.contains(&site.state.name)) {
            rules.nodes.insert(model.name.clone(), allowed);
        }
        if model.copies_max < usize::MAX {
            rules.copies_max.insert(model.name.clone(), model.copies_max);
        }
        if !knows_memory || model.bytes == 0 {
            rules.no_spares.insert(model.name.clone());
        }
    }
    let mut profiles = Vec::new();
    for model in known {
        for (device_type, times) in &model.times {
            let profile = times.profile(&model.name, device_type, model.bytes);
            profiles.push(profile.map_err(|error| format!("model `{}`: {error}", model.name))?);
        }
    }
    let models: Vec<Workload> = known.iter().map(|model| workload(model)).collect();
    let inputs = core::Inputs {
        sharing: Sharing::Lanes,
        nodes: &nodes,
        models: &models,
        profiles: &profiles,
        interference: &Interference::NoInterference(NoInterference),
        in_force,
        rules: &rules,
    };
    core::plan(&inputs, 0).map_err(|problem| problem.to_string())
}

/// A node with the space that models leave which are placed already.
fn fleet_node(site: &Site<'_>, device_cost: f64, held: &[&Wanted]) -> FleetNode {
    let lanes = site.lanes.max(1);
    let taken: u64 = held.iter().map(|model| model.bytes).sum();
    let free = site.memory_bytes.unwrap_or(u64::MAX / 2).saturating_sub(taken);
    let device_type = Arc::new(DeviceType::undivided(&site.device_type));
    let device = |number: usize| Device {
        name: format!("lane-{number}").into(),
        device_type: Arc::clone(&device_type),
        // All models of a node share its memory.
        memory_bytes: if number == 0 { free } else { 0 },
        fault_domain: String::new(),
        cost: device_cost * site.devices as f64 / lanes as f64,
    };
    FleetNode {
        name: site.state.name.clone(),
        zone: site.zone.clone(),
        devices: (0..lanes).map(device).collect(),
        models_max: u32::try_from(MODELS_MAX.saturating_sub(held.len())).unwrap_or(u32::MAX),
        accepts: site.is_used,
    }
}

fn workload(model: &Wanted) -> Workload {
    let spec = &model.resource.spec;
    Workload {
        name: model.name.clone(),
        model: model.name.clone(),
        tenant: spec.tenant.clone(),
        not_with: spec.placement.as_ref().map(|placement| placement.not_with.clone()).unwrap_or_default(),
        slo_us: model.slo.as_secs_f64() * 1e6,
        rate: model.rate,
        headroom: model.factor,
        replicas_min: u32::try_from(model.copies_min).unwrap_or(u32::MAX),
        batch_max: model.times.values().map(|times| times.max_batch).max().unwrap_or(1),
    }
}

/// What the leader writes and measures.
fn answer(target: Target, step: Step, models: &[Wanted], sites: &[Site<'_>]) -> Plans {
    let Target { plans, mut unplaced, copies_most, planned, problem } = target;
    let mut serving: BTreeMap<&str, usize> = BTreeMap::new();
    let is_serving = |planned: &&PlannedModel| planned.role == Role::Serving;
    for planned in plans.values().flat_map(|plan| &plan.models).filter(is_serving) {
        *serving.entry(&planned.model).or_default() += 1;
    }
    for model in models {
        if let Some(problem) = &model.problem {
            unplaced.insert(model.name.clone(), problem.clone());
        }
        let copies = serving.get(model.name.as_str()).copied().unwrap_or_default();
        if copies < model.copies_min {
            let fit = model.nodes.len();
            let why = match fit < model.copies_min {
                true => format!("{fit} nodes fit its constraints"),
                false => format!("{fit} nodes fit its constraints, of which {copies} have space in the plan"),
            };
            let problem = format!("minReplicas is {}, and {why}", model.copies_min);
            unplaced.entry(model.name.clone()).or_insert(problem);
        }
    }
    let devices: usize = sites.iter().map(|site| site.devices).sum();
    let lanes: usize = sites.iter().map(|site| site.lanes.max(1)).sum();
    // Planners count lanes; people and autoscalers count devices.
    let per_lane = if lanes == 0 { 1.0 } else { devices as f64 / lanes as f64 };
    let per_node = if sites.is_empty() { 1.0 } else { devices as f64 / sites.len() as f64 };
    let by_load = planned.as_ref().map_or(0, |planned| planned.devices_wanted);
    let by_load = (by_load as f64 * per_lane).ceil() as usize;
    let by_copies = (copies_most as f64 * per_node).ceil() as usize;
    let is_used = |site: &&Site<'_>| {
        plans.get(&site.state.name).is_some_and(|plan| plan.models.iter().any(|planned| is_serving(&planned)))
    };
    let share = match (&planned, &problem) {
        (_, Some(_)) => 0.0,
        (Some(planned), None) => planned.share,
        (None, None) => 1.0,
    };
    Plans {
        need: Need {
            devices_wanted: by_load.max(by_copies),
            devices_used: sites.iter().filter(is_used).map(|site| site.devices).sum(),
            devices_usable: devices,
            share,
            devices_busy: planned.map_or(0.0, |planned| planned.lanes_busy * per_lane),
        },
        moves: MoveCounts { started: step.started, waiting: step.waiting, blocked: step.blocked },
        nodes: step.plans,
        unplaced,
        problem,
    }
}

#[cfg(test)]
mod tests;
