//! All mixes of four models at four rates, on the complete public tables: ours carries what temporal sharing and gpulet carry.

use gpulet_core::interference::{Gpulet, Interference, NoInterference};
use gpulet_core::placement::Policy;
use gpulet_core::problem::{Problem, Workload};
use gpulet_core::profile::{Line, Profile, Quantile};
use gpulet_core::validate::validate;

use crate::data::{cell, count, number, rows, utilisation};
use crate::support::{assert_no_violations, devices, fifths, header, workload};

/// Rates of the mixes, relative to the capacity of a whole device for the model.
const LEVELS: [f64; 4] = [0.0, 0.25, 0.5, 1.0];
/// Number of GPUs in every problem.
const GPUS: usize = 2;
/// The lowest scale that is tried, as a power of `STEP`.
const LOWEST: i32 = -250;
/// Ratio between successive scales of a mix.
const STEP: f64 = 1.02;

struct Table {
    name: &'static str,
    profiles: Vec<Profile>,
    interference: Interference,
}

fn table(name: &'static str, models: [&'static str; 4], coefficients: [f64; 5]) -> Table {
    let cells = rows(&format!("planner-profiles/profile_{name}.csv"));
    let of = |model: &str| {
        let mut lines = vec![Line::Profile(header(model, 100))];
        let own = cells.iter().filter(|row| row["model"] == model);
        lines.extend(own.map(|row| {
            cell(count(row, "batch"), count(row, "partition_pct"), 1e3 * number(row, "latency_ms"))
        }));
        lines.extend(utilisation(&format!("planner-profiles/utilisation_{name}.csv"), model));
        Profile::of_lines(lines).unwrap().remove(0)
    };
    Table {
        name,
        profiles: models.map(of).into(),
        interference: Interference::Gpulet(Gpulet { coefficients }),
    }
}

/// Four models whose objective is `slack` times the solo latency of batch 1, at the capacity of one device.
fn base(table: &Table, slack: f64) -> Vec<Workload> {
    let of = |profile: &Profile| {
        let slo_us = slack * profile.latency_us(Quantile::P99, 1, 100).unwrap();
        let batches = (1..=32).filter_map(|batch| {
            let time = profile.latency_us(Quantile::P99, batch, 100).unwrap();
            (2.0 * time <= slo_us).then_some(1e6 * f64::from(batch) / time)
        });
        workload(profile.model(), slo_us / 1e3, batches.fold(0.0, f64::max))
    };
    table.profiles.iter().map(of).collect()
}

fn problem(table: &Table, base: &[Workload], levels: [f64; 4], scale: f64) -> Problem {
    let scaled = base.iter().zip(levels).filter(|(_, level)| *level > 0.0);
    let workloads =
        scaled.map(|(one, level)| Workload { rate: one.rate * level * scale, ..one.clone() }).collect();
    Problem::new(devices(&fifths(), GPUS), workloads, table.profiles.clone(), table.interference.clone())
        .unwrap()
}

fn serves(policy: &Policy, problem: &Problem) -> bool {
    let placed = policy.place(problem);
    assert_no_violations();
    placed.is_ok_and(|plan| validate(problem, &plan).is_sound())
}

/// The largest power of `STEP` by which the mix can be scaled, by bisection.
fn carried(policy: &Policy, at: impl Fn(i32) -> Problem) -> Option<i32> {
    let serves = |power: i32| serves(policy, &at(power));
    let (mut low, mut high) = (LOWEST, 150);
    if !serves(low) {
        return None;
    }
    while high - low > 1 {
        let middle = i32::midpoint(low, high);
        if serves(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

fn mixes() -> impl Iterator<Item = [f64; 4]> {
    (1_usize..256).map(|mix| [0, 2, 4, 6].map(|shift| LEVELS[mix >> shift & 3]))
}

fn compare(table: &Table, slack: f64) {
    let base = base(table, slack);
    let policy = |name| Policy::named(name).unwrap();
    let ours = policy("tessera");
    let mut compared = 0;
    for levels in mixes() {
        let at = |power: i32| problem(table, &base, levels, STEP.powi(power));
        let theirs = ["temporal", "gpulet"].map(|name| carried(&policy(name), at));
        let Some(&most) = theirs.iter().flatten().max() else { continue };
        assert!(serves(&ours, &at(most)), "{levels:?} at {most}: temporal and gpulet carry {theirs:?}");
        compared += 1;
    }
    println!("{} {slack}x, interference {}: {compared} mixes", table.name, table.interference.name());
    assert!(compared > 200, "{compared} mixes that others carry: too few to compare");
}

#[test]
#[ignore = "needs the data folder"]
fn ours_carries_every_mix_that_temporal_or_gpulet_carries() {
    let v100 = [-0.008_310_101, -0.086_101_666, -0.029_915_464, 0.135_191_487, 1.092_426_401];
    let v100 = table("v100", ["alexnet", "resnet50", "vgg19", "ssd"], v100);
    let other = [0.885_195_592, -0.921_397_305, -2.470_005_997, 0.312_781_661, 1.609_073_707];
    let other = table("thirdparty", ["inception", "resnet50", "mobilenet", "densenet121"], other);
    for table in [v100, other] {
        let undisturbed = Table {
            interference: Interference::NoInterference(NoInterference),
            profiles: table.profiles.clone(),
            ..table
        };
        let both = [&table, &undisturbed];
        std::thread::scope(|scope| {
            for table in both {
                scope.spawn(|| [4.0, 8.0].iter().for_each(|&slack| compare(table, slack)));
            }
        });
    }
}
