//! What a plan in force is worth: planning again moves what has to move, and little else.

use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::placement::Policy;
use gpulet_core::plan::{Difference, Plan};
use gpulet_core::problem::{Problem, Workload};

use crate::support::{
    changed_devices, devices, igniter_problem, igniter_profiles, igniter_twelve, place, place_soundly, v100,
    workload,
};

/// Eighty workloads, more than are searched for.
fn eighty() -> Vec<Workload> {
    let spread = |at: u32, prime: u32| f64::from(at * prime % 80) / 80.0;
    let models = ["alexnet", "resnet50", "vgg19", "ssd"].into_iter().cycle();
    let of = |(at, model): (u32, &str)| {
        let rate = 20.0 + 300.0 * spread(at, 37);
        Workload { name: format!("w{at:02}"), ..workload(model, 20.0 + 40.0 * spread(at, 53), rate) }
    };
    (0..80).zip(models).map(of).collect()
}

/// The problem with the plan in force and other rates.
fn with_rates(problem: &Problem, plan: &Plan, rate: impl Fn(&Workload) -> f64) -> Problem {
    let workloads = problem.workloads().iter();
    let workloads = workloads.map(|workload| Workload { rate: rate(workload), ..workload.clone() }).collect();
    igniter_problem(workloads, problem.devices().len()).from_current(plan.clone())
}

fn devices_of<'a>(plan: &'a Plan, workload: &'a str) -> Vec<&'a str> {
    plan.slots_of(workload).map(|(gpulet, _)| gpulet.device.as_str()).collect()
}

#[test]
fn a_rate_that_rises_within_its_head_room_changes_its_rate_alone() {
    let problem = igniter_problem(eighty(), 80);
    let (plan, judgement) = place_soundly("tessera", &problem);
    let slot = judgement.slots.iter().find(|slot| slot.capacity > 1.05 * slot.rate).unwrap();
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

/// Eighty workloads at half their rates, by and by: devices are given up, each for at most 16 moves.
#[test]
fn devices_that_falling_rates_leave_nearly_empty_are_given_up() {
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
fn what_was_on_a_device_that_is_gone_moves_and_nothing_else() {
    let problem = igniter_problem(eighty(), 80);
    let plan = place("tessera", &problem);
    let lost = plan.devices()[3].to_owned();
    let left = problem.devices().iter().filter(|device| device.name != lost).cloned().collect();
    let next = problem.from_current(plan.clone()).on(left).unwrap();
    let (next_plan, _) = place_soundly("tessera", &next);
    let held: Vec<&str> = plan
        .gpulets
        .iter()
        .filter(|gpulet| gpulet.device == lost)
        .flat_map(|gpulet| &gpulet.slots)
        .map(|slot| slot.workload.as_str())
        .collect();
    for workload in next.workloads().iter().filter(|workload| !held.contains(&workload.name.as_str())) {
        assert_eq!(devices_of(&plan, &workload.name), devices_of(&next_plan, &workload.name));
    }
    assert!(changed_devices(&plan, &next_plan).len() <= held.len() + 1);
}

/// Windows are laid out to the last unit, so they stay or go, but nobody is squeezed in between.
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
        let (next_plan, judgement) = place_soundly("tessera", &again);
        if judgement.devices_used < plan.devices().len() {
            continue;
        }
        assert_eq!(next_plan, plan, "{policy}");
        continued.push(*policy);
        let changed = &problem.workloads()[7];
        let (next_plan, judgement) =
            place_soundly("tessera", &again.with_rate(&changed.name, 3.0 * changed.rate).unwrap());
        let touched = changed_devices(&plan, &next_plan);
        let fewer = judgement.devices_used < plan.devices().len();
        assert!(touched.len() <= 6 || fewer, "{policy}: {touched:?} of {}", plan.devices().len());
    }
    println!("continued as they were: {continued:?}");
    assert!(continued.contains(&"fast-gshare") && continued.contains(&"temporal"), "{continued:?}");
}
