//! Figures of papers, on the published data where it is at hand. `docs/parallel.md` lists them.

use model_parallel::placement::{Overheads, Problem, alpaserve, replication};
use model_parallel::profile::ModelProfile;
use model_parallel::simulation::{Window, events, stage_clocks};
use model_parallel::traffic::{self, Shares};
use model_parallel::two_models::{Comparison, Example};
use model_parallel::verdict::{Better, compare};

use crate::data;
use crate::fixtures::Setting;

/// bert-6.7b on a V100, 3 requests a second, means over seeds.
fn two_models(overhead: f64, rates: [f64; 2], cv: f64, duration_s: f64, seeds: u64) -> Comparison {
    let example = Example { latency_s: 0.396_247, overhead, rates, cv, duration_s };
    let runs: Vec<Comparison> = (1..=seeds).map(|seed| example.compare(seed).unwrap()).collect();
    let mean = |of: fn(&Comparison) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    Comparison { simple_s: mean(|run| run.simple_s), pipeline_s: mean(|run| run.pipeline_s) }
}

/// Poisson, gain at CV 3, and gain with rates of 20/80, for even stages and for stages that are 2 % slower.
fn two_models_cases(duration_s: f64, seeds: u64) -> [(Comparison, f64, f64); 2] {
    [0.0, 0.02].map(|overhead| {
        let poisson = two_models(overhead, [1.5, 1.5], 1.0, duration_s, seeds);
        let bursty = two_models(overhead, [1.5, 1.5], 3.0, duration_s, seeds).gain();
        let skewed = two_models(overhead, [0.6, 2.4], 1.0, duration_s, seeds).gain();
        let (simple, pipeline) = (poisson.simple_s, poisson.pipeline_s);
        println!(
            "overhead {overhead}: {simple:.3} -> {pipeline:.3} s, CV 3 {bursty:.2}x, 20/80 {skewed:.2}x"
        );
        (poisson, bursty, skewed)
    })
}

/// AlpaServe, figure 2. The paper has 0.70 -> 0.55 s (1.3x), 1.9x and 6.6x.
#[test]
fn two_models_share_two_devices() {
    let [even, uneven] = two_models_cases(50_000.0, 6);
    for (poisson, ..) in [&even, &uneven] {
        assert!(
            (poisson.simple_s - 0.69).abs() < 0.01 && (0.53..0.57).contains(&poisson.pipeline_s),
            "{poisson:?}"
        );
    }
    assert!(uneven.1 > 1.75 && even.1 < 2.05, "CV 3: {} to {}", uneven.1, even.1);
    // At a load of 95 %, means converge slowly.
    assert!(uneven.2 > 5.6 && even.2 < 7.2, "20/80: {} to {}", uneven.2, even.2);
}

#[test]
#[ignore = "minutes; prints the figures of docs/parallel.md"]
fn two_models_over_many_seeds() {
    let [even, uneven] = two_models_cases(200_000.0, 60);
    assert!((1.80..2.0).contains(&uneven.1) && (6.0..6.6).contains(&even.2), "{uneven:?} {even:?}");
}

struct Attained {
    replicated: f64,
    placed: f64,
    /// The same placements in the detailed simulator.
    replicated_events: f64,
    placed_events: f64,
    shape: String,
}

/// Placed on one seed, simulated on another: 200 s without the first and the last 10 s.
fn attained(setting: &Setting, seeds: std::ops::Range<u64>) -> Attained {
    let problem = setting.problem();
    let rates: Vec<f64> = problem.models.iter().map(|model| model.rate).collect();
    let placements = [replication::replicate(&problem).unwrap(), alpaserve::place(&problem).unwrap()];
    let objectives = problem.objectives_s();
    let count = (seeds.end - seeds.start) as f64;
    let mut sums = [[0.0; 2]; 2];
    for seed in seeds {
        let requests = traffic::requests(&rates, setting.cv, 200.0, seed).unwrap();
        for (score, sums) in placements.iter().zip(&mut sums) {
            let system = problem.system(&score.placement).unwrap();
            let fast = stage_clocks(&system, &requests, problem.overheads.fixed_s);
            sums[0] += fast.report(&requests, &objectives, Window::PUBLISHED).attainment / count;
            let measured = Problem { overheads: Overheads::NONE, ..problem.clone() };
            let detailed = events(&measured.system(&score.placement).unwrap(), &requests, seed);
            sums[1] += detailed.report(&requests, &objectives, Window::PUBLISHED).attainment / count;
        }
    }
    Attained {
        replicated: sums[0][0],
        placed: sums[1][0],
        replicated_events: sums[0][1],
        placed_events: sums[1][1],
        shape: placements[1].placement.to_string(),
    }
}

