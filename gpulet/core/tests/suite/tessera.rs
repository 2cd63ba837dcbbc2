//! What our default promises against the published policies and against brute force.

use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::placement::Policy;
use gpulet_core::plan::{Difference, Gpulet, Plan, Slot};
use gpulet_core::problem::{Problem, Workload};
use gpulet_core::profile::Quantile;
use gpulet_core::validate::validate;
use proptest::prelude::*;

use crate::support::{
    changed_devices, devices, fifths, header, igniter_problem, igniter_three, igniter_twelve, place,
    place_soundly, random_workloads, table, v100, workload,
};

/// A batch on its least share.
#[derive(Clone, Copy)]
struct Choice {
    batch: u32,
    units: u32,
}

/// The four batches with the least shares that keep half the objective and the rate, alone.
fn choices(problem: &Problem, workload: &Workload) -> Vec<Choice> {
    let device_type = v100();
    let profile = problem.profile(workload, &device_type).unwrap();
    let mut found: Vec<Choice> = (1..=32)
        .filter_map(|batch| {
            let keeps = |units: &u32| {
                let time = profile.latency_us(Quantile::P99, batch, *units).unwrap();
                let busy = time - profile.load_us(batch);
                2.0 * time <= workload.slo_us && workload.rate * busy <= 1e6 * f64::from(batch)
            };
            (1..=40).find(keeps).map(|units| Choice { batch, units })
        })
        .collect();
    found.sort_by_key(|choice| (choice.units, choice.batch));
    found.truncate(4);
    found
}

/// Whether these workloads fit on one device, each on a gpulet of its own: every combination of batches, shares grown
/// from the least until the validator finds no violation.
fn together(problem: &Problem, chosen: &[(&Workload, Vec<Choice>)]) -> bool {
    let mut digits = vec![0_usize; chosen.len()];
    loop {
        let mut start: Vec<Choice> = chosen.iter().zip(&digits).map(|((_, all), at)| all[*at]).collect();
        while start.iter().map(|choice| choice.units).sum::<u32>() <= 40 {
            let plan = side_by_side(chosen, &start);
            let validation = validate(problem, &plan);
            let mut late = vec![false; start.len()];
            for (at, (workload, _)) in chosen.iter().enumerate() {
                let slot = validation.slots.iter().find(|slot| slot.workload == workload.name).unwrap();
                late[at] = slot.worst_us > workload.slo_us || slot.capacity < workload.rate;
            }
            if !late.contains(&true) {
                return true;
            }
            start.iter_mut().zip(late).filter(|(_, late)| *late).for_each(|(choice, _)| choice.units += 1);
        }
        let Some(at) = (0..digits.len()).find(|at| digits[*at] + 1 < chosen[*at].1.len()) else {
            return false;
        };
        digits[..at].fill(0);
        digits[at] += 1;
    }
}

fn side_by_side(chosen: &[(&Workload, Vec<Choice>)], at: &[Choice]) -> Plan {
    let mut first_unit = 0;
    let gpulets = chosen.iter().zip(at).map(|((workload, _), choice)| {
        let slot = Slot {
            workload: workload.name.clone(),
            batch: choice.batch,
            budget_us: 1e9,
            rate: workload.rate,
        };
        first_unit += choice.units;
        Gpulet {
            device: "gpu000".into(),
            first_unit: first_unit - choice.units,
            units: choice.units,
            window: None,
            duty_us: None,
            slots: vec![slot],
        }
    });
    Plan::new(gpulets.collect())
}

/// The fewest devices that hold every workload on a gpulet of its own; none if one needs more than a device.
fn fewest(problem: &Problem) -> Option<usize> {
    let all: Vec<(&Workload, Vec<Choice>)> =
        problem.workloads().iter().map(|workload| (workload, choices(problem, workload))).collect();
    if all.iter().any(|(_, choices)| choices.is_empty()) {
        return None;
    }
    let sets = 1_usize << all.len();
    let members = |set: usize| {
        all.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1).map(|(_, one)| one.clone())
    };
    let fits: Vec<bool> = (0..sets).map(|set| together(problem, &members(set).collect::<Vec<_>>())).collect();
    let mut least = vec![usize::MAX; sets];
    least[0] = 0;
    for set in 1..sets {
        let mut part = set;
        while part > 0 {
            if fits[part] {
                least[set] = least[set].min(least[set ^ part].saturating_add(1));
            }
            part = (part - 1) & set;
        }
    }
    Some(least[sets - 1])
}

