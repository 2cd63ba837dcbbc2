//! GSLICE's feedback: adjusts the share and batch of each model after the times of its batches (placement policy
//! `gslice`; other policies do not use it).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{BatchTotals, Controller, ModelLoad, PlanningInputs};
use crate::id::{GpuletId, ModelId};
use crate::placement::{Gslice, Measured, Policy, Setting};
use crate::plan::Gpulet;
use crate::problem::Device;

/// Batches of a model in one adjustment.
const BATCHES: f64 = 32.0;

/// Batches of a model on one gpulet since its last adjustment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    batches: f64,
    rows: f64,
    time_us: f64,
}

/// Shares and batches by model, and what was measured since they were adjusted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Feedback {
    before: BTreeMap<(GpuletId, ModelId, u32), (u64, u64)>,
    sums: BTreeMap<(GpuletId, ModelId), Sum>,
    settings: BTreeMap<String, Setting>,
}

impl Feedback {
    /// Adds what ran since the last evaluation.
    fn add(&mut self, ran: &[BatchTotals]) {
        let (mut now, mut sums) = (BTreeMap::new(), BTreeMap::new());
        for total in ran {
            let key = (total.gpulet, total.number, total.rows);
            let (batches, time_us) = self.before.get(&key).copied().unwrap_or_default();
            now.insert(key, (total.batches, total.time_us.0));
            let gpulet = (total.gpulet, total.number);
            let known = || self.sums.get(&gpulet).copied().unwrap_or_default();
            let sum = sums.entry(gpulet).or_insert_with(known);
            let batches = total.batches.saturating_sub(batches) as f64;
            sum.batches += batches;
            sum.rows += batches * f64::from(total.rows);
            sum.time_us += total.time_us.0.saturating_sub(time_us) as f64;
        }
        // Gpulets that no longer exist are not among the new ones.
        (self.before, self.sums) = (now, sums);
    }

    /// Adjusts a model after enough batches on the gpulet of `planned`.
    fn adjust(
        &mut self,
        number: ModelId,
        name: &str,
        planned: &Planned,
        (slo_us, rate): (f64, f64),
        batch_max: u32,
    ) {
        let sum = self.sums.get_mut(&(planned.gpulet, number));
        let Some(sum) = sum.filter(|sum| sum.batches >= BATCHES) else { return };
        let Sum { batches, rows, time_us } = std::mem::take(sum);
        if time_us <= 0.0 {
            return;
        }
        let measured = Measured { latency_us: 2.0 * time_us / batches, throughput: 1e6 * rows / time_us };
        let known = self.settings.get(name).copied().unwrap_or(planned.setting);
        self.settings.insert(name.to_owned(), known.adjusted(&measured, slo_us, rate, batch_max));
    }
}

/// What the plan in force gives a model on its smallest gpulet. Its others are whole devices, whose share cannot change.
struct Planned {
    gpulet: GpuletId,
    setting: Setting,
    /// Part of the model's rate that is sent there.
    part: f64,
}

impl Planned {
    fn of<'a>(
        active: impl Iterator<Item = (GpuletId, &'a Gpulet)>,
        devices: &[Device],
        model: &str,
    ) -> Option<Self> {
        let mut total = 0.0;
        let mut smallest: Option<(Self, f64)> = None;
        for (id, gpulet) in active {
            let Some(slot) = gpulet.slots.iter().find(|slot| slot.workload == model) else { continue };
            let Some(device) = devices.iter().find(|device| device.name == gpulet.device) else { continue };
            total += slot.rate;
            let share = f64::from(gpulet.units) / f64::from(device.device_type.units);
            // Of equal ones the last: whole devices are planned first.
            if smallest.as_ref().is_none_or(|(known, _)| share <= known.setting.share) {
                let setting = Setting { share, batch: slot.batch };
                smallest = Some((Self { gpulet: id, setting, part: 1.0 }, slot.rate));
            }
        }
        let (planned, rate) = smallest?;
        Some(if total > 0.0 { Self { part: rate / total, ..planned } } else { planned })
    }
}

impl Controller {
    /// Adjusts shares and batches if the placement policy is `gslice`. Returns whether a plan must follow, because a
    /// gpulet would get another size or batch.
    pub(super) fn adjust(&mut self, models: &[ModelLoad], ran: &[BatchTotals]) -> bool {
        if !matches!(self.inputs.policy, Policy::Gslice(_)) {
            return false;
        }
        self.feedback.add(ran);
        // Settings follow measurements of what they planned; each adjustment needs a plan.
        if self.is_start_plan {
            return false;
        }
        let devices = &self.inputs.devices;
        self.feedback.settings.retain(|name, _| models.iter().any(|looked| looked.model.name == *name));
        let mut moved = false;
        for ModelLoad { model, seen } in models {
            let Some(planned) = Planned::of(self.rollout.active(), devices, &model.name) else { continue };
            let rate = self.latest.target(&model.name).unwrap_or(0.0) * planned.part;
            let wanted = (model.slo_us, rate);
            self.feedback.adjust(seen.number, &model.name, &planned, wanted, model.batch_max);
            let planned = planned.setting;
            let Some(setting) = self.feedback.settings.get(&model.name) else { continue };
            moved |= setting.batch != planned.batch
                || devices
                    .iter()
                    .any(|device| setting.units(&device.device_type) != planned.units(&device.device_type));
        }
        if moved {
            let policy = Policy::Gslice(Gslice::with(self.feedback.settings.clone()));
            self.inputs = Arc::new(PlanningInputs { policy, ..PlanningInputs::clone(&self.inputs) });
        }
        moved
    }
}
