//! The order of the changes where old and new gpulets do not fit into memory at once.
//!
//! A plan is carried out in waves, each with the phases of preparing, switching and closing. A wave is legal if:
//! - the old gpulets and those that it adds fit into memory together;
//! - no two gpulets that are active after it own a unit at the same time;
//! - each workload keeps its guaranteed rate after it (invariant G3).
//!
//! The search starts with all remaining changes and postpones some until the wave is legal. This greedy search can fail
//! although an order exists, so a small number of changes is searched exhaustively before a plan is refused.

mod search;
mod state;

use std::collections::{BTreeMap, BTreeSet};

use super::changes::{Change, Changes, Table};
use super::known::Known;
use super::message::Refusal;
use super::proposal::{Proposal, SizedGpulet, collide};
use crate::id::{DeviceId, GpuletId};
use state::{Item, Load, Space, State};

/// How far a sum of rates may fall below another by rounding, as a part of it.
pub(super) const ROUNDING: f64 = 1e-9;

/// The state before the changes.
pub(super) struct Situation<'a> {
    pub table: &'a Table,
    pub known: &'a BTreeMap<GpuletId, Known>,
    /// Bytes by device that were written off because they could not be freed.
    pub written_off: &'a BTreeMap<DeviceId, u64>,
    /// Requests a second that each workload must keep.
    pub guaranteed: &'a BTreeMap<String, f64>,
}

/// Waves of changes, by their place in the list; none if there is nothing to change.
pub(super) fn waves(
    situation: &Situation<'_>,
    proposal: &Proposal,
    changes: &Changes,
) -> Result<Vec<Vec<usize>>, Refusal> {
    if changes.list.is_empty() {
        return Ok(Vec::new());
    }
    let state = Builder::new(situation, proposal).build(changes);
    let waves = search::greedy(&state)
        .or_else(|stuck| search::exhaustive(&state).ok_or_else(|| state.refusal(&stuck)))?;
    Ok(waves)
}

/// Converts names to numbers, and gpulets to their memory and rates.
struct Builder<'a> {
    situation: &'a Situation<'a>,
    proposal: &'a Proposal,
    spaces: BTreeMap<&'a DeviceId, usize>,
    models: BTreeMap<&'a str, usize>,
    workloads: BTreeMap<&'a str, usize>,
    state: State,
}

/// What a gpulet of a plan takes once it is prepared.
fn planned(sized: &SizedGpulet) -> (u64, impl Iterator<Item = (&str, u64)>) {
    let arenas = sized.sessions.values().map(|need| need.arena_bytes);
    let own = arenas.fold(sized.own_bytes, u64::saturating_add);
    (own, sized.sessions.iter().map(|(model, need)| (model.as_str(), need.weights_bytes)))
}

/// What a gpulet takes while it is prepared for more than it was.
fn widened(known: &Known, wanted: &SizedGpulet) -> u64 {
    let arena = |(model, need): (&String, &super::proposal::Footprint)| {
        known.sessions.get(model).map_or(*need, |held| held.need.or(*need)).arena_bytes
    };
    wanted.sessions.iter().map(arena).fold(wanted.own_bytes.max(known.sized.own_bytes), u64::saturating_add)
}

impl<'a> Builder<'a> {
    fn new(situation: &'a Situation<'a>, proposal: &'a Proposal) -> Self {
        let (spaces, models, workloads) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { situation, proposal, spaces, models, workloads, state: State::default() }
    }

    fn space(&mut self, device: &'a DeviceId) -> usize {
        let count = self.spaces.len();
        let at = *self.spaces.entry(device).or_insert(count);
        if at == self.state.spaces.len() {
            let limits = self.proposal.limits.get(device);
            let written_off = self.situation.written_off.get(device).copied().unwrap_or(0);
            self.state.spaces.push(Space {
                device: device.clone(),
                bytes: limits.map_or(0, |limits| limits.bytes),
                gpulets: limits.map_or(0, |limits| limits.gpulets),
                fixed: Load { own: u128::from(written_off), ..Load::default() },
                items: Vec::new(),
            });
        }
        at
    }

