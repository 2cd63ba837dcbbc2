//! The sequence of a change: proposals, waves, and the end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::changes::{Change, Changes};
use super::history::{EntryKind, span};
use super::known::Known;
use super::message::{Effect, Outcome, Refusal, Step};
use super::order::{self, Situation};
use super::phase::{After, Closing, Phase, Preparing, Target, Wave};
use super::proposal::{Proposal, SizedGpulet, served};
use super::{Rollout, Table};
use crate::id::{GpuletId, ProposalId};

const ABORTED: &str = "aborted by an operator";

impl Rollout {
    pub(super) fn proposed(&mut self, proposal: Proposal) {
        self.proposals = self.proposals.next();
        let number = self.proposals;
        let devices: BTreeSet<&str> =
            proposal.gpulets.iter().map(|sized| sized.gpulet.device.as_str()).collect();
        let devices = devices.len();
        let message =
            format!("plan {number} proposed: {} gpulets on {devices} devices", proposal.gpulets.len());
        self.record_for(number, EntryKind::Proposed, message);
        if self.frozen {
            return self.refuse(number, Refusal::Frozen);
        }
        if let Some((earlier, _)) = self.waiting.replace((number, proposal)) {
            self.end(earlier, Outcome::Superseded);
        }
    }

    pub(super) fn refuse(&mut self, number: ProposalId, refusal: Refusal) {
        self.record_for(number, EntryKind::Refused, format!("plan {number} refused: {refusal}"));
        self.effects.push(Effect::Ended { proposal: number, outcome: Outcome::Refused { refusal } });
    }

    pub(super) fn end(&mut self, number: ProposalId, outcome: Outcome) {
        let message = match &outcome {
            Outcome::Done => "in force".to_owned(),
            Outcome::Unchanged => "was in force already".to_owned(),
            Outcome::Refused { refusal } => format!("refused: {refusal}"),
            Outcome::Superseded => "superseded by a later one".to_owned(),
            Outcome::Failed { reason } => format!("failed, the previous plan stays in force: {reason}"),
            Outcome::RolledBack { reason } => format!("rolled back: {reason}"),
            Outcome::Stopped { reason } => format!("in force in part: {reason}"),
        };
        self.record_for(number, EntryKind::Ended, format!("plan {number} {message}"));
        self.effects.push(Effect::Ended { proposal: number, outcome });
    }

    pub(super) fn abort(&mut self) {
        self.record(EntryKind::Operator, "abort".to_owned());
        if let Some((number, _)) = self.waiting.take() {
            self.end(number, Outcome::Failed { reason: ABORTED.to_owned() });
        }
        if let Some(target) = &mut self.target {
            target.stop.get_or_insert_with(|| ABORTED.to_owned());
        }
    }

    pub(super) fn freeze(&mut self) {
        self.frozen = true;
        self.record(EntryKind::Operator, "plans are frozen".to_owned());
        self.abort();
    }

    pub(super) fn thaw(&mut self) {
        self.frozen = false;
        self.record(EntryKind::Operator, "plans are welcome again".to_owned());
    }

    /// Advances until an answer, a time or a drain must be awaited.
    pub(super) fn advance(&mut self) {
        while match std::mem::take(&mut self.phase) {
            Phase::Idle => self.begin(),
            Phase::Preparing(preparing) => self.prepare_on(preparing),
            Phase::Switching(switching) => {
                self.phase = Phase::Switching(switching);
                false
            }
            Phase::Baking(baking) => self.bake_on(baking),
            Phase::Closing(closing) => self.close_on(closing),
        } {}
    }

    fn begin(&mut self) -> bool {
        if !self.take_waiting() {
            return false;
        }
        self.next_wave();
        true
    }

    fn healthy(&self) -> impl Iterator<Item = &SizedGpulet> {
        let sound = |id: &GpuletId| self.known.get(id).is_some_and(|known| !known.faulty);
        self.table.iter().filter(move |(id, _)| sound(id)).map(|(_, sized)| sized.as_ref())
    }

