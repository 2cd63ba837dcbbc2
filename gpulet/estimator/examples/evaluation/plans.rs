//! Plans from predicted profiles, next to plans from measured ones, with measured times when they run.

use std::collections::BTreeSet;
use std::sync::Arc;

use estimator::Timing;
use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::placement::Policy;
use gpulet_core::plan::Plan;
use gpulet_core::problem::{Device, DeviceType, Problem, Workload as Wanted};
use gpulet_core::profile::{Cell, Header, Interval, Line, Profile, Quantile, Source};
use sim::{Setup, Simulation};
use workload::Workload;

use super::Failed;
use super::data::Measured;
use super::known::LeaveOut;
use super::random::mixed;
use super::unseen::spread;

/// Number of random problems.
pub const PROBLEMS: u64 = 20;
/// Seed of the first one. With the 20 before it, the margin of planned times was chosen.
const FIRST_SEED: u64 = 21;
/// Models of each problem, or all if there are fewer.
pub const MODELS: usize = 10;
/// Objectives, in times of one row on the whole device.
const OBJECTIVES: [f64; 3] = [4.0, 8.0, 16.0];
/// Least and largest rate of a model, as parts of what a whole device serves within the objective.
const RATES: (f64, f64) = (0.1, 2.0);
/// Devices that there are: enough for any plan.
const DEVICES: u32 = 64;
/// Requests of a simulation, of all models together. A tenth more at the start does not count.
const REQUESTS: f64 = 20_000.0;
const MEMORY: u64 = 1 << 40;
const DEVICE: &str = "device";

/// Number of ways to make a plan.
pub const WAYS: usize = 5;

/// Which times a plan was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Measured,
    /// Times between the expected ones and the upper ends of the intervals, as plans are made.
    Predicted,
    /// The same after one cell of each model was measured.
    OneMeasured,
    /// The expected times, as if there were no doubt.
    Expected,
    /// The upper ends of the intervals.
    Upper,
}

impl From {
    const ALL: [Self; WAYS] =
        [Self::Measured, Self::Predicted, Self::OneMeasured, Self::Expected, Self::Upper];
}

/// Plans that were made in one way.
#[derive(Default)]
pub struct Quality {
    /// Devices of each plan; of problems with a plan in all ways.
    pub devices: Vec<f64>,
    /// Share of requests in time, of each of these plans, if requests arrive evenly and at random.
    pub attainments: [Vec<f64>; 2],
    /// Problems without a plan.
    pub without: usize,
}

/// Processes of arrivals.
const ARRIVALS: [&str; 2] = ["uniform", "poisson"];

/// One model of a problem.
struct Asked<'a> {
    model: &'a Measured,
    slo_us: f64,
    rate: f64,
}

/// Plans of each way for [`PROBLEMS`] random problems.
pub fn study(known: &LeaveOut<'_>) -> Result<[Quality; WAYS], Failed> {
    let mut qualities: [Quality; WAYS] = Default::default();
    for seed in FIRST_SEED..FIRST_SEED + PROBLEMS {
        let asked = problem(known.all, seed);
        let profiles = |from| -> Result<String, Failed> {
            let texts = asked.iter().map(|asked| profile(asked.model, known, from));
            Ok(texts.collect::<Result<Vec<_>, _>>()?.concat())
        };
        let truth = profiles(From::Measured)?;
        let mut plans = Vec::new();
        for (quality, from) in qualities.iter_mut().zip(From::ALL) {
            let plan = plan(&asked, &profiles(from)?)?;
            quality.without += usize::from(plan.is_none());
            plans.extend(plan);
        }
        if plans.len() < From::ALL.len() {
            continue;
        }
        for (quality, plan) in qualities.iter_mut().zip(plans) {
            let used: BTreeSet<_> = plan.gpulets.iter().map(|gpulet| gpulet.device.clone()).collect();
            quality.devices.push(used.len() as f64);
            for (attainments, arrivals) in quality.attainments.iter_mut().zip(ARRIVALS) {
                attainments.push(attainment(&asked, &plan, &truth, (seed, arrivals))?);
            }
        }
    }
    Ok(qualities)
}

/// Share of the cells of all models that take at most the planned time, each left out as for the plans.
pub fn within_planned(known: &LeaveOut<'_>) -> Result<f64, Failed> {
    let (mut cells, mut within) = (0_u32, 0_u32);
    for model in known.all {
        let estimator = known.estimator(model)?;
        let estimate = estimator.estimate(Some(&model.network), &[]);
        for timing in &model.timings {
            cells += 1;
            within += u32::from(timing.time_us <= estimate.at(timing.place).planned_us());
        }
    }
    Ok(f64::from(within) / f64::from(cells.max(1)))
}

fn problem(all: &[Measured], seed: u64) -> Vec<Asked<'_>> {
    let mut state = seed;
    let mut next = move || {
        state = mixed(state);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut open: Vec<&Measured> = all.iter().collect();
    let mut asked = Vec::new();
    while asked.len() < MODELS && !open.is_empty() {
        let model = open.remove(((next() * open.len() as f64) as usize).min(open.len() - 1));
        let factor = OBJECTIVES.get((next() * OBJECTIVES.len() as f64) as usize).copied().unwrap_or(4.0);
        let whole: Vec<&Timing> = model.timings.iter().filter(|timing| timing.place.share == 1.0).collect();
        let solo = whole.iter().map(|timing| timing.time_us).fold(f64::INFINITY, f64::min);
        let slo_us = factor * solo;
        let serves = |timing: &&&Timing| 2.0 * timing.time_us <= slo_us;
        let rates =
            whole.iter().filter(serves).map(|timing| f64::from(timing.place.batch) * 1e6 / timing.time_us);
        let most = rates.fold(0.0, f64::max);
        let rate = most * RATES.0 * (RATES.1 / RATES.0).powf(next());
        if most > 0.0 {
            asked.push(Asked { model, slo_us, rate });
        }
    }
    asked
}

