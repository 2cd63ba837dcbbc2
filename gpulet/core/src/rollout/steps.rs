//! Steps: requests them, on each device one at a time, and handles their answers.

use std::collections::{BTreeSet, VecDeque};

use super::Rollout;
use super::history::{EntryKind, span};
use super::message::{Effect, Step};
use super::phase::{Phase, Preparing, Running};
use super::proposal::Footprint;
use crate::id::{DeviceId, GpuletId, StepId};

impl Rollout {
    /// The next steps of a wave, or its switch. Events that came in between are handled first: steps that are under way
    /// end before anything else begins.
    pub(super) fn prepare_on(&mut self, mut preparing: Preparing) -> bool {
        let is_stopped = self.target.as_ref().is_some_and(|target| target.stop.is_some());
        let goes_on = !is_stopped && self.waiting.is_none() && !preparing.again && preparing.broken.is_none();
        if goes_on {
            self.ask_steps(&mut preparing);
        }
        if !preparing.running.is_empty() {
            self.phase = Phase::Preparing(preparing);
            return false;
        }
        if let Some(reason) = self.target.as_ref().and_then(|target| target.stop.clone()) {
            self.abandon(reason);
            return true;
        }
        if self.waiting.is_some() && self.take_waiting() || preparing.again {
            self.next_wave();
            return true;
        }
        if let Some(reason) = preparing.broken {
            self.abandon(reason);
            return true;
        }
        // A proposal that waited was refused.
        if !preparing.steps.is_empty() {
            self.phase = Phase::Preparing(preparing);
            return true;
        }
        self.switch_forward(preparing.wave);
        true
    }

    /// Requests the next step of each device that has none running. A device that loads does not delay the others.
    fn ask_steps(&mut self, preparing: &mut Preparing) {
        let mut busy: BTreeSet<DeviceId> = BTreeSet::new();
        busy.extend(preparing.running.iter().filter_map(|running| self.device_of(&running.step)));
        let mut left = VecDeque::with_capacity(preparing.steps.len());
        for step in preparing.steps.drain(..) {
            // Steps of one device keep their order.
            let is_free = self.device_of(&step).is_none_or(|device| busy.insert(device));
            if !is_free {
                left.push_back(step);
                continue;
            }
            let planned = |gpulet, model: &str| {
                preparing.wave.after.get(&gpulet).and_then(|sized| sized.sessions.get(model)).copied()
            };
            let need = match &step {
                Step::Prepare { gpulet, model, .. } => planned(*gpulet, model),
                Step::Open { .. }
                | Step::Verify { .. }
                | Step::Shrink { .. }
                | Step::CloseSession { .. }
                | Step::Close { .. } => None,
            };
            preparing.running.push(self.ask(step, need));
        }
        preparing.steps = left;
    }

    fn device_of(&self, step: &Step) -> Option<DeviceId> {
        let known = self.known.get(&step.gpulet());
        invariant::expected!(known, "rollout.step_of_unknown_gpulet").map(|known| known.device().clone())
    }

    /// Requests a step. Its memory counts from now on, because a step may fail late.
    pub(super) fn ask(&mut self, step: Step, need: Option<Footprint>) -> Running {
        let limit_us = match &step {
            Step::Open { .. } => self.options.open_us,
            Step::Prepare { .. } => self.options.prepare_us,
            Step::Verify { .. } => self.options.verify_us,
            Step::Shrink { .. } | Step::CloseSession { .. } | Step::Close { .. } => self.options.close_us,
        };
        self.count_asked(&step, need);
        self.steps = self.steps.saturating_add(1);
        let (id, deadline_us) = (StepId(self.steps), self.now.after(limit_us));
        self.effects.push(Effect::Step { id, step: step.clone(), deadline_us });
        Running { id, step, since_us: self.now, deadline_us }
    }

    fn count_asked(&mut self, step: &Step, need: Option<Footprint>) {
        let Some(known) = self.known.get_mut(&step.gpulet()) else {
            return invariant::violated!("rollout.request_for_unknown_gpulet");
        };
        match (step, need) {
            (Step::Open { .. }, _) => known.opened = true,
            (Step::Prepare { model, .. }, Some(need)) => {
                let held = known.sessions.entry(model.clone()).or_default();
                held.need = held.need.or(need);
            }
            (Step::Prepare { .. }, None) => invariant::violated!("rollout.preparation_of_unplanned_model"),
            // The step may still be carried out after its deadline.
            (Step::Shrink { model, batch, .. }, _) => match known.sessions.get_mut(model) {
                Some(held) => {
                    held.prepared = held.prepared.min(*batch);
                    held.verified = held.verified.min(*batch);
                }
                None => invariant::violated!("rollout.shrink_of_unknown_session"),
            },
            (Step::Verify { .. } | Step::CloseSession { .. } | Step::Close { .. }, _) => {}
        }
    }

    /// The running step, if it is the one that was answered. Answers also come after a deadline or a removed device.
    fn take_running(&mut self, id: StepId) -> Option<Running> {
        self.phase.take_running(id)
    }

