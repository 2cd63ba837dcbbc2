//! The report of the control loop: the plan, the reasons for it, and predicted and measured latencies.

use std::sync::Arc;

use gpulet_core::control::{
    Controller, DecisionEntry, Family, FamilyVariant, InterferenceEntry, LostDevice, ProfileCorrection,
};
use gpulet_core::id::Epoch;
use gpulet_core::plan::{Gpulet, Plan};
use gpulet_core::problem::Problem;
use gpulet_core::profile::Quantile;
use gpulet_core::rollout::Entry;
use gpulet_core::time::Micros;
use gpulet_core::validate::validate;
use jiff::Timestamp;
use serde::Serialize;

use crate::catalog::{Loaded, WarmPoolCounts};

/// Response of `GET /v2/partition`. All times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    /// When the loop started: wall-clock time, as RFC 3339. Times in `at_us` count from it.
    started: String,
    /// Microseconds since the loop started.
    uptime_us: Micros,
    /// Whether an operator has frozen the gpulets.
    frozen: bool,
    /// Whether an operator plan is in force. It stays until `POST /v2/partition/thaw`.
    operator_plan: bool,
    /// Whether a rollout is in progress.
    changing: bool,
    /// Epoch of the plan in force; 0 before the first.
    epoch: Epoch,
    /// Fraction of the target rates that the last plan serves; below 1 if the devices are too small.
    share: f64,
    /// Why the load has no plan. Absent if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Devices that plans do without, because no gpulet can be opened on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost_devices: Vec<Stamped<LostDevice>>,
    /// The plan in force.
    gpulets: Vec<GpuletRow>,
    /// The models and their load.
    models: Vec<ModelRow>,
    /// Families whose variants `partition.variants` chooses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    families: Vec<FamilyRow>,
    /// Warm pool: sessions of closed gpulets that stay loaded for the next plan.
    warm: WarmPoolCounts,
    /// Measured slowdown of co-located batches, by device type.
    interference: Vec<InterferenceEntry>,
    /// Profiles that plans correct by measured batch times.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    profile_corrections: Vec<ProfileCorrection>,
    /// Reasons for changes of the target rates, oldest first.
    decisions: Vec<Stamped<DecisionEntry>>,
    /// History of rollouts, oldest first.
    history: Vec<Stamped<Entry>>,
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
    /// Rows per second that arrived, at the last evaluation.
    rate: f64,
    /// Rows per second that the plan must serve.
    target: f64,
    /// Reason for the target.
    reason: String,
    /// Rows per second that the plan is predicted to serve.
    capacity: f64,
    /// Fraction of requests answered within the objective, at the last evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    attainment: Option<f64>,
    /// Predicted worst-case time from arrival to response.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_worst_us: Option<f64>,
    /// Predicted and measured batch times.
    batches: Vec<BatchRow>,
    /// Sum of the measured batch times divided by the sum of the predicted ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_over_predicted: Option<f64>,
    /// Why its profile may not hold for its requests: they have other shapes.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_warning: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct FamilyRow {
    name: String,
    /// Policy that chooses its variants.
    policy: &'static str,
    /// Rows per second that arrived, at the last evaluation.
    rate: f64,
    /// Rows per second that the plan must serve.
    target: f64,
    /// Reason for the target.
    reason: String,
    /// Mean quality of its answers, if they are divided as planned. Absent without a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    quality_planned: Option<f64>,
    /// Mean quality that plans aim for.
    quality_mean: f64,
    /// Its variants: rows per second that the plan sends to each.
    variants: Vec<VariantRow>,
}

#[derive(Clone, Debug, Serialize)]
struct VariantRow {
    name: String,
    quality: f64,
    planned: f64,
}

#[derive(Clone, Debug, Serialize)]
struct BatchRow {
    rows: u32,
    count: u64,
    measured_mean_us: f64,
    /// Median batch time on the model's gpulet, by its profile. Absent outside the measured range.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_p50_us: Option<f64>,
}

/// An entry with its wall-clock time.
#[derive(Clone, Debug, Serialize)]
struct Stamped<T> {
    /// When it happened, as RFC 3339.
    at: String,
    #[serde(flatten)]
    entry: T,
}

/// Translates times of the loop's clock.
struct WallClock {
    started_us: i64,
}

impl WallClock {
    /// `now` is the loop's time at this moment.
    fn new(now: Micros) -> Self {
        let uptime = i64::try_from(now.0).unwrap_or(i64::MAX);
        Self { started_us: Timestamp::now().as_microsecond().saturating_sub(uptime) }
    }

