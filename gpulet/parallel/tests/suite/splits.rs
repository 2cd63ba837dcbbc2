//! Split points: the dynamic program against trying everything, and the genetic search against the dynamic program.

use model_parallel::ap2::genetic_split;
use model_parallel::chain::{Chain, Layer};
use model_parallel::device::{Device, Link};
use model_parallel::split::{Problem, Split, best_split, even_split};
use model_parallel::{Effort, Objective, ParallelError};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

fn layers(values: &[(f64, u64, u64)]) -> Chain {
    let layer = |(place, (latency_s, memory_bytes, output_bytes)): (usize, &(f64, u64, u64))| Layer {
        name: format!("layer {place}"),
        latency_s: *latency_s,
        memory_bytes: *memory_bytes,
        output_bytes: *output_bytes,
    };
    Chain::new(values.iter().enumerate().map(layer).collect()).unwrap()
}

fn devices(values: &[(f64, u64)]) -> Vec<Device> {
    let device = |(place, (speed, memory_bytes)): (usize, &(f64, u64))| Device {
        name: format!("device {place}"),
        speed: *speed,
        memory_bytes: *memory_bytes,
    };
    values.iter().enumerate().map(device).collect()
}

/// Every choice of split points with every order of devices.
fn brute_force(problem: &Problem) -> Option<f64> {
    fn orders(left: &[usize], chosen: &mut Vec<usize>, count: usize, visit: &mut impl FnMut(&[usize])) {
        if chosen.len() == count {
            return visit(chosen);
        }
        for place in 0..left.len() {
            let mut rest = left.to_vec();
            chosen.push(rest.remove(place));
            orders(&rest, chosen, count, visit);
            chosen.pop();
        }
    }
    fn ends(
        from: usize,
        layers: usize,
        count: usize,
        chosen: &mut Vec<usize>,
        visit: &mut impl FnMut(&[usize]),
    ) {
        if count == 0 {
            return visit(chosen);
        }
        for end in from + 1..layers {
            chosen.push(end);
            ends(end, layers, count - 1, chosen, visit);
            chosen.pop();
        }
    }
    let all: Vec<usize> = (0..problem.devices().len()).collect();
    let mut best: Option<f64> = None;
    orders(&all, &mut Vec::new(), problem.stages(), &mut |order| {
        ends(0, problem.chain().len(), problem.stages() - 1, &mut Vec::new(), &mut |ends| {
            if let Some(found) = problem.evaluate(ends, order) {
                let cost = found.cost_s(problem.objective());
                best = Some(best.map_or(cost, |best| best.min(cost)));
            }
        });
    });
    best
}

fn problems(layers_max: usize, devices_max: usize) -> impl Strategy<Value = Problem> {
    let layer = (0.001..0.1_f64, 1..100_u64, 0..1_000_u64);
    // Memory grows with the layers, so that most problems can be solved and some cannot.
    let memory = u64::try_from(layers_max).unwrap() * 6;
    let device = prop_oneof![Just((1.0, 6 * memory)), (0.25..4.0_f64, memory..12 * memory)];
    let sizes = (2..=layers_max, 1..=devices_max);
    sizes.prop_flat_map(move |(layers_count, devices_count)| {
        let layer_list = prop::collection::vec(layer.clone(), layers_count);
        let device_list = prop::collection::vec(device.clone(), devices_count);
        let stages = 1..=devices_count.min(layers_count);
        let objective = prop_oneof![Just(Objective::Bottleneck), Just(Objective::Latency)];
        let speed = prop_oneof![Just(f64::INFINITY), 1e3..1e6_f64];
        (layer_list, device_list, stages, objective, speed).prop_map(
            |(layer_list, device_list, stages, objective, bytes_per_second)| {
                let link = Link { latency_s: 0.001, bytes_per_second };
                Problem::new(layers(&layer_list), devices(&device_list), link, stages, objective).unwrap()
            },
        )
    })
}

