//! How much of all models together one GPU can serve within their objectives, shared in four ways.
//!
//! A model's objective is five times its time alone: one row, all units. Traffic is Poisson from a seed, the models in
//! fixed proportions: at load 1 each would keep the GPU busy for an equal part of the time, all of it together, in
//! the batches that are best for it. Lanes batch alike in every arm, earliest deadline first, and start nothing that
//! cannot be in time; only who runs where differs.

mod arm;
mod capacity;
mod lane;
mod offer;

use serde_json::json;

use crate::answer::Fact;
use crate::bench::{Bench, Stop};
use crate::subject::ready;
use arm::{Arm, Arrangement};
use capacity::Capacity;
use offer::Demands;

/// Ours over time sharing, at least.
const OVER_TIME_SHARING: f64 = 2.0;
/// Median error of the predicted 99th percentile, at most.
const PREDICTION_ERROR_MAX: f64 = 0.1;

pub(super) fn ask(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let Some(subjects) = ready(bench, "mix.capacity", "10.5") else { return Ok(()) };
    let units = bench.cut()?.grid().units();
    let demands = match Demands::read(&bench.profiles, &subjects, &bench.found.name, units) {
        Ok(demands) => demands,
        Err(missing) => {
            bench.answers.skip("mix.capacity", "10.5", missing);
            return Ok(());
        }
    };
    let mut measured: Vec<(Arm, Capacity)> = Vec::new();
    for (place, arm) in Arm::ALL.into_iter().enumerate() {
        let until = bench.after(1.0 / (Arm::ALL.len() - place) as f64);
        bench.tell(arm.word());
        let found = Arrangement::of(arm, bench, &demands)
            .and_then(|arrangement| capacity::search(bench, &subjects, &demands, &arrangement, until));
        let name = format!("mix.capacity_{}", arm.word());
        match found {
            Ok(capacity) => {
                let fact = Fact::new(name, "10.5").value(capacity.load * demands.rate()).unit("requests/s");
                bench.answers.say(&fact.detail(capacity.to_json(&demands)));
                measured.push((arm, capacity));
            }
            Err(stop) => bench.answers.say(&Fact::new(name, "10.5").ok(false).detail(stop.to_string())),
        }
    }
    compare(bench, &measured);
    Ok(())
}

fn compare(bench: &mut Bench<'_>, measured: &[(Arm, Capacity)]) {
    let of = |arm: Arm| measured.iter().find(|(known, _)| *known == arm).map(|(_, capacity)| capacity);
    let Some(ours) = of(Arm::Plan) else { return };
    for (arm, least) in [(Arm::Turns, OVER_TIME_SHARING), (Arm::Streams, 1.0), (Arm::Equal, 1.0)] {
        let Some(other) = of(arm).filter(|other| other.load > 0.0) else { continue };
        let factor = ours.load / other.load;
        let fact = Fact::new(format!("mix.plan_over_{}", arm.word()), "10.5").value(factor).ok(factor >= least);
        bench.answers.say(&fact.detail(json!({"at_least": least})));
    }
    if let Some(error) = ours.prediction_error() {
        let fact = Fact::new("mix.predicted_p99_error", "8").value(error).ok(error <= PREDICTION_ERROR_MAX);
        bench.answers.say(&fact.detail("median over models and batch sizes of the plan, at its capacity"));
    }
}
