//! Planning from a plan in force: a new plan changes what has to change, and little else.

use std::sync::Arc;

use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::placement::Policy;
use gpulet_core::plan::{Difference, Gpulet, Plan};
use gpulet_core::problem::{DeviceType, Problem, Workload};

use crate::support::{
    changed_devices, devices, igniter_problem, igniter_profiles, igniter_twelve, place, place_soundly, v100,
    workload,
};

/// Eighty workloads, more than the exhaustive search handles.
fn eighty() -> Vec<Workload> {
    let spread = |at: u32, prime: u32| f64::from(at * prime % 80) / 80.0;
    let models = ["alexnet", "resnet50", "vgg19", "ssd"].into_iter().cycle();
    let of = |(at, model): (u32, &str)| {
        let rate = 20.0 + 300.0 * spread(at, 37);
        Workload { name: format!("w{at:02}"), ..workload(model, 20.0 + 40.0 * spread(at, 53), rate) }
    };
    (0..80).zip(models).map(of).collect()
}

/// The problem with this plan in force and other rates.
fn with_rates(problem: &Problem, plan: &Plan, rate: impl Fn(&Workload) -> f64) -> Problem {
    let workloads = problem.workloads().iter();
    let workloads = workloads.map(|workload| Workload { rate: rate(workload), ..workload.clone() }).collect();
    igniter_problem(workloads, problem.devices().len()).from_current(plan.clone())
}

fn devices_of<'a>(plan: &'a Plan, workload: &'a str) -> Vec<&'a str> {
    plan.slots_of(workload).map(|(gpulet, _)| gpulet.device.as_str()).collect()
}

#[test]
fn a_rate_that_rises_within_its_headroom_changes_nothing_else() {
    let problem = igniter_problem(eighty(), 80);
    let (plan, validation) = place_soundly("tessera", &problem);
    let slot = validation.slots.iter().find(|slot| slot.capacity > 1.05 * slot.rate).unwrap();
    let next = problem.from_current(plan.clone()).with_rate(&slot.workload, 1.04 * slot.rate).unwrap();
    let (next_plan, _) = place_soundly("tessera", &next);
    let difference = Difference::between(&plan, &next_plan);
    assert_eq!((difference.changed.len(), difference.new.len(), difference.removed.len()), (1, 0, 0));
    let change = &difference.changed[0];
    let mut rates = change.before.clone();
    for (slot, after) in rates.slots.iter_mut().zip(&change.after.slots) {
        slot.rate = after.rate;
    }
    assert_eq!(rates, change.after);
}

#[test]
fn rates_that_fall_a_little_change_nothing() {
    let problem = igniter_problem(eighty(), 80);
    let plan = place("tessera", &problem);
    let next = with_rates(&problem, &plan, |workload| 0.99 * workload.rate);
    assert_eq!(place("tessera", &next), plan);
}

#[test]
fn a_rate_that_doubles_leaves_almost_all_devices_as_they_are() {
    let problem = igniter_problem(eighty(), 80);
    let plan = place("tessera", &problem);
    for changed in problem.workloads() {
        let next = problem.clone().from_current(plan.clone());
        let next = next.with_rate(&changed.name, 2.0 * changed.rate).unwrap();
        let (next_plan, _) = place_soundly("tessera", &next);
        let touched = changed_devices(&plan, &next_plan);
        assert!(touched.len() <= 4, "{}: {touched:?}", changed.name);
    }
}

/// The rates of eighty workloads fall to half, step by step. Each released device takes at most 16 moves.
#[test]
fn nearly_empty_devices_are_released_as_rates_fall() {
    let problem = igniter_problem(eighty(), 80);
    let mut plan = place("tessera", &problem);
    let before = plan.devices().len();
    let afresh = place("tessera", &with_rates(&problem, &plan, |workload| 0.5 * workload.rate));
    for step in 1..=20 {
        let next = with_rates(&problem, &plan, |workload| (1.0 - 0.025 * f64::from(step)) * workload.rate);
        let (next_plan, _) = place_soundly("tessera", &next);
        let saved = plan.devices().len() - next_plan.devices().len();
        let loads = Difference::between(&plan, &next_plan).loads.len();
        assert!(loads <= 16 * saved, "{loads} moves for {saved} devices");
        plan = next_plan;
    }
    println!(
        "{before} devices, {} at half the rates, {} afresh",
        plan.devices().len(),
        afresh.devices().len()
    );
    assert!(plan.devices().len() <= afresh.devices().len() + 2);
}

#[test]
fn only_workloads_of_a_removed_device_move() {
    let problem = igniter_problem(eighty(), 80);
    let plan = place("tessera", &problem);
    let lost = plan.devices()[3].to_owned();
    let left = problem.devices().iter().filter(|device| device.name != *lost).cloned().collect();
    let next = problem.from_current(plan.clone()).on(left).unwrap();
    let (next_plan, _) = place_soundly("tessera", &next);
    let held: Vec<&str> = plan
        .gpulets
        .iter()
        .filter(|gpulet| gpulet.device == *lost)
        .flat_map(|gpulet| &gpulet.slots)
        .map(|slot| slot.workload.as_str())
        .collect();
    for workload in next.workloads().iter().filter(|workload| !held.contains(&workload.name.as_str())) {
        assert_eq!(devices_of(&plan, &workload.name), devices_of(&next_plan, &workload.name));
    }
    assert!(changed_devices(&plan, &next_plan).len() <= held.len() + 1);
}

