//! Problems for tests, in few words.

use std::collections::BTreeSet;
use std::sync::Arc;

use gpulet_core::interference::{DevicePower, Igniter, Interference};
use gpulet_core::placement::Policy;
use gpulet_core::plan::{Difference, Plan};
use gpulet_core::problem::{Device, DeviceType, Problem, Workload};
use gpulet_core::profile::{Cell, Header, Line, Profile, Source};
use gpulet_core::validate::{Validation, validate};
use proptest::prelude::*;

/// iGniter's four models on a V100, analytic; 40 units of 2.5 %.
pub fn igniter_profiles() -> Vec<Profile> {
    Profile::read(include_str!("../../examples/igniter-v100.jsonl")).unwrap()
}

pub fn igniter_profile(model: &str) -> Profile {
    igniter_profiles().into_iter().find(|profile| profile.model() == model).unwrap()
}

/// 40 units of 2.5 %, any number of them a gpulet.
pub fn v100() -> Arc<DeviceType> {
    Arc::new(DeviceType {
        name: "v100".to_owned(),
        units: 40,
        sizes: (1..=40).collect(),
        gpulets_max: 48,
        base_bytes: 0,
        gpulet_bytes: 0,
    })
}

/// `count` devices of one type with 16 GB each. Each is its own fault domain.
pub fn devices(device_type: &Arc<DeviceType>, count: usize) -> Vec<Device> {
    let of = |at| Device {
        name: format!("gpu{at:03}").into(),
        device_type: Arc::clone(device_type),
        memory_bytes: 16_000_000_000,
        fault_domain: format!("gpu{at:03}"),
        cost: 1.0,
    };
    (0..count).map(of).collect()
}

pub fn workload(model: &str, slo_ms: f64, rate: f64) -> Workload {
    Workload {
        name: format!("{model}-{slo_ms}"),
        model: model.to_owned(),
        tenant: String::new(),
        not_with: Vec::new(),
        slo_us: 1e3 * slo_ms,
        rate,
        headroom: 1.0,
        replicas_min: 1,
        batch_max: 32,
    }
}

pub fn igniter_interference() -> Interference {
    Interference::Igniter(Igniter { devices: [("v100".to_owned(), DevicePower::V100)].into() })
}

/// The workloads on V100s under iGniter's own model.
pub fn igniter_problem(workloads: Vec<Workload>, gpus: usize) -> Problem {
    Problem::new(devices(&v100(), gpus), workloads, igniter_profiles(), igniter_interference()).unwrap()
}

/// The three of iGniter's README.
pub fn igniter_three() -> Vec<Workload> {
    vec![workload("alexnet", 15.0, 500.0), workload("resnet50", 40.0, 400.0), workload("vgg19", 60.0, 200.0)]
}

/// The twelve whose rates and half objectives stand in the comparison script of iGniter's repository.
pub fn igniter_twelve() -> Vec<Workload> {
    let table = [
        ("alexnet", [(10.0, 1000.0), (15.0, 500.0), (20.0, 2000.0)]),
        ("resnet50", [(10.0, 400.0), (20.0, 600.0), (30.0, 200.0)]),
        ("vgg19", [(20.0, 300.0), (30.0, 400.0), (40.0, 200.0)]),
        ("ssd", [(30.0, 200.0), (40.0, 100.0), (50.0, 300.0)]),
    ];
    let of =
        |(model, loads): (&str, [(f64, f64); 3])| loads.map(|(slo_ms, rate)| workload(model, slo_ms, rate));
    table.into_iter().flat_map(of).collect()
}

/// 2 to `most` workloads of iGniter's models.
pub fn random_workloads(most: usize) -> impl Strategy<Value = Vec<Workload>> {
    prop::collection::vec((0_usize..4, 10.0_f64..60.0, 20.0_f64..600.0), 2..=most).prop_map(|all| {
        let models = ["alexnet", "resnet50", "vgg19", "ssd"];
        let of = |(at, (model, slo_ms, rate)): (usize, (usize, f64, f64))| Workload {
            name: format!("w{at:02}"),
            ..workload(models[model], slo_ms, rate)
        };
        all.into_iter().enumerate().map(of).collect()
    })
}

/// Units and batch of each workload's slots, in the problem's order.
pub fn shares(problem: &Problem, plan: &Plan) -> Vec<(u32, u32)> {
    let of = |workload: &Workload| -> Vec<(u32, u32)> {
        plan.slots_of(&workload.name).map(|(gpulet, slot)| (gpulet.units, slot.batch)).collect()
    };
    problem.workloads().iter().flat_map(of).collect()
}

/// No test of this process has reached a state that cannot happen.
pub fn assert_no_violations() {
    assert_eq!(invariant::violations(), []);
}

pub fn place(policy: &str, problem: &Problem) -> Plan {
    let placed = Policy::named(policy).unwrap().place(problem);
    assert_no_violations();
    placed.unwrap_or_else(|infeasible| panic!("{policy}: {infeasible}"))
}

/// Places and has it validated sound.
pub fn place_soundly(policy: &str, problem: &Problem) -> (Plan, Validation) {
    let plan = place(policy, problem);
    let validation = validate(problem, &plan);
    assert!(validation.is_sound(), "{policy}: {:#?}\n{plan:#?}", validation.violations);
    (plan, validation)
}

/// The devices on which two plans differ, in order.
pub fn changed_devices(before: &Plan, after: &Plan) -> Vec<String> {
    let difference = Difference::between(before, after);
    let changed = difference.changed.iter().map(|change| &change.after);
    let all = difference.new.iter().chain(&difference.removed).chain(changed);
    let devices: BTreeSet<String> = all.map(|gpulet| gpulet.device.to_string()).collect();
    devices.into_iter().collect()
}

/// A device type that is shared in time only.
pub fn whole_only() -> Arc<DeviceType> {
    let whole = DeviceType { name: "whole".to_owned(), units: 1, sizes: vec![1], ..(*v100()).clone() };
    Arc::new(whole)
}

/// The gpulet paper's sizes, in percent.
pub fn fifths() -> Arc<DeviceType> {
    let sizes = vec![20, 40, 50, 60, 80, 100];
    Arc::new(DeviceType { name: "fifths".to_owned(), units: 100, sizes, ..(*v100()).clone() })
}

/// The header of a profile for tests, on the device type with `units_total` units.
pub fn header(model: &str, units_total: u32) -> Header {
    Header {
        version: 1,
        model: model.to_owned(),
        model_sha256: None,
        device: if units_total == 1 { "whole" } else { "fifths" }.to_owned(),
        engine: "none".to_owned(),
        source: Source::TypedIn,
        note: String::new(),
        shapes: Vec::new(),
        units_total,
        weights_bytes: None,
        load_us_per_row: 0.0,
    }
}

/// A profile of (batch, units, microseconds).
pub fn table(header: Header, cells: impl IntoIterator<Item = (u32, u32, f64)>) -> Profile {
    let cell = |(batch, units, time)| {
        Line::Cell(Cell {
            batch,
            units,
            p50_us: time,
            p95_us: time,
            p99_us: time,
            count: 1,
            left_out: None,
            doubt: None,
            predicted: None,
        })
    };
    let lines = std::iter::once(Line::Profile(header)).chain(cells.into_iter().map(cell));
    Profile::of_lines(lines).unwrap().remove(0)
}
