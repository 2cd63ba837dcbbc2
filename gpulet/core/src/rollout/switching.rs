//! The switch, the draining of the old gpulets, baking, and the rollback.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{EntryKind, span};
use super::known::Drain;
use super::message::{Active, Effect, Outcome, Route, RouteSlot, Switch};
use super::order::ROUNDING;
use super::phase::{After, Baking, Closing, Phase, Switching, Wave};
use super::proposal::{served, share_units};
use super::{Rollout, Table};
use crate::id::{Epoch, GpuletId};
use crate::time::Micros;

impl Rollout {
    pub(super) fn switch_forward(&mut self, wave: Wave) {
        let switching = Switching {
            wave,
            back: None,
            epoch: Epoch::default(),
            forward: self.last_epoch.next(),
            since_us: self.now,
            until_us: Micros::ZERO,
            attempts: 0,
            unconfirmed: false,
            drained: BTreeSet::new(),
        };
        self.ask_switch(switching);
    }

    fn switch_back(&mut self, wave: Wave, reason: String) {
        let switching = Switching {
            wave,
            back: Some(reason),
            epoch: Epoch::default(),
            forward: self.in_force,
            since_us: self.now,
            until_us: Micros::ZERO,
            attempts: 1,
            unconfirmed: false,
            drained: BTreeSet::new(),
        };
        self.ask_switch(switching);
    }

    fn ask_switch(&mut self, mut switching: Switching) {
        self.last_epoch = self.last_epoch.next();
        self.gpulets_of_epoch = 0;
        switching.epoch = self.last_epoch;
        switching.until_us = self.now.after(self.options.switch_us);
        let Wave { before, after, .. } = &switching.wave;
        let switch = match &switching.back {
            None => self.table_effect(before, after, false),
            Some(_) => self.table_effect(after, before, true),
        };
        self.effects.push(Effect::Switch { switch, deadline_us: switching.until_us });
        self.phase = Phase::Switching(switching);
    }

    /// The switch from one table to another, for the router.
    fn table_effect(&self, from: &Table, to: &Table, is_rollback: bool) -> Switch {
        let rest = Self::only_in(from, to);
        let mut draining: BTreeMap<&str, Vec<GpuletId>> = BTreeMap::new();
        for (id, known) in self.known.iter().filter(|(id, _)| !to.contains_key(id)) {
            let holds = known.drain.is_some_and(|rest| !rest.drained) || rest.binary_search(id).is_ok();
            if holds {
                draining.entry(known.device()).or_default().push(*id);
            }
        }
        let mut routes: BTreeMap<&str, Vec<RouteSlot>> = BTreeMap::new();
        let mut active = Vec::with_capacity(to.len());
        for (id, sized) in to {
            let gpulet = &sized.gpulet;
            let near = draining.get(gpulet.device.as_str()).into_iter().flatten();
            let shares = |other: &&GpuletId| {
                self.known.get(other).is_some_and(|known| {
                    // Lanes with time quotas run on any units, so units of their own say nothing.
                    let has_quota = known.sized.gpulet.window.is_some();
                    has_quota != gpulet.window.is_some() || share_units(&known.sized.gpulet, gpulet)
                })
            };
            let after = near.filter(shares).copied().collect();
            active.push(Active { id: *id, gpulet: gpulet.clone(), after });
            for slot in &gpulet.slots {
                routes.entry(&slot.workload).or_default().push(RouteSlot {
                    gpulet: *id,
                    batch: slot.batch,
                    budget_us: slot.budget_us,
                    rate: slot.rate,
                });
            }
        }
        let route =
            |(workload, slots): (&str, Vec<RouteSlot>)| Route { workload: workload.to_owned(), slots };
        let proposal = self.target.as_ref().map(|target| target.number).unwrap_or_default();
        let routes = routes.into_iter().map(route).collect();
        Switch { epoch: self.last_epoch, proposal, is_rollback, active, draining: rest, routes }
    }

    pub(super) fn switched(&mut self, epoch: Epoch) {
        match std::mem::take(&mut self.phase) {
            Phase::Switching(switching) if switching.epoch == epoch => self.in_force(switching),
            // The answer is to an earlier table.
            other => self.phase = other,
        }
    }

