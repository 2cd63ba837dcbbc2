//! What the control loop does, for people and programs: the plan, why it is so, and what is predicted and measured.

use std::sync::Arc;

use gpulet_core::control::{Controller, DecisionEntry, InterferenceEntry};
use gpulet_core::id::Epoch;
use gpulet_core::plan::{Gpulet, Plan};
use gpulet_core::problem::Problem;
use gpulet_core::profile::Quantile;
use gpulet_core::rollout::Entry;
use gpulet_core::time::Micros;
use gpulet_core::validate::validate;
use serde::Serialize;

use crate::catalog::{Kept, Loaded};

/// Answer of `GET /v2/partition`.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    /// Seconds that the loop has run.
    uptime_s: f64,
    /// Whether an operator holds gpulets as they are.
    frozen: bool,
    /// Whether the plan in force is an operator's, and stays until `POST /v2/partition/thaw`.
    operator_plan: bool,
    /// Whether a change is under way.
    changing: bool,
    /// Number of the table in force; 0 before the first.
    epoch: Epoch,
    /// Share of every target that the last plan was made for; below 1 where the device is too small for all.
    share: f64,
    /// Why there is no plan for the load, if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// The plan in force.
    gpulets: Vec<GpuletRow>,
    /// The models and their load.
    models: Vec<ModelRow>,
    /// Sessions of closed gpulets that are kept for plans to come.
    warm: Kept,
    /// What neighbours on a device were seen to do to each other, by kind of device.
    interference: Vec<InterferenceEntry>,
    /// Why rates that are planned for moved, oldest first.
    decisions: Vec<DecisionEntry>,
    /// What was done, oldest first.
    history: Vec<Entry>,
}

#[derive(Clone, Debug, Serialize)]
struct GpuletRow {
    id: String,
    #[serde(flatten)]
    gpulet: Gpulet,
}

#[derive(Clone, Debug, Default, Serialize)]
struct ModelRow {
    name: String,
    /// Rows a second that arrived at the last look, and that are planned for.
    rate: f64,
    target: f64,
    /// Why that is planned for.
    reason: String,
    /// Rows a second that the plan serves, by its prediction.
    capacity: f64,
    /// Part of the requests answered within the objective at the last look.
    #[serde(skip_serializing_if = "Option::is_none")]
    attainment: Option<f64>,
    /// Longest time from arrival to answer that the plan predicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_worst_ms: Option<f64>,
    /// Batch times as predicted and as measured.
    batches: Vec<BatchRow>,
    /// All of the measured times over the predicted ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_over_predicted: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct BatchRow {
    rows: u32,
    count: u64,
    measured_mean_ms: f64,
    /// Median that the profile predicts on the gpulet of the model; none outside of what was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_p50_ms: Option<f64>,
}

/// The state of things.
pub fn of(controller: &Controller, models: &[Arc<Loaded>], warm: Kept, now: Micros) -> View {
    let (rollout, latest, problem) = (controller.rollout(), controller.latest(), controller.problem());
    let plan = rollout.plan();
    let slots = problem.map(|problem| validate(problem, &plan).slots).unwrap_or_default();
    let row = |loaded: &Arc<Loaded>| {
        let known = latest.model(&loaded.name).cloned().unwrap_or_default();
        let own = || slots.iter().filter(|slot| slot.workload == loaded.name);
        let place = plan.slots_of(&loaded.name).map(|(gpulet, _)| gpulet).next();
        let batches = batches(loaded, problem, place);
        ModelRow {
            name: loaded.name.clone(),
            rate: known.rate,
            target: known.target,
            reason: known.reason,
            capacity: own().map(|slot| slot.capacity).sum(),
            attainment: known.attainment,
            predicted_worst_ms: own().map(|slot| slot.worst_us / 1e3).reduce(f64::max),
            measured_over_predicted: over_predicted(&batches),
            batches,
        }
    };
    View {
        uptime_s: now.as_secs_f64(),
        frozen: rollout.is_frozen(),
        operator_plan: controller.has_operator_plan(),
        changing: !rollout.is_idle(),
        epoch: rollout.epoch(),
        share: latest.share(),
        problem: latest.problem().map(str::to_owned),
        gpulets: rollout
            .active()
            .map(|(id, gpulet)| GpuletRow { id: id.to_string(), gpulet: gpulet.clone() })
            .collect(),
        models: models.iter().map(row).collect(),
        warm,
        interference: controller.interference(),
        decisions: latest.decisions().cloned().collect(),
        history: rollout.history().cloned().collect(),
    }
}

/// What the batches of a model took over what the plan's profile predicts.
pub fn surprise(loaded: &Loaded, problem: Option<&Problem>, plan: &Plan) -> Option<f64> {
    let place = plan.slots_of(&loaded.name).map(|(gpulet, _)| gpulet).next();
    over_predicted(&batches(loaded, problem, place))
}

fn over_predicted(batches: &[BatchRow]) -> Option<f64> {
    let known = batches.iter().filter_map(|row| {
        let count = row.count as f64;
        Some((count * row.measured_mean_ms, count * row.predicted_p50_ms?))
    });
    let (measured, predicted) = known.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (predicted > 0.0).then(|| measured / predicted)
}

fn batches(loaded: &Loaded, problem: Option<&Problem>, place: Option<&Gpulet>) -> Vec<BatchRow> {
    let workload =
        problem.and_then(|problem| problem.workloads().iter().find(|known| known.name == loaded.name));
    let profile = problem.zip(workload).zip(place).and_then(|((problem, workload), place)| {
        let device = problem.devices().iter().find(|device| device.name == place.device)?;
        problem.profile(workload, &device.device_type)
    });
    let predicted = |rows: u32| profile?.latency_us(Quantile::P50, rows, place?.units).ok();
    let row = |(rows, count, mean): (u32, u64, std::time::Duration)| BatchRow {
        rows,
        count,
        measured_mean_ms: mean.as_secs_f64() * 1e3,
        predicted_p50_ms: predicted(rows).map(|us| us / 1e3),
    };
    loaded.statistics.batch_times().into_iter().map(row).collect()
}
