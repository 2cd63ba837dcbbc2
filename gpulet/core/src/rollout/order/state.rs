//! Changes as numbers: what devices hold and what workloads are served, with any subset of the changes made.

use super::super::message::Refusal;
use super::ROUNDING;
use crate::id::DeviceId;

/// What gpulets take on a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Load {
    /// Bytes without weights.
    pub own: u128,
    /// Bytes of weights by model, counted once a device.
    pub weights: Vec<(usize, u64)>,
    /// Gpulets that are active.
    pub gpulets: usize,
}

impl Load {
    /// Keeps the larger weights of each model.
    pub fn merge_weights(&mut self, other: &Self) {
        self.weights.extend_from_slice(&other.weights);
        distinct(&mut self.weights);
    }
}

fn distinct(weights: &mut Vec<(usize, u64)>) {
    weights.sort_unstable_by(|one, other| one.0.cmp(&other.0).then(other.1.cmp(&one.1)));
    weights.dedup_by_key(|(model, _)| *model);
}

/// A change.
#[derive(Clone, Debug, Default)]
pub(super) struct Item {
    /// Until its wave.
    before: Load,
    /// During its wave.
    during: Load,
    /// Once its wave has ended.
    after: Load,
    /// What it does to the rates of workloads.
    rates: Vec<(usize, f64)>,
}

impl Item {
    pub fn new(before: Load, during: Load, after: Load, mut rates: Vec<(usize, f64)>) -> Self {
        rates.sort_by_key(|(workload, _)| *workload);
        Self { before, during, after, rates }
    }

    /// Bytes that its wave adds at most.
    fn growth(&self) -> u128 {
        let own = self.during.own.saturating_sub(self.before.own);
        let held = |model: usize| self.before.weights.iter().find(|(other, _)| *other == model);
        let weights = self.during.weights.iter().map(|(model, bytes)| {
            u128::from(bytes.saturating_sub(held(*model).map_or(0, |(_, held)| *held)))
        });
        own.saturating_add(weights.sum())
    }

    fn adds(&self) -> bool {
        self.growth() > 0 || self.after.gpulets > self.before.gpulets
    }

    fn change_of(&self, workload: usize) -> f64 {
        self.rates.iter().filter(|(other, _)| *other == workload).map(|(_, rate)| rate).sum()
    }
}

/// A device.
#[derive(Clone, Debug)]
pub(super) struct Space {
    pub device: DeviceId,
    /// Bytes that gpulets may take.
    pub bytes: u64,
    /// Gpulets that may be active.
    pub gpulets: usize,
    /// What stays whatever is changed.
    pub fixed: Load,
    /// Changes on it.
    pub items: Vec<usize>,
}

/// Which changes were made, or are being made.
pub(super) type Subset = Vec<bool>;

fn has(subset: &Subset, item: usize) -> bool {
    subset.get(item).copied().unwrap_or(false)
}

/// Which change is put off where not all fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PutOff {
    Largest,
    Smallest,
    /// Everything that adds something to the device.
    Device,
}

/// All changes, and the devices and workloads that they affect.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub items: Vec<Item>,
    pub spaces: Vec<Space>,
    pub workloads: Vec<String>,
    /// Requests a second before the changes, by workload.
    pub levels: Vec<f64>,
    /// What each workload must keep.
    pub guaranteed: Vec<f64>,
    /// The first may not be made before the second.
    pub bonds: Vec<(usize, usize)>,
}

impl State {
    pub fn raise(&mut self, rates: &[(usize, f64)]) {
        for (workload, rate) in rates {
            match self.levels.get_mut(*workload) {
                Some(level) => *level += rate,
                None => invariant::violated!("rollout.rate_of_unknown_workload"),
            }
        }
    }

