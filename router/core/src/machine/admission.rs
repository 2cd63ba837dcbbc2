//! Who gets in, and who leaves before being started.

use crate::event::{Arrival, Effect, Effects, Outcome, Reason};
use crate::machine::Router;
use crate::model::Model;
use crate::request::{NIL, Request, Stage};
use crate::{LaneId, Nanos, RequestId};

impl Router {
    pub(super) fn arrive(&mut self, arrival: &Arrival, effects: &mut Effects) {
        let (outcome, reason) = match self.admit(arrival) {
            Ok(()) => return,
            Err(reason @ Reason::DeadlinePassed) => (Outcome::Expired, reason),
            Err(reason) => (Outcome::Refused, reason),
        };
        effects.0.push(Effect::Finish { request: arrival.request, outcome, reason });
    }

    fn admit(&mut self, arrival: &Arrival) -> Result<(), Reason> {
        self.check_bounds(arrival)?;
        let deadline = arrival.deadline.unwrap_or(Nanos::NEVER);
        if deadline <= self.now {
            return Err(Reason::DeadlinePassed);
        }
        if deadline != Nanos::NEVER && self.earliest_end(arrival, deadline) > deadline {
            return Err(Reason::DeadlineUnmeetable);
        }
        self.sequence += 1;
        let request = Request {
            id: arrival.request,
            model: arrival.model,
            class: arrival.class,
            shape: arrival.shape,
            rows: arrival.rows,
            bytes: arrival.bytes,
            arrived: self.now,
            deadline,
            sequence: self.sequence,
            alone: false,
            probe: false,
            stage: Stage::Queued,
            queue: NIL,
            previous: NIL,
            next: NIL,
        };
        let slot = request.id.slot();
        if !self.requests.insert(request) {
            return Err(Reason::IdInUse);
        }
        self.enqueue(slot);
        Ok(())
    }

    fn check_bounds(&self, arrival: &Arrival) -> Result<(), Reason> {
        let slot = arrival.request.slot();
        if slot >= self.config.max_requests {
            return Err(Reason::QueueFull);
        }
        if self.requests.taken(arrival.request) {
            return Err(Reason::IdInUse);
        }
        if self.drain_until.is_some() {
            return Err(Reason::Draining);
        }
        let model = self.model(arrival.model).filter(|model| !model.retiring).ok_or(Reason::UnknownModel)?;
        if arrival.rows == 0 || arrival.rows > model.max_batch {
            return Err(Reason::BatchTooLarge);
        }
        if model.lanes == 0 {
            return Err(Reason::NoLane);
        }
        if model.queued_in(arrival.class) >= model.queue_limit {
            return Err(Reason::QueueFull);
        }
        if self.queued_bytes.saturating_add(arrival.bytes) > self.config.queued_bytes_limit {
            return Err(Reason::MemoryFull);
        }
        Ok(())
    }

    /// When this request would be answered if everything went as well as it can: the lane that is free first,
    /// and those before it in its queue served at the best measured rate. Work of other queues is left out, so
    /// what is refused here is hopeless.
    fn earliest_end(&self, arrival: &Arrival, deadline: Nanos) -> Nanos {
        let Some(model) = self.model(arrival.model) else { return Nanos::ZERO };
        if self.free_lane_for(arrival.model).is_some() {
            return Nanos::ZERO;
        }
        let row_bytes = arrival.bytes / u64::from(arrival.rows.max(1));
        let start = self.first_lane_end(model);
        let ahead = model.queue(arrival.class, arrival.shape).and_then(|slot| self.queues.get(slot)).map_or(
            0,
            |queue| {
                let newest_is_before = queue
                    .newest()
                    .and_then(|slot| self.requests.at(slot))
                    .is_some_and(|last| last.deadline <= deadline);
                if newest_is_before { queue.rows } else { 0 }
            },
        );
        let ahead = model.cost.best_row_time(row_bytes).0.saturating_mul(u64::from(ahead))
            / u64::from(model.lanes.max(1));
        start.after(Nanos(ahead)).after(model.cost.cautious(arrival.rows, row_bytes))
    }

    /// When the first of the busy lanes of a model should report.
    fn first_lane_end(&self, model: &Model) -> Nanos {
        let lanes = (0..).map(LaneId).zip(&self.lanes).filter_map(|(id, lane)| Some((id, lane.as_ref()?)));
        let serving = lanes.filter(|(id, _)| model.runs_on.contain(*id));
        let ends =
            serving.filter_map(|(_, lane)| lane.holding.last().and_then(|&batch| self.batches.at(batch)));
        ends.map(|batch| batch.expected_end).min().unwrap_or(self.now).max(self.now)
    }

    /// Puts a request that is in no queue into its own.
    fn enqueue(&mut self, slot: u32) {
        let Some(request) = self.requests.at(slot) else { return };
        let (id, class, shape, bytes) = (request.model, request.class, request.shape, request.bytes);
        let open = self.model(id).and_then(|model| model.queue(class, shape));
        let queue_slot = open.unwrap_or_else(|| self.queues.open(id, class, shape));
        if let Some(model) = self.model_mut(id) {
            if open.is_none() {
                model.queues.push((class, shape, queue_slot));
            }
            if let Some(count) = model.queued_mut(class) {
                *count += 1;
            }
        }
        if let Some(request) = self.requests.at_mut(slot) {
            request.queue = queue_slot;
            request.stage = Stage::Queued;
        }
        if let Some(queue) = self.queues.get_mut(queue_slot) {
            queue.push(slot, &mut self.requests);
        }
        self.queued_bytes = self.queued_bytes.saturating_add(bytes);
        self.changed.push(queue_slot);
    }

    /// Queues a request again whose batch failed: some member's input may be at fault, and only running each
    /// alone tells whose.
    pub(super) fn enqueue_alone(&mut self, slot: u32) {
        if let Some(request) = self.requests.at_mut(slot) {
            request.alone = true;
        }
        self.enqueue(slot);
    }

    pub(super) fn cancel(&mut self, id: RequestId, effects: &mut Effects) {
        let Some(request) = self.requests.get(id) else { return };
        let model = request.model;
        self.unqueue(id.slot());
        self.finish(id, Outcome::Cancelled, Reason::ClientGone, effects);
        self.retire_if_done(model, effects);
    }
}
