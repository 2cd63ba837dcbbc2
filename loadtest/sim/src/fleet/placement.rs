//! The planner's inputs, from a workload.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::node_plan::NodePlan;
use fleet_core::planner::{FleetNode, FleetPlan, Inputs, Sharing, plan};
use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::problem::{Device, DeviceType};
use gpulet_core::profile::{Cell, Header, Line, Profile, Source};
use workload::{Fleet, Workload};

/// Name of the device type of every lane.
const LANE: &str = "lane";

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
        let lane = Arc::new(DeviceType {
            name: LANE.to_owned(),
            units: 1,
            sizes: vec![1],
            gpulets_max: 1,
            base_bytes: 0,
            gpulet_bytes: 0,
        });
        let device = |number: u32| Device {
            name: format!("lane-{number}").into(),
            device_type: Arc::clone(&lane),
            memory_bytes: u64::from(fleet.models_per_node).div_ceil(u64::from(lanes)),
            fault_domain: String::new(),
            cost: 1.0,
        };
        let nodes = (0..).zip(names).map(|(number, name): (u32, &String)| FleetNode {
            name: name.clone(),
            zone: format!("zone-{}", number % fleet.zones),
            devices: (0..lanes).map(device).collect(),
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
        let lines = workload.models.iter().flat_map(|model| {
            let header = Line::Profile(Header {
                version: 1,
                model: model.name.clone(),
                model_sha256: None,
                device: LANE.to_owned(),
                engine: String::new(),
                source: Source::Synthesised,
                note: String::new(),
                shapes: Vec::new(),
                units_total: 1,
                weights_bytes: Some(1),
                load_us_per_row: 0.0,
            });
            let profile = model.profile.as_ref();
            let cells = profile.into_iter().flat_map(|profile| {
                workload::sizes(profile.max_batch()).map(|batch| {
                    let time = profile.time(batch) as f64 / 1e3;
                    let (p50_us, p95_us, p99_us) = (time, time, time);
                    Line::Cell(Cell {
                        batch,
                        units: 1,
                        p50_us,
                        p95_us,
                        p99_us,
                        count: 1,
                        left_out: None,
                        doubt: None,
                    })
                })
            });
            std::iter::once(header).chain(cells)
        });
        Ok(Self {
            nodes: nodes.collect(),
            models: models.collect::<Result<_, String>>()?,
            numbers: (0..)
                .zip(&workload.models)
                .map(|(number, model)| (model.name.clone(), number))
                .collect(),
            profiles: Profile::of_lines(lines).map_err(|error| error.to_string())?,
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
            sharing: Sharing::Lanes,
        };
        plan(&inputs, 1).map_err(|error| error.to_string())
    }

    /// The models of a plan, by number.
    pub(super) fn models(&self, plan: &NodePlan) -> Vec<u32> {
        plan.models.iter().filter_map(|planned| self.numbers.get(&planned.model).copied()).collect()
    }
}
