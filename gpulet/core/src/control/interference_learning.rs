//! Learns the interference between co-located gpulets from the batches that ran, and decides when plans use it.
//!
//! Each evaluation compares the batch times of each gpulet and model with the solo times of the profile. It relates the
//! difference to what the other gpulets of the device ran, and for how much of the time ([`Exposure`]). Solo batches
//! show the error of the profile itself, which is corrected first and does not count as interference
//! ([`super::profile_correction`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::profile_correction::{ProfileCorrections, SoloBatches, usual_error};
use super::{BatchTotals, Controller, ModelLoad, PlanningInputs};
use crate::id::{DeviceId, GpuletId, ModelId};
use crate::interference::{
    Contention, Errors, Exposure, Interference, Learned, Learner, Load, Runner, TERMS,
};
use crate::plan::Gpulet;
use crate::problem::{Device, Problem};
use crate::profile::{Profile, Quantile};
use crate::rollout::Rollout;
use crate::time::Micros;

/// Part of recent errors that the margin covers. The margin covers errors of mean times; the percentile of the profile
/// that plans use covers the variation of single batches.
const QUANTILE: f64 = 0.9;
/// Batches of a gpulet and model in one observation.
const BATCHES: u64 = 32;
/// Batches count as solo when they were co-located for less than this part of their time.
const ALONE: f64 = 0.02;
/// Solo observations that are remembered, as the weight of the last one.
const ALONE_MEMORY: u32 = 32;
/// Largest correction of a profile, as a factor in either direction.
const OFF_MAX: f64 = 2.0;
/// A plan that is requested for another reason uses new estimates if they move a factor of the plan in force by more
/// than this part. Smaller differences would move gpulets because of noise.
const WORTH: f64 = 0.02;
/// New estimates alone cause a plan request if they move a factor of the plan in force by more than this part.
const MATERIAL: f64 = 0.1;

/// The interference that was learned on a device type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InterferenceEntry {
    /// Device type.
    pub device_type: String,
    /// Whether new plans use it.
    pub used_by_plans: bool,
    /// Number of observations so far.
    pub observations: u64,
    /// Weights of the inputs of [`Contention::terms`]: any co-located load; cache use of the co-located loads (1 =
    /// all); hundreds of watts above the cap; square root of own kernels a microsecond. The weighted sum is the factor
    /// on the solo time of a batch.
    pub weights: [f64; TERMS],
    /// Part added to every factor, for what the weights do not explain; 0 adds nothing.
    pub margin: f64,
    /// Error of the predicted times of co-located batches, with what was learned before each; none before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorEntry>,
    /// The same error when predictions assume no interference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_uncorrected: Option<ErrorEntry>,
}

/// Relative error of the last predictions, at most 256, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ErrorEntry {
    /// Mean, in percent.
    pub mean_pct: f64,
    /// 90th percentile, in percent.
    pub p90_pct: f64,
}

impl From<Errors> for ErrorEntry {
    fn from(Errors { mean_pct, p90_pct, .. }: Errors) -> Self {
        Self { mean_pct, p90_pct }
    }
}

/// Batch times of a model on a gpulet, and their exposure, since the last observation.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    batches: u64,
    time_us: f64,
    /// Their solo time according to the profile.
    alone_us: f64,
    /// Usual error of the profile, weighted by the solo time.
    usual_us: f64,
    /// Weighted by the solo time.
    met: Exposure,
}

/// Batches of one size in one period.
struct Run<'a> {
    number: ModelId,
    own: Runner<'a>,
    batches: u64,
    time_us: f64,
    alone_us: f64,
}

/// Measured solo time divided by the profiled one, and the number of observations.
#[derive(Clone, Copy, Debug, Default)]
struct Off {
    factor: f64,
    observations: u32,
}

type Totals = BTreeMap<(GpuletId, ModelId, u32), (u64, Micros)>;

/// The learned interference of each device type.
#[derive(Debug, Default)]
pub(super) struct InterferenceLearning {
    at_us: Micros,
    /// Gpulets in force at the last evaluation; none during a change.
    in_force: Option<Vec<GpuletId>>,
    before: Totals,
    sums: BTreeMap<(GpuletId, ModelId), Sum>,
    /// By device type, units and model.
    off: BTreeMap<(String, u32, ModelId), Off>,
    learners: BTreeMap<String, Learner>,
    pub(super) corrections: ProfileCorrections,
}

impl InterferenceLearning {
    /// What plans use: the interference on each device type with enough observations.
    fn learned(&self) -> Learned {
        let settled = self.learners.iter().filter(|(_, learner)| learner.is_settled());
        Learned::of(settled.map(|(kind, learner)| (kind.clone(), learner.estimate())))
    }

