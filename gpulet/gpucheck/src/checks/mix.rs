//! How much of all models together one GPU can serve within their objectives, shared in four ways.
//!
//! A model's objective is five times its solo time with one row on all units. Traffic is Poisson from a seed, with the
//! models in fixed proportions: at load 1 each would keep the GPU busy for an equal part of the time with its best batch
//! size, all together for all of the time. Lanes use the same batching in every arm: earliest deadline first, without
//! batches that would be late. Only the placement differs. The plan uses the model of interference that was fitted to
//! measured pairs.
//!
//! The same is then measured with the objectives and proportions of the gpulet paper, in two arms and with fewer trials,
//! for comparison with published results.

mod arm;
mod capacity;
mod lane;
mod offer;

use std::time::Instant;

use gpulet_core::interference::{Interference, NoInterference};
use serde_json::json;

use crate::bench::{Bench, Stop};
use crate::fit::{Fits, fit};
use crate::pairs;
use crate::report::Fact;
use crate::subject::{Subject, ready};
use arm::{Arm, Arrangement};
use capacity::Capacity;
use offer::{Demands, Mix, Table};

/// Required capacity of our plan, divided by that of time sharing.
const OVER_TIME_SHARING: f64 = 2.0;
/// Limit on the median error of predicted 99th percentiles.
const PREDICTION_ERROR_MAX: f64 = 0.1;
/// Share of the time for our own table.
const OWN_PART: f64 = 0.75;
/// Trials per arm, with our own table and with the paper's.
const TRIALS: u32 = 8;
const PAPER_TRIALS: u32 = 5;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let Some(subjects) = ready(bench, "mix.capacity", "10.5") else { return Ok(()) };
    let units = bench.green()?.grid().units();
    let both = Table::GpuletPaper.subjects(&subjects).is_ok();
    let until = if both { bench.after(OWN_PART) } else { bench.until };
    match offered(bench, Table::Own, &subjects, units) {
        Ok(mix) => {
            believe(bench, &mix);
            let measured = measure(bench, &mix, ("mix.capacity", &Arm::ALL), until);
            compare(bench, &measured);
        }
        Err(missing) => {
            bench.report.skip("mix.capacity", "10.5", missing);
            return Ok(());
        }
    }
    let until = bench.until;
    match offered(bench, Table::GpuletPaper, &subjects, units) {
        Ok(mix) => {
            let name = "mix.gpulet_paper_capacity";
            let measured = measure(bench, &mix, (name, &[Arm::Plan, Arm::TimeSharing]), until);
            let fact = "mix.gpulet_paper_plan_over_time_sharing";
            over(bench, &measured, (Arm::TimeSharing, 1.0), fact);
        }
        Err(missing) => bench.report.skip("mix.gpulet_paper_capacity", "10.5", missing),
    }
    Ok(())
}

/// The traffic, and the model of interference for its plan.
fn offered<'a>(bench: &Bench<'_>, table: Table, all: &'a [Subject], units: u32) -> Result<Mix<'a>, String> {
    let subjects = table.subjects(all)?;
    let device = bench.device_type(units);
    let demands = Demands::read(&bench.profiles, table, &subjects, (&device, units))?;
    let interference = fits(bench, &demands)?.interference();
    // A model profiled without contention is planned without interference.
    let lacks = demands.profiles().any(|profile| interference.lacks(profile).is_some());
    let interference = if lacks { Interference::NoInterference(NoInterference) } else { interference };
    let trials = match table {
        Table::Own => TRIALS,
        Table::GpuletPaper => PAPER_TRIALS,
    };
    Ok(Mix { subjects, demands, interference, trials })
}

fn fits(bench: &Bench<'_>, demands: &Demands) -> Result<Fits, String> {
    let device = bench.device_type(demands.units);
    let pairs = pairs::read(&pairs::file_for(&bench.profiles), &device, demands.units)?;
    Ok(fit(&pairs, demands.profiles()))
}

/// Reports the plan's model of interference.
fn believe(bench: &mut Bench<'_>, mix: &Mix<'_>) {
    let fact = Fact::new("mix.interference", "8").value(mix.interference.name());
    let fits = fits(bench, &mix.demands).ok();
    let believed = fits.as_ref().and_then(|fits| fits.best().zip(fits.none));
    let fact = match believed.filter(|(fit, _)| fit.name() == mix.interference.name()) {
        Some((fit, none)) => fact.detail(fit.to_json(&none)),
        None => fact.detail("no fit to measured pairs is better than assuming no interference"),
    };
    bench.report.add(&fact);
}

/// The capacity of each arm, with an equal part of the time each.
fn measure(
    bench: &mut Bench<'_>,
    mix: &Mix<'_>,
    (word, arms): (&str, &[Arm]),
    until: Instant,
) -> Vec<(Arm, Capacity)> {
    let mut measured = Vec::new();
    for (place, arm) in arms.iter().copied().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        let until = Instant::now() + left / u32::try_from(arms.len() - place).unwrap_or(1);
        bench.tell(&format!("{word}_{}", arm.name()));
        let found = Arrangement::of(arm, bench, &mix.demands, &mix.interference)
            .and_then(|arrangement| capacity::search(bench, mix, &arrangement, until));
        let name = format!("{word}_{}", arm.name());
        match found {
            Ok(capacity) => {
                let rate = capacity.load * mix.demands.rate();
                let fact = Fact::new(name, "10.5").value(rate).unit("requests/s");
                bench.report.add(&fact.detail(capacity.to_json(&mix.demands)));
                measured.push((arm, capacity));
            }
            Err(stop) => bench.report.add(&Fact::new(name, "10.5").ok(false).detail(stop.to_string())),
        }
    }
    measured
}

fn of(measured: &[(Arm, Capacity)], arm: Arm) -> Option<&Capacity> {
    measured.iter().find(|(known, _)| *known == arm).map(|(_, capacity)| capacity)
}

/// Our plan's capacity divided by another arm's.
fn over(bench: &mut Bench<'_>, measured: &[(Arm, Capacity)], (arm, least): (Arm, f64), name: &str) {
    let (Some(ours), Some(other)) = (of(measured, Arm::Plan), of(measured, arm)) else { return };
    if other.load > 0.0 {
        let factor = ours.load / other.load;
        let fact = Fact::new(name, "10.5").value(factor).ok(factor >= least);
        bench.report.add(&fact.detail(json!({"at_least": least})));
    }
}

fn compare(bench: &mut Bench<'_>, measured: &[(Arm, Capacity)]) {
    for (arm, least) in [(Arm::TimeSharing, OVER_TIME_SHARING), (Arm::Streams, 1.0), (Arm::Equal, 1.0)] {
        over(bench, measured, (arm, least), &format!("mix.plan_over_{}", arm.name()));
    }
    let Some(ours) = of(measured, Arm::Plan) else { return };
    let detail = "median over models and batch sizes of the plan, at its capacity";
    if let Some(error) = ours.prediction_error(|predicted| predicted.co_located) {
        let fact = Fact::new("mix.predicted_p99_error", "8").value(error).ok(error <= PREDICTION_ERROR_MAX);
        bench.report.add(&fact.detail(detail));
    }
    if let Some(error) = ours.prediction_error(|predicted| predicted.alone) {
        let fact = Fact::new("mix.predicted_p99_error_without_interference", "8").value(error);
        bench.report.add(&fact.detail(detail));
    }
}