    /// Handles that the requested table is in force.
    fn in_force(&mut self, switching: Switching) {
        let Switching { wave, back, epoch, since_us, unconfirmed, drained, .. } = switching;
        self.in_force = epoch;
        let took = span(self.now.since(since_us));
        let (from, to) =
            if back.is_some() { (&wave.after, &wave.before) } else { (&wave.before, &wave.after) };
        self.take_table(from, to, &drained);
        let (active, draining) = (to.len(), Self::only_in(from, to).len());
        let message =
            format!("epoch {epoch} in force after {took}: {active} gpulets active, {draining} draining");
        self.record(EntryKind::Switched, message);
        match back {
            Some(reason) => self.rolled_back(reason, unconfirmed),
            None => {
                self.count_switch();
                let broken =
                    wave.fresh.iter().find(|id| self.known.get(id).is_some_and(|known| known.faulty));
                let broken = broken.copied();
                let until_us = self.now.after(self.options.bake_us);
                self.phase = Phase::Baking(Baking { wave, until_us });
                if let Some(id) = broken {
                    self.roll_back(format!("{} broke", self.place(id)));
                }
            }
        }
    }

    fn take_table(&mut self, from: &Table, to: &Table, drained: &BTreeSet<GpuletId>) {
        self.table = to.clone();
        let (since_us, until_us) = (self.now, self.now.after(self.options.drain_us));
        for id in Self::only_in(from, to) {
            let Some(known) = self.known.get_mut(&id) else {
                invariant::violated!("rollout.drain_of_unknown_gpulet");
                continue;
            };
            known.drain = Some(Drain { since_us, until_us, drained: drained.contains(&id), reported: false });
        }
        for (id, sized) in to {
            let Some(known) = self.known.get_mut(id) else {
                invariant::violated!("rollout.switch_to_unknown_gpulet");
                continue;
            };
            known.drain = None;
            known.sized.clone_from(sized);
        }
    }

    /// Counts a wave of the target as in force. Only a target has waves.
    fn count_switch(&mut self) {
        match &mut self.target {
            Some(target) => target.switched = target.switched.saturating_add(1),
            None => invariant::violated!("rollout.switch_without_target"),
        }
    }

    fn rolled_back(&mut self, reason: String, unconfirmed: bool) {
        self.record(EntryKind::RolledBack, format!("the table before is in force again: {reason}"));
        let earlier =
            self.target.as_ref().map_or(0, |target| target.switched).saturating_sub(u32::from(!unconfirmed));
        self.wind_up(match (earlier, unconfirmed) {
            (0, false) => Outcome::RolledBack { reason },
            (0, true) => Outcome::Failed { reason },
            (_, _) => Outcome::Stopped { reason },
        });
    }

    pub(super) fn switch_failed(&mut self, epoch: Epoch, in_force: Epoch, reason: String) {
        let switching = match std::mem::take(&mut self.phase) {
            Phase::Switching(switching) if switching.epoch == epoch => switching,
            // The answer is to an earlier table.
            other => return self.phase = other,
        };
        self.record(EntryKind::Failed, format!("epoch {epoch} not in force: {reason}"));
        let forward = switching.forward;
        match switching.back.clone() {
            None if in_force < forward => self.abandon(format!("switch failed: {reason}")),
            None => self.in_force(switching),
            Some(why) if in_force == forward && switching.attempts < self.options.attempts => {
                let attempts = switching.attempts.saturating_add(1);
                self.ask_switch(Switching { back: Some(why), attempts, ..switching });
            }
            Some(why) if in_force == forward => self.rollback_failed(switching, why, reason),
            // The wave's own table never came in force, so its gpulets hold nothing.
            Some(why) if in_force < forward && switching.unconfirmed => self.rolled_back(why, true),
            // An earlier rollback is in force, although its answer came too late.
            Some(_) => self.in_force(Switching { epoch: in_force, ..switching }),
        }
    }

    /// The rollback failed: the new table stays.
    fn rollback_failed(&mut self, switching: Switching, why: String, reason: String) {
        let Switching { wave, forward, unconfirmed, drained, .. } = switching;
        self.in_force = forward;
        if unconfirmed {
            self.take_table(&wave.before, &wave.after, &drained);
            self.count_switch();
        }
        self.incident(format!("could not switch back ({reason}) although {why}"));
        self.wind_up(Outcome::Stopped { reason: format!("{why}, and switching back failed: {reason}") });
    }