#[test]
fn the_twelve_take_six_gpus_with_more_headroom_than_igniter() {
    let problem = igniter_problem(igniter_twelve(), 12);
    let (_, igniter) = place_soundly("igniter", &problem);
    let (plan, ours) = place_soundly("tessera", &problem);
    let headroom = [&ours, &igniter].map(|validation| validation.headroom(&problem).unwrap());
    println!("headroom: ours {:.3}, igniter {:.3}", headroom[0], headroom[1]);
    assert_eq!((ours.devices_used, igniter.devices_used), (6, 6));
    assert!(headroom[0] > headroom[1], "ours {}, igniter {}\n{plan:#?}", headroom[0], headroom[1]);
}

#[test]
fn planning_again_moves_nothing_and_a_small_change_moves_little() {
    let problem = igniter_problem(igniter_twelve(), 12);
    let plan = place("tessera", &problem);
    let again = place("tessera", &problem.clone().from_current(plan.clone()));
    assert!(Difference::between(&plan, &again).is_empty());
    let mut changed = igniter_twelve();
    changed[5].rate = 260.0;
    let next = place("tessera", &igniter_problem(changed, 12).from_current(plan.clone()));
    let difference = Difference::between(&plan, &next);
    println!("one rate up by 30 %: {} loads", difference.loads.len());
    assert!(difference.loads.len() <= 6, "{:?}", difference.loads);
}

#[test]
fn replicas_live_apart_and_rivals_too() {
    let mut workloads = igniter_three();
    workloads[0].replicas_min = 3;
    workloads[1].tenant = "red".to_owned();
    workloads[2].not_with = vec!["red".to_owned()];
    let problem = igniter_problem(workloads, 16);
    for name in Policy::NAMES {
        let plan = place(name, &problem);
        let validation = validate(&problem, &plan);
        let held = |violation: &&gpulet_core::validate::Violation| {
            let text = violation.to_string();
            text.contains("fault domain")
        };
        assert_eq!(
            validation.violations.iter().filter(held).count(),
            0,
            "{name}: {:?}",
            validation.violations
        );
    }
}

/// Idle workloads count as running in predictions of interference, so ten of them take a device.
#[test]
fn idle_workloads_that_must_be_ready_share_a_device() {
    let idle = (0..10).map(|at| Workload { name: format!("idle{at}"), ..workload("resnet50", 60.0, 0.0) });
    let problem = igniter_problem(igniter_three().into_iter().chain(idle).collect(), 4);
    let (plan, validation) = place_soundly("tessera", &problem);
    assert!(validation.devices_used <= 2, "{plan:#?}");
    let again = problem.from_current(plan.clone());
    assert_eq!(place("tessera", &again), plan);
}

#[test]
fn a_cheaper_device_that_suffices_is_taken() {
    let mut devices = devices(&v100(), 2);
    devices[0].cost = 3.0;
    let problem = igniter_problem(igniter_three(), 1).on(devices).unwrap();
    let (plan, _) = place_soundly("tessera", &problem);
    assert_eq!(plan.devices(), ["gpu001"]);
}

/// A model that is as fast on half a device as on all of it uses both halves.
#[test]
fn units_that_growth_leaves_over_hold_a_copy() {
    let cells = [(20, 25e3), (40, 12.5e3), (50, 10e3), (60, 10e3), (80, 10e3), (100, 10e3)];
    let cells = cells.iter().flat_map(|(units, time)| [(1, *units, *time), (10, *units, *time)]);
    let none = Interference::NoInterference(NoInterference);
    let profiles = vec![table(header("a", 100), cells)];
    let problem =
        Problem::new(devices(&fifths(), 1), vec![workload("a", 20.0, 980.0)], profiles, none).unwrap();
    let (plan, validation) = place_soundly("tessera", &problem);
    let headroom = validation.headroom(&problem).unwrap();
    assert!(plan.gpulets.len() == 2 && headroom > 2.0, "{headroom}: {plan:#?}");
    assert_eq!(place("tessera", &problem.from_current(plan.clone())), plan);
}

