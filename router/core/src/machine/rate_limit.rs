//! Batches wait for the resources of the rate limiter.

use invariant::expected;

use crate::machine::Router;
use crate::resources::Place;
use crate::{Class, ModelId};

impl Router {
    /// Whether a batch of a model may start now: its resources are left, also for the models that wait before it.
    pub(super) fn has_resources(&self, id: ModelId, class: Class) -> bool {
        let Some(model) = self.model(id).filter(|model| model.limited.is_limited()) else { return true };
        let own = self.resources.place(&model.limited, class, u64::MAX);
        let before = |place: Option<Place>| place.is_some_and(|place| place < own);
        let others = self.models.iter().filter(|(other, _)| *other != id).map(|(_, other)| other);
        let first = others.filter(|other| before(other.limited.waits));
        model.limited.limit.needs.iter().all(|&need| {
            let theirs = first.clone().flat_map(|other| &other.limited.limit.needs);
            let same = theirs.filter(|(resource, _)| *resource == need.0);
            self.resources.is_left(need, same.map(|&need| u64::from(self.resources.held_by(need))).sum())
        })
    }

    /// Notes that a queue waits for resources.
    pub(super) fn wait_for_resources(&mut self, queue: u32, id: ModelId, class: Class) {
        let sequence = self.requests.next_sequence();
        let model = self.models.get_mut(id);
        let Some(model) = expected!(model, "router.queue_of_unknown_model") else { return };
        model.limited.waits = Some(self.resources.place(&model.limited, class, sequence));
        if !self.resources.waiting.contains(&queue) {
            self.resources.waiting.push(queue);
        }
    }

    /// A queue wants no batch any more. If its model waited for resources, those behind it may start.
    pub(super) fn wants_no_resources(&mut self, queue: u32, id: ModelId) {
        let Some(model) = self.model(id).filter(|model| model.limited.waits.is_some()) else { return };
        let others = model.queues.iter().map(|(_, slot)| *slot).filter(|slot| *slot != queue);
        let wants = |slot: u32| {
            let ready = self.queues.get(slot).is_some_and(|queue| queue.ready.is_some());
            ready || self.resources.waiting.contains(&slot) || self.queues.is_noted(slot)
        };
        if others.into_iter().any(wants) {
            return;
        }
        if let Some(model) = self.model_mut(id) {
            model.limited.waits = None;
        }
        let waiting = std::mem::take(&mut self.resources.waiting);
        self.queues.note_all(waiting.into_iter().filter(|slot| *slot != queue));
    }

    pub(super) fn take_resources(&mut self, id: ModelId) {
        let model = self.models.get_mut(id);
        if let Some(model) = model.filter(|model| model.limited.is_limited()) {
            self.resources.take(&mut model.limited);
        }
    }

    pub(super) fn give_resources_back(&mut self, id: ModelId) {
        let model = self.models.get(id);
        if let Some(model) = model.filter(|model| model.limited.is_limited()) {
            let waiting = self.resources.give_back(&model.limited.limit);
            self.queues.note_all(waiting);
        }
    }
}