fn same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-12 * one.abs().max(1.0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn the_dynamic_program_equals_brute_force(problem in problems(8, 4)) {
        match (best_split(&problem), brute_force(&problem)) {
            (Ok(found), Some(best)) => prop_assert!(same(found.cost_s(problem.objective()), best), "{found:?}, best {best}"),
            (Err(ParallelError::DoesNotFit { .. }), None) => {}
            (found, best) => prop_assert!(false, "{found:?}, brute force {best:?}"),
        }
    }

    #[test]
    fn splits_are_valid(problem in problems(40, 6)) {
        let Ok(found) = best_split(&problem) else { return Ok(()) };
        prop_assert_eq!(found.stages.len(), problem.stages());
        let mut next = 0;
        let mut used = std::collections::BTreeSet::new();
        for stage in &found.stages {
            prop_assert_eq!(stage.from, next);
            prop_assert!(stage.to > stage.from);
            prop_assert!(stage.memory_bytes <= problem.devices()[stage.device].memory_bytes);
            prop_assert!(used.insert(stage.device), "device {} runs two stages", stage.device);
            next = stage.to;
        }
        prop_assert_eq!(next, problem.chain().len());
        prop_assert!(found.balance() <= 1.0 + 1e-9);
        if let Ok(even) = even_split(&problem) {
            prop_assert!(found.cost_s(problem.objective()) <= even.cost_s(problem.objective()) + 1e-12);
        }
    }
}

#[test]
fn the_fast_device_gets_most_layers() {
    let chain = layers(&[(0.01, 10, 0); 12]);
    let unequal = devices(&[(1.0, 1_000), (3.0, 1_000)]);
    let problem = Problem::new(chain, unequal, Link::INSTANT, 2, Objective::Bottleneck).unwrap();
    let found = best_split(&problem).unwrap();
    let layers: Vec<(usize, usize)> =
        found.stages.iter().map(|stage| (stage.device, stage.to - stage.from)).collect();
    assert!(layers.contains(&(0, 3)) && layers.contains(&(1, 9)), "{layers:?}");
    assert!(same(found.bottleneck_s, 0.03));
}

#[test]
fn a_split_avoids_the_large_tensor() {
    let chain = layers(&[(0.01, 10, 10), (0.01, 10, 1_000_000), (0.01, 10, 10), (0.01, 10, 0)]);
    let link = Link { latency_s: 0.0, bytes_per_second: 1e6 };
    let problem = Problem::new(chain, devices(&[(1.0, 100); 2]), link, 2, Objective::Bottleneck).unwrap();
    let found = best_split(&problem).unwrap();
    assert_eq!(found.stages[0].sent_bytes, 10, "{found:?}");
}

/// The gap of the genetic search over 200 random chains of 60 layers on 5 unequal devices.
#[test]
fn the_genetic_search_stays_close_to_the_optimum() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut gaps = Vec::new();
    let mut missed = 0;
    for seed in 0..200 {
        let problem = problems(60, 5).new_tree(&mut runner).unwrap().current();
        let Ok(best) = best_split(&problem) else { continue };
        let cost = |split: &Split| split.cost_s(problem.objective());
        match genetic_split(&problem, Effort::default(), seed) {
            Ok(found) => gaps.push(cost(&found) / cost(&best) - 1.0),
            Err(_) => missed += 1,
        }
    }
    gaps.sort_by(f64::total_cmp);
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let worst = gaps.last().unwrap();
    println!(
        "gap of ap2: {} problems, mean {:.2} %, worst {:.2} %, {missed} not solved",
        gaps.len(),
        100.0 * mean,
        100.0 * worst
    );
    assert!(gaps[0] >= -1e-9, "better than the optimum: {}", gaps[0]);
    assert!(mean < 0.05, "mean gap {mean}");
}

#[test]
fn the_same_seed_gives_the_same_split() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..10 {
        let problem = problems(30, 4).new_tree(&mut runner).unwrap().current();
        let run = |seed| genetic_split(&problem, Effort { population: 16, generations: 10 }, seed);
        assert_eq!(run(5), run(5));
    }
}
