//! Placements: what they must never do, and how far the greedy search is from the best one.

use model_parallel::placement::alpaserve::{self, Scope, groupings};
use model_parallel::placement::optimum::enumerate;
use model_parallel::placement::replication::replicate;
use model_parallel::placement::{Placement, Problem};
use model_parallel::profile::Layout;
use proptest::prelude::*;

use crate::fixtures::{Setting, profile};

fn setting(
    models: usize,
    devices: usize,
    rate: f64,
    cv: f64,
    slo_scale: f64,
    memory: u64,
    seed: u64,
) -> Setting {
    let profile = profile(1_000, 0.05);
    Setting { profile, models, devices, memory_bytes: memory, rate, cv, slo_scale, duration_s: 60.0, seed }
}

fn check(problem: &Problem, placement: &Placement) {
    assert!(placement.devices() <= problem.cluster.devices, "{placement}");
    for group in &placement.groups {
        assert!(problem.used_bytes(group) <= problem.cluster.memory_bytes, "{group:?}");
        assert!(group.models.windows(2).all(|pair| pair[0] < pair[1]), "{group:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn placements_keep_to_memory_and_devices(
        models in 1..7_usize, devices in 1..10_usize, rate in 1.0..60.0_f64, cv in 0.5..5.0_f64,
        slo_scale in 1.1..10.0_f64, memory in 500..4_000_u64, seed in 0..1_000_u64,
    ) {
        let problem = setting(models, devices, rate, cv, slo_scale, memory, seed).problem();
        let replicated = replicate(&problem).unwrap();
        let placed = alpaserve::place(&problem).unwrap();
        check(&problem, &replicated.placement);
        check(&problem, &placed.placement);
        prop_assert!(replicated.placement.groups.iter().all(|group| group.layout == Layout::SINGLE));
        // Single devices are among the layouts that AlpaServe's search tries.
        prop_assert!(placed.value >= replicated.value);
        prop_assert_eq!(alpaserve::place(&problem).unwrap().placement, placed.placement);
    }
}

#[test]
fn groups_take_all_devices_and_whole_machines() {
    for devices in 1..=40 {
        for layouts in groupings(devices, 8, Scope::All) {
            assert_eq!(layouts.iter().map(|layout| layout.devices()).sum::<usize>(), devices, "{layouts:?}");
            assert!(
                layouts.iter().all(|layout| layout.devices() <= 8 || layout.devices() % 8 == 0),
                "{layouts:?}"
            );
            assert!(layouts.iter().all(|layout| layout.stages <= 8 && layout.operators <= 4), "{layouts:?}");
        }
    }
}

#[test]
fn the_greedy_search_is_close_to_the_best_placement_of_small_problems() {
    let mut gaps = Vec::new();
    for seed in 0..24_u16 {
        let memory = [500, 1_000, 1_500, 2_000][usize::from(seed % 4)];
        let slo_scale = [1.5, 2.0, 5.0][usize::from(seed % 3)];
        let rate = 10.0 + f64::from(seed);
        let mut problem = setting(3, 4, rate, 3.0, slo_scale, memory, u64::from(seed)).problem();
        // The second model takes three times as long as the others.
        problem.profiles.push(problem.profiles[0].scaled(3.0).unwrap());
        problem.models[1].profile = 1;
        problem.models[1].objective_s *= 3.0;
        let best = enumerate(&problem).unwrap();
        let found = alpaserve::place(&problem).unwrap();
        check(&problem, &best.placement);
        assert!(best.value >= found.value, "{} {}", best.placement, found.placement);
        gaps.push(best.attainment - found.attainment);
    }
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    println!("attainment below the best placement: mean {mean:.4}, {gaps:.3?}");
    assert!(mean < 0.06, "mean gap {mean}");
}

#[test]
fn models_of_different_latency_get_groups_of_their_own_if_that_serves_more() {
    let mut problem = setting(4, 8, 30.0, 3.0, 4.0, 1_000, 5).problem();
    problem.profiles.push(problem.profiles[0].scaled(8.0).unwrap());
    for number in [1, 3] {
        problem.models[number].profile = 1;
        problem.models[number].objective_s = 3.2;
    }
    let placed = alpaserve::place(&problem).unwrap();
    check(&problem, &placed.placement);
    println!("{} attains {:.3}", placed.placement, placed.attainment);
    assert!(placed.value >= replicate(&problem).unwrap().value);
}
