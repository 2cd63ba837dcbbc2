//! Predictions against the pairs that were measured on a V100, and against what iGniter's authors publish.

use std::collections::{BTreeMap, BTreeSet};

use gpulet_core::interference::{
    Contention, DevicePower, Errors, Gpulet, Igniter, Interference, Learned, Learner, Load, Runner, Sample,
    cross_validated, errors, least_squares,
};
use gpulet_core::profile::{Profile, Quantile};

use crate::data::{Row, count, measured_v100, number, rows};
use crate::support::igniter_profile;

/// One measured latency: the model, the co-located model, and the slowdown.
struct Measured {
    row: u32,
    pair: u32,
    own: (String, u32, u32),
    other: (String, u32, u32),
    factor: f64,
}

struct Pairs {
    profiles: BTreeMap<String, Profile>,
    measured: Vec<Measured>,
}

impl Pairs {
    fn read() -> Self {
        let models = ["alexnet", "resnet50", "vgg19", "ssd"];
        let profiles: BTreeMap<_, _> = models.map(|model| (model.to_owned(), measured_v100(model))).into();
        let rows = rows("igniter/v100_pairs.csv");
        let names: BTreeSet<_> =
            rows.iter().map(|row| (row["model1"].clone(), row["model2"].clone())).collect();
        let mut measured = Vec::new();
        for (position, row) in rows.iter().enumerate() {
            let pair = names.iter().position(|pair| *pair == (row["model1"].clone(), row["model2"].clone()));
            let side = |number: u32, row: &Row| {
                let units = count(row, &format!("partition{number}_pct")) * 2 / 5;
                (row[&format!("model{number}")].clone(), count(row, &format!("batch{number}")), units)
            };
            for (own, other) in [(1, 2), (2, 1)] {
                let (model, batch, units) = side(own, row);
                let alone = profiles[&model].latency_us(Quantile::P50, batch, units).unwrap();
                measured.push(Measured {
                    row: u32::try_from(position).unwrap(),
                    pair: u32::try_from(pair.unwrap()).unwrap(),
                    own: (model, batch, units),
                    other: side(other, row),
                    factor: 1e3 * number(row, &format!("latency{own}_ms")) / alone,
                });
            }
        }
        Self { profiles, measured }
    }

    fn runner<'a>(&'a self, side: &(String, u32, u32)) -> Runner<'a> {
        Runner { profile: &self.profiles[&side.0], batch: side.1, units: side.2 }
    }

    fn samples(
        &self,
        terms: fn(&Runner<'_>, &Runner<'_>) -> Vec<f64>,
        fold: fn(&Measured) -> u32,
    ) -> Vec<Sample> {
        let sample = |measured: &Measured| Sample {
            terms: terms(&self.runner(&measured.own), &self.runner(&measured.other)),
            factor: measured.factor,
            fold: fold(measured),
        };
        self.measured.iter().map(sample).collect()
    }
}

fn causes(own: &Runner<'_>, other: &Runner<'_>) -> Vec<f64> {
    Contention::terms(&DevicePower::V100, own, &[Load::of(other)]).to_vec()
}

fn published(own: &Runner<'_>, other: &Runner<'_>) -> Vec<f64> {
    Gpulet::terms(&Load::of(own), &Load::of(other)).to_vec()
}

/// Ten folds, both latencies of a row in the same one; a row's fold is scattered over pairs and batches.
fn by_row(measured: &Measured) -> u32 {
    (measured.row.wrapping_mul(0x9e37_79b1) >> 16) % 10
}

fn by_pair(measured: &Measured) -> u32 {
    measured.pair
}

fn validated(samples: &[Sample]) -> Errors {
    cross_validated(samples).unwrap().unwrap()
}

