//! Named resources that running batches hold, as in Triton's rate limiter.
//!
//! A batch starts only if all resources that its model needs are left. Models that wait for resources get them in the
//! order of class and share, and none overtakes another that waits for the same resource. So a model that needs much is
//! not starved by models that need little.

use smallvec::SmallVec;

use crate::Class;

/// A resource, by a number that the caller gives to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u32);

/// What a running batch of a model holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// Resources and how much of each, at least 1. A resource is listed once.
    pub needs: Vec<(ResourceId, u32)>,
    /// A model of priority 2 gets half as many batches as one of priority 1 when both wait for a resource. 0 means 1.
    pub priority: u32,
}

/// Order of models that wait for resources: class, share of the batches, time.
pub(crate) type Place = (Class, u64, u64);

/// The rate limiter's part of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limited {
    pub limit: RateLimit,
    /// Batches that it started, weighted by its priority.
    pub started: u64,
    /// Its place while one of its queues waits for resources.
    pub waits: Option<Place>,
}

impl Limited {
    pub(crate) fn new(limit: &RateLimit) -> Self {
        Self { limit: limit.clone(), ..Self::default() }
    }

    pub(crate) fn is_limited(&self) -> bool {
        !self.limit.needs.is_empty()
    }

    fn weight(&self) -> u64 {
        u64::from(self.limit.priority.max(1))
    }
}

/// Totals and use of all resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    /// Totals from the configuration, by number.
    limits: Vec<u32>,
    /// Total and held, by number. Without a configured total, it is the most that a model ever needed.
    amounts: Vec<(u32, u32)>,
    /// `started` of the model that started last. Models that come later start from here.
    clock: u64,
    /// Queues that wait for resources.
    pub waiting: Vec<u32>,
}

impl Resources {
    pub(crate) fn new(limits: &[u32]) -> Self {
        Self { limits: limits.to_vec(), ..Self::default() }
    }

    pub(crate) fn know(&mut self, limit: &RateLimit) {
        for &(ResourceId(id), count) in &limit.needs {
            let index = id as usize;
            if index >= self.amounts.len() {
                self.amounts.resize(index + 1, (0, 0));
            }
            let configured = self.limits.get(index).copied();
            if let Some((total, _)) = self.amounts.get_mut(index) {
                *total = configured.unwrap_or((*total).max(count));
            }
        }
    }

    /// Total and held of each resource.
    pub(crate) fn amounts(&self) -> impl Iterator<Item = (ResourceId, u32, u32)> {
        (0..).map(ResourceId).zip(&self.amounts).map(|(id, &(total, held))| (id, total, held))
    }

    fn amount(&self, id: ResourceId) -> (u32, u32) {
        self.amounts.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// What a batch holds of a resource. One that needs more than there is holds all of it.
    pub(crate) fn held_by(&self, (id, count): (ResourceId, u32)) -> u32 {
        count.min(self.amount(id).0)
    }

    /// Whether a need is left after those of the models that go first.
    pub(crate) fn is_left(&self, need: (ResourceId, u32), before: u64) -> bool {
        let (total, held) = self.amount(need.0);
        u64::from(held) + before + u64::from(self.held_by(need)) <= u64::from(total)
    }

    /// A model's place among those that wait for resources.
    pub(crate) fn place(&self, model: &Limited, class: Class, sequence: u64) -> Place {
        let own = (class, model.started.max(self.clock), sequence);
        model.waits.map_or(own, |waits| waits.min(own))
    }

    pub(crate) fn take(&mut self, model: &mut Limited) {
        self.clock = self.clock.max(model.started);
        model.started = self.clock.saturating_add(model.weight());
        model.waits = None;
        for &need in &model.limit.needs {
            let count = self.held_by(need);
            if let Some((_, held)) = self.amounts.get_mut(need.0.0 as usize) {
                *held = held.saturating_add(count);
            }
        }
    }

    /// Gives back what a batch held. Returns the queues that may start now.
    pub(crate) fn give_back(&mut self, limit: &RateLimit) -> SmallVec<[u32; 8]> {
        for &need in &limit.needs {
            let count = self.held_by(need);
            if let Some((_, held)) = self.amounts.get_mut(need.0.0 as usize) {
                *held = held.saturating_sub(count);
            }
        }
        self.waiting.drain(..).collect()
    }
}