    /// Puts something on a device that no change takes away.
    pub fn settle(&mut self, space: usize, load: &Load) {
        let Some(space) = self.spaces.get_mut(space) else {
            return invariant::violated!("rollout.gpulet_on_unknown_device");
        };
        space.fixed.own = space.fixed.own.saturating_add(load.own);
        space.fixed.gpulets = space.fixed.gpulets.saturating_add(load.gpulets);
        space.fixed.merge_weights(load);
    }

    /// Adds the next change, on a device; none is a change that does nothing.
    pub fn add(&mut self, change: Option<(usize, Item)>) {
        let at = self.items.len();
        let (space, item) = change.map_or((None, Item::default()), |(space, item)| (Some(space), item));
        if let Some(space) = space {
            match self.spaces.get_mut(space) {
                Some(space) => space.items.push(at),
                None => invariant::violated!("rollout.change_on_unknown_device"),
            }
        }
        self.items.push(item);
    }

    fn items_of<'a>(&'a self, space: &'a Space) -> impl Iterator<Item = (usize, &'a Item)> {
        space.items.iter().filter_map(|at| {
            let item = invariant::expected!(self.items.get(*at), "rollout.unknown_change");
            Some((*at, item?))
        })
    }

    /// Bytes that a device needs while a wave is carried out.
    fn peak(&self, space: &Space, done: &Subset, wave: &Subset) -> u128 {
        let mut own = space.fixed.own;
        let mut weights = space.fixed.weights.clone();
        for (at, item) in self.items_of(space) {
            let load = match (has(wave, at), has(done, at)) {
                (true, _) => &item.during,
                (false, true) => &item.after,
                (false, false) => &item.before,
            };
            own = own.saturating_add(load.own);
            weights.extend_from_slice(&load.weights);
        }
        distinct(&mut weights);
        weights.iter().fold(own, |sum, (_, bytes)| sum.saturating_add(u128::from(*bytes)))
    }

    /// Gpulets that are active on a device after a wave.
    fn active(&self, space: &Space, done: &Subset, wave: &Subset) -> usize {
        let of = |(at, item): (usize, &Item)| {
            if has(wave, at) || has(done, at) { item.after.gpulets } else { item.before.gpulets }
        };
        self.items_of(space).map(of).fold(space.fixed.gpulets, usize::saturating_add)
    }

    /// Whether a wave asks a device for more than it has. What is already beyond it, because the device became
    /// smaller, does not keep anything from being taken away.
    fn is_overfull(&self, space: &Space, done: &Subset, wave: &Subset) -> bool {
        self.items_of(space).any(|(at, item)| has(wave, at) && item.adds())
            && (self.peak(space, done, wave) > u128::from(space.bytes)
                || self.active(space, done, wave) > space.gpulets)
    }

    fn is_low(level: f64, least: f64) -> bool {
        level < least - ROUNDING * least.abs()
    }

    /// Requests a second by workload after a wave.
    fn levels_after(&self, done: &Subset, wave: &Subset) -> Vec<f64> {
        let mut levels = self.levels.clone();
        let existing = self.items.iter().enumerate().filter(|(at, _)| has(done, *at) || has(wave, *at));
        for (workload, rate) in existing.flat_map(|(_, item)| &item.rates) {
            match levels.get_mut(*workload) {
                Some(level) => *level += rate,
                None => invariant::violated!("rollout.change_of_unknown_workload"),
            }
        }
        levels
    }

    fn lacking(&self, done: &Subset, wave: &Subset) -> Option<(usize, f64, f64)> {
        let levels = self.levels_after(done, wave);
        let mut rows = levels.into_iter().zip(&self.guaranteed).enumerate();
        rows.find_map(|(at, (level, least))| Self::is_low(level, *least).then_some((at, level, *least)))
    }

    /// Whether memory, numbers, units and rates all allow a wave.
    pub fn is_legal(&self, done: &Subset, wave: &Subset) -> bool {
        let existing = |at: usize| has(done, at) || has(wave, at);
        self.bonds.iter().all(|(first, second)| !existing(*first) || existing(*second))
            && self.lacking(done, wave).is_none()
            && !self.spaces.iter().any(|space| self.is_overfull(space, done, wave))
    }

    /// Drops changes from a wave until it is legal; what is left may be nothing.
    pub fn reduce(&self, done: &Subset, wave: &mut Subset, put_off: PutOff) {
        loop {
            let mut dropped = false;
            for space in &self.spaces {
                while self.is_overfull(space, done, wave) && self.drop_from(space, wave, put_off) {
                    dropped = true;
                }
            }
            for (first, second) in &self.bonds {
                if has(wave, *first) && !has(wave, *second) && !has(done, *second) {
                    dropped |= unset(wave, *first);
                }
            }
            while let Some((workload, ..)) = self.lacking(done, wave) {
                if !self.drop_taker(workload, wave) {
                    break;
                }
                dropped = true;
            }
            if !dropped {
                return;
            }
        }
    }

    fn drop_from(&self, space: &Space, wave: &mut Subset, put_off: PutOff) -> bool {
        let adding = self.items_of(space).filter(|(at, item)| has(wave, *at) && item.adds());
        let mut adding: Vec<(u128, usize)> = adding.map(|(at, item)| (item.growth(), at)).collect();
        adding.sort_unstable();
        let chosen: Vec<usize> = match put_off {
            PutOff::Largest => adding.last().map(|(_, at)| *at).into_iter().collect(),
            PutOff::Smallest => adding.first().map(|(_, at)| *at).into_iter().collect(),
            PutOff::Device => adding.iter().map(|(_, at)| *at).collect(),
        };
        for at in &chosen {
            unset(wave, *at);
        }
        !chosen.is_empty()
    }

    /// Puts off the change that takes most from a workload.
    fn drop_taker(&self, workload: usize, wave: &mut Subset) -> bool {
        let takers = self.items.iter().enumerate().filter(|(at, _)| has(wave, *at));
        let takers = takers.map(|(at, item)| (at, item.change_of(workload)));
        let most = takers.filter(|(_, change)| *change < 0.0).min_by(|one, other| one.1.total_cmp(&other.1));
        most.is_some_and(|(at, _)| unset(wave, at))
    }

    /// Drops whatever adds something anywhere.
    pub fn only_removals(&self, wave: &mut Subset) {
        for (at, item) in self.items.iter().enumerate() {
            if item.adds() {
                unset(wave, at);
            }
        }
    }

    /// Why nothing that is left can be done.
    pub fn refusal(&self, done: &Subset) -> Refusal {
        let left: Subset = (0..self.items.len()).map(|at| !has(done, at)).collect();
        let excess = |space: &&Space| self.peak(space, done, &left).saturating_sub(u128::from(space.bytes));
        let overfull = self.spaces.iter().filter(|space| self.is_overfull(space, done, &left));
        if let Some(space) = overfull.max_by_key(excess) {
            let peak = self.peak(space, done, &left);
            let device = space.device.clone();
            if peak > u128::from(space.bytes) {
                let needed_bytes = u64::try_from(peak).unwrap_or(u64::MAX);
                return Refusal::Memory { device, needed_bytes, has_bytes: space.bytes };
            }
            let gpulets = self.active(space, done, &left);
            return Refusal::Gpulets { device, gpulets, most: space.gpulets };
        }
        // If the rest broke no limit, it would be a legal wave, and nothing would be refused.
        let (at, left, least) = self.lacking(done, &left).unwrap_or_else(|| {
            invariant::violated!("rollout.refusal_without_reason");
            (0, 0.0, 0.0)
        });
        Refusal::Capacity { workload: self.workloads.get(at).cloned().unwrap_or_default(), left, least }
    }
}

fn unset(subset: &mut Subset, item: usize) -> bool {
    subset.get_mut(item).is_some_and(std::mem::take)
}