    /// An unconfirmed table may be in force or not. The rollout requests the previous table, under a higher epoch,
    /// until the shell answers.
    pub(super) fn expire_switch(&mut self) {
        let switching = match std::mem::take(&mut self.phase) {
            Phase::Switching(switching) if switching.until_us <= self.now => switching,
            other => return self.phase = other,
        };
        let waited = span(self.now.since(switching.since_us));
        let message = format!("epoch {}: no answer within {waited}", switching.epoch);
        self.record(EntryKind::Failed, message.clone());
        if switching.attempts == self.options.attempts {
            self.incident(format!("{message}; asking on"));
        }
        let attempts = switching.attempts.saturating_add(1);
        let (unconfirmed, back) = match switching.back {
            None => (true, format!("switch failed: {message}")),
            Some(why) => (switching.unconfirmed, why),
        };
        self.ask_switch(Switching { back: Some(back), attempts, unconfirmed, ..switching });
    }

    pub(super) fn drained(&mut self, gpulet: GpuletId) {
        if let Phase::Switching(switching) = &mut self.phase
            && self.known.contains_key(&gpulet)
        {
            switching.drained.insert(gpulet);
        }
        self.mark_rested(gpulet);
    }

    /// A gpulet may be idle before its table is confirmed, or be closed or removed before it is known to be idle.
    fn mark_rested(&mut self, gpulet: GpuletId) {
        let Some(known) = self.known.get_mut(&gpulet) else { return };
        let Some(rest) = known.drain.as_mut().filter(|rest| !rest.drained) else { return };
        rest.drained = true;
        let took = span(self.now.since(rest.since_us));
        self.record(EntryKind::Drained, format!("{} idle after {took}", self.place(gpulet)));
    }

    pub(super) fn bake_on(&mut self, baking: Baking) -> bool {
        if self.now < baking.until_us {
            self.phase = Phase::Baking(baking);
            return false;
        }
        let draining = self.known.iter().filter(|(_, known)| known.drain.is_some());
        let leaving = draining.map(|(id, _)| *id).collect();
        self.phase = Phase::Closing(Closing::new(leaving, true, After::NextWave));
        true
    }

    /// Whether a rollback takes guaranteed capacity from a workload, and whether it restores guaranteed capacity to
    /// one. Failed gpulets have no capacity.
    pub(super) fn compare_rollback(&self, wave: &Wave) -> (bool, bool) {
        let Some(target) = &self.target else {
            invariant::violated!("rollout.rollback_without_target");
            return (false, false);
        };
        let rates = |table: &Table| {
            let sound = table.iter().filter(|(id, _)| self.known.get(id).is_some_and(|known| !known.faulty));
            served(sound.map(|(_, sized)| sized.as_ref()))
        };
        let (before, after) = (rates(&wave.before), rates(&wave.after));
        let (mut takes, mut gives) = (false, false);
        for (workload, least) in &target.guaranteed {
            let of = |rates: &BTreeMap<String, f64>| rates.get(workload).copied().unwrap_or(0.0).min(*least);
            let (before, after) = (of(&before), of(&after));
            takes |= before < after - ROUNDING * after;
            gives |= before > after + ROUNDING * after;
        }
        (takes, gives)
    }

    /// Rolls back, unless the previous table is empty or would serve less guaranteed load, for example because its
    /// gpulets failed.
    pub(super) fn roll_back(&mut self, reason: String) {
        let baking = match std::mem::take(&mut self.phase) {
            Phase::Baking(baking) => baking,
            other => {
                self.phase = other;
                return invariant::violated!("rollout.rollback_outside_the_bake_time");
            }
        };
        let (takes, _) = self.compare_rollback(&baking.wave);
        if baking.wave.before.is_empty() || takes {
            self.phase = Phase::Baking(baking);
            let reason = format!("{reason}, and a rollback would serve less");
            self.record(EntryKind::Incident, reason.clone());
            return self.effects.push(Effect::PlanNeeded { reason });
        }
        self.switch_back(baking.wave, reason);
    }
}
