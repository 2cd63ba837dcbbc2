//! Layouts of a transformer on unequal GPUs, after HexGen.

use model_parallel::device::Link;
use model_parallel::hexgen::{
    Machine, Pool, StageSize, Task, Traffic, Transformer, best_groups, best_pipeline, evaluate_pipeline,
    genetic_groups, symmetric_pipelines,
};
use model_parallel::{Effort, Objective, ParallelError, traffic};

/// HexGen's example: four A6000, two A5000 and two A4000 in three machines, linked by 10 Gbit/s.
fn example() -> Pool {
    let machine = |word, gpus| Machine::of_type(word, gpus).unwrap();
    Pool {
        model: Transformer::llama2_70b(),
        machines: vec![machine("a6000", 4), machine("a5000", 2), machine("a4000", 2)],
        network: Link { latency_s: 100e-6, bytes_per_second: 1.25e9 },
        task: Task { prompt_tokens: 128, output_tokens: 32, concurrent: 1 },
    }
}

#[test]
fn unequal_stages_fit_where_symmetric_ones_do_not() {
    let pool = example();
    for symmetric in symmetric_pipelines(&pool).unwrap() {
        println!("{} stages: {:?}", symmetric.stages, symmetric.plan);
        assert!(matches!(symmetric.plan, Err(ParallelError::DoesNotFit { .. })), "{symmetric:?}");
    }
    let published = evaluate_pipeline(&pool, &[(0, 4, 48), (1, 2, 20), (2, 2, 12)]).unwrap().unwrap();
    println!(
        "HexGen: {}: bottleneck {:.3} s, latency {:.3} s",
        published.shape(),
        published.bottleneck_s,
        published.latency_s
    );
    for (size, objective) in [
        (StageSize::WholeMachine, Objective::Bottleneck),
        (StageSize::PartOfMachine, Objective::Bottleneck),
        (StageSize::PartOfMachine, Objective::Latency),
    ] {
        let found = best_pipeline(&pool, &pool.gpus(), size, objective).unwrap().unwrap();
        println!(
            "{size:?} {objective:?}: {}: bottleneck {:.3} s, latency {:.3} s",
            found.shape(),
            found.bottleneck_s,
            found.latency_s
        );
        for stage in &found.stages {
            assert!(stage.memory_bytes <= pool.machines[stage.machine].memory_bytes, "{stage:?}");
        }
        assert_eq!(found.stages.iter().map(|stage| stage.layers).sum::<usize>(), 80);
        assert_eq!(found.stages.iter().map(|stage| stage.gpus).sum::<usize>(), 8);
        assert!(found.cost_s(objective) <= published.cost_s(objective), "{found:?}");
    }
    // Shares of layers follow the machines, as in HexGen's layout.
    let found =
        best_pipeline(&pool, &pool.gpus(), StageSize::WholeMachine, Objective::Bottleneck).unwrap().unwrap();
    let of = |machine| found.stages.iter().find(|stage| stage.machine == machine).unwrap().layers;
    assert!(
        of(0).abs_diff(48) <= 4 && of(1).abs_diff(20) <= 4 && of(2).abs_diff(12) <= 4,
        "{}",
        found.shape()
    );
}

/// Every composition of the layers over every order of choices, for a small model.
fn brute_force(pool: &Pool, objective: Objective) -> Option<f64> {
    fn walk(
        pool: &Pool,
        left: Vec<usize>,
        from: usize,
        cost: f64,
        objective: Objective,
        best: &mut Option<f64>,
    ) {
        if from == pool.model.layers {
            if left.iter().all(|gpus| *gpus == 0) {
                *best = Some(best.map_or(cost, |best| best.min(cost)));
            }
            return;
        }
        for machine in 0..left.len() {
            for degree in [1, 2, 4].into_iter().filter(|degree| *degree <= left[machine]) {
                for to in from + 1..=pool.model.layers {
                    let mut alone = pool.clone();
                    alone.machines = vec![pool.machines[machine].clone()];
                    alone.machines[0].gpus = degree;
                    let Some(time) = single_stage(&alone, degree, to - from, to == pool.model.layers) else {
                        continue;
                    };
                    let total = match objective {
                        Objective::Bottleneck => cost.max(time),
                        Objective::Latency => cost + time,
                    };
                    let mut rest = left.clone();
                    rest[machine] -= degree;
                    walk(pool, rest, to, total, objective, best);
                }
            }
        }
    }
    let mut best = None;
    walk(pool, pool.gpus(), 0, 0.0, objective, &mut best);
    best
}

