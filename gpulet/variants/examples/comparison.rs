//! Compares the planner with the lower bound and the published policies on random questions.
//!
//! ```sh
//! cargo run --release -p variant-plan --example comparison -- [QUESTIONS] [FIRST_SEED]
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::placement::Policy;
use gpulet_core::problem::{Device, DeviceType, Problem, Workload};
use gpulet_core::profile::Profile;
use gpulet_core::validate::validate;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use variant_plan::{Family, Fluid, Question, SpotRules, Variant, plan, published};

/// Prices per hour and speeds next to a T4, as of on-demand machines with one such GPU.
const KINDS: [(&str, u32, f64, f64); 3] =
    [("t4", 4, 1.0, 0.35), ("l4", 6, 2.2, 0.70), ("v100", 8, 2.8, 2.48)];
const BATCHES: [u32; 6] = [1, 2, 4, 8, 16, 32];

fn profile(model: &str, (fixed, row): (f64, f64), (device, units, speed): (&str, u32, f64)) -> String {
    let mut text = format!(
        r#"{{"profile":{{"version":1,"model":"{model}","device":"{device}","engine":"linear","source":"synthesised","units_total":{units}}}}}"#
    );
    for batch in BATCHES {
        for own in 1..=units {
            let us = 1e3 * (fixed + row * f64::from(batch) * f64::from(units) / f64::from(own)) / speed;
            let _ = write!(
                text,
                "\n{{\"cell\":{{\"batch\":{batch},\"units\":{own},\"p50_us\":{us},\"p95_us\":{us},\"p99_us\":{us},\"count\":100}}}}"
            );
        }
    }
    text
}

fn devices() -> Vec<Device> {
    let mut devices = Vec::new();
    for (name, units, _, cost) in KINDS {
        let device_type = Arc::new(DeviceType {
            name: name.to_owned(),
            units,
            sizes: (1..=units).collect(),
            gpulets_max: 8,
            base_bytes: 0,
            gpulet_bytes: 0,
        });
        devices.extend((0..8).map(|at| Device {
            name: format!("{name}-{at}").into(),
            device_type: Arc::clone(&device_type),
            memory_bytes: 16 << 30,
            fault_domain: format!("{name}-{at}"),
            cost,
        }));
    }
    devices
}

/// Two to four families of two to four variants. Each better variant takes 1.3 to 2.5 times longer; how much faster another type of
/// device is differs by model.
fn question(seed: u64) -> Question {
    let mut draw = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut families, mut profiles) = (Vec::new(), Vec::new());
    for number in 0..draw.random_range(2..=4) {
        let mut size = draw.random_range(1.0..4.0);
        let mut quality = draw.random_range(0.6..0.8);
        let speeds: Vec<f64> = KINDS.iter().map(|kind| kind.2 * draw.random_range(0.7..1.3)).collect();
        let mut variants = Vec::new();
        for variant in 0..draw.random_range(2..=4) {
            let model = format!("{number}-{variant}");
            let times = (size * draw.random_range(0.5..1.5), size * draw.random_range(0.2..0.8));
            for ((name, units, ..), speed) in KINDS.iter().zip(&speeds) {
                profiles.extend(
                    Profile::read(&profile(&model, times, (name, *units, *speed))).unwrap_or_default(),
                );
            }
            variants.push(Variant::of_model(model, quality));
            quality += draw.random_range(0.01..0.06);
            size *= draw.random_range(1.3..2.5);
        }
        let worst = variants.first().map_or(0.0, |variant| variant.quality);
        let best = variants.last().map_or(0.0, |variant| variant.quality);
        families.push(Family {
            name: format!("family-{number}"),
            demand: Workload {
                name: format!("family-{number}"),
                model: String::new(),
                tenant: String::new(),
                not_with: Vec::new(),
                slo_us: 1e3 * draw.random_range(40.0..250.0),
                rate: draw.random_range(50.0..2_500.0),
                headroom: 1.0,
                replicas_min: 1,
                batch_max: 32,
            },
            quality_min: 0.0,
            quality_mean: worst + draw.random_range(0.0..1.0) * (best - worst),
            variants,
        });
    }
    let none = Interference::NoInterference(NoInterference);
    let made = Problem::new(devices(), Vec::new(), profiles, none)
        .and_then(|problem| Question::new(problem, families, SpotRules::default()));
    made.unwrap_or_else(|error| {
        eprintln!("seed {seed}: {error}");
        std::process::exit(1)
    })
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = (part * (sorted.len().max(1) - 1) as f64).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
    sorted.get(at as usize).copied().unwrap_or(f64::NAN)
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let questions = arguments.next().and_then(Result::ok).unwrap_or(100);
    let first = arguments.next().and_then(Result::ok).unwrap_or(0);
    let (mut planned, mut gaps, mut ratios): (u64, Vec<f64>, BTreeMap<&str, Vec<f64>>) = Default::default();
    for seed in first..first + questions {
        let question = question(seed);
        let Some(own) = plan(&question, &Policy::default()) else { continue };
        planned += 1;
        let bound = Fluid::cheapest(&question, 1.0).map_or(f64::NAN, |bound| bound.cost);
        gaps.push(own.validation.cost / bound - 1.0);
        let temporal = plan(&question, &Policy::named("temporal").unwrap_or_default())
            .map(|found| found.validation.cost);
        let mut note = |name, cost: Option<f64>| {
            if let Some(cost) = cost {
                ratios.entry(name).or_default().push(cost / own.validation.cost);
            }
        };
        note("own mixes on whole devices (temporal)", temporal);
        for name in published::names() {
            let proposal = published::propose(name, &question);
            let validation = proposal.map(|proposal| validate(&proposal.problem, &proposal.plan));
            note(name, validation.filter(|found| found.is_sound()).map(|found| found.cost));
        }
    }
    gaps.sort_by(f64::total_cmp);
    println!(
        "{planned} of {questions} questions from seed {first} have a plan; cost over the bound: median {:.1} %, p90 {:.1} %, most {:.1} %",
        100.0 * quantile(&gaps, 0.5),
        100.0 * quantile(&gaps, 0.9),
        100.0 * quantile(&gaps, 1.0)
    );
    println!(
        "\n| policy | sound plans | cost, in parts of ours: median | least | most | cheaper than ours |\n|---|--:|--:|--:|--:|--:|"
    );
    for (name, mut ratios) in ratios {
        ratios.sort_by(f64::total_cmp);
        let cheaper = ratios.iter().filter(|ratio| **ratio < 1.0 - 1e-9).count();
        println!(
            "| {name} | {} | {:.2} | {:.2} | {:.2} | {cheaper} |",
            ratios.len(),
            quantile(&ratios, 0.5),
            quantile(&ratios, 0.0),
            quantile(&ratios, 1.0)
        );
    }
}