fn setting(profile: &ModelProfile, models: usize, rate: f64, slo_scale: f64) -> Setting {
    Setting {
        profile: profile.clone(),
        models,
        devices: 16,
        memory_bytes: 13_958_643_712,
        rate,
        cv: 4.0,
        slo_scale,
        duration_s: (30_000.0 / rate).max(100.0),
        seed: 0,
    }
}

/// Ours: bert-1.3b as measured, 16 devices, 24 and 32 models, power-law rates, CV 4.
#[test]
fn bert_1_3b_on_16_devices() {
    let Some(profile) = data::bert() else { return };
    for (models, rate) in [(24, 60.0), (32, 80.0)] {
        for slo_scale in [1.5, 2.0, 3.0, 5.0, 10.0] {
            let found = attained(&setting(&profile, models, rate, slo_scale), 1_001..1_004);
            println!(
                "{models} models, {rate}/s, SLO {slo_scale}x: replication {:.3} (events {:.3}), alpaserve {:.3} (events {:.3}), {}",
                found.replicated, found.replicated_events, found.placed, found.placed_events, found.shape
            );
            assert!(found.placed > found.replicated - 0.01, "SLO {slo_scale}x");
        }
    }
}

/// The table of AlpaServe's simulator, with a profile that is scaled from bert-1.3b: bert-2.6b was not published.
#[test]
fn bert_2_6b_table_in_shape() {
    let (Some(profile), Some(table)) = (data::bert(), data::alpaserve("align_sim_vs_real.csv")) else {
        return;
    };
    let profile = profile.scaled(0.148 / profile.single_s()).unwrap();
    // Twice the weights.
    let times = profile.layouts().map(|(layout, stages)| (layout, stages.times_s.clone())).collect();
    let profile =
        ModelProfile::new("bert-2.6b, scaled", times, 2 * data::BERT_1_3B_BYTES).unwrap().without_mixed();
    let rates = traffic::rates(40.0, 24, Shares::PowerLaw { exponent: 0.5 }).unwrap();
    assert_eq!(rates.len(), 24);
    let published = |policy: &str, slo: f64| {
        let rows = table
            .lines()
            .map(|line| line.split(',').collect::<Vec<_>>())
            .filter(|row| row.last() == Some(&"simulate"));
        let row = rows.into_iter().find(|row| row[11] == policy && row[9].parse() == Ok(slo)).unwrap();
        row[13].parse::<f64>().unwrap()
    };
    let mut worst: f64 = 0.0;
    for slo_scale in [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0] {
        let found = attained(&setting(&profile, 24, 40.0, slo_scale), 1_001..1_004);
        let (replicated, placed) = (published("sr-greedy", slo_scale), published("mp-search", slo_scale));
        println!(
            "SLO {slo_scale}x: replication {:.3} (paper {replicated}; events {:.3}), alpaserve {:.3} (paper {placed}; events {:.3}), {}",
            found.replicated, found.replicated_events, found.placed, found.placed_events, found.shape
        );
        worst = worst.max((found.replicated - replicated).abs()).max((found.placed - placed).abs());
    }
    println!("largest difference {worst:.3}");
    assert!(worst < 0.12, "largest difference {worst}");
}

/// Ours: when splitting bert-1.3b over devices gains and when it loses, with pure layouts.
#[test]
fn verdicts_on_bert_1_3b() {
    let Some(profile) = data::bert() else { return };
    let profile = profile.without_mixed();
    const GIB: u64 = 1 << 30;
    for (memory, rate, cv, slo_scale, expected) in [
        (13 * GIB, 60.0, 4.0, 5.0, Some(Better::Split)),
        (13 * GIB, 60.0, 4.0, 1.5, Some(Better::Split)),
        (5 * GIB, 60.0, 1.0, 5.0, None),
        (70 * GIB, 60.0, 4.0, 5.0, None),
        (70 * GIB, 150.0, 4.0, 10.0, None),
        (70 * GIB, 200.0, 4.0, 5.0, Some(Better::Replicated)),
    ] {
        let base = setting(&profile, 24, rate, slo_scale);
        let problem = Setting { memory_bytes: memory, cv, ..base }.problem();
        let rates: Vec<f64> = problem.models.iter().map(|model| model.rate).collect();
        let requests = traffic::requests(&rates, cv, 200.0, 1_001).unwrap();
        let verdict = compare(&problem, &requests, Window::PUBLISHED).unwrap();
        println!(
            "{} GiB, {rate}/s, CV {cv}, SLO {slo_scale}x: replication {:.3} ({:.0} ms), split {:.3} ({:.0} ms), {}, {:?}",
            memory / GIB,
            verdict.replicated.attainment,
            1e3 * verdict.replicated.mean_s,
            verdict.split.attainment,
            1e3 * verdict.split.mean_s,
            verdict.split_placement,
            verdict.outcome
        );
        for reason in &verdict.reasons {
            println!("    {reason}");
        }
        assert!(expected.is_none_or(|expected| verdict.outcome == expected), "{verdict:?}");
    }
}