/// Windows fill every unit of a device: they are kept or removed, but no workload is added between them.
#[test]
fn plans_of_windows_and_cycles_are_continued_too() {
    let calm = |copy: usize| {
        let of = move |one: Workload| Workload {
            name: format!("{}-{copy}", one.name),
            slo_us: 4.0 * one.slo_us,
            rate: 0.3 * one.rate,
            ..one
        };
        igniter_twelve().into_iter().map(of)
    };
    let none = Interference::NoInterference(NoInterference);
    let workloads = (0..6).flat_map(calm).collect();
    let problem = Problem::new(devices(&v100(), 72), workloads, igniter_profiles(), none).unwrap();
    let mut continued = Vec::new();
    for policy in Policy::NAMES {
        let (plan, _) = place_soundly(policy, &problem);
        let again = problem.clone().from_current(plan.clone());
        let (next_plan, validation) = place_soundly("tessera", &again);
        if validation.devices_used < plan.devices().len() {
            continue;
        }
        assert_eq!(next_plan, plan, "{policy}");
        continued.push(*policy);
        let changed = &problem.workloads()[7];
        let (next_plan, validation) =
            place_soundly("tessera", &again.with_rate(&changed.name, 3.0 * changed.rate).unwrap());
        let touched = changed_devices(&plan, &next_plan);
        let fewer = validation.devices_used < plan.devices().len();
        assert!(touched.len() <= 6 || fewer, "{policy}: {touched:?} of {}", plan.devices().len());
    }
    println!("continued as they were: {continued:?}");
    assert!(continued.contains(&"fast-gshare") && continued.contains(&"temporal"), "{continued:?}");
}

/// Four models on V100s without interference, at `part` of the rates that fill four devices.
fn four(part: f64) -> Problem {
    let peaks = [
        ("alexnet", 50.0, 3_600.0),
        ("resnet50", 100.0, 1_000.0),
        ("vgg19", 150.0, 480.0),
        ("ssd", 150.0, 400.0),
    ];
    let workloads = peaks.map(|(model, slo_ms, peak)| workload(model, slo_ms, part * peak));
    let none = Interference::NoInterference(NoInterference);
    Problem::new(devices(&v100(), 8), workloads.into(), igniter_profiles(), none).unwrap()
}

/// Number of models that a change of plan loads: all models of every gpulet without a counterpart in the old plan.
fn loads(before: &Plan, after: &Plan) -> usize {
    let difference = Difference::between(before, after);
    let names = |gpulet: &Gpulet| gpulet.slots.iter().map(|slot| slot.workload.clone()).collect::<Vec<_>>();
    let changed = difference.changed.iter().filter(|change| names(&change.before) != names(&change.after));
    let loaded = difference.new.iter().chain(changed.map(|change| &change.after));
    loaded.map(|gpulet| gpulet.slots.len()).sum()
}

/// Models load one after another, and a plan serves only after the last load: a plan of many small gpulets is too late.
#[test]
fn rates_that_grow_tenfold_take_few_loads_from_step_to_step_and_few_devices_more() {
    let mut plan = place("tessera", &four(0.1));
    for step in 2..=20 {
        let problem = four(0.05 * f64::from(step)).from_current(plan.clone());
        let (next, _) = place_soundly("tessera", &problem);
        let (needed, devices) = (loads(&plan, &next), next.devices().len());
        let afresh = place("tessera", &four(0.05 * f64::from(step))).devices().len();
        println!(
            "{step}: {needed} loads, {} gpulets on {devices} devices, {afresh} afresh",
            next.gpulets.len()
        );
        assert!(needed <= 9, "{needed} loads\n{next:#?}");
        assert!(devices <= afresh + 1, "{devices} devices, {afresh} afresh");
        plan = next;
    }
}

#[test]
fn a_device_that_changes_gives_all_it_has() {
    let mut plan = place("tessera", &four(0.1));
    for step in [4, 7, 12, 18, 20, 15, 9, 6, 3, 2] {
        let problem = four(0.05 * f64::from(step)).from_current(plan.clone());
        let next = place("tessera", &problem);
        for device in
            changed_devices(&plan, &next).iter().filter(|device| next.devices().contains(&device.as_str()))
        {
            let of_it = next.gpulets.iter().filter(|gpulet| gpulet.device == **device);
            assert_eq!(of_it.map(|gpulet| gpulet.units).sum::<u32>(), 40, "{step}: {device}\n{next:#?}");
        }
        plan = next;
    }
}

/// Light models that share a gpulet in time use the remaining units of the device for larger batches.
#[test]
fn gpulets_with_cycles_get_the_remaining_units_too() {
    let calm = igniter_twelve().into_iter().map(|one| Workload {
        rate: 0.05 * one.rate,
        slo_us: 4.0 * one.slo_us,
        ..one
    });
    let none = Interference::NoInterference(NoInterference);
    let two = Arc::new(DeviceType { gpulets_max: 2, ..(*v100()).clone() });
    let problem = Problem::new(devices(&two, 12), calm.collect(), igniter_profiles(), none).unwrap();
    let (plan, validation) = place_soundly("tessera", &problem);
    assert!(plan.gpulets.iter().any(|gpulet| gpulet.duty_us.is_some()), "{plan:#?}");
    for device in plan.devices() {
        let of_it = plan.gpulets.iter().filter(|gpulet| gpulet.device == device);
        assert_eq!(of_it.map(|gpulet| gpulet.units).sum::<u32>(), 40, "{device}\n{plan:#?}");
    }
    let headroom = validation.headroom(&problem).unwrap();
    assert!(headroom > 1.5, "{headroom}");
}
