//! Loaded model versions as the machine keeps them.

use crate::batch::Policy;
use crate::{Class, CostModel, ModelLanes, ModelSpec, ShapeKey};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Model {
    pub max_batch: u32,
    pub queue_limit: u32,
    pub policy: Policy,
    pub cost: CostModel,
    /// Queues that are not empty: class, shape, slot.
    pub queues: Vec<(Class, ShapeKey, u32)>,
    /// Queued requests by class.
    pub queued: [u32; Class::COUNT],
    /// Requests in batches, those of clients that left included.
    pub in_flight: u32,
    /// Takes no new requests.
    pub retiring: bool,
    /// Where it may run.
    pub runs_on: ModelLanes,
    /// Lanes of those that are up.
    pub lanes: u32,
    /// Requests that found a free lane and an estimate too long for them.
    pub doubted: u32,
}

impl Model {
    pub(crate) fn new(spec: &ModelSpec, lanes: u32) -> Self {
        Self {
            max_batch: spec.max_batch.max(1),
            queue_limit: spec.queue_limit,
            policy: spec.policy.clone(),
            cost: CostModel::from_profile(&spec.profile),
            queues: Vec::new(),
            queued: [0; Class::COUNT],
            in_flight: 0,
            retiring: false,
            runs_on: spec.lanes.clone(),
            lanes,
            doubted: 0,
        }
    }

    pub(crate) fn queue(&self, class: Class, shape: ShapeKey) -> Option<u32> {
        self.queues.iter().find(|(c, s, _)| (*c, *s) == (class, shape)).map(|(_, _, slot)| *slot)
    }

    pub(crate) fn queued_in(&self, class: Class) -> u32 {
        self.queued.get(usize::from(class.level())).copied().unwrap_or(0)
    }

    pub(crate) fn queued_mut(&mut self, class: Class) -> Option<&mut u32> {
        self.queued.get_mut(usize::from(class.level()))
    }

    pub(crate) fn unfinished(&self) -> u64 {
        self.queued.iter().map(|&count| u64::from(count)).sum::<u64>() + u64::from(self.in_flight)
    }
}
