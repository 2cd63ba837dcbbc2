//! The validator of plans: a sound plan, and every kind of violation.

use std::sync::Arc;

use gpulet_core::interference::{Gpulet as Regression, Interference, NoInterference};
use gpulet_core::plan::{Gpulet, Plan, Slot, Window};
use gpulet_core::problem::{Device, DeviceType, Problem, Workload};
use gpulet_core::profile::{ArenaLine, Line, Profile, Utilisation, UtilisationLine};
use gpulet_core::validate::{Violation, validate};

use crate::support::{devices, fifths, header, table, workload};

/// 10 ms a batch of up to 8 on half a device, 5 ms on all of it; 1 GB of weights, 1 GB of arena.
fn profile(model: &str) -> Profile {
    let known = table(header(model, 100), [(1, 50, 10e3), (8, 50, 10e3), (1, 100, 5e3), (8, 100, 5e3)]);
    let mut lines = known.lines();
    if let Some(Line::Profile(header)) = lines.first_mut() {
        header.weights_bytes = Some(1_000_000_000);
    }
    lines.push(Line::Arena(ArenaLine { batch: 8, bytes: 1_000_000_000 }));
    let used = Utilisation { cache: 0.5, bandwidth: 0.5 };
    lines.push(Line::Utilisation(UtilisationLine { batch: 1, used }));
    Profile::of_lines(lines).unwrap().remove(0)
}

fn problem_of(change: impl Fn(&mut Vec<Device>, &mut Vec<Workload>), interference: Interference) -> Problem {
    let device_type =
        Arc::new(DeviceType { base_bytes: 500_000_000, gpulet_bytes: 100_000_000, ..(*fifths()).clone() });
    let mut devices = devices(&device_type, 2);
    devices.iter_mut().for_each(|device| device.memory_bytes = 4_700_000_000);
    let named =
        |model: &str, slo_ms, rate| Workload { name: model.to_owned(), ..workload(model, slo_ms, rate) };
    let mut workloads = vec![named("a", 20.0, 800.0), named("b", 40.0, 200.0)];
    change(&mut devices, &mut workloads);
    Problem::new(devices, workloads, vec![profile("a"), profile("b")], interference).unwrap()
}

fn problem() -> Problem {
    problem_of(|_, _| {}, Interference::NoInterference(NoInterference))
}

fn slot(workload: &str, rate: f64) -> Slot {
    Slot { workload: workload.to_owned(), batch: 8, budget_us: 10e3, rate }
}

fn gpulet(device: &str, first_unit: u32, slots: Vec<Slot>) -> Gpulet {
    Gpulet { device: device.into(), first_unit, units: 50, window: None, duty_us: None, slots }
}

/// `a` on one half of the first device, `b` twice in a cycle of 30 ms on the other.
fn plan() -> Plan {
    let mut cycle = gpulet("gpu000", 50, vec![slot("b", 200.0)]);
    cycle.duty_us = Some(30e3);
    Plan::new(vec![gpulet("gpu000", 0, vec![slot("a", 800.0)]), cycle])
}

/// The violations of the plan after a change, by name and number.
fn spoilt(change: impl Fn(&mut Plan)) -> Vec<String> {
    let mut plan = plan();
    change(&mut plan);
    told(&problem(), &plan)
}

fn told(problem: &Problem, plan: &Plan) -> Vec<String> {
    validate(problem, plan).violations.iter().map(Violation::to_string).collect()
}