#[test]
#[ignore = "needs the data folder"]
fn contention_predicts_pairs_that_it_never_saw() {
    let pairs = Pairs::read();
    assert_eq!(pairs.measured.len(), 1_214);
    let rows = pairs.samples(causes, by_row);
    let fitted = least_squares(&rows).unwrap();
    println!("contention coefficients {fitted:?}");
    for (fitted, shipped) in fitted.iter().zip(Contention::V100.coefficients) {
        assert!((fitted - shipped).abs() < 1e-6, "shipped {shipped}, fitted {fitted}");
    }
    let (row, pair) = (validated(&rows), validated(&pairs.samples(causes, by_pair)));
    println!("contention by row {row:?}\ncontention by pair {pair:?}");
    assert!(row.mean_pct <= 2.8 && row.p90_pct <= 5.8, "{row:?}");
    assert!(pair.mean_pct <= 2.8 && pair.p90_pct <= 5.8, "{pair:?}");

    let gpulet = pairs.samples(published, by_row);
    let all = least_squares(&gpulet).unwrap();
    println!("gpulet coefficients {all:?}: {:?}", errors(&gpulet, &all));
    println!("gpulet by row {:?}", validated(&gpulet));
    println!("gpulet by pair {:?}", validated(&pairs.samples(published, by_pair)));
    assert!(pair.mean_pct < validated(&pairs.samples(published, by_pair)).mean_pct);
}

/// What was learned, on the runner's device type.
fn learned_on(runner: &Runner<'_>, learner: &Learner) -> Interference {
    Interference::Learned(Learned::of([(runner.profile.device().to_owned(), learner.estimate())]))
}

#[test]
#[ignore = "needs the data folder"]
fn learning_reaches_the_fit_and_its_margin_covers() {
    let pairs = Pairs::read();
    let none = Contention { coefficients: [1.0, 0.0, 0.0, 0.0], power: DevicePower::V100 };
    let mut learned = Learner::new(&none, 0.9);
    let scattered = |at: u64| usize::try_from(at * 7_919 % 1_214).unwrap();
    let (mut late, mut covered) = (Vec::new(), 0_u32);
    for at in 0..4 * 1_214_u64 {
        let measured = &pairs.measured[scattered(at)];
        let (own, load) = (pairs.runner(&measured.own), Load::of(&pairs.runner(&measured.other)));
        if at >= 3 * 1_214 {
            late.push((learned.expected(&own, &[load]) / measured.factor - 1.0).abs());
            let promised = learned_on(&own, &learned).slowdown(&own, &[&[load]]);
            covered += u32::from(measured.factor <= promised);
        }
        learned.observe(&own, &[load], measured.factor);
    }
    let mean = 100.0 * late.iter().sum::<f64>() / 1_214.0;
    let covered = f64::from(covered) / 1_214.0;
    println!("learned: mean error {mean:.2} %, margin {:.3} covers {covered:.3}", learned.margin());
    assert!(mean < 2.6 && (0.85..0.97).contains(&covered), "mean {mean}, covered {covered}");
}

/// The plan that iGniter's README shows: predicted latencies of the released code on the released coefficients.
#[test]
fn igniter_predicts_its_worked_example() {
    let plan = [("alexnet", 4, 4, 6.92), ("resnet50", 8, 12, 18.91), ("vgg19", 6, 15, 28.73)];
    let profiles = plan.map(|(model, ..)| igniter_profile(model));
    let runners: Vec<_> = plan
        .iter()
        .zip(&profiles)
        .map(|(&(_, batch, units, _), profile)| Runner { profile, batch, units })
        .collect();
    let model = Interference::Igniter(Igniter { devices: [("v100".to_owned(), DevicePower::V100)].into() });
    for (at, (own, (name, .., expected_ms))) in runners.iter().zip(plan).enumerate() {
        let others: Vec<Vec<Load>> = runners
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at)
            .map(|(_, runner)| vec![Load::of(runner)])
            .collect();
        let others: Vec<&[Load]> = others.iter().map(Vec::as_slice).collect();
        let alone = own.profile.latency_us(Quantile::P99, own.batch, own.units).unwrap();
        let co_located_ms = alone * model.slowdown(own, &others) / 1e3;
        assert!(
            (co_located_ms - expected_ms).abs() < 0.006,
            "{name}: {co_located_ms} ms, published {expected_ms} ms"
        );
    }
}

fn side(model: &str, batch: u32, units: u32) -> (Profile, u32, u32) {
    (igniter_profile(model), batch, units)
}