    fn load(&mut self, active: bool, (own, weights): (u64, impl Iterator<Item = (&'a str, u64)>)) -> Load {
        let mut load = Load { own: u128::from(own), weights: Vec::new(), gpulets: usize::from(active) };
        for (model, bytes) in weights {
            let count = self.models.len();
            load.weights.push((*self.models.entry(model).or_insert(count), bytes));
        }
        load
    }

    fn workload(&mut self, name: &'a str) -> usize {
        let count = self.workloads.len();
        let at = *self.workloads.entry(name).or_insert(count);
        if at == self.state.levels.len() {
            self.state.workloads.push(name.to_owned());
            self.state.levels.push(0.0);
            self.state.guaranteed.push(self.situation.guaranteed.get(name).copied().unwrap_or(0.0));
        }
        at
    }

    fn rates(&mut self, sized: &'a SizedGpulet, sign: f64, rates: &mut Vec<(usize, f64)>) {
        for slot in &sized.gpulet.slots {
            rates.push((self.workload(&slot.workload), sign * slot.rate));
        }
    }

    fn held(&mut self, active: bool, known: &'a Known) -> Load {
        self.load(active, (known.own_bytes(), known.weights()))
    }

    fn build(mut self, changes: &'a Changes) -> State {
        let situation = self.situation;
        let mut moving: BTreeSet<GpuletId> = BTreeSet::new();
        for change in &changes.list {
            match change {
                Change::Remove(id) | Change::Update(id, _) => drop(moving.insert(*id)),
                Change::Add { .. } => {}
            }
        }
        for (id, sized) in situation.table {
            let Some(known) = situation.known.get(id) else {
                invariant::violated!("rollout.active_gpulet_unknown");
                continue;
            };
            if !known.faulty {
                let mut rates = Vec::new();
                self.rates(sized, 1.0, &mut rates);
                self.state.raise(&rates);
            }
            if !moving.contains(id) {
                let load = self.held(true, known);
                let space = self.space(known.device());
                self.state.settle(space, &load);
            }
        }
        for change in &changes.list {
            let item = invariant::expected!(self.item(change), "rollout.change_of_unknown_gpulet");
            self.state.add(item);
        }
        self.bind(&changes.list);
        self.state
    }

    /// A change and its device; none only if its gpulet is unknown.
    fn item(&mut self, change: &'a Change) -> Option<(usize, Item)> {
        let situation = self.situation;
        let mut rates = Vec::new();
        match change {
            Change::Add { sized, existing } => {
                let space = self.space(&sized.gpulet.device);
                self.rates(sized, 1.0, &mut rates);
                let active = Load { gpulets: 1, ..Load::default() };
                let mut load = self.load(true, planned(sized));
                if let Some(known) = existing.and_then(|id| situation.known.get(&id)) {
                    // It stays whether it becomes active in this wave or in a later one.
                    load = Load { own: u128::from(widened(known, sized)), gpulets: 0, ..load };
                    self.state.settle(space, &load);
                    load = active;
                }
                Some((space, Item::new(Load::default(), load.clone(), load, rates)))
            }
            Change::Remove(id) => {
                let (known, sized) = (situation.known.get(id)?, situation.table.get(id)?);
                let space = self.space(known.device());
                if !known.faulty {
                    self.rates(sized, -1.0, &mut rates);
                }
                let held = self.held(true, known);
                Some((space, Item::new(held.clone(), held, Load::default(), rates)))
            }
            Change::Update(id, wanted) => {
                let (known, sized) = (situation.known.get(id)?, situation.table.get(id)?);
                let space = self.space(known.device());
                self.rates(sized, -1.0, &mut rates);
                self.rates(wanted, 1.0, &mut rates);
                let before = self.held(true, known);
                let mut after = self.load(true, planned(wanted));
                after.merge_weights(&before);
                let during = Load { own: u128::from(widened(known, wanted)), ..after.clone() };
                Some((space, Item::new(before, during, after, rates)))
            }
        }
    }

    /// A gpulet must not become active before those that it collides with are removed or have changed their window.
    fn bind(&mut self, list: &[Change]) {
        let table = self.situation.table;
        let before = |change: &Change| match change {
            Change::Add { .. } => None,
            Change::Remove(id) | Change::Update(id, _) => table.get(id).map(|sized| &sized.gpulet),
        };
        for space in &self.state.spaces {
            for item in &space.items {
                // A removal does not collide with anything.
                let Some(Change::Add { sized, .. } | Change::Update(_, sized)) = list.get(*item) else {
                    continue;
                };
                for other in space.items.iter().filter(|other| *other != item) {
                    let held = list.get(*other).and_then(before);
                    if held.is_some_and(|held| collide(&sized.gpulet, held)) {
                        self.state.bonds.push((*item, *other));
                    }
                }
            }
        }
    }
}
