//! Proofs: iGniter's twelve, what ours is worth against them, and that they come back whatever is asked.

use gpulet_core::placement::Exact;
use gpulet_core::problem::Workload;
use gpulet_core::validate::validate;
use proptest::prelude::*;

use crate::support::{igniter_problem, igniter_twelve, place_soundly, random_workloads};

#[test]
fn six_gpus_for_the_twelve_are_proved_optimal() {
    let problem = igniter_problem(igniter_twelve(), 12);
    let proved = Exact::default().prove(&problem).unwrap();
    println!("{} nodes, cost {}, at least {}", proved.nodes, proved.cost, proved.cost_least);
    assert_eq!((proved.cost, proved.cost_least, proved.gap()), (6.0, 6.0, 0.0));
    let validation = validate(&problem, &proved.plan);
    assert!(validation.is_sound(), "{:?}", validation.violations);
}

/// A hundred workloads are far beyond proof: the search ends at its limit and says how far it came.
#[test]
fn a_hundred_workloads_get_a_plan_and_an_honest_gap() {
    let copies = |copy: usize| {
        let rate = 0.4 + 0.05 * f64::from(u32::try_from(copy).unwrap());
        let renamed = move |one: Workload| Workload {
            name: format!("{}-{copy}", one.name),
            rate: rate * one.rate,
            ..one
        };
        igniter_twelve().into_iter().map(renamed)
    };
    let workloads: Vec<Workload> = (0..9).flat_map(copies).take(100).collect();
    let problem = igniter_problem(workloads, 100);
    let proved = Exact::default().prove(&problem).unwrap();
    println!(
        "{} nodes, cost {}, at least {}, gap {:.3}",
        proved.nodes,
        proved.cost,
        proved.cost_least,
        proved.gap()
    );
    assert!(!proved.complete && proved.nodes < Exact::default().nodes);
    assert!(proved.cost_least > 0.0 && proved.cost_least <= proved.cost && proved.gap() > 0.0);
    let validation = validate(&problem, &proved.plan);
    assert!(validation.is_sound(), "{:?}", validation.violations);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ours_is_within_one_per_cent_wherever_the_proof_is_complete(workloads in random_workloads(32)) {
        let problem = igniter_problem(workloads, 80);
        let Ok(proved) = Exact { nodes: 20_000 }.prove(&problem) else { return Ok(()) };
        if proved.complete {
            let cost = place_soundly("tessera", &problem).1.cost;
            prop_assert!(cost <= 1.01 * proved.cost, "ours {cost}, proved {}", proved.cost);
        }
    }
}
