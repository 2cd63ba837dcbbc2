//! What a plan of a fleet is made from.

use std::collections::{BTreeMap, BTreeSet};

use gpulet_core::interference::Interference;
use gpulet_core::plan::{Gpulet, Plan};
use gpulet_core::problem::{Device, Problem, ProblemError, Workload};
use gpulet_core::profile::{Profile, Quantile};

use crate::node_plan::NodePlan;

/// Separates the name of a node from the name of its device.
pub(super) const SEPARATOR: char = '/';

/// How the models of a node share its devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Each device is a lane, and all models of a node share its lanes.
    #[default]
    Lanes,
    /// Devices are partitioned into gpulets.
    Gpulets,
}

/// A machine of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetNode {
    /// Its name, without `/`.
    pub name: String,
    /// Its failure domain, for example a rack or a zone.
    pub zone: String,
    /// Its devices, by its own names.
    pub devices: Vec<Device>,
    /// Models that it holds at most.
    pub models_max: u32,
    /// Whether models may be placed on it. A node that is being emptied keeps nothing.
    pub accepts: bool,
}

/// On how many nodes models that share lanes are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// On all nodes, each with about the same load.
    #[default]
    All,
    /// On as few as the rates need. The other nodes hold spares.
    Few,
}

/// Where models may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Nodes of models that must not be on every node, by the name of the model.
    pub nodes: BTreeMap<String, BTreeSet<String>>,
    /// Nodes that have a model at most, spares included. Models that are not listed: as many as the rates need.
    pub copies_max: BTreeMap<String, usize>,
    /// Models that are never spares, for example because their memory is not known.
    pub no_spares: BTreeSet<String>,
    /// On how many nodes models are placed.
    pub spread: Spread,
}

impl Rules {
    /// Whether a model may be on a node.
    #[must_use]
    pub fn allow(&self, model: &str, node: &str) -> bool {
        self.nodes.get(model).is_none_or(|nodes| nodes.contains(node))
    }
}

/// What a plan of a fleet is made from.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// How models share devices.
    pub sharing: Sharing,
    /// The machines that are there.
    pub nodes: &'a [FleetNode],
    /// The models, with the rates to plan for.
    pub models: &'a [Workload],
    /// One profile of each model for each device type that it may run on.
    pub profiles: &'a [Profile],
    /// How batches slow each other down.
    pub interference: &'a Interference,
    /// The plans in force.
    pub in_force: &'a BTreeMap<String, NodePlan>,
    /// Where models may be.
    pub rules: &'a Rules,
}

impl<'a> Inputs<'a> {
    /// The machines that accept models.
    pub(super) fn accepting(&self) -> impl Iterator<Item = &'a FleetNode> {
        self.nodes.iter().filter(|node| node.accepts)
    }

    /// The devices of all nodes that accept models, by names that say the node.
    pub(super) fn devices(&self) -> Vec<Device> {
        let of = |node: &FleetNode, device: &Device| Device {
            name: format!("{}{SEPARATOR}{}", node.name, device.name.as_str()).into(),
            fault_domain: node.zone.clone(),
            ..device.clone()
        };
        self.accepting().flat_map(|node| node.devices.iter().map(move |device| of(node, device))).collect()
    }

    /// The plans in force as one plan. `None` if no plan has gpulets.
    pub(super) fn current(&self) -> Option<Plan> {
        let of = |(node, gpulet): (&String, &Gpulet)| Gpulet {
            device: format!("{node}{SEPARATOR}{}", gpulet.device.as_str()).into(),
            ..gpulet.clone()
        };
        let plans = self.accepting().filter_map(|node| self.in_force.get_key_value(&node.name));
        let gpulets =
            plans.flat_map(|(node, plan)| plan.gpulets.iter().map(move |gpulet| of((node, gpulet))));
        let plan = Plan::new(gpulets.collect());
        (!plan.gpulets.is_empty()).then_some(plan)
    }

    /// The problem with `share` of every rate.
    pub(super) fn problem(&self, devices: Vec<Device>, share: f64) -> Result<Problem, ProblemError> {
        let of = |model: &Workload| Workload { rate: model.rate * share, ..model.clone() };
        let models = self.models.iter().map(of).collect();
        Problem::new(devices, models, self.profiles.to_vec(), self.interference.clone())
    }

    /// Devices for the least device time that serves the rates: every model in the batch and share with the least device time a
    /// row, of those of which two fit into its objective.
    pub(super) fn devices_least(&self) -> f64 {
        self.devices_least_on(self.models, self.accepting())
    }

    /// The same for some models, on some nodes.
    pub(super) fn devices_least_on<'b>(
        &self,
        models: &[Workload],
        nodes: impl Iterator<Item = &'b FleetNode>,
    ) -> f64 {
        let devices = nodes.flat_map(|node| &node.devices);
        let types: BTreeSet<&str> = devices.map(|device| device.device_type.name.as_str()).collect();
        let mut profiles: BTreeMap<&str, Vec<&Profile>> = BTreeMap::new();
        for profile in self.profiles.iter().filter(|profile| types.contains(profile.device())) {
            profiles.entry(profile.model()).or_default().push(profile);
        }
        let of = |workload: &Workload| {
            let known = profiles.get(workload.model.as_str()).into_iter().flatten();
            let least =
                known.map(|profile| least_device_time_us(profile, workload)).fold(f64::INFINITY, f64::min);
            if least.is_finite() { workload.wanted() * least / 1e6 } else { 0.0 }
        };
        models.iter().map(of).sum()
    }
}

fn least_device_time_us(profile: &Profile, workload: &Workload) -> f64 {
    let (least, most) = profile.batches();
    let (from, to) = profile.shares();
    let sizes =
        (least..=most.min(workload.batch_max)).flat_map(|batch| (from..=to).map(move |units| (batch, units)));
    let time = |(batch, units): (u32, u32)| {
        let time = profile.latency_us(Quantile::P99, batch, units).ok()?;
        let fits = batch == 1 || 2.0 * time <= workload.slo_us;
        fits.then(|| time / f64::from(batch) * f64::from(units) / f64::from(profile.units_total()))
    };
    sizes.filter_map(time).fold(f64::INFINITY, f64::min)
}