    /// Makes the waiting proposal the target. If it is refused, nothing changes.
    pub(super) fn take_waiting(&mut self) -> bool {
        let Some((number, proposal)) = self.waiting.take() else { return false };
        let (now, then) = (served(self.healthy()), served(proposal.gpulets.iter().map(Arc::as_ref)));
        let least = |(workload, rate): (String, f64)| {
            let later = then.get(&workload).copied().unwrap_or(0.0);
            (workload, rate.min(later))
        };
        let guaranteed: BTreeMap<String, f64> = now.into_iter().map(least).collect();
        if let Err(refusal) = self.order(&proposal, &guaranteed) {
            self.refuse(number, refusal);
            return false;
        }
        if let Some(target) = self.target.take() {
            self.end(target.number, Outcome::Superseded);
        }
        let began_us = self.now;
        self.target =
            Some(Target { number, proposal, guaranteed, began_us, switched: 0, stop: None, lost: None });
        true
    }

    /// What has to change, and in which waves. Gpulets that were opened for another plan are closed where they prevent
    /// this one.
    fn order(
        &self,
        proposal: &Proposal,
        guaranteed: &BTreeMap<String, f64>,
    ) -> Result<(Changes, Vec<Vec<usize>>), Refusal> {
        let look = |known: &BTreeMap<GpuletId, Known>| {
            let changes = Changes::between(&self.table, known, &proposal.gpulets);
            let written_off = &self.written_off;
            let situation = Situation { table: &self.table, known, written_off, guaranteed };
            let waves = order::waves(&situation, proposal, &changes)?;
            Ok((changes, waves))
        };
        let first = look(&self.known);
        if first.is_ok() || self.known.len() == self.table.len() {
            return first;
        }
        let is_active = |(id, _): &(&GpuletId, &Known)| self.table.contains_key(id);
        let active = self.known.iter().filter(is_active).map(|(id, known)| (*id, known.clone())).collect();
        let (mut changes, waves) = look(&active)?;
        changes.unwanted = self.known.keys().filter(|id| !self.table.contains_key(id)).copied().collect();
        Ok((changes, waves))
    }

    /// Begins the next wave of the target, or ends it. A proposal that waits takes over between waves.
    pub(super) fn next_wave(&mut self) {
        let now = served(self.healthy());
        for (workload, least) in self.target.iter_mut().flat_map(|target| &mut target.guaranteed) {
            *least = least.min(now.get(workload).copied().unwrap_or(0.0));
        }
        let Some(target) = &self.target else { return invariant::violated!("rollout.wave_without_target") };
        let (switched, stop, lost) = (target.switched, target.stop.clone(), target.lost.clone());
        let order = self.order(&target.proposal, &target.guaranteed);
        if order.as_ref().is_ok_and(|(_, waves)| waves.is_empty()) {
            return self.wind_up(match (lost, switched) {
                (Some(reason), _) => Outcome::Stopped { reason },
                (None, 0) => Outcome::Unchanged,
                (None, _) => Outcome::Done,
            });
        }
        if stop.is_none() && self.take_waiting() {
            return self.next_wave();
        }
        let (changes, waves) = match order {
            Ok(order) => order,
            Err(refusal) => return self.abandon(refusal.to_string()),
        };
        let left = u64::try_from(waves.len()).unwrap_or(u64::MAX);
        let wave = waves.into_iter().next().unwrap_or_default();
        if let Some(reason) = stop {
            return self.abandon(reason);
        }
        if !changes.unwanted.is_empty() {
            self.phase = Phase::Closing(Closing::new(changes.unwanted, false, After::NextWave));
            return;
        }
        let wave = self.wave(changes.list, &wave);
        if left > 1 || switched > 0 {
            let (at, of) = (switched.saturating_add(1), u64::from(switched).saturating_add(left));
            let why = if left > 1 { ": old and new gpulets do not fit at once" } else { "" };
            self.record(EntryKind::Wave, format!("wave {at} of {of}{why}"));
        }
        let steps = self.preparations(&wave);
        self.phase =
            Phase::Preparing(Preparing { wave, steps, running: Vec::new(), again: false, broken: None });
    }