/// Whether planning again from a plan changes nothing, or saves a device each time until it changes nothing.
fn settles(from_plan: &Problem, plan: &Plan) -> bool {
    let again = place("tessera", from_plan);
    again == *plan
        || (again.devices().len() < plan.devices().len()
            && settles(&from_plan.clone().from_current(again.clone()), &again))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn never_more_devices_than_igniters_algorithm(workloads in random_workloads(24)) {
        let problem = igniter_problem(workloads, 60);
        let igniter = Policy::named("igniter").unwrap().place(&problem);
        if let Ok(igniter) = igniter {
            let ours = validate(&problem, &place("tessera", &problem));
            prop_assert!(ours.is_sound(), "{:?}", ours.violations);
            prop_assert!(ours.devices_used <= igniter.devices().len());
        }
    }

    #[test]
    fn planning_again_changes_nothing_and_one_rate_changes_few_devices(
        workloads in random_workloads(24),
        which in 0_usize..24,
        factor in 0.3_f64..2.0,
    ) {
        let problem = igniter_problem(workloads.clone(), 60);
        let Ok(plan) = Policy::default().place(&problem) else { return Ok(()) };
        let again = problem.clone().from_current(plan.clone());
        prop_assert!(settles(&again, &plan), "{plan:?}");
        let changed = &workloads[which % workloads.len()];
        let next = again.with_rate(&changed.name, factor * changed.rate).unwrap();
        let next_plan = place("tessera", &next);
        let validation = validate(&next, &next_plan);
        prop_assert!(validation.is_sound(), "{:?}", validation.violations);
        prop_assert!(settles(&next.from_current(next_plan.clone()), &next_plan), "{next_plan:?}");
    }

    #[test]
    fn large_problems_are_planned_soundly_within_the_bound(workloads in random_workloads(24), copies in 6_usize..12) {
        let of = |copy: usize| {
            let renamed = workloads.iter().cloned();
            renamed.map(move |one| Workload { name: format!("{}-{copy}", one.name), ..one }).collect::<Vec<_>>()
        };
        let many: Vec<Workload> = (0..copies).flat_map(of).collect();
        let problem = igniter_problem(many.clone(), 600);
        let Ok(plan) = Policy::default().place(&problem) else { return Ok(()) };
        let validation = validate(&problem, &plan);
        prop_assert!(validation.is_sound(), "{:?}", validation.violations);
        let changed = &many[many.len() / 2];
        let next = problem.from_current(plan.clone()).with_rate(&changed.name, 0.5 * changed.rate).unwrap();
        let next_plan = place("tessera", &next);
        prop_assert!(validate(&next, &next_plan).is_sound());
        let touched = changed_devices(&plan, &next_plan);
        // A device saved is worth moves.
        let (before, after) = (plan.devices().len(), next_plan.devices().len());
        prop_assert!(touched.len() <= 6 || after < before, "{} of {before} devices change for one rate, {after} after", touched.len());
    }

    #[test]
    fn as_few_devices_as_brute_force(workloads in random_workloads(5)) {
        let problem = igniter_problem(workloads, 8);
        if let Some(fewest) = fewest(&problem) {
            for name in ["tessera", "exact"] {
                let devices = validate(&problem, &place(name, &problem)).devices_used;
                prop_assert!(devices <= fewest, "{name}: {devices} devices, brute force {fewest}");
            }
        }
    }

    #[test]
    fn whatever_temporal_or_gpulet_serves_is_served(workloads in random_workloads(8), gpus in 1_usize..5) {
        let problem = igniter_problem(workloads, gpus);
        let ours = Policy::default().place(&problem);
        for name in ["temporal", "gpulet", "igniter", "exact"] {
            let theirs = Policy::named(name).unwrap().place(&problem).ok();
            let theirs = theirs.map(|plan| validate(&problem, &plan)).filter(|validation| validation.is_sound());
            if let Some(theirs) = theirs {
                let ours = validate(&problem, ours.as_ref().unwrap());
                prop_assert!(ours.is_sound() && ours.devices_used <= theirs.devices_used, "{name}");
            }
        }
    }
}
