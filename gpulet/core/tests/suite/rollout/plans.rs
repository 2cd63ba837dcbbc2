//! Devices, models and random plans of a kind that planners make: sound in units, time and memory.

use std::sync::Arc;

use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::plan::{Gpulet, Plan, Slot, Window};
use gpulet_core::problem::{Device, DeviceType, Problem, Workload};
use gpulet_core::profile::Profile;
use gpulet_core::rollout::Proposal;

use super::chance::Chance;

pub const WORKLOADS: [(&str, &str); 5] =
    [("ask", "bert"), ("ask-again", "bert"), ("see", "resnet"), ("hear", "whisper"), ("rank", "dlrm")];
pub const DEVICES: [&str; 3] = ["gpu0", "gpu1", "gpu2"];
pub const UNITS: u32 = 8;
pub const BASE_BYTES: u64 = 50;
pub const GPULET_BYTES: u64 = 10;

/// Bytes of a model's weights.
pub fn weights_bytes(model: &str) -> u64 {
    match model {
        "bert" => 120,
        "resnet" => 60,
        "whisper" => 150,
        _ => 200,
    }
}

/// Bytes of an arena.
pub fn arena_bytes(batch: u32) -> u64 {
    10 + 5 * u64::from(batch)
}

fn profile(model: &str) -> Profile {
    let weights = weights_bytes(model);
    let mut text = format!(
        r#"{{"profile":{{"version":1,"model":"{model}","device":"emulated","engine":"emulated","source":"synthesised","units_total":{UNITS},"weights_bytes":{weights}}}}}"#
    );
    for (batch, units) in [1, 2, 4, 8].into_iter().flat_map(|batch| [(batch, 1), (batch, UNITS)]) {
        let us = 1_000 * batch / units + 1_000;
        text += &format!(
            "\n{{\"cell\":{{\"batch\":{batch},\"units\":{units},\"p50_us\":{us},\"p95_us\":{us},\"p99_us\":{us},\"count\":100}}}}"
        );
    }
    for batch in 1..=8 {
        text += &format!("\n{{\"arena\":{{\"batch\":{batch},\"bytes\":{}}}}}", arena_bytes(batch));
    }
    Profile::read(&text).unwrap().remove(0)
}

/// Five workloads of four models on three devices that hold so much.
pub fn problem(memory_bytes: u64) -> Problem {
    let kind = Arc::new(DeviceType {
        name: "emulated".to_owned(),
        units: UNITS,
        sizes: (1..=UNITS).collect(),
        gpulets_max: 16,
        base_bytes: BASE_BYTES,
        gpulet_bytes: GPULET_BYTES,
    });
    let device = |name: &&str| Device {
        name: (*name).into(),
        device_type: Arc::clone(&kind),
        memory_bytes,
        fault_domain: (*name).to_owned(),
        cost: 1.0,
    };
    let workload = |(name, model): &(&str, &str)| Workload {
        name: (*name).to_owned(),
        model: (*model).to_owned(),
        tenant: String::new(),
        not_with: Vec::new(),
        slo_us: 1e6,
        rate: 10.0,
        headroom: 1.0,
        replicas_min: 0,
        batch_max: 8,
    };
    let profiles = ["bert", "resnet", "whisper", "dlrm"].map(profile);
    Problem::new(
        DEVICES.iter().map(device).collect(),
        WORKLOADS.iter().map(workload).collect(),
        profiles.to_vec(),
        Interference::NoInterference(NoInterference),
    )
    .unwrap()
}

pub fn slot(workload: &str, batch: u32, rate: f64) -> Slot {
    Slot { workload: workload.to_owned(), batch, budget_us: 1_000.0 * f64::from(batch) + 1_000.0, rate }
}

pub fn gpulet(device: &str, first_unit: u32, units: u32, slots: Vec<Slot>) -> Gpulet {
    let budgets: f64 = slots.iter().map(|slot| slot.budget_us).sum();
    let duty_us = (slots.len() > 1).then_some(budgets);
    Gpulet { device: device.into(), first_unit, units, window: None, duty_us, slots }
}