    fn wave(&mut self, changes: Vec<Change>, members: &[usize]) -> Wave {
        let mut wave = Wave { before: self.table.clone(), after: self.table.clone(), ..Wave::default() };
        for (at, change) in changes.into_iter().enumerate() {
            if members.binary_search(&at).is_err() {
                continue;
            }
            match change {
                Change::Add { sized, existing } => {
                    let id = existing.unwrap_or_else(|| self.new_gpulet());
                    let known = self.known.entry(id).or_insert_with(|| Known::new(Arc::clone(&sized)));
                    known.sized = Arc::clone(&sized);
                    wave.after.insert(id, sized);
                    wave.fresh.push(id);
                    wave.touched.insert(id);
                }
                Change::Remove(id) => drop(wave.after.remove(&id)),
                Change::Update(id, sized) => {
                    wave.after.insert(id, sized);
                    wave.touched.insert(id);
                }
            }
        }
        wave
    }

    fn new_gpulet(&mut self) -> GpuletId {
        self.gpulets_of_epoch = self.gpulets_of_epoch.saturating_add(1);
        GpuletId { epoch: self.last_epoch, number: self.gpulets_of_epoch }
    }

    /// Steps that a wave still needs before its switch: first everything is loaded, then everything is verified.
    fn preparations(&self, wave: &Wave) -> VecDeque<Step> {
        let (mut steps, mut checks) = (VecDeque::new(), VecDeque::new());
        for gpulet in wave.touched.iter().copied() {
            let (Some(known), Some(sized)) = (self.known.get(&gpulet), wave.after.get(&gpulet)) else {
                invariant::violated!("rollout.touched_gpulet_unknown");
                continue;
            };
            if !known.opened {
                let place = &sized.gpulet;
                let (device, first_unit, units) = (place.device.clone(), place.first_unit, place.units);
                steps.push_back(Step::Open { gpulet, device, first_unit, units });
            }
            for (model, need) in &sized.sessions {
                let held = known.sessions.get(model).copied().unwrap_or_default();
                let batch = need.batch;
                if held.prepared < batch {
                    steps.push_back(Step::Prepare { gpulet, model: model.clone(), batch });
                }
                if held.verified < batch {
                    checks.push_back(Step::Verify { gpulet, model: model.clone(), batch });
                }
            }
        }
        steps.append(&mut checks);
        steps
    }

    /// Ends the target in its current state.
    pub(super) fn abandon(&mut self, reason: String) {
        let outcome = match self.target.as_ref().map_or(0, |target| target.switched) {
            0 => Outcome::Failed { reason },
            _ => Outcome::Stopped { reason },
        };
        self.wind_up(outcome);
    }

    /// Closes whatever is not in force, then ends the target.
    pub(super) fn wind_up(&mut self, outcome: Outcome) {
        let leaving = self.known.keys().filter(|id| !self.table.contains_key(id)).copied().collect();
        self.phase = Phase::Closing(Closing::new(leaving, true, After::End(outcome)));
    }

    pub(super) fn finish(&mut self, outcome: Outcome) {
        let Some(target) = self.target.take() else {
            return invariant::violated!("rollout.end_without_target");
        };
        if let Outcome::Stopped { reason } = &outcome {
            self.effects.push(Effect::PlanNeeded { reason: reason.clone() });
        }
        let took = span(self.now.since(target.began_us));
        let (number, count) = (target.number, self.table.len());
        let message = format!("plan {number}: {took} from begin to end, {count} gpulets are active");
        self.record_for(number, EntryKind::Ended, message);
        self.end(number, outcome);
    }

    /// Gpulets of one table that are not in another.
    pub(super) fn only_in(one: &Table, other: &Table) -> Vec<GpuletId> {
        one.keys().filter(|id| !other.contains_key(id)).copied().collect()
    }
}
