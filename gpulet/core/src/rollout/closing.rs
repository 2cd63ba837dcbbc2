//! Closes unneeded gpulets: their sessions, then the gpulets, then shrinks arenas that are too large.

use std::collections::{BTreeSet, VecDeque};

use super::Rollout;
use super::known::Known;
use super::message::Step;
use super::phase::{After, Closing, Phase};
use crate::id::GpuletId;

impl Closing {
    pub(super) fn new(leaving: Vec<GpuletId>, shrinks: bool, after: After) -> Self {
        Self {
            leaving,
            steps: VecDeque::new(),
            running: None,
            tries: 0,
            shrinks,
            spared: BTreeSet::new(),
            after,
        }
    }
}

impl Rollout {
    pub(super) fn close_on(&mut self, mut closing: Closing) -> bool {
        if closing.running.is_none() {
            if closing.steps.is_empty() {
                closing.steps = self.closing_steps(&closing.leaving);
            }
            if closing.steps.is_empty() && closing.leaving.is_empty() && closing.shrinks {
                closing.steps = self.shrinking(&closing.spared);
            }
            match closing.steps.front().cloned() {
                Some(step) => closing.running = Some(self.ask(step, None)),
                None if closing.leaving.is_empty() => {
                    match closing.after {
                        After::NextWave => self.next_wave(),
                        After::End(outcome) => self.finish(outcome),
                    }
                    return true;
                }
                None => {}
            }
        }
        self.phase = Phase::Closing(closing);
        false
    }

    /// Steps that close the first idle gpulet.
    fn closing_steps(&self, leaving: &[GpuletId]) -> VecDeque<Step> {
        let idle = |known: &&Known| known.drain.is_none_or(|rest| rest.drained);
        let found = leaving.iter().find_map(|id| {
            let known = invariant::expected!(self.known.get(id), "rollout.leaving_gpulet_unknown");
            Some((*id, known.filter(idle)?))
        });
        let Some((gpulet, known)) = found else { return VecDeque::new() };
        let sessions = known.sessions.keys().rev();
        let mut steps: VecDeque<Step> =
            sessions.map(|model| Step::CloseSession { gpulet, model: model.clone() }).collect();
        steps.push_back(Step::Close { gpulet });
        steps
    }

    /// Steps that shrink active sessions to what the table needs.
    fn shrinking(&self, spared: &BTreeSet<(GpuletId, String)>) -> VecDeque<Step> {
        let mut steps = VecDeque::new();
        for (gpulet, sized) in &self.table {
            let Some(known) = self.known.get(gpulet) else {
                invariant::violated!("rollout.shrink_on_unknown_gpulet");
                continue;
            };
            for (model, need) in &sized.sessions {
                let held = known.sessions.get(model).map_or(0, |held| held.need.batch);
                if held > need.batch && !spared.contains(&(*gpulet, model.clone())) {
                    steps.push_back(Step::Shrink {
                        gpulet: *gpulet,
                        model: model.clone(),
                        batch: need.batch,
                    });
                }
            }
        }
        steps
    }

    /// Tries the step again. After [`RolloutOptions::attempts`](super::RolloutOptions::attempts), skips it.
    pub(super) fn close_failed(&mut self, mut closing: Closing, step: &Step, reason: String) {
        closing.tries = closing.tries.saturating_add(1);
        if closing.tries >= self.options.attempts {
            closing.tries = 0;
            match step {
                Step::Shrink { gpulet, model, .. } => {
                    closing.steps.pop_front();
                    closing.spared.insert((*gpulet, model.clone()));
                }
                Step::Open { .. }
                | Step::Prepare { .. }
                | Step::Verify { .. }
                | Step::CloseSession { .. }
                | Step::Close { .. } => {
                    closing.steps.clear();
                    closing.leaving.retain(|leaving| *leaving != step.gpulet());
                    self.write_off(step.gpulet(), &reason);
                }
            }
        }
        self.phase = Phase::Closing(closing);
    }

    /// Forgets a gpulet that cannot be closed. Its memory stays counted until its device is removed.
    fn write_off(&mut self, gpulet: GpuletId, reason: &str) {
        let place = self.place(gpulet);
        let Some(known) = self.known.remove(&gpulet) else {
            return invariant::violated!("rollout.unknown_gpulet_written_off");
        };
        let bytes = known.weights().fold(known.own_bytes(), |sum, (_, bytes)| sum.saturating_add(bytes));
        let total = self.written_off.entry(known.device().clone()).or_default();
        *total = total.saturating_add(bytes);
        let attempts = self.options.attempts;
        self.incident(format!(
            "{place}: cannot be closed after {attempts} attempts ({reason}); {bytes} bytes count as lost until `{}` is restarted",
            known.device()
        ));
    }
}