#[test]
fn a_sound_plan_is_described() {
    let validation = validate(&problem(), &plan());
    assert!(validation.is_sound(), "{:?}", validation.violations);
    assert_eq!((validation.devices_used, validation.cost), (1, 1.0));
    let [a, b] = &validation.slots[..] else { panic!("{:?}", validation.slots) };
    assert_eq!((a.co_located_us, a.worst_us, a.capacity), (10e3, 20e3, 800.0));
    assert_eq!((b.co_located_us, b.worst_us, b.capacity.round()), (10e3, 40e3, 267.0));
    assert_eq!(validation.headroom(&problem()), Some(1.0));
    let problem = problem();
    let headrooms =
        validation.headrooms(&problem).into_iter().map(|(name, factor)| (name, (1e3 * factor).round()));
    assert_eq!(headrooms.collect::<Vec<_>>(), [("a", 1e3), ("b", 1_333.0)]);
    assert_eq!(
        validation.unused.iter().map(|unused| (unused.device.as_str(), unused.share)).collect::<Vec<_>>(),
        [("gpu000", 0.0)]
    );
    assert!(validation.memory_unknown.is_empty());
}

#[test]
fn what_gpulets_leave_over_is_reported() {
    let mut plan = plan();
    plan.gpulets.pop();
    let window = Window { period_us: 40e3, offset_us: 0.0, length_us: 10e3, limit_us: None };
    plan.gpulets.push(Gpulet { window: Some(window), ..gpulet("gpu001", 0, vec![slot("b", 200.0)]) });
    let validation = validate(&problem(), &plan);
    let unused: Vec<(&str, f64)> =
        validation.unused.iter().map(|unused| (unused.device.as_str(), unused.share)).collect();
    assert_eq!(unused, [("gpu000", 0.5), ("gpu001", 0.875)]);
}

#[test]
fn every_violation_is_reported_with_numbers() {
    type Change = fn(&mut Plan);
    let table: [(Change, &[&str]); 14] = [
        (|plan| plan.gpulets[0].device = "gpu999".into(), &["device `gpu999`: unknown"]),
        (
            |plan| plan.gpulets[1].slots.push(Slot { workload: "x".to_owned(), ..slot("b", 0.0) }),
            &["workload `x` on `gpu000`: unknown"],
        ),
        (
            |plan| plan.gpulets[0].units = 45,
            &[
                "device `gpu000`: 45 units from unit 0, expected one of [20, 40, 50, 60, 80, 100] within 100",
                "workload `a` on `gpu000`: profile of `a` on `fifths`: nothing known about batch 8 on 45 units, expected batch 1 to 8 and 50 to 100 units",
            ],
        ),
        (
            |plan| plan.gpulets[1].first_unit = 60,
            &["device `gpu000`: 50 units from unit 60, expected one of [20, 40, 50, 60, 80, 100] within 100"],
        ),
        (
            |plan| plan.gpulets[1].first_unit = 40,
            &["device `gpu000`: gpulets from unit 0 and 40 overlap in units and time"],
        ),
        (
            |plan| plan.gpulets[0].slots.push(slot("b", 0.0)),
            &["device `gpu000`, unit 0: expected a cycle (duty_us) for several slots"],
        ),
        (
            |plan| plan.gpulets[0].slots[0].budget_us = 9e3,
            &["workload `a` on `gpu000`: a batch takes 10000 us under contention, its budget is 9000 us"],
        ),
        (
            |plan| plan.gpulets[1].slots[0].budget_us = 31e3,
            &["device `gpu000`, unit 50: budgets of 31000 us in a cycle of 30000 us"],
        ),
        (
            |plan| plan.gpulets[1].duty_us = Some(31e3),
            &["workload `b` on `gpu000`: answered after 41000 us at worst, its objective is 40000 us"],
        ),
        (
            |plan| plan.gpulets[1].slots[0].batch = 5,
            &["workload `b` on `gpu000`: sent 200.0 requests per second, can serve 166.7"],
        ),
        (
            |plan| plan.gpulets[0].slots[0].rate = 700.0,
            &["workload `a`: serves 700.0 requests per second, expected 800.0"],
        ),
        (
            |plan| plan.gpulets[1].slots[0].rate = f64::NAN,
            &["device `gpu000`, unit 50: slots: expected a budget_us above 0 and a rate of at least 0"],
        ),
        (
            |plan| {
                plan.gpulets[1].window =
                    Some(Window { period_us: 1.0, offset_us: 0.0, length_us: 1.0, limit_us: None })
            },
            &["device `gpu000`, unit 50: expected a cycle or a window, got both"],
        ),
        (
            |plan| plan.gpulets.push(gpulet("gpu001", 0, vec![])),
            &["device `gpu001`, unit 0: expected at least one slot, got none"],
        ),
    ];
    for (change, expected) in table {
        let found = spoilt(change);
        for expected in expected {
            assert!(found.iter().any(|found| found == expected), "expected {expected:?} in {found:#?}");
        }
    }
}

