//! What models are planned for as stages of pipelines: the shares of the objectives.

use std::collections::BTreeMap;

use gpulet_core::control::{Model, StageOf};
use gpulet_core::problem::{Device, DeviceType};
use gpulet_core::profile::Quantile;
use router_core::Nanos;
use router_core::pipeline::StageCosts;
use workload::{ObjectiveSplit, Workload, WorkloadError};

use crate::objectives::{Divided, STEPS};

/// Divides the objectives of the pipelines among their stages, and gives each model the shortest objective that it is planned for.
/// Returns the divisions by the pipeline's number in the list of models.
///
/// # Errors
/// A stage that its share of the objective does not suffice for.
pub(super) fn divide(
    workload: &Workload,
    devices: &[Device],
    models: &mut [Model],
) -> Result<BTreeMap<u32, Divided>, WorkloadError> {
    let kinds: BTreeMap<&str, &DeviceType> = devices
        .iter()
        .map(|device| (device.device_type.name.as_str(), device.device_type.as_ref()))
        .collect();
    let mut divisions = BTreeMap::new();
    for (number, own, pipeline) in workload.pipelines() {
        let slo_us = own.slo as f64 / 1e3;
        let divided = Divided::new(own, pipeline, |stage, rows| {
            let curve = models.get(stage.model as usize).map(|model| Curve::of(model, &kinds, slo_us));
            let costs = |budget: Nanos| curve.as_ref().map_or(f64::INFINITY, |curve| rows * curve.at(budget));
            StageCosts::of(Nanos(own.slo), STEPS, costs)
        })?;
        let shares = match pipeline.split {
            ObjectiveSplit::Nexus | ObjectiveSplit::Plan => without_unused(&divided),
            ObjectiveSplit::Even | ObjectiveSplit::Shares(_) => divided.shares.clone(),
        };
        for (stage, share) in pipeline.stages.iter().zip(&shares) {
            let Some(model) = models.get_mut(stage.model as usize) else { continue };
            let budget_us = slo_us * share;
            let alone = fastest(model, &kinds);
            if alone.is_none_or(|alone| alone > budget_us) {
                let alone = alone.map_or_else(String::new, |us| format!(", which takes {:.3} ms", us / 1e3));
                let problem = format!(
                    "stage `{}` has {:.3} ms of the objective: expected enough for a row of `{}` alone on the fastest whole device{alone}",
                    stage.name,
                    budget_us / 1e3,
                    model.name
                );
                return Err(WorkloadError::apart(format!("pipelines.{}.split", own.name), problem));
            }
            let name = format!("{}.{}", own.name, stage.name);
            model.stages.push(StageOf { name, slo_us: Some(budget_us) });
        }
        divisions.insert(number, Divided { shares, ..divided });
    }
    for model in models {
        let objective = StageOf::objective_us(Some(model.slo_us), &model.stages);
        model.slo_us = objective.unwrap_or(model.slo_us);
    }
    Ok(divisions)
}

/// Steps of the objective that would gain nothing are headroom of all stages.
fn without_unused(divided: &Divided) -> Vec<f64> {
    let longest = divided.graph.longest_to(|stage| divided.shares.get(stage).copied().unwrap_or(0.0));
    let longest = longest.into_iter().fold(f64::MIN_POSITIVE, f64::max).min(1.0);
    divided.shares.iter().map(|share| share / longest).collect()
}

/// Microseconds of a row alone on the fastest whole device.
fn fastest(model: &Model, kinds: &BTreeMap<&str, &DeviceType>) -> Option<f64> {
    let profiles = model.profiles.as_deref().unwrap_or_default().iter();
    let alone = profiles.filter_map(|profile| {
        let units = kinds.get(profile.device())?.sizes.last()?;
        lane_plan::batch_time(profile, 1, *units).map(|time| time.0 as f64 / 1e3)
    });
    alone.reduce(f64::min)
}

/// Device-seconds that a row takes, by the time that requests have: those in a batch may wait for the batch before.
struct Curve(Vec<(f64, f64)>);

impl Curve {
    /// The batches that end within an objective, with the times that plans use.
    fn of(model: &Model, kinds: &BTreeMap<&str, &DeviceType>, slo_us: f64) -> Self {
        let mut points = Vec::new();
        for profile in model.profiles.as_deref().unwrap_or_default() {
            let Some(kind) = kinds.get(profile.device()) else { continue };
            for units in &kind.sizes {
                let share = f64::from(*units) / f64::from(kind.units);
                let times = (1..=model.batch_max)
                    .filter_map(|rows| {
                        Some((rows, profile.latency_us(Quantile::default(), rows, *units).ok()?))
                    })
                    .take_while(|(_, time)| 2.0 * time <= slo_us);
                points.extend(times.map(|(rows, time)| (2.0 * time, share * time / (1e6 * f64::from(rows)))));
            }
        }
        points.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
        let mut least = f64::INFINITY;
        points.retain(|(_, seconds)| {
            let is_better = *seconds < least;
            least = least.min(*seconds);
            is_better
        });
        Self(points)
    }

    /// Infinite if no batch is short enough.
    fn at(&self, budget: Nanos) -> f64 {
        let short = self.0.partition_point(|(time, _)| *time <= budget.0 as f64 / 1e3);
        short.checked_sub(1).and_then(|last| self.0.get(last)).map_or(f64::INFINITY, |(_, seconds)| *seconds)
    }
}
