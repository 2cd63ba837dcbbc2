//! What breaks by itself: gpulets, promises of latency, whole devices.

use super::Rollout;
use super::history::Kind;
use super::message::{Effect, Refusal};
use super::phase::{Phase, Probation};
use crate::id::GpuletId;

impl Rollout {
    pub(super) fn fault(&mut self, gpulet: GpuletId, reason: &str) {
        let Some(known) = self.known.get_mut(&gpulet).filter(|known| !known.faulty) else { return };
        known.faulty = true;
        let words = format!("{} broke: {reason}", self.place(gpulet));
        self.say(Kind::Incident, words.clone());
        let is_active = self.table.contains_key(&gpulet);
        match &mut self.phase {
            Phase::Preparing(preparing) if is_active => preparing.again = true,
            Phase::Preparing(preparing) if preparing.wave.fresh.contains(&gpulet) => {
                preparing.broken = Some(words);
                return;
            }
            Phase::Probation(probation) if probation.wave.fresh.contains(&gpulet) => {
                return self.go_back(words);
            }
            Phase::Idle
            | Phase::Preparing(_)
            | Phase::Switching(_)
            | Phase::Probation(_)
            | Phase::Clearing(_) => {}
        }
        if is_active {
            self.effects.push(Effect::PlanNeeded { reason: words });
        }
    }

    pub(super) fn late(&mut self, gpulet: GpuletId, reason: &str) {
        let Phase::Probation(probation) = &self.phase else { return };
        if probation.wave.touched.contains(&gpulet) {
            let words = format!("{} does not keep its latency bound: {reason}", self.place(gpulet));
            self.go_back(words);
        }
    }

    pub(super) fn device_gone(&mut self, device: &str, reason: &str) {
        self.written_off.remove(device);
        if self.waiting.as_ref().is_some_and(|(_, proposal)| proposal.uses(device))
            && let Some((number, _)) = self.waiting.take()
        {
            self.refuse(number, Refusal::Vanished { device: device.to_owned() });
        }
        let known = self.known.iter().filter(|(_, known)| known.device() == device);
        let gone: Vec<GpuletId> = known.map(|(id, _)| *id).collect();
        let wanted = self.target.as_ref().is_some_and(|target| target.proposal.uses(device));
        if gone.is_empty() && !wanted {
            return;
        }
        let words = format!("device `{device}` is gone with {} gpulets: {reason}", gone.len());
        self.say(Kind::Gone, words.clone());
        self.effects.push(Effect::PlanNeeded { reason: words.clone() });
        for id in &gone {
            self.known.remove(id);
            self.table.remove(id);
        }
        if let Some(target) = self.target.as_mut().filter(|_| wanted) {
            target.proposal.gpulets.retain(|weighed| weighed.gpulet.device != device);
            target.lost.get_or_insert_with(|| words.clone());
        }
        self.forget(&gone);
        let gives = match &mut self.phase {
            Phase::Preparing(preparing) => {
                preparing.again = true;
                false
            }
            // What was new there may still be served where it was before.
            Phase::Probation(Probation { wave, .. }) => {
                let wave = wave.clone();
                self.weigh_way_back(&wave).1
            }
            Phase::Idle | Phase::Switching(_) | Phase::Clearing(_) => false,
        };
        if gives {
            self.go_back(words);
        }
    }

    fn forget(&mut self, gone: &[GpuletId]) {
        let is_gone = |id: &GpuletId| gone.binary_search(id).is_ok();
        if let Some(wave) = self.phase.wave_mut() {
            wave.before.retain(|id, _| !is_gone(id));
            wave.after.retain(|id, _| !is_gone(id));
            wave.fresh.retain(|id| !is_gone(id));
            wave.touched.retain(|id| !is_gone(id));
        }
        if let Some(running) = self.phase.running_mut() {
            running.take_if(|running| is_gone(&running.step.gpulet()));
        }
        match &mut self.phase {
            Phase::Preparing(preparing) => preparing.steps.retain(|step| !is_gone(&step.gpulet())),
            Phase::Clearing(clearing) => {
                if clearing.running.is_none() {
                    clearing.tries = 0;
                }
                clearing.steps.retain(|step| !is_gone(&step.gpulet()));
                clearing.leaving.retain(|id| !is_gone(id));
            }
            Phase::Idle | Phase::Switching(_) | Phase::Probation(_) => {}
        }
    }
}
