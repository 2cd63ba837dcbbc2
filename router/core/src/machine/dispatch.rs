//! Due queues, ready queues, and batches for free lanes.

use smallvec::SmallVec;

use crate::batch::{Decision, Observation, QueueView};
use crate::event::{Effect, Effects, Outcome, Reason};
use crate::lane::Batch;
use crate::machine::Router;
use crate::model::Model;
use crate::queue::{Queue, Urgency};
use crate::request::{Request, Stage};
use crate::{LaneId, ModelId, Nanos};

/// One in this many requests that the estimate alone condemns is run if a lane is free anyway: an estimate
/// that refuses everything would otherwise never be corrected.
const PROBE_EVERY: u32 = 16;

impl Router {
    /// Looks again at queues that changed in this turn or whose time has come.
    pub(super) fn look_at_due(&mut self, effects: &mut Effects) {
        if self.drain_until.is_some_and(|until| until <= self.now) {
            self.refuse_all_queued(effects);
        }
        while let Some((at, queue)) = self.timers.first() {
            if at > self.now {
                break;
            }
            self.timers.remove(queue, &mut self.timer_positions);
            self.changed.push(queue);
        }
        while let Some(queue) = self.changed.pop() {
            self.look_at(queue, effects);
        }
    }

    /// Drops what is hopeless, asks the policy, and files the queue under ready or under a time.
    fn look_at(&mut self, slot: u32, effects: &mut Effects) {
        self.drop_hopeless(slot, effects);
        let Some(queue) = self.queues.get(slot) else { return };
        if queue.is_empty() {
            self.close_queue(slot, effects);
            return;
        }
        let Some((view, head, model)) = self.view(queue) else { return };
        let hopeless_at = hopeless_from(model, head);
        let (ready, look_again) = match model.policy.decide(self.now, &view) {
            Decision::Fire { .. } => (Some(self.urgency(head)), hopeless_at),
            Decision::WaitUntil(at) => (None, hopeless_at.min(at.max(self.now.after(Nanos(1))))),
        };
        self.file_ready(slot, ready);
        if look_again == Nanos::NEVER {
            self.timers.remove(slot, &mut self.timer_positions);
        } else {
            self.timers.insert(look_again, slot, &mut self.timer_positions);
        }
    }