/// A profile file with the medians that were measured, or with those that are predicted with the model left out of the known ones.
fn profile(model: &Measured, known: &LeaveOut<'_>, from: From) -> Result<String, Failed> {
    let header = Header {
        version: 1,
        model: model.name.clone(),
        model_sha256: None,
        device: DEVICE.to_owned(),
        engine: "none".to_owned(),
        source: if from == From::Measured { Source::Measured } else { Source::Predicted },
        note: String::new(),
        shapes: Vec::new(),
        units_total: model.units_total,
        weights_bytes: None,
        load_us_per_row: 0.0,
    };
    let measured = if from == From::OneMeasured { spread(model, 1) } else { Vec::new() };
    let estimate = known.estimator(model)?.estimate(Some(&model.network), &measured);
    let cell = |timing: &Timing| {
        let predicted = estimate.at(timing.place);
        let (time_us, interval) = match from {
            From::Measured => (timing.time_us, None),
            From::Predicted | From::OneMeasured => {
                (predicted.time_us, Some(Interval { low_us: predicted.low_us, high_us: predicted.high_us }))
            }
            From::Expected => (predicted.time_us, None),
            From::Upper => (predicted.high_us, None),
        };
        Line::Cell(Cell {
            batch: timing.place.batch,
            units: model.units(timing.place),
            p50_us: time_us,
            p95_us: time_us,
            p99_us: time_us,
            count: u64::from(interval.is_none()),
            left_out: None,
            doubt: None,
            predicted: interval,
        })
    };
    let lines = std::iter::once(Line::Profile(header)).chain(model.timings.iter().map(cell));
    let lines = lines.map(|line| Ok(serde_json::to_string(&line)? + "\n"));
    Ok(lines.collect::<Result<Vec<_>, serde_json::Error>>()?.concat())
}

/// The plan with the fewest devices; `None` if the policy finds no plan.
fn plan(asked: &[Asked<'_>], profiles: &str) -> Result<Option<Plan>, Failed> {
    let models = || asked.iter().map(|asked| asked.model);
    let sizes: BTreeSet<u32> =
        models().flat_map(|model| model.timings.iter().map(|timing| model.units(timing.place))).collect();
    let device_type = Arc::new(DeviceType {
        name: DEVICE.to_owned(),
        units: models().map(|model| model.units_total).max().unwrap_or(1),
        sizes: sizes.into_iter().collect(),
        gpulets_max: 48,
        base_bytes: 0,
        gpulet_bytes: 0,
    });
    let device = |at: u32| Device {
        name: format!("{DEVICE}-{at:02}").into(),
        device_type: Arc::clone(&device_type),
        memory_bytes: MEMORY,
        fault_domain: at.to_string(),
        cost: 1.0,
    };
    let wanted = asked.iter().map(|asked| Wanted {
        name: asked.model.name.clone(),
        model: asked.model.name.clone(),
        tenant: String::new(),
        not_with: Vec::new(),
        slo_us: asked.slo_us,
        rate: asked.rate,
        headroom: 1.0,
        replicas_min: 1,
        batch_max: u32::MAX,
    });
    let interference = Interference::NoInterference(NoInterference);
    let devices = (0..DEVICES).map(device).collect();
    let problem = Problem::new(devices, wanted.collect(), Profile::read(profiles)?, interference)?;
    Ok(Policy::default().place(&problem.at_quantile(Quantile::P50)).ok())
}

/// Share of the requests in time if the plan is in force and batches take the measured times.
fn attainment(
    asked: &[Asked<'_>],
    plan: &Plan,
    truth: &str,
    (seed, arrivals): (u64, &str),
) -> Result<f64, Failed> {
    let models = asked.iter().map(|Asked { model, slo_us, rate }| {
        format!(
            "[models.{}]\nslo = \"{}us\"\nrate = {rate:?}\narrivals = {{ process = \"{arrivals}\" }}\n",
            model.name,
            slo_us.round()
        )
    });
    let millis = 1e3 * REQUESTS / asked.iter().map(|asked| asked.rate).sum::<f64>();
    let (whole, warmup) = ((1.1 * millis).ceil(), (0.1 * millis).ceil());
    let text = format!(
        "name = \"predicted\"\nduration = \"{whole}ms\"\nwarmup = \"{warmup}ms\"\nseed = {seed}\n\
         [devices.{DEVICE}]\ncount = {DEVICES}\nmemory = \"1024GiB\"\n\
         [partition]\nprofiles = \"profiles.jsonl\"\nplan = \"plan.json\"\n[lanes.noise]\ncv = 0.02\n{}",
        models.collect::<String>()
    );
    let plan = serde_json::to_string(plan)?;
    let mut files = |name: &str| Ok(if name == "plan.json" { plan.clone() } else { truth.to_owned() });
    let workload = Workload::parse(&text, &mut files)?;
    Ok(Simulation::new(&workload, &Setup::default())?.run(&mut |_| {})?.attainment)
}