#[test]
fn interference_counts() {
    let interference = Interference::Gpulet(Regression { coefficients: [0.0, 0.4, 0.0, 0.0, 1.0] });
    let problem = problem_of(|_, _| {}, interference);
    let found = told(&problem, &plan());
    assert_eq!(
        found[..2],
        [
            "workload `a` on `gpu000`: a batch takes 11000 us under contention, its budget is 10000 us",
            "workload `a` on `gpu000`: answered after 22000 us at worst, its objective is 20000 us",
        ]
    );
    let apart = Plan::new(vec![
        gpulet("gpu000", 0, vec![slot("a", 800.0)]),
        gpulet("gpu001", 0, vec![slot("b", 200.0)]),
    ]);
    assert!(validate(&problem, &apart).is_sound());
}

#[test]
fn memory_tenants_replicas_and_limits_are_kept() {
    let none = || Interference::NoInterference(NoInterference);
    let tight = problem_of(|devices, _| devices[0].memory_bytes -= 1, none());
    assert_eq!(told(&tight, &plan()), ["device `gpu000`: 4700000000 bytes needed, 4699999999 there"]);
    let apart = problem_of(|_, workloads| workloads[0].not_with = vec![String::new()], none());
    assert_eq!(
        told(&apart, &plan()),
        ["fault domain `gpu000`: holds `a` and `b`, whose tenants must not share one"]
    );
    let twice = problem_of(|_, workloads| workloads[1].replicas_min = 2, none());
    assert_eq!(told(&twice, &plan()), ["workload `b`: in 1 fault domains, expected at least 2"]);
    let small = problem_of(|_, workloads| workloads[1].batch_max = 7, none());
    assert_eq!(told(&small, &plan()), ["workload `b` on `gpu000`: batch 8, expected 1 to 7"]);
    let few = problem_of(
        |devices, _| {
            for device in devices {
                device.device_type = Arc::new(DeviceType { gpulets_max: 1, ..(*device.device_type).clone() });
            }
        },
        none(),
    );
    assert_eq!(told(&few, &plan())[0], "device `gpu000`: 2 gpulets, expected at most 1");
}

#[test]
fn windows_share_units_in_time() {
    let window = |offset_us| Some(Window { period_us: 25e3, offset_us, length_us: 12.5e3, limit_us: None });
    let half = |offset_us, name, rate| Gpulet {
        window: window(offset_us),
        ..gpulet("gpu000", 0, vec![slot(name, rate)])
    };
    let easy = problem_of(
        |_, workloads| {
            for workload in workloads {
                workload.slo_us = 42.5e3;
                workload.rate = 320.0;
            }
        },
        Interference::Gpulet(Regression { coefficients: [0.0, 9.0, 0.0, 0.0, 1.0] }),
    );
    let alternating = Plan::new(vec![half(0.0, "a", 320.0), half(12.5e3, "b", 320.0)]);
    let validation = validate(&easy, &alternating);
    assert!(validation.is_sound(), "{:?}", validation.violations);
    assert_eq!(
        (validation.slots[0].worst_us, validation.slots[0].capacity),
        (42.5e3, 320.0),
        "it may wait for a batch of the other one"
    );
    let clash = Plan::new(vec![half(0.0, "a", 320.0), half(12e3, "b", 320.0)]);
    assert!(
        told(&easy, &clash)
            .contains(&"device `gpu000`: gpulets from unit 0 and 0 overlap in units and time".to_owned())
    );
}
