//! The nodes and models of a fleet as planners see them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::batch_times::BatchTimes;
use fleet_kubernetes::leader::inputs::{Inputs, NodeState, selects};
use fleet_kubernetes::resources::model::Model;
use fleet_kubernetes::resources::serving_pool::{PlannerPolicy, ServingPoolSpec};
use units::TimeSpan;

/// Models of one node at most, as in the definition of `NodePlan`.
pub(super) const MODELS_MAX: usize = 4_096;
/// Failure domain of a node.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// Device type of nodes without the label.
const ANY_TYPE: &str = "any";

/// A node that works and belongs to a pool.
#[derive(Clone, Debug)]
pub(super) struct Site<'a> {
    pub state: &'a NodeState,
    pub zone: String,
    pub device_type: String,
    /// Number of its pool.
    pub group: usize,
    pub devices: usize,
    /// Lanes that run batches at the same time.
    pub lanes: usize,
    /// Memory for models. `None`: not known.
    pub memory_bytes: Option<u64>,
    /// Whether its pool may use it: `ServingPool.spec.replicas` limits devices.
    pub is_used: bool,
}

/// A pool's settings. Without any pool, there is one with default settings.
pub(super) fn pools(inputs: &Inputs) -> Vec<ServingPoolSpec> {
    let pools: Vec<ServingPoolSpec> = inputs.pools.iter().map(|pool| pool.spec.clone()).collect();
    if pools.is_empty() { vec![ServingPoolSpec::standard()] } else { pools }
}

/// The nodes that work and belong to a pool. `lanes` are those that were heard of.
pub(super) fn sites<'a>(
    inputs: &'a Inputs,
    pools: &[ServingPoolSpec],
    lanes: &BTreeMap<String, usize>,
) -> Vec<Site<'a>> {
    let mut sites = Vec::new();
    for state in inputs.nodes.iter().filter(|node| node.alive) {
        let group = pools.iter().position(|pool| selects(&pool.node_selector, &state.labels));
        let Some(group) = group else { continue };
        let label = |name: &str| state.labels.get(name).cloned();
        let devices = state.status.devices.len().max(1);
        let bytes = state.status.devices.iter().map(|device| u64::try_from(device.memory_bytes?).ok());
        let memory_bytes = bytes.sum::<Option<u64>>().filter(|bytes| *bytes > 0);
        sites.push(Site {
            state,
            zone: label(ZONE_LABEL).unwrap_or_default(),
            device_type: state.device_type().unwrap_or(ANY_TYPE).to_owned(),
            group,
            devices,
            lanes: lanes.get(&state.name).copied().unwrap_or(devices),
            memory_bytes,
            is_used: true,
        });
    }
    for (group, pool) in pools.iter().enumerate() {
        let Some(most) = pool.replicas.and_then(|replicas| usize::try_from(replicas).ok()) else { continue };
        let mut own: Vec<&mut Site<'_>> = sites.iter_mut().filter(|site| site.group == group).collect();
        own.sort_by_key(|site| (std::cmp::Reverse(site.state.plan.models.len()), &site.state.name));
        let mut used = 0;
        for site in own {
            site.is_used = used + site.devices <= most;
            used += if site.is_used { site.devices } else { 0 };
        }
    }
    sites
}

/// A model with its numbers.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub resource: Arc<Model>,
    pub name: String,
    pub slo: Duration,
    pub copies_min: usize,
    pub copies_max: usize,
    pub bytes: u64,
    /// Factor on the rate that leaves the headroom of the pools.
    pub factor: f64,
    /// Rows a second to plan for, without headroom.
    pub rate: f64,
    /// Batch times by device type; empty: not known.
    pub times: BTreeMap<String, BatchTimes>,
    /// Nodes that it may be on, by name.
    pub nodes: BTreeSet<String>,
    /// A time of its resource that cannot be used: it is planned by copies alone, and its status says why.
    pub problem: Option<String>,
}

impl Wanted {
    /// A model, without what is measured. `None`: it has no name.
    pub(super) fn new(resource: &Arc<Model>, sites: &[Site<'_>], pools: &[ServingPoolSpec]) -> Option<Self> {
        let spec = &resource.spec;
        let selector = spec.placement.as_ref().map(|placement| placement.node_selector.clone());
        let selector = selector.unwrap_or_default();
        let number = |number: i32| usize::try_from(number).unwrap_or_default();
        let bytes = spec.memory_bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default();
        let fits = |site: &&Site<'_>| {
            site.is_used
                && selects(&selector, &site.state.labels)
                && site.memory_bytes.is_none_or(|memory| bytes <= memory)
        };
        let own: Vec<&Site<'_>> = sites.iter().filter(fits).collect();
        let headrooms = own.iter().filter_map(|site| pools.get(site.group)).map(|pool| pool.headroom);
        let slo = time("objective.slo", &spec.objective.slo);
        let profile = spec
            .profile
            .iter()
            .flat_map(|profile| [("profile.fixed", &profile.fixed), ("profile.perRow", &profile.per_row)]);
        let mut stated = profile.map(|(field, text)| time(field, text));
        Some(Self {
            problem: slo.clone().err().or_else(|| stated.find_map(Result::err)),
            name: resource.metadata.name.clone()?,
            resource: Arc::clone(resource),
            slo: slo.unwrap_or_default(),
            copies_min: number(spec.min_replicas),
            copies_max: spec.max_replicas.map_or(usize::MAX, number),
            bytes,
            factor: 1.0 / (1.0 - headrooms.fold(0.0, f64::max).clamp(0.0, 0.9)),
            rate: 0.0,
            times: BTreeMap::new(),
            nodes: own.into_iter().map(|site| site.state.name.clone()).collect(),
        })
    }

    /// The batch times that its user states, for any device type.
    pub(super) fn stated_times(&self) -> Option<BatchTimes> {
        let profile = self.resource.spec.profile.as_ref()?;
        Some(BatchTimes {
            fixed: time("profile.fixed", &profile.fixed).ok()?,
            per_row: time("profile.perRow", &profile.per_row).ok()?,
            max_batch: u32::try_from(profile.max_batch).unwrap_or(1).max(1),
        })
    }

    /// Whether the two must not be on the same node.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        let refuses = |own: &Self, other: &Self| {
            let placement = own.resource.spec.placement.as_ref();
            placement.is_some_and(|placement| placement.not_with.contains(&other.resource.spec.tenant))
        };
        self.name != other.name && (refuses(self, other) || refuses(other, self))
    }
}

/// A time of a resource. The API server does not refuse all that cannot be used, for example `0.0001us`.
fn time(field: &str, text: &str) -> Result<Duration, String> {
    text.parse::<TimeSpan>().map(|time| time.0).map_err(|error| format!("{field}: {error}"))
}

/// Whether any pool uses all its nodes.
pub(super) fn spreads(pools: &[ServingPoolSpec]) -> bool {
    pools.iter().any(|pool| pool.policy == PlannerPolicy::Spread)
}