/// Three of the measured pairs (iGniter's repository, `v100_pairs.csv`): co-located and solo milliseconds.
#[test]
fn contention_predicts_measured_pairs() {
    let table = [
        (side("alexnet", 2, 8), side("resnet50", 2, 32), 2.761_064, 2.532_432),
        (side("alexnet", 2, 16), side("resnet50", 2, 24), 1.737_150, 1.571_591),
        (side("alexnet", 2, 24), side("resnet50", 2, 16), 1.317_936, 1.146_473),
    ];
    let model = Interference::Contention(Contention::V100);
    for (own, other, co_located_ms, alone_ms) in table {
        let runner = |side: &'_ (Profile, u32, u32)| -> Load {
            Load::of(&Runner { profile: &side.0, batch: side.1, units: side.2 })
        };
        let measured = co_located_ms / alone_ms;
        let predicted =
            model.slowdown(&Runner { profile: &own.0, batch: own.1, units: own.2 }, &[&[runner(&other)]]);
        assert!((predicted / measured - 1.0).abs() < 0.06, "predicted {predicted}, measured {measured}");
    }
}

#[test]
fn least_squares_finds_the_weights_that_made_the_samples() {
    let sample = |at: u32| {
        let (first, second) = (f64::from(at % 7), f64::from(at % 5));
        Sample { terms: vec![1.0, first, second], factor: 1.0 + 0.1 * first + 0.02 * second, fold: at % 3 }
    };
    let samples: Vec<_> = (0..35).map(sample).collect();
    let weights = least_squares(&samples).unwrap();
    for (weight, expected) in weights.iter().zip([1.0, 0.1, 0.02]) {
        assert!((weight - expected).abs() < 1e-9, "{weights:?}");
    }
    assert!(validated(&samples).max_pct < 1e-6);
    let flat: Vec<_> = (0..9).map(|_| Sample { terms: vec![1.0, 2.0], factor: 1.0, fold: 0 }).collect();
    assert_eq!(
        least_squares(&flat).unwrap_err().to_string(),
        "samples: expected more than 2 that tell all terms apart"
    );
    let broken = Sample { terms: vec![1.0, f64::NAN], factor: 1.0, fold: 0 };
    assert!(least_squares(&[broken]).unwrap_err().to_string().starts_with("sample 0: expected finite terms"));
}

#[test]
fn learning_follows_a_device_that_is_noisier_than_its_model_and_ignores_nonsense() {
    let own = side("resnet50", 8, 20);
    let other = side("vgg19", 8, 20);
    let runner = Runner { profile: &own.0, batch: own.1, units: own.2 };
    let load = Load::of(&Runner { profile: &other.0, batch: other.1, units: other.2 });
    let mut learned = Learner::new(&Contention::V100, 0.9);
    let before = learned.clone();
    for nonsense in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e6] {
        learned.observe(&runner, &[load], nonsense);
    }
    learned.observe(&runner, &[], 3.0);
    assert_eq!(learned, before);
    for _ in 0..200 {
        learned.observe(&runner, &[load], 1.5);
    }
    assert!(
        (learned.expected(&runner, &[load]) - 1.5).abs() < 0.02,
        "{}",
        learned.expected(&runner, &[load])
    );
    let worst = learned_on(&runner, &learned).slowdown(&runner, &[&[load]]);
    assert!(worst >= 1.49, "{worst}");
}

#[test]
fn a_solo_batch_has_no_slowdown_and_every_co_located_batch_adds_to_it() {
    let own = side("ssd", 4, 10);
    let runner = Runner { profile: &own.0, batch: own.1, units: own.2 };
    let others = [side("vgg19", 16, 10), side("alexnet", 32, 10), side("resnet50", 16, 10)];
    let loads: Vec<Load> = others
        .iter()
        .map(|other| Load::of(&Runner { profile: &other.0, batch: other.1, units: other.2 }))
        .collect();
    let igniter = Interference::Igniter(Igniter { devices: [("v100".to_owned(), DevicePower::V100)].into() });
    for model in [igniter, Interference::Contention(Contention::V100)] {
        assert_eq!(model.slowdown(&runner, &[]), 1.0);
        let mut before = 1.0;
        for count in 1..=loads.len() {
            let lanes: Vec<&[Load]> = loads[..count].chunks(1).collect();
            let factor = model.slowdown(&runner, &lanes);
            assert!(factor > before, "{}: {factor} with {count} co-located", model.name());
            before = factor;
        }
        let in_one_cycle = model.slowdown(&runner, &[&loads]);
        let solo = loads.iter().map(|load| model.slowdown(&runner, &[&[*load]])).fold(1.0, f64::max);
        assert_eq!(in_one_cycle, solo, "a co-located gpulet counts as the worst model of its cycle");
    }
}