fn random_slot(chance: &mut Chance, not: Option<&str>) -> Slot {
    let others: Vec<&str> =
        WORKLOADS.iter().map(|(name, _)| *name).filter(|name| Some(*name) != not).collect();
    let batch = [1, 2, 4, 8][usize::try_from(chance.below(4)).unwrap()];
    slot(chance.pick(&others).unwrap(), batch, f64::from(u32::try_from(chance.between(5, 60)).unwrap()))
}

fn random_segment(chance: &mut Chance, device: &str, first_unit: u32, units: u32, into: &mut Vec<Gpulet>) {
    let first = random_slot(chance, None);
    match chance.below(10) {
        0..6 => into.push(gpulet(device, first_unit, units, vec![first])),
        6..8 => {
            let second = random_slot(chance, Some(&first.workload));
            into.push(gpulet(device, first_unit, units, vec![first, second]));
        }
        _ => {
            let half = 25_000.0 + 1_000.0 * f64::from(u32::try_from(chance.below(10)).unwrap());
            let second = random_slot(chance, None);
            for (slot, offset_us, length_us) in [(first, 0.0, half), (second, half, 50_000.0 - half)] {
                let window = Some(Window { period_us: 50_000.0, offset_us, length_us, limit_us: None });
                into.push(Gpulet { window, ..gpulet(device, first_unit, units, vec![slot]) });
            }
        }
    }
}

/// A plan that repartitions every device at random.
pub fn fresh(chance: &mut Chance) -> Plan {
    let mut gpulets = Vec::new();
    for device in DEVICES {
        let mut unit = 0;
        while unit < UNITS {
            let units = u32::try_from(chance.between(1, 6)).unwrap().min(UNITS - unit);
            if !chance.hits(250) {
                random_segment(chance, device, unit, units, &mut gpulets);
            }
            unit += units;
        }
    }
    Plan::new(gpulets)
}

/// Every gpulet moves to the next device.
pub fn moved_on(plan: Plan) -> Plan {
    let next = |name: &str| DEVICES[(DEVICES.iter().position(|known| *known == name).unwrap() + 1) % 3];
    let gpulets = plan.gpulets.into_iter();
    let moved = gpulets.map(|gpulet| Gpulet { device: next(&gpulet.device).into(), ..gpulet });
    Plan::new(moved.collect())
}

/// A random successor of a plan: unchanged, empty, or with other batches, gpulets or devices.
pub fn random(chance: &mut Chance, from: &Plan, problem: &Problem) -> (Plan, Proposal) {
    loop {
        let mut plan = from.clone();
        match chance.below(20) {
            0 => {}
            1 => plan = Plan::default(),
            2..6 => {
                for slot in plan.gpulets.iter_mut().flat_map(|gpulet| &mut gpulet.slots) {
                    let other = random_slot(chance, None);
                    (slot.batch, slot.rate) = (other.batch, other.rate);
                }
                let gpulets = plan.gpulets.into_iter().map(|gpulet| {
                    let budgets: f64 = gpulet.slots.iter().map(|slot| slot.budget_us).sum();
                    Gpulet { duty_us: gpulet.duty_us.map(|_| budgets), ..gpulet }
                });
                plan = Plan::new(gpulets.collect());
            }
            6..9 => plan = moved_on(plan),
            9..12 => {
                // One device is repartitioned.
                let device = *chance.pick(&DEVICES).unwrap();
                plan.gpulets.retain(|gpulet| gpulet.device != device);
                plan.gpulets
                    .extend(fresh(chance).gpulets.into_iter().filter(|gpulet| gpulet.device == device));
                plan = Plan::new(plan.gpulets);
            }
            _ => plan = fresh(chance),
        }
        if let Ok(proposal) = Proposal::new(&plan, problem) {
            return (plan, proposal);
        }
    }
}