    /// Takes in what ran since the last evaluation. One that comes sooner than half a period is left for the next:
    /// batches count when they end, so short spans say little about which gpulets were busy.
    pub fn look(
        &mut self,
        (now, period_us): (Micros, Micros),
        models: &[ModelLoad],
        ran: &[BatchTotals],
        devices: &[Device],
        rollout: &Rollout,
    ) {
        let elapsed_us = now.since(self.at_us);
        if elapsed_us.0 < (period_us.0 / 2).max(1) {
            return;
        }
        self.at_us = now;
        let now: Totals =
            ran.iter().map(|ran| ((ran.gpulet, ran.number, ran.rows), (ran.batches, ran.time_us))).collect();
        let before = std::mem::replace(&mut self.before, now);
        let active: BTreeMap<GpuletId, &Gpulet> = rollout.active().collect();
        let in_force = rollout.is_idle().then(|| active.keys().copied().collect::<Vec<_>>());
        let is_same = in_force.is_some() && in_force == self.in_force;
        self.in_force = in_force;
        self.off.retain(|(.., number), _| models.iter().any(|looked| looked.seen.number == *number));
        let on_device = |name: &str, device: &DeviceId| {
            active.values().any(|gpulet| {
                gpulet.device == *device && gpulet.slots.iter().any(|slot| slot.workload == name)
            })
        };
        self.corrections.retain(models, on_device);
        // What ran under two plans says little about either.
        if !is_same {
            self.sums.clear();
            return;
        }
        for device in devices {
            let here = active.iter().filter(|(_, gpulet)| gpulet.device == device.name);
            let runs = here.map(|(id, gpulet)| (*id, self.runs(*id, gpulet, device, models, &before)));
            let runs: Vec<(GpuletId, Vec<Run<'_>>)> = runs.collect();
            self.learn(device, &runs, elapsed_us.0 as f64);
        }
    }

    /// The batches that a gpulet ran since `before`, of models with a profile.
    fn runs<'a>(
        &self,
        id: GpuletId,
        gpulet: &Gpulet,
        device: &Device,
        models: &'a [ModelLoad],
        before: &Totals,
    ) -> Vec<Run<'a>> {
        let all = self.before.range((id, ModelId(0), 0)..=(id, ModelId(u32::MAX), u32::MAX));
        let run = |(key, now): (&(GpuletId, ModelId, u32), &(u64, Micros))| {
            let (_, number, rows) = *key;
            let before = before.get(key).copied().unwrap_or_default();
            let batches = now.0.checked_sub(before.0).filter(|batches| *batches > 0)?;
            let time_us = now.1.0.checked_sub(before.1.0)? as f64;
            let looked = models.iter().find(|looked| looked.seen.number == number)?;
            let profiles: &[Profile] = looked.model.profiles.as_deref().unwrap_or_default();
            let profile = profiles.iter().find(|profile| profile.device() == device.device_type.name)?;
            let alone_us = profile.expected_us(Quantile::P50, rows, gpulet.units).ok()? * batches as f64;
            Some(Run {
                number,
                own: Runner { profile, batch: rows, units: gpulet.units },
                batches,
                time_us,
                alone_us,
            })
        };
        all.filter_map(run).collect()
    }

    fn learn(&mut self, device: &Device, runs: &[(GpuletId, Vec<Run<'_>>)], elapsed_us: f64) {
        let loads = runs.iter().map(|(_, runs)| {
            let loads: Vec<(Load, f64)> = runs.iter().map(|run| (Load::of(&run.own), run.time_us)).collect();
            let busy_us: f64 = loads.iter().map(|(_, time_us)| time_us).sum();
            (Load::mean(&loads), busy_us / elapsed_us)
        });
        let loads: Vec<(Load, f64)> = loads.collect();
        let kind = &device.device_type.name;
        let learner = self.learners.entry(kind.clone());
        let learner = learner.or_insert_with(|| Learner::new(&Contention::NONE, QUANTILE));
        for (at, (id, runs)) in runs.iter().enumerate() {
            let others = loads.iter().enumerate().filter(|(other, _)| *other != at);
            let co_located: Vec<(Load, f64)> = others.map(|(_, load)| *load).collect();
            for run in runs {
                let sum = self.sums.entry((*id, run.number)).or_default();
                sum.batches = sum.batches.saturating_add(run.batches);
                sum.time_us += run.time_us;
                sum.alone_us += run.alone_us;
                let met = learner.exposure(&run.own, &co_located);
                sum.met.add(&met, run.alone_us);
                let Runner { profile, batch, units } = run.own;
                sum.usual_us += usual_error(profile, batch, units) * run.alone_us;
                if met.share < ALONE {
                    let (batches, time_us) = (run.batches, run.time_us);
                    let ran = SoloBatches { units, rows: batch, batches, time_us };
                    self.corrections.ran(run.number, profile, ran);
                }
            }
            for run in runs {
                let Some(sum) = self.sums.get_mut(&(*id, run.number)) else {
                    invariant::violated!("control.run_without_sum");
                    continue;
                };
                if sum.batches < BATCHES {
                    continue;
                }
                let Sum { time_us, alone_us, usual_us, met, .. } = std::mem::take(sum);
                let (factor, met) = (time_us / alone_us, met.over(alone_us));
                let off = self.off.entry((kind.clone(), run.own.units, run.number)).or_default();
                if met.share < ALONE {
                    off.take(factor);
                    self.corrections.observe(run.number, device, factor, usual_us / alone_us);
                } else {
                    let drift = self.corrections.factor(run.number, kind);
                    learner.observe_mean(&met, factor / if drift == 1.0 { off.factor() } else { drift });
                }
            }
        }
    }
}

impl Off {
    fn take(&mut self, factor: f64) {
        self.observations = self.observations.saturating_add(1).min(ALONE_MEMORY);
        let step = factor.clamp(1.0 / OFF_MAX, OFF_MAX) - self.factor;
        self.factor += step / f64::from(self.observations);
    }

    /// The correction of the profile; 1 while no solo batch was observed.
    fn factor(&self) -> f64 {
        if self.observations == 0 { 1.0 } else { self.factor }
    }
}

impl Controller {
    /// The learned interference, by device type.
    pub fn interference(&self) -> Vec<InterferenceEntry> {
        let entry = |(kind, learner): (&String, &Learner)| InterferenceEntry {
            device_type: kind.clone(),
            used_by_plans: self.options.uses_learned && learner.is_settled(),
            observations: learner.observations(),
            weights: learner.weights(),
            margin: learner.margin(),
            error: learner.errors().map(ErrorEntry::from),
            error_uncorrected: learner.errors_of_none().map(ErrorEntry::from),
        };
        self.learning.learners.iter().map(entry).collect()
    }

    /// Takes in what ran, and returns whether that alone justifies a plan.
    pub(super) fn learn(&mut self, now: Micros, models: &[ModelLoad], ran: &[BatchTotals]) -> bool {
        let period_us = self.options.period_us;
        self.learning.look((now, period_us), models, ran, &self.inputs.devices, &self.rollout);
        let is_corrected = self.learning.corrections.take_changed() && self.corrects_profiles();
        let has_moved = self.options.uses_learned
            && self.moved(&self.learning.learned()).is_some_and(|moved| moved > MATERIAL);
        is_corrected || has_moved
    }

    /// Makes further plans use the current estimates, unless they hardly differ for the plan in force.
    pub(super) fn believe(&mut self) {
        if !self.options.uses_learned {
            return;
        }
        let learned = self.learning.learned();
        if self.moved(&learned).is_none_or(|moved| moved > WORTH) {
            let interference = Interference::Learned(learned);
            self.inputs = Arc::new(PlanningInputs { interference, ..PlanningInputs::clone(&self.inputs) });
        }
    }

    /// Largest relative difference between the factors that the plan in force was made with and the current ones; none
    /// where no gpulet is co-located with another.
    fn moved(&self, learned: &Learned) -> Option<f64> {
        let problem = self.problem.as_ref()?;
        let learned = Interference::Learned(learned.clone());
        if learned == self.inputs.interference {
            return Some(0.0);
        }
        let active: Vec<&Gpulet> = self.rollout.active().map(|(_, gpulet)| gpulet).collect();
        let mut most = None;
        for device in problem.devices() {
            let here = active.iter().filter(|gpulet| gpulet.device == device.name);
            let here: Vec<(u32, Vec<(Runner<'_>, Load)>)> =
                here.map(|gpulet| (gpulet.first_unit, slots(problem, device, gpulet))).collect();
            for (unit, own) in &here {
                let others = here.iter().filter(|(other, _)| other != unit);
                let others: Vec<Vec<Load>> =
                    others.map(|(_, slots)| slots.iter().map(|(_, load)| *load).collect()).collect();
                let others: Vec<&[Load]> = others.iter().map(Vec::as_slice).collect();
                for (runner, _) in own.iter().filter(|_| !others.is_empty()) {
                    let factor = |believed: &Interference| believed.slowdown(runner, &others);
                    let moved = (factor(&learned) / factor(&self.inputs.interference) - 1.0).abs();
                    most = Some(f64::max(moved, most.unwrap_or(0.0)));
                }
            }
        }
        most
    }
}

fn slots<'a>(problem: &'a Problem, device: &Device, gpulet: &Gpulet) -> Vec<(Runner<'a>, Load)> {
    let runner = |slot: &crate::plan::Slot| {
        // The plan in force may be older than the problem: its model may have been unloaded.
        let workload = problem.workloads().iter().find(|workload| workload.name == slot.workload)?;
        let profile = problem.profile(workload, &device.device_type)?;
        let runner = Runner { profile, batch: slot.batch, units: gpulet.units };
        Some((runner, Load::of(&runner)))
    };
    gpulet.slots.iter().filter_map(runner).collect()
}
