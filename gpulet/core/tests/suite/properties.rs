//! Properties of every policy on every problem.

use std::sync::Arc;

use gpulet_core::interference::{Gpulet, Interference, NoInterference};
use gpulet_core::placement::Policy;
use gpulet_core::plan::Plan;
use gpulet_core::problem::{Device, Problem, Workload};
use gpulet_core::profile::{ArenaLine, Line, Profile, Utilisation, UtilisationLine};
use gpulet_core::validate::{Violation, validate};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use crate::support::{assert_no_violations, devices, fifths, header, igniter_problem, table, workload};

/// Policies that account for interference. The others may miss objectives under contention.
const CAREFUL: &[&str] = &["tessera", "igniter", "temporal", "gpulet", "exact"];

/// Time per row and per batch, and how much of the device a batch of 32 fills.
fn model() -> impl Strategy<Value = (f64, f64, f64, f64)> {
    (20.0_f64..2_000.0, 200.0_f64..5_000.0, 0.2_f64..1.0, 0.0_f64..0.6)
}

fn profile(name: &str, &(row, base, fill, used): &(f64, f64, f64, f64)) -> Profile {
    let known = table(
        header(name, 100),
        (1..=32).flat_map(|batch| {
            [20, 40, 50, 60, 80, 100].map(|units| {
                let share = (f64::from(units) / 100.0).min(fill) / fill;
                (batch, units, base + row * f64::from(batch) / share)
            })
        }),
    );
    let mut lines = known.lines();
    if let Some(Line::Profile(header)) = lines.first_mut() {
        header.weights_bytes = Some(1_000_000_000);
    }
    lines.push(Line::Arena(ArenaLine { batch: 32, bytes: 500_000_000 }));
    let used = Utilisation { cache: used, bandwidth: used / 2.0 };
    lines.push(Line::Utilisation(UtilisationLine { batch: 1, used }));
    Profile::of_lines(lines).unwrap().remove(0)
}

fn wanted(count: usize) -> impl Strategy<Value = Vec<Workload>> {
    let one = (1.5_f64..12.0, 0.1_f64..400.0, 0..3_u32, 0..6_u32);
    prop::collection::vec(one, count).prop_map(|all| {
        let of = |(at, (slack, rate, replicas_min, tenant)): (usize, (f64, f64, u32, u32))| Workload {
            tenant: format!("t{tenant}"),
            not_with: if tenant == 1 { vec!["t2".to_owned()] } else { Vec::new() },
            replicas_min,
            headroom: 1.1,
            ..workload(&format!("m{at}"), slack * 8.0, rate)
        };
        all.into_iter().enumerate().map(of).collect()
    })
}

fn random(interference: &Interference) -> impl Strategy<Value = Problem> + use<> {
    let interference = interference.clone();
    let sized = (1_usize..7).prop_flat_map(|count| (prop::collection::vec(model(), count), wanted(count)));
    (sized, 1_usize..24).prop_map(move |((models, workloads), gpus)| {
        let profiles =
            models.iter().enumerate().map(|(at, model)| profile(&format!("m{at}"), model)).collect();
        let device_type = Arc::new((*fifths()).clone());
        let devices = devices(&device_type, gpus)
            .into_iter()
            .enumerate()
            .map(|(at, device)| Device { fault_domain: format!("host{}", at / 2), ..device })
            .collect();
        Problem::new(devices, workloads, profiles, interference.clone()).unwrap()
    })
}

/// Whether a policy that ignores interference may cause this violation.
fn owed_to_interference(violation: &Violation) -> bool {
    matches!(
        violation,
        Violation::OverBudget { .. }
            | Violation::TooLate { .. }
            | Violation::SlotOverloaded { .. }
            | Violation::CycleOverfull { .. }
    )
}

fn plans(problem: &Problem) -> Vec<(&'static str, Plan)> {
    let named = Policy::NAMES.iter().map(|name| (*name, Policy::named(name).unwrap()));
    let plans = named.filter_map(|(name, policy)| Some((name, policy.place(problem).ok()?))).collect();
    assert_no_violations();
    plans
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn without_interference_every_plan_is_sound(problem in random(&Interference::NoInterference(NoInterference))) {
        for (name, plan) in plans(&problem) {
            let validation = validate(&problem, &plan);
            prop_assert!(validation.is_sound(), "{name}: {:#?}\n{plan:#?}", validation.violations);
        }
    }

    #[test]
    fn with_interference_careful_policies_stay_sound(problem in random(&Interference::Gpulet(Gpulet::RTX_2080_TI))) {
        for (name, plan) in plans(&problem) {
            let mut violations = validate(&problem, &plan).violations;
            if !CAREFUL.contains(&name) {
                violations.retain(|violation| !owed_to_interference(violation));
            }
            prop_assert!(violations.is_empty(), "{name}: {violations:#?}\n{plan:#?}");
        }
    }

    #[test]
    fn the_same_problem_gives_the_same_plan(problem in random(&Interference::Gpulet(Gpulet::RTX_2080_TI))) {
        prop_assert_eq!(plans(&problem), plans(&problem.clone()));
    }

    #[test]
    fn under_igniters_model_careful_policies_stay_sound(
        loads in prop::collection::vec((0_usize..4, 10.0_f64..80.0, 10.0_f64..900.0), 1..10),
    ) {
        let models = ["alexnet", "resnet50", "vgg19", "ssd"];
        let of = |(at, (model, slo_ms, rate)): (usize, &(usize, f64, f64))| Workload {
            name: format!("w{at}"),
            ..workload(models[*model], *slo_ms, *rate)
        };
        let problem = igniter_problem(loads.iter().enumerate().map(of).collect(), 40);
        for (name, plan) in plans(&problem).into_iter().filter(|(name, _)| CAREFUL.contains(name)) {
            let validation = validate(&problem, &plan);
            prop_assert!(validation.is_sound(), "{name}: {:#?}\n{plan:#?}", validation.violations);
        }
    }
}

/// The properties above would hold trivially if the policies found no plans.
#[test]
fn every_policy_finds_plans_for_many_of_these_problems() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let problems = random(&Interference::Gpulet(Gpulet::RTX_2080_TI));
    let mut found = std::collections::BTreeMap::new();
    for _ in 0..100 {
        let problem = problems.new_tree(&mut runner).unwrap().current();
        for (name, plan) in plans(&problem) {
            *found.entry(name).or_insert(0) += u32::from(plan.gpulets.len() > 1);
        }
    }
    println!("plans for 100 problems: {found:?}");
    for name in Policy::NAMES {
        assert!(found.get(name).is_some_and(|count| *count >= 25), "{name}: {found:?}");
    }
}
