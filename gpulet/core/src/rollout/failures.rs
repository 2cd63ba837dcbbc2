//! Failures: gpulets that fail, gpulets that are late, and removed devices.

use super::Rollout;
use super::history::EntryKind;
use super::message::{Effect, Refusal};
use super::phase::{Baking, Phase};
use crate::id::{DeviceId, GpuletId};

impl Rollout {
    pub(super) fn fault(&mut self, gpulet: GpuletId, reason: &str) {
        // It may have been closed since, or have failed before.
        let Some(known) = self.known.get_mut(&gpulet).filter(|known| !known.faulty) else { return };
        known.faulty = true;
        let message = format!("{} broke: {reason}", self.place(gpulet));
        self.record(EntryKind::Incident, message.clone());
        let is_active = self.table.contains_key(&gpulet);
        match &mut self.phase {
            Phase::Preparing(preparing) if is_active => preparing.again = true,
            Phase::Preparing(preparing) if preparing.wave.fresh.contains(&gpulet) => {
                preparing.broken = Some(message);
                return;
            }
            Phase::Baking(baking) if baking.wave.fresh.contains(&gpulet) => {
                return self.roll_back(message);
            }
            Phase::Idle
            | Phase::Preparing(_)
            | Phase::Switching(_)
            | Phase::Baking(_)
            | Phase::Closing(_) => {}
        }
        if is_active {
            self.effects.push(Effect::PlanNeeded { reason: message });
        }
    }

    pub(super) fn late(&mut self, gpulet: GpuletId, reason: &str) {
        // A rollback is possible only during the bake time. After it, the planner reacts to the load.
        let Phase::Baking(baking) = &self.phase else { return };
        if baking.wave.touched.contains(&gpulet) {
            let message = format!("{} does not keep its latency bound: {reason}", self.place(gpulet));
            self.roll_back(message);
        }
    }

    pub(super) fn device_removed(&mut self, device: &DeviceId, reason: &str) {
        self.written_off.remove(device);
        if self.waiting.as_ref().is_some_and(|(_, proposal)| proposal.uses(device))
            && let Some((number, _)) = self.waiting.take()
        {
            self.refuse(number, Refusal::DeviceRemoved { device: device.clone() });
        }
        let known = self.known.iter().filter(|(_, known)| known.device() == device);
        let removed: Vec<GpuletId> = known.map(|(id, _)| *id).collect();
        let wanted = self.target.as_ref().is_some_and(|target| target.proposal.uses(device));
        // Neither the table nor the plan uses the device.
        if removed.is_empty() && !wanted {
            return;
        }
        let message = format!("device `{device}` was removed with {} gpulets: {reason}", removed.len());
        self.record(EntryKind::DeviceRemoved, message.clone());
        self.effects.push(Effect::PlanNeeded { reason: message.clone() });
        for id in &removed {
            self.known.remove(id);
            self.table.remove(id);
        }
        if let Some(target) = self.target.as_mut().filter(|_| wanted) {
            target.proposal.gpulets.retain(|sized| sized.gpulet.device != *device);
            target.lost.get_or_insert_with(|| message.clone());
        }
        self.forget(&removed);
        let gives = match &mut self.phase {
            Phase::Preparing(preparing) => {
                preparing.again = true;
                false
            }
            // Workloads that moved to this device may still be served by their old gpulets.
            Phase::Baking(Baking { wave, .. }) => {
                let wave = wave.clone();
                self.compare_rollback(&wave).1
            }
            Phase::Idle | Phase::Switching(_) | Phase::Closing(_) => false,
        };
        if gives {
            self.roll_back(message);
        }
    }

    fn forget(&mut self, removed: &[GpuletId]) {
        let is_removed = |id: &GpuletId| removed.binary_search(id).is_ok();
        if let Some(wave) = self.phase.wave_mut() {
            wave.before.retain(|id, _| !is_removed(id));
            wave.after.retain(|id, _| !is_removed(id));
            wave.fresh.retain(|id| !is_removed(id));
            wave.touched.retain(|id| !is_removed(id));
        }
        match &mut self.phase {
            Phase::Preparing(preparing) => {
                preparing.running.retain(|running| !is_removed(&running.step.gpulet()));
                preparing.steps.retain(|step| !is_removed(&step.gpulet()));
            }
            Phase::Closing(closing) => {
                closing.running.take_if(|running| is_removed(&running.step.gpulet()));
                if closing.running.is_none() {
                    closing.tries = 0;
                }
                closing.steps.retain(|step| !is_removed(&step.gpulet()));
                closing.leaving.retain(|id| !is_removed(id));
            }
            Phase::Idle | Phase::Switching(_) | Phase::Baking(_) => {}
        }
    }
}