    fn view<'a>(&'a self, queue: &'a Queue) -> Option<(QueueView<'a>, &'a Request, &'a Model)> {
        let model = self.model(queue.model)?;
        let head = self.requests.at(queue.head()?)?;
        let oldest = self.requests.at(queue.oldest()?)?;
        let view = QueueView {
            rows: if head.alone { head.rows } else { queue.rows },
            head_rows: head.rows,
            head_deadline: head.deadline,
            oldest_arrival: oldest.arrived,
            row_bytes: queue.row_bytes(),
            max_batch: model.max_batch,
            lanes: model.lanes.max(1),
            cost: &model.cost,
        };
        Some((view, head, model))
    }

    fn urgency(&self, head: &Request) -> Urgency {
        let wanted_by = match head.deadline {
            Nanos::NEVER => head.arrived.after(self.config.patience),
            deadline => deadline,
        };
        (head.class, wanted_by, head.sequence)
    }

    fn drop_hopeless(&mut self, slot: u32, effects: &mut Effects) {
        while let Some(head) = self.queues.get(slot).and_then(Queue::head) {
            let Some(request) = self.requests.at(head) else { return };
            let (id, model_id) = (request.id, request.model);
            if request.deadline <= self.now {
                self.unqueue(head);
                self.finish(id, Outcome::Expired, Reason::DeadlinePassed, effects);
                continue;
            }
            let late = self.model(model_id).is_some_and(|model| hopeless_from(model, request) <= self.now);
            if !late || self.spare_as_probe(head, model_id) {
                return;
            }
            self.unqueue(head);
            self.finish(id, Outcome::Refused, Reason::DeadlineUnmeetable, effects);
        }
    }

    fn spare_as_probe(&mut self, slot: u32, model: ModelId) -> bool {
        if self.free_lane_for(model).is_none() {
            return false;
        }
        let Some(model) = self.model_mut(model) else { return false };
        let chosen = model.doubted.is_multiple_of(PROBE_EVERY);
        model.doubted = model.doubted.wrapping_add(1);
        if let Some(request) = self.requests.at_mut(slot).filter(|_| chosen) {
            request.probe = true;
        }
        chosen
    }

    fn close_queue(&mut self, slot: u32, effects: &mut Effects) {
        self.file_ready(slot, None);
        self.timers.remove(slot, &mut self.timer_positions);
        let Some(model_id) = self.queues.get(slot).map(|queue| queue.model) else { return };
        let Some(model) = self.model_mut(model_id) else { return };
        // A queue may be noted as changed twice in a turn; only the first look finds it open.
        if let Some(position) = model.queues.iter().position(|(_, _, open)| *open == slot) {
            model.queues.swap_remove(position);
            self.queues.close(slot);
            self.retire_if_done(model_id, effects);
        }
    }

    fn file_ready(&mut self, slot: u32, urgency: Option<Urgency>) {
        let Some(queue) = self.queues.get_mut(slot) else { return };
        let before = std::mem::replace(&mut queue.ready, urgency);
        if before == urgency {
            return;
        }
        if let Some(position) = before.and_then(|urgency| self.ready.binary_search(&(urgency, slot)).ok()) {
            self.ready.remove(position);
        }
        if let Some(urgency) = urgency {
            let position = self.ready.binary_search(&(urgency, slot)).unwrap_or_else(|position| position);
            self.ready.insert(position, (urgency, slot));
        }
    }

    /// Gives free lanes the most urgent queue that they may run, until nothing fits.
    pub(super) fn give_work(&mut self, effects: &mut Effects) {
        let mut position = 0;
        while let Some(&(_, queue)) = self.ready.get(position) {
            if self.free_lanes.is_empty() {
                return;
            }
            let lane = self.queues.get(queue).and_then(|queue| self.free_lane_for(queue.model));
            let Some(lane) = lane else {
                position += 1;
                continue;
            };
            self.fire(queue, lane, effects);
            self.look_at_due(effects);
            position = 0;
        }
    }

    /// The free lane of the smallest id that runs a model.
    pub(crate) fn free_lane_for(&self, model: ModelId) -> Option<LaneId> {
        let runs_on = &self.model(model)?.runs_on;
        self.free_lanes.iter().find(|lane| runs_on.contain(**lane)).copied()
    }

    fn fire(&mut self, queue_slot: u32, lane: LaneId, effects: &mut Effects) {
        self.changed.push(queue_slot);
        let Some((model_id, take)) = self.queues.get(queue_slot).and_then(|queue| {
            let (view, _, model) = self.view(queue)?;
            match model.policy.decide(self.now, &view) {
                Decision::Fire { take } => Some((queue.model, take.min(model.max_batch))),
                Decision::WaitUntil(_) => None,
            }
        }) else {
            return;
        };
        let mut members: SmallVec<[u32; 8]> = SmallVec::new();
        let (mut rows, mut bytes) = (0_u32, 0_u64);
        while let Some(request) =
            self.queues.get(queue_slot).and_then(Queue::head).and_then(|slot| self.requests.at(slot))
        {
            let alone = request.alone;
            let first = members.is_empty();
            if !first && (alone || rows.saturating_add(request.rows) > take) {
                break;
            }
            let slot = request.id.slot();
            (rows, bytes) = (rows + request.rows, bytes + request.bytes);
            members.push(slot);
            self.unqueue(slot);
            if alone {
                break;
            }
        }
        if !members.is_empty() {
            self.dispatch(lane, model_id, &members, (rows, bytes / u64::from(rows.max(1))), effects);
        }
    }

    fn dispatch(
        &mut self,
        lane_id: LaneId,
        model_id: ModelId,
        slots: &[u32],
        size: (u32, u64),
        effects: &mut Effects,
    ) {
        let (rows, row_bytes) = size;
        let now = self.now;
        let holds_until =
            self.lane(lane_id).and_then(|lane| lane.holding.last()).and_then(|&slot| self.batches.at(slot));
        let begins = holds_until.map_or(now, |batch| batch.expected_end.max(now));
        let expected =
            self.model(model_id).and_then(|model| model.cost.expected(rows, row_bytes)).unwrap_or_default();
        let members: SmallVec<[_; 8]> =
            slots.iter().filter_map(|&slot| Some(self.requests.at(slot)?.id)).collect();
        let batch = self.batches.insert(|id| Batch {
            id,
            lane: lane_id,
            model: model_id,
            rows,
            row_bytes,
            dispatched: now,
            expected_end: begins.after(expected),
            members: members.clone(),
        });
        for &slot in slots {
            if let Some(request) = self.requests.at_mut(slot) {
                request.stage = Stage::InFlight { batch };
            }
        }
        if let Some(model) = self.model_mut(model_id) {
            model.in_flight += u32::try_from(slots.len()).unwrap_or(u32::MAX);
        }
        if let Some(lane) = self.lane_mut(lane_id) {
            lane.holding.push(batch);
            if !lane.free() {
                self.free_lanes.retain(|free| *free != lane_id);
            }
        }
        if let Some(batch) = self.batches.at(batch) {
            effects.0.push(Effect::Dispatch {
                lane: lane_id,
                batch: batch.id,
                model: model_id,
                rows,
                members,
            });
        }
    }

    pub(super) fn learn(&mut self, batch: &Batch, started: Nanos) {
        let now = self.now;
        let time = now.since(started);
        if let Some(model) = self.model_mut(batch.model) {
            model.cost.observe(batch.rows, batch.row_bytes, time);
            model.policy.observe(now, &Observation { rows: batch.rows, row_bytes: batch.row_bytes, time });
        }
    }

    /// Costs changed, so what the policy said of the model's queues may not hold any more.
    pub(super) fn model_changed(&mut self, id: ModelId) {
        let Some(model) = self.models.get(id.0 as usize).and_then(Option::as_ref) else { return };
        self.changed.extend(model.queues.iter().map(|(_, _, slot)| *slot));
    }
}

/// The first moment at which a queued request cannot make its deadline any more.
fn hopeless_from(model: &Model, request: &Request) -> Nanos {
    if request.deadline == Nanos::NEVER || request.probe {
        return request.deadline;
    }
    let row_bytes = request.bytes / u64::from(request.rows.max(1));
    let time = model.cost.cautious(request.rows, row_bytes);
    if time > request.deadline {
        return Nanos::ZERO;
    }
    request.deadline.before(time).after(Nanos(1)).min(request.deadline)
}
