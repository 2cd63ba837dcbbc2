//! The planner's inputs, from a workload.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::moves::{MoveNode, Moves, Step, Transition};
use fleet_core::node_plan::NodePlan;
use fleet_core::planner::{FleetNode, FleetPlan, Inputs, Rules, Sharing, plan};
use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::problem::{Device, DeviceType};
use gpulet_core::profile::Profile;
use workload::{Fleet, Workload};

/// Copies that are started in a minute at most: the default of a `ServingPool`.
const MOVES_PER_MINUTE: usize = 6;

/// A lane is a device of one unit. Memory is counted in models.
#[derive(Debug)]
pub(super) struct Placement {
    nodes: Vec<FleetNode>,
    models: Vec<gpulet_core::problem::Workload>,
    numbers: BTreeMap<String, u32>,
    profiles: Vec<Profile>,
    interference: Interference,
}

impl Placement {
    pub(super) fn new(workload: &Workload, fleet: &Fleet, names: &[String]) -> Result<Self, String> {
        let lanes = workload.lanes.count / fleet.nodes;
        let types: Vec<Arc<DeviceType>> =
            fleet.types.iter().map(|one| Arc::new(DeviceType::undivided(&one.name))).collect();
        let device = |lane: u32, (cost, device_type): (f64, &Arc<DeviceType>)| Device {
            name: format!("lane-{lane}").into(),
            device_type: Arc::clone(device_type),
            memory_bytes: u64::from(fleet.models_per_node).div_ceil(u64::from(lanes)),
            fault_domain: String::new(),
            cost,
        };
        let of_node = |node: u32| {
            let number = fleet.type_of(node);
            let device_type = fleet.types.get(number).map(|one| one.cost).zip(types.get(number));
            (0..lanes).filter_map(move |lane| Some((lane, device_type?)))
        };
        let nodes = (0..).zip(names).map(|(number, name): (u32, &String)| FleetNode {
            name: name.clone(),
            zone: format!("zone-{}", number % fleet.zones),
            devices: of_node(number).map(|(lane, device_type)| device(lane, device_type)).collect(),
            models_max: fleet.models_per_node,
            accepts: true,
        });
        let models = workload.models.iter().map(|model| {
            let profile = model.profiled().map_err(|error| error.to_string())?;
            Ok(gpulet_core::problem::Workload {
                name: model.name.clone(),
                model: model.name.clone(),
                tenant: String::new(),
                not_with: Vec::new(),
                slo_us: model.slo as f64 / 1e3,
                rate: model.mean_rate() * model.rows.mean(),
                headroom: 1.0,
                replicas_min: 1,
                batch_max: profile.max_batch(),
            })
        });
        let on_all = workload.models.iter().flat_map(|model| fleet.types.iter().map(move |one| (model, one)));
        let profiles = on_all.map(|(model, one)| {
            let profile = model.profiled().map_err(|error| error.to_string())?;
            let times = workload::sizes(profile.max_batch());
            let speed = one.speed_of(&model.name);
            let times = times.map(|batch| (batch, profile.time(batch) as f64 / 1e3 / speed));
            Profile::undivided(&model.name, &one.name, 1, times).map_err(|error| error.to_string())
        });
        Ok(Self {
            nodes: nodes.collect(),
            models: models.collect::<Result<_, String>>()?,
            numbers: (0..)
                .zip(&workload.models)
                .map(|(number, model)| (model.name.clone(), number))
                .collect(),
            profiles: profiles.collect::<Result<_, String>>()?,
            interference: Interference::NoInterference(NoInterference),
        })
    }

    /// A plan for the nodes that are there.
    pub(super) fn plan(
        &self,
        known: &[bool],
        in_force: &BTreeMap<String, NodePlan>,
    ) -> Result<FleetPlan, String> {
        let nodes = self.nodes.iter().zip(known).filter(|(_, known)| **known).map(|(node, _)| node.clone());
        let nodes: Vec<FleetNode> = nodes.collect();
        let inputs = Inputs {
            nodes: &nodes,
            models: &self.models,
            profiles: &self.profiles,
            interference: &self.interference,
            in_force,
            rules: &Rules::default(),
            sharing: Sharing::Lanes,
        };
        plan(&inputs, 1).map_err(|error| error.to_string())
    }

    /// One step towards plans. `nodes` are those that work, with the models that they are ready to serve.
    pub(super) fn step(
        &self,
        moves: &mut Moves,
        now: u64,
        nodes: BTreeMap<String, BTreeSet<String>>,
        (target, in_force): (&BTreeMap<String, NodePlan>, &BTreeMap<String, NodePlan>),
    ) -> Step {
        let models_max = self.nodes.first().map_or(0, |node| node.models_max as usize);
        let node = |(name, ready): (String, BTreeSet<String>)| {
            let node = MoveNode { models_max, memory_bytes: u64::MAX, ready, ..MoveNode::default() };
            (name, node)
        };
        let transition = Transition {
            nodes: &nodes.into_iter().map(node).collect(),
            models: &BTreeMap::new(),
            target,
            per_minute: &[MOVES_PER_MINUTE],
            excludes: &|_, _| false,
            allows: &|_, _| true,
        };
        moves.step(Duration::from_nanos(now), in_force, &transition)
    }

    /// The models of a plan, by number.
    pub(super) fn models(&self, plan: &NodePlan) -> Vec<u32> {
        plan.models.iter().filter_map(|planned| self.numbers.get(&planned.model).copied()).collect()
    }
}