    fn stamp(&self, at: Micros) -> String {
        let micros = self.started_us.saturating_add(i64::try_from(at.0).unwrap_or(i64::MAX));
        Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |stamp| stamp.to_string())
    }

    fn stamped<T: Clone>(&self, at: Micros, entry: &T) -> Stamped<T> {
        Stamped { at: self.stamp(at), entry: entry.clone() }
    }
}

/// Creates the report.
/// Each model comes with a warning about its profile, if there is one.
pub fn of(
    controller: &Controller,
    models: &[(Arc<Loaded>, Option<String>)],
    warm: WarmPoolCounts,
    now: Micros,
) -> View {
    let clock = WallClock::new(now);
    let (rollout, latest, problem) = (controller.rollout(), controller.latest(), controller.problem());
    let plan = rollout.plan();
    let slots = problem.map(|problem| validate(problem, &plan).slots).unwrap_or_default();
    let row = |(loaded, warning): &(Arc<Loaded>, Option<String>)| {
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
            predicted_worst_us: own().map(|slot| slot.worst_us).reduce(f64::max),
            measured_over_predicted: over_predicted(&batches),
            batches,
            profile_warning: warning.clone(),
        }
    };
    View {
        started: clock.stamp(Micros(0)),
        uptime_us: now,
        frozen: rollout.is_frozen(),
        operator_plan: controller.has_operator_plan(),
        changing: !rollout.is_idle(),
        epoch: rollout.epoch(),
        share: latest.share(),
        problem: latest.problem().map(str::to_owned),
        lost_devices: controller.lost_devices().map(|lost| clock.stamped(lost.at_us, lost)).collect(),
        gpulets: rollout
            .active()
            .map(|(id, gpulet)| GpuletRow { id: id.to_string(), gpulet: gpulet.clone() })
            .collect(),
        models: models.iter().map(row).collect(),
        families: families(controller, &plan),
        warm,
        interference: controller.interference(),
        profile_corrections: controller.profile_corrections().to_vec(),
        decisions: latest.decisions().map(|entry| clock.stamped(entry.at_us, entry)).collect(),
        history: rollout.history().map(|entry| clock.stamped(entry.at_us, entry)).collect(),
    }
}

fn families(controller: &Controller, plan: &Plan) -> Vec<FamilyRow> {
    let policy = controller.variant_policy().unwrap_or_default();
    let row = |family: &Family| {
        let known = controller.latest().model(&family.name).cloned().unwrap_or_default();
        let variants = family.variants.iter().map(|FamilyVariant { name, quality }| {
            let planned = plan.slots_of(name).map(|(_, slot)| slot.rate).fold(0.0, |sum, rate| sum + rate);
            VariantRow { name: name.clone(), quality: *quality, planned }
        });
        let variants: Vec<VariantRow> = variants.collect();
        let planned: f64 = variants.iter().map(|variant| variant.planned).sum();
        let quality: f64 = variants.iter().map(|variant| variant.planned * variant.quality).sum();
        FamilyRow {
            name: family.name.clone(),
            policy,
            rate: known.rate,
            target: known.target,
            reason: known.reason,
            quality_planned: (planned > 0.0).then(|| quality / planned),
            quality_mean: family.quality_mean,
            variants,
        }
    };
    controller.families().iter().map(row).collect()
}

/// Measured batch times of a model divided by those that its profile predicts.
pub fn surprise(loaded: &Loaded, problem: Option<&Problem>, plan: &Plan) -> Option<f64> {
    let place = plan.slots_of(&loaded.name).map(|(gpulet, _)| gpulet).next();
    over_predicted(&batches(loaded, problem, place))
}

fn over_predicted(batches: &[BatchRow]) -> Option<f64> {
    let known = batches.iter().filter_map(|row| {
        let count = row.count as f64;
        Some((count * row.measured_mean_us, count * row.predicted_p50_us?))
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
    let predicted = |rows: u32| profile?.expected_us(Quantile::P50, rows, place?.units).ok();
    let row = |(rows, count, mean): (u32, u64, std::time::Duration)| BatchRow {
        rows,
        count,
        measured_mean_us: mean.as_secs_f64() * 1e6,
        predicted_p50_us: predicted(rows),
    };
    loaded.statistics.batch_times().into_iter().map(row).collect()
}
