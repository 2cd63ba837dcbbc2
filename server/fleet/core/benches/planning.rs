//! Measures how long the planner of shared lanes takes: `cargo bench -p fleet-core --bench planning`. Prints one line per case. There are
//! no thresholds, because machines differ.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark has a clock and fails by panicking"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use fleet_core::node_plan::NodePlan;
use fleet_core::planner::{FleetNode, FleetPlan, Inputs, Rules, Sharing, plan};
use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::problem::{Device, DeviceType, Workload};
use gpulet_core::profile::Profile;

const DEVICES_PER_NODE: usize = 8;
const MODELS_PER_NODE: u32 = 64;
/// Models of a node whose memory does not limit them.
const MODELS_MANY: u32 = 4_096;

struct Fleet {
    nodes: Vec<FleetNode>,
    models: Vec<Workload>,
    profiles: Vec<Profile>,
}

/// Models whose times and objectives are spread over a factor of a hundred, and devices that they keep busy for about two thirds.
fn fleet(models: usize, devices: usize, models_max: u32) -> Fleet {
    let spread = |at: usize, prime: usize| (at.wrapping_mul(prime) % 10_007) as f64 / 10_007.0;
    let single_us = |at: usize| 300.0 * 100.0_f64.powf(spread(at, 7_919));
    let lane = Arc::new(DeviceType::undivided("lane"));
    let device = |number: usize| Device {
        name: format!("lane-{number}").into(),
        device_type: Arc::clone(&lane),
        memory_bytes: 1 << 40,
        fault_domain: String::new(),
        cost: 1.0,
    };
    let node = |number: usize| FleetNode {
        name: format!("node-{number:05}"),
        zone: format!("zone-{}", number % 3),
        devices: (0..DEVICES_PER_NODE).map(device).collect(),
        models_max,
        accepts: true,
    };
    let share = 0.65 * devices as f64 / models as f64;
    let name = |at: usize| format!("m{at:05}");
    let model = |at: usize| Workload {
        name: name(at),
        model: name(at),
        tenant: String::new(),
        not_with: Vec::new(),
        slo_us: (4.0 + 8.0 * spread(at, 104_729)) * single_us(at),
        rate: share * (0.2 + 1.6 * spread(at, 15_485_863)) * 3e6 / single_us(at),
        headroom: 1.0,
        replicas_min: 1,
        batch_max: 16,
    };
    let profile = |at: usize| {
        let time = |batch: u32| single_us(at) * (1.0 + 0.25 * f64::from(batch - 1));
        Profile::undivided(&name(at), "lane", 100 << 20, [1, 2, 4, 8, 16].map(|batch| (batch, time(batch))))
            .unwrap()
    };
    Fleet {
        nodes: (0..devices / DEVICES_PER_NODE).map(node).collect(),
        models: (0..models).map(model).collect(),
        profiles: (0..models).map(profile).collect(),
    }
}

fn measure(name: &str, fleet: &Fleet, in_force: &BTreeMap<String, NodePlan>) -> FleetPlan {
    let inputs = Inputs {
        sharing: Sharing::Lanes,
        nodes: &fleet.nodes,
        models: &fleet.models,
        profiles: &fleet.profiles,
        interference: &Interference::NoInterference(NoInterference),
        in_force,
        rules: &Rules::default(),
    };
    let start = Instant::now();
    let plan = plan(&inputs, 1).unwrap();
    println!(
        "{name:44} {:>9.2?}  wants {} devices, at least {:.0}; {} copies to load; can serve {:.2} times the rates",
        start.elapsed(),
        plan.devices_wanted,
        plan.devices_least,
        plan.loads,
        plan.share
    );
    plan
}

fn main() {
    for (models, devices) in [(1_000, 1_000), (10_000, 10_000)] {
        let ample = fleet(models, devices, MODELS_MANY);
        measure(&format!("{models} models, {devices} devices, ample memory"), &ample, &BTreeMap::new());
        let mut fleet = fleet(models, devices, MODELS_PER_NODE);
        let first = measure(&format!("{models} models, {devices} devices"), &fleet, &BTreeMap::new());
        measure(&format!("{models} models, {devices} devices, unchanged"), &fleet, &first.nodes);
        let rate = fleet.models.get_mut(7).map(|model| &mut model.rate).unwrap();
        *rate *= 2.0;
        measure(&format!("{models} models, {devices} devices, one rate x 2"), &fleet, &first.nodes);
        fleet.nodes.remove(3);
        measure(&format!("{models} models, {devices} devices, a node less"), &fleet, &first.nodes);
    }
}