    pub(super) fn step_done(&mut self, id: StepId) {
        let Some(running) = self.take_running(id) else { return };
        let message = self.words_of(&running.step);
        let took = span(self.now.since(running.since_us));
        let gpulet = running.step.gpulet();
        self.note_done(&running.step);
        let kind =
            if matches!(running.step, Step::Close { .. }) { EntryKind::Closed } else { EntryKind::Step };
        self.record(kind, format!("{message} in {took}"));
        if let Phase::Closing(closing) = &mut self.phase {
            closing.steps.pop_front();
            closing.tries = 0;
            if kind == EntryKind::Closed {
                closing.leaving.retain(|leaving| *leaving != gpulet);
            }
        }
    }

    fn note_done(&mut self, step: &Step) {
        let gpulet = step.gpulet();
        let routed = |model: &str| self.table.get(&gpulet)?.sessions.get(model).copied();
        let kept = match step {
            Step::Shrink { model, .. } => routed(model),
            Step::Open { .. }
            | Step::Prepare { .. }
            | Step::Verify { .. }
            | Step::CloseSession { .. }
            | Step::Close { .. } => None,
        };
        let Some(known) = self.known.get_mut(&gpulet) else {
            return invariant::violated!("rollout.step_of_unknown_gpulet");
        };
        match step {
            Step::Open { .. } => {}
            Step::Prepare { model, batch, .. } => {
                let held = known.sessions.entry(model.clone()).or_default();
                held.prepared = held.prepared.max(*batch);
            }
            Step::Verify { model, batch, .. } => {
                let held = known.sessions.entry(model.clone()).or_default();
                held.verified = held.verified.max(*batch);
            }
            Step::Shrink { model, .. } => match (known.sessions.get_mut(model), kept) {
                (Some(held), Some(kept)) => held.need = kept,
                _ => invariant::violated!("rollout.shrunk_session_unknown"),
            },
            Step::CloseSession { model, .. } => drop(known.sessions.remove(model)),
            Step::Close { .. } => drop(self.known.remove(&gpulet)),
        }
    }

    /// Whether an active gpulet of the device has not failed.
    fn has_sound_gpulet_on(&self, device: &DeviceId) -> bool {
        let sound = |id: &GpuletId| self.known.get(id).is_some_and(|known| !known.faulty);
        self.table.iter().any(|(id, sized)| sized.gpulet.device == *device && sound(id))
    }

    pub(super) fn step_failed(&mut self, id: StepId, reason: String) {
        let Some(running) = self.take_running(id) else { return };
        let took = span(self.now.since(running.since_us));
        let message = format!("{} failed after {took}: {reason}", self.words_of(&running.step));
        self.record(EntryKind::Failed, message.clone());
        if let Step::Open { device, .. } = &running.step
            && !self.has_sound_gpulet_on(device)
        {
            let (device, reason) = (device.clone(), reason.clone());
            self.effects.push(Effect::CannotOpen { device, reason });
        }
        match std::mem::take(&mut self.phase) {
            Phase::Preparing(preparing) => {
                // A plan that waits may reuse what was opened so far. Steps of other devices end first.
                if self.waiting.is_some() || !preparing.running.is_empty() {
                    let broken = preparing.broken.or(Some(message));
                    self.phase = Phase::Preparing(Preparing { broken, ..preparing });
                    self.condemn(running.step.gpulet());
                } else {
                    self.abandon(message);
                }
            }
            Phase::Closing(closing) => self.close_failed(closing, &running.step, reason),
            other @ (Phase::Idle | Phase::Switching(_) | Phase::Baking(_)) => {
                self.phase = other;
                invariant::violated!("rollout.step_in_a_phase_without_steps");
            }
        }
    }

    /// A gpulet that was never active and on which a step failed is not used for anything else.
    fn condemn(&mut self, gpulet: GpuletId) {
        if self.table.contains_key(&gpulet) {
            return;
        }
        match self.known.get_mut(&gpulet) {
            Some(known) => known.faulty = true,
            None => invariant::violated!("rollout.failed_step_of_unknown_gpulet"),
        }
    }

    fn words_of(&self, step: &Step) -> String {
        let place = self.place(step.gpulet());
        match step {
            Step::Open { .. } => format!("{place}: opened"),
            Step::Prepare { model, batch, .. } => {
                format!("{place}: `{model}` prepared for batches of {batch}")
            }
            Step::Verify { model, .. } => format!("{place}: `{model}` verified"),
            Step::Shrink { model, batch, .. } => format!("{place}: `{model}` shrunk to batches of {batch}"),
            Step::CloseSession { model, .. } => format!("{place}: `{model}` closed"),
            Step::Close { .. } => format!("{place}: closed"),
        }
    }

    /// Fails what is past its deadline, and reports drains that take too long.
    pub(super) fn expire(&mut self) {
        let late = self.phase.running().filter(|running| running.deadline_us <= self.now);
        let late: Vec<_> = late.map(|running| (running.id, running.since_us)).collect();
        for (id, since_us) in late {
            let waited = span(self.now.since(since_us));
            self.step_failed(id, format!("no answer within {waited}"));
        }
        self.expire_switch();
        let now = self.now;
        let overdue = |rest: &super::known::Drain| !rest.drained && !rest.reported && rest.until_us <= now;
        let mut told = Vec::new();
        for (id, known) in &mut self.known {
            if let Some(rest) = known.drain.as_mut().filter(|rest| overdue(rest)) {
                rest.reported = true;
                told.push((*id, rest.since_us));
            }
        }
        for (id, since_us) in told {
            let waited = span(now.since(since_us));
            self.incident(format!("{}: still holds a batch {waited} after the switch", self.place(id)));
        }
    }
}