/// Seconds of one stage, computed independently of the crate from the formulas in its documentation.
fn single_stage(pool: &Pool, degree: usize, layers: usize, last: bool) -> Option<f64> {
    let (model, machine, task) = (&pool.model, &pool.machines[0], &pool.task);
    let (prompt, output) = (f64::from(task.prompt_tokens), f64::from(task.output_tokens));
    let cache = model.cache_bytes as f64 * (prompt + output) * f64::from(task.concurrent);
    let share = degree as f64;
    if layers as f64 * (model.layer_bytes as f64 + cache) / share > machine.memory_bytes as f64 {
        return None;
    }
    let activations = |tokens: f64| 2.0 * model.hidden as f64 * tokens;
    let pass = |tokens: f64| {
        let reading = model.layer_bytes as f64 / machine.bandwidth / share;
        let computing = model.layer_bytes as f64 * tokens / machine.flops / share;
        let exchange = machine.link.latency_s
            + activations(tokens) * 2.0 * (share - 1.0) / share / machine.link.bytes_per_second;
        layers as f64 * (reading.max(computing) + if degree > 1 { 2.0 * exchange } else { 0.0 })
    };
    let hand_over =
        |tokens: f64| pool.network.latency_s + activations(tokens) / pool.network.bytes_per_second;
    let total = |of: &dyn Fn(f64) -> f64| of(prompt) + output * of(1.0);
    Some(total(&pass) + if last { 0.0 } else { total(&hand_over) })
}

#[test]
fn the_dynamic_program_equals_brute_force_on_small_models() {
    for layers in 3..=7 {
        for memory in [2, 4, 8] {
            for objective in [Objective::Bottleneck, Objective::Latency] {
                let mut pool = example();
                pool.model.layers = layers;
                pool.machines[0].gpus = 2;
                for machine in &mut pool.machines {
                    machine.memory_bytes = memory * 1_000_000_000;
                }
                let found = best_pipeline(&pool, &pool.gpus(), StageSize::PartOfMachine, objective).unwrap();
                let best = brute_force(&pool, objective);
                match (&found, best) {
                    (Some(found), Some(best)) => {
                        let cost = found.cost_s(objective);
                        assert!(
                            (cost / best - 1.0).abs() < 1e-9,
                            "{layers} layers, {memory} GB: {cost} s, best {best} s"
                        );
                    }
                    (None, None) => {}
                    _ => panic!("{layers} layers, {memory} GB: {found:?}, brute force {best:?}"),
                }
            }
        }
    }
}

#[test]
fn the_genetic_search_for_groups_finds_the_best_division() {
    let mut pool = example();
    // A model of 13 billion parameters, which several groups can hold.
    pool.model = Transformer { layers: 40, layer_bytes: 634_000_000, hidden: 5_120, cache_bytes: 20_480 };
    let mut worst: f64 = 0.0;
    for seed in 0..3 {
        let requests = traffic::requests(&[7.0], 2.0, 300.0, seed).unwrap();
        let traffic = Traffic { requests, objective_s: 2.0 };
        let best = best_groups(&pool, &traffic, Objective::Latency).unwrap();
        let effort = Effort { population: 32, generations: 30 };
        let found = genetic_groups(&pool, &traffic, Objective::Latency, effort, seed).unwrap();
        println!(
            "seed {seed}: {} groups, attainment {:.3}; best {} groups, {:.3}",
            found.pipelines.len(),
            found.attainment,
            best.pipelines.len(),
            best.attainment
        );
        assert!(found.cost >= best.cost - 1e-12);
        worst = worst.max(best.attainment - found.attainment);
        assert_eq!(found, genetic_groups(&pool, &traffic, Objective::Latency, effort, seed).unwrap());
    }
    assert!(worst < 0.02, "{worst} below the best division");
}
