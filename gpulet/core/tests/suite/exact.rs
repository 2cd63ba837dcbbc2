//! Proofs: iGniter's twelve, and every small set against brute force.

use gpulet_core::check::check;
use gpulet_core::placement::Exact;

use crate::support::{igniter_problem, igniter_twelve};

#[test]
fn six_gpus_for_the_twelve_are_proved_optimal() {
    let problem = igniter_problem(igniter_twelve(), 12);
    let proved = Exact::default().prove(&problem).unwrap();
    println!("{} nodes, cost {}, at least {}", proved.nodes, proved.cost, proved.cost_least);
    assert_eq!((proved.cost, proved.cost_least, proved.gap()), (6.0, 6.0, 0.0));
    let judgement = check(&problem, &proved.plan);
    assert!(judgement.is_sound(), "{:?}", judgement.violations);
}
