//! GSLICE's feedback: adjusts the share and batch of each model after the times of its batches (placement policy
//! `gslice`; other policies do not use it).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{BatchTotals, Controller, ModelLoad, PlanningInputs};
use crate::id::{GpuletId, ModelId};
use crate::placement::{Gslice, Measured, Policy, Setting};
use crate::plan::Plan;
use crate::problem::Device;

/// Batches of a model in one adjustment.
const BATCHES: f64 = 32.0;

/// Batches of a model since its last adjustment.
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
    sums: BTreeMap<ModelId, Sum>,
    settings: BTreeMap<String, Setting>,
}

impl Feedback {
    /// Adds what ran since the last evaluation.
    fn add(&mut self, ran: &[BatchTotals]) {
        let mut now = BTreeMap::new();
        for total in ran {
            let key = (total.gpulet, total.number, total.rows);
            let (batches, time_us) = self.before.get(&key).copied().unwrap_or_default();
            now.insert(key, (total.batches, total.time_us.0));
            let sum = self.sums.entry(total.number).or_default();
            let batches = total.batches.saturating_sub(batches) as f64;
            sum.batches += batches;
            sum.rows += batches * f64::from(total.rows);
            sum.time_us += total.time_us.0.saturating_sub(time_us) as f64;
        }
        self.before = now;
    }

    /// Adjusts a model after enough batches. `planned` is its share and batch in the plan in force.
    fn adjust(
        &mut self,
        number: ModelId,
        name: &str,
        planned: Setting,
        (slo_us, rate): (f64, f64),
        batch_max: u32,
    ) {
        let Some(sum) = self.sums.get_mut(&number).filter(|sum| sum.batches >= BATCHES) else { return };
        let Sum { batches, rows, time_us } = std::mem::take(sum);
        if time_us <= 0.0 {
            return;
        }
        let measured = Measured { latency_us: 2.0 * time_us / batches, throughput: 1e6 * rows / time_us };
        let known = self.settings.get(name).copied().unwrap_or(planned);
        self.settings.insert(name.to_owned(), known.adjusted(&measured, slo_us, rate, batch_max));
    }
}

/// The share and batch of a model in a plan: those of its smallest gpulet, because the others are whole devices.
fn planned(plan: &Plan, devices: &[Device], model: &str) -> Option<Setting> {
    let shares = plan.slots_of(model).filter_map(|(gpulet, slot)| {
        let device = devices.iter().find(|device| device.name == gpulet.device)?;
        let share = f64::from(gpulet.units) / f64::from(device.device_type.units);
        Some(Setting { share, batch: slot.batch })
    });
    shares.min_by(|left, right| left.share.total_cmp(&right.share))
}

impl Controller {
    /// Adjusts shares and batches if the placement policy is `gslice`. Returns whether a plan must follow, because a
    /// gpulet would get another size or batch.
    pub(super) fn adjust(&mut self, models: &[ModelLoad], ran: &[BatchTotals]) -> bool {
        if !matches!(self.inputs.policy, Policy::Gslice(_)) {
            return false;
        }
        self.feedback.add(ran);
        let (plan, devices) = (self.rollout.plan(), &self.inputs.devices);
        self.feedback.settings.retain(|name, _| models.iter().any(|looked| looked.model.name == *name));
        let mut moved = false;
        for ModelLoad { model, seen } in models {
            let Some(planned) = planned(&plan, devices, &model.name) else { continue };
            let rate = self.latest.target(&model.name).unwrap_or(0.0);
            let wanted = (model.slo_us, rate);
            self.feedback.adjust(seen.number, &model.name, planned, wanted, model.batch_max);
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
