//! Batches for free lanes.

use invariant::expected;

use smallvec::SmallVec;

use crate::batch::{Candidate, Decision, Proposal, StartReason};
use crate::event::{Effect, Effects, Outcome, Reason, TimeoutAction};
use crate::lane::Lane;
use crate::machine::Router;
use crate::machine::time_slices::Match;
use crate::model::Model;
use crate::ordered::Keyed;
use crate::queue::{Queue, QueueKey, Urgency};
use crate::records::{Decided, LaneChoice};
use crate::request::Stage;
use crate::request::Timing;
use crate::{LaneClass, LaneId, ModelId, Nanos};

/// When a borrowed batch is tried again that would have made other requests late.
const BORROW_RETRY: Nanos = Nanos::from_millis(10);
/// Preemptions that one request may suffer.
const MAX_RETURNS: u8 = 3;

impl Router {
    /// Gives each free lane the most urgent queue that it may run, until no pair is left.
    pub(super) fn give_work(&mut self, effects: &mut Effects) {
        self.set_stranded_aside();
        while let Some(found) = self.most_urgent_match() {
            self.fire(found, effects);
            self.evaluate_due(effects);
            self.set_stranded_aside();
        }
        self.pools.forget_noted();
    }

    /// Lanes without a cycle or a quota go first: they may run any model, so they take the most urgent queue.
    fn most_urgent_match(&self) -> Option<Match> {
        let noted = self.pools.noted().filter_map(|(_, pool)| self.first_match(pool));
        match noted.min() {
            Some((_, queue, lane)) => Some(Match { queue, lane, slot: None }),
            None if self.lanes.cycles() > 0 => self.cycle_match().or_else(|| self.token_match()),
            None => self.token_match(),
        }
    }

    /// Starts the batch of a ready queue, if its policy still wants one now and no other queue has become more urgent.
    fn fire(&mut self, found: Match, effects: &mut Effects) {
        let queue_slot = found.queue;
        let Some(queue) = expected!(self.queues.get(queue_slot), "router.ready_queue_unknown") else {
            return;
        };
        let (key, before) = (queue.key, queue.ready);
        let lane_class = self.lane_class_of(found.lane);
        let proposal = match found.slot {
            Some(slot) => self.shot_within(queue, slot.rows, lane_class),
            None => match self.decide_within(queue, u32::MAX, lane_class) {
                Some(Decision::Fire(proposal)) => Some(proposal),
                // It is ready for another lane class and would become ready again.
                _ if self.next_lane_class(queue) != lane_class => {
                    self.shot_within(queue, u32::MAX, lane_class)
                }
                _ => None,
            },
        };
        let Some((proposal, head)) = proposal.zip(queue.head()) else {
            self.file_ready(queue_slot, None);
            self.queues.note(queue_slot);
            return;
        };
        let urgency = self.urgency(queue, head, &proposal);
        if before.is_some_and(|before| urgency > before) {
            self.file_ready(queue_slot, Some(urgency));
            if self.most_urgent_match().is_some_and(|first| first.queue != queue_slot) {
                return;
            }
        }
        let chosen = match found.slot {
            Some(_) => None,
            None => self.chosen((queue_slot, proposal), (key, lane_class), &urgency),
        };
        let (queue_slot, proposal) = chosen.unwrap_or((queue_slot, proposal));
        let queue = expected!(self.queues.get(queue_slot), "router.ready_queue_unknown");
        let Some(key) = queue.map(|queue| queue.key) else { return };
        let Some(proposal) = self.within_slack(queue_slot, &proposal, (found.lane, lane_class)) else {
            // Not evaluated at once, because nothing has changed. It becomes ready again by its timer or a new request.
            self.file_ready(queue_slot, None);
            self.queues.bring_timer_forward(queue_slot, self.now.after(BORROW_RETRY));
            return;
        };
        // A batch that started during this event may hold what was left when the queue became ready.
        if !self.has_resources(key.model, urgency.0) {
            self.file_ready(queue_slot, None);
            self.wait_for_resources(queue_slot, key.model, urgency.0);
            return;
        }
        self.queues.note(queue_slot);
        let shed = self.shed(queue_slot, &proposal, effects);
        let size = self.form(queue_slot, (key, lane_class), &proposal);
        if size.0 > 0 {
            self.dispatch(
                Match { queue: queue_slot, ..found },
                (key.model, size.0, size.1),
                (proposal, shed),
                effects,
            );
        } else {
            self.file_ready(queue_slot, None);
        }
    }

    /// Lets the policy choose among the most urgent queues of the same class and priority, if it wants a choice.
    fn chosen(
        &self,
        first: (u32, Proposal),
        (key, lane_class): (QueueKey, LaneClass),
        urgency: &Urgency,
    ) -> Option<(u32, Proposal)> {
        let (model, pool) = (self.model(key.model)?, self.pools.get(key.pool)?);
        let policy = model.policy.choosing().filter(|_| pool.ready.len() > 1)?;
        let mut slots = SmallVec::new();
        pool.ready.smallest(policy.choices() as usize, &mut slots);
        let view = self.view_of(pool);
        let mut candidates: SmallVec<[Candidate; 8]> = SmallVec::new();
        for slot in slots {
            let Some(queue) = expected!(self.queues.get(slot), "router.ready_queue_unknown") else {
                continue;
            };
            let Some((head, theirs)) = expected!(self.head_of(queue), "router.queue_without_head") else {
                continue;
            };
            let decided = || self.decide_on(queue, u32::MAX, lane_class, || view);
            let proposal = if slot == first.0 { Some(Decision::Fire(first.1)) } else { decided() };
            let cost = theirs.costs.on(lane_class);
            let Some(Decision::Fire(proposal)) = proposal else { continue };
            let (class, priority, ..) = self.urgency(queue, &head, &proposal);
            if (class, priority) != (urgency.0, urgency.1) || !theirs.policy.is_kin(&model.policy) {
                continue;
            }
            let time = cost.expected(proposal.take, queue.row_bytes()).unwrap_or_default();
            let behind = proposal.skip.saturating_add(1);
            let dropped: u32 = queue.waiting.iter().take(behind as usize).map(|waiting| waiting.rows).sum();
            let rest =
                cost.cautious(queue.rows.saturating_sub(dropped).min(proposal.take), queue.row_bytes());
            let next = queue.waiting.get(behind as usize);
            let last_start_of_rest = next.map_or(Nanos::NEVER, |first| first.deadline.before(rest));
            let overloaded = self.is_overloaded(theirs, pool, queue.row_bytes());
            candidates.push(Candidate { proposal, time, overloaded, last_start_of_rest, queue: slot });
        }
        candidates.sort_by_key(|candidate| (candidate.proposal.rank, candidate.queue != first.0));
        if candidates.len() < 2 {
            return None;
        }
        let choice = policy.choose(self.now, &candidates, &view);
        candidates.get(choice).map(|candidate| (candidate.queue, candidate.proposal))
    }

    /// Drops the requests that the policy skips, at most all but the last one.
    fn shed(&mut self, queue_slot: u32, proposal: &Proposal, effects: &mut Effects) -> u32 {
        let mut shed = 0;
        while shed < proposal.skip {
            let Some(queue) = self.queues.get(queue_slot).filter(|queue| queue.len() > 1) else { break };
            let head = queue.head().and_then(|head| self.requests.at(head.slot));
            let head = expected!(head, "router.queue_with_unknown_request");
            let Some((id, action)) = head.map(|request| (request.id, request.timeout_action)) else { break };
            match action {
                TimeoutAction::Delay => self.delay(id.slot()),
                TimeoutAction::Reject => {
                    self.unqueue(id.slot());
                    self.finish(id, Outcome::Refused, Reason::Shed, effects);
                }
            }
            shed += 1;
        }
        shed
    }

    /// Takes the members of a batch out of their queues: those of the queue itself, then those of other classes and
    /// tenants as long as their deadlines allow it. Returns rows and bytes a row.
    fn form(
        &mut self,
        queue_slot: u32,
        (key, lane_class): (QueueKey, LaneClass),
        proposal: &Proposal,
    ) -> (u32, u64) {
        let Some(model) = expected!(self.model(key.model), "router.queue_of_unknown_model") else {
            return (0, 0);
        };
        let take = proposal.take.min(model.max_batch);
        let row_bytes = self.queues.get(queue_slot).map_or(0, Queue::row_bytes);
        let done_by = self.now.after(model.costs.on(lane_class).cautious(take, row_bytes));
        let company = model.queues.iter().filter(|(other, slot)| {
            *slot != queue_slot
                && (other.shape, other.pool) == (key.shape, key.pool)
                && self.may_share_batch(&key, other)
        });
        let mut company: SmallVec<[_; 8]> = company
            .filter_map(|(other, slot)| {
                let over = self.shares.over(self.now, other.tenant);
                Some((
                    (
                        other.class,
                        other.timing == Timing::Delayed,
                        over,
                        self.queues.get(*slot)?.head()?.key(),
                    ),
                    *slot,
                ))
            })
            .collect();
        company.sort_unstable();
        self.forming.clear();
        let mut size = (0, 0);
        // Requests that are passed over wait for a faster lane.
        let passes = proposal.reason == StartReason::PassedOver;
        let from = if passes { done_by.min(Nanos(proposal.rank)) } else { Nanos::ZERO };
        self.fill(queue_slot, take, from, passes, &mut size);
        let ran_alone =
            self.forming.first().and_then(|&slot| self.requests.at(slot)).is_some_and(|r| r.alone);
        for &(_, slot) in company.iter().filter(|_| !ran_alone) {
            if size.0 >= take || !self.queues.get(queue_slot).is_some_and(Queue::is_empty) {
                break;
            }
            self.fill(slot, take, done_by, false, &mut size);
        }
        let (rows, bytes) = size;
        (rows, bytes / u64::from(rows.max(1)))
    }

    /// Moves requests from a queue to the batch that is being formed, starting with the head or the first one in time.
    fn fill(&mut self, queue_slot: u32, take: u32, done_by: Nanos, passes: bool, size: &mut (u32, u64)) {
        let first = |queue: &Queue| {
            let first = if passes { queue.waiting.position((done_by, 0)) } else { 0 };
            queue.waiting.get(first).map(|waiting| waiting.slot)
        };
        while let Some(slot) = self.queues.get(queue_slot).and_then(first) {
            let Some(request) = expected!(self.requests.at(slot), "router.queue_with_unknown_request") else {
                return;
            };
            let (alone, rows, bytes) = (request.alone, request.rows, request.bytes);
            let fits = !alone && size.0.saturating_add(rows) <= take && request.deadline >= done_by;
            if !(fits || self.forming.is_empty()) {
                return;
            }
            (size.0, size.1) = (size.0.saturating_add(rows), size.1.saturating_add(bytes));
            self.forming.push(slot);
            self.unqueue(slot);
            if alone {
                return;
            }
        }
    }

    fn dispatch(
        &mut self,
        Match { queue: queue_slot, lane: lane_id, slot: cycle_slot }: Match,
        (model_id, rows, row_bytes): (ModelId, u32, u64),
        (proposal, shed): (Proposal, u32),
        effects: &mut Effects,
    ) {
        let now = self.now;
        self.preempt_best_effort(lane_id, rows, effects);
        let (begins, lane_class) = (self.begins_on(lane_id), self.lane_class_of(lane_id));
        let Some(model) = expected!(self.model_mut(model_id), "router.batch_of_unknown_model") else {
            return;
        };
        let expected = model.costs.on(lane_class).expected(rows, row_bytes).unwrap_or_default();
        let pool = model.pool;
        let first = self.forming.first().and_then(|&member| self.requests.at(member));
        let best_effort = first.is_some_and(|request| request.class.is_best_effort());
        let (slot, batch) = self.batches.open(lane_id, model_id);
        let Some(batch) = expected!(batch, "router.opened_batch_unknown") else { return };
        (batch.rows, batch.row_bytes, batch.dispatched) = (rows, row_bytes, now);
        (batch.expected_end, batch.best_effort) = (begins.after(expected), best_effort);
        if let Some(protection) = self.protection.as_mut().filter(|_| best_effort) {
            protection.starts();
        }
        let id = batch.id;
        let mut count = 0;
        for &member in &self.forming {
            let Some(request) = expected!(self.requests.at_mut(member), "router.formed_request_unknown")
            else {
                continue;
            };
            (request.stage, request.batch) = (Stage::InFlight { batch: slot }, Some(id));
            batch.members.push(request.id);
            batch.returned = batch.returned.max(request.returned);
            count += 1;
            let share = expected.0.saturating_mul(u64::from(request.rows)) / u64::from(rows.max(1));
            self.tenants.start(now, request, Nanos(share));
            // Idle time that a tenant borrows is not a part of its share.
            if !request.borrowed {
                self.shares.charge(now, request.tenant, Nanos(share));
            }
        }
        let members = effects.push_members(&batch.members);
        if let Some(model) = self.model_mut(model_id) {
            model.in_flight += count;
            model.running += 1;
            model.batch_starts(now, expected);
            if let Some(starts) = model.starts.get_mut(proposal.reason as usize) {
                *starts += 1;
            }
            if let Some(policy) = model.policy.planning_mut() {
                policy.fired(now, lane_id);
            }
        }
        self.take_resources(model_id);
        if let Some(lane) = self.lane_mut(lane_id) {
            lane.holding.push(slot);
            if let Some((round, cycle_slot)) = lane.round.as_mut().zip(cycle_slot) {
                round.started(cycle_slot, begins);
            }
        }
        self.settle_lane(lane_id);
        self.token_taken(lane_id);
        if let Some(pool) = self.pools.get_mut(pool).filter(|_| !best_effort) {
            pool.demand.started(expected);
        }
        let has_quota = self.lane(lane_id).is_some_and(|lane| lane.has_quota && lane.round.is_none());
        let only = self.pools.get(pool).is_some_and(|pool| pool.up.len() == 1);
        let left = self.queues.get(queue_slot).map_or(0, |queue| queue.rows);
        self.records.note(
            now,
            Decided::Dispatch {
                batch: id,
                model: model_id,
                lane: lane_id,
                chosen: match cycle_slot {
                    Some(_) if has_quota => LaneChoice::Token,
                    Some(_) => LaneChoice::Cycle,
                    None if only => LaneChoice::Only,
                    None => LaneChoice::SmallestFree,
                },
                rows,
                left,
                shed,
                reason: proposal.reason,
                expected,
            },
        );
        effects.push(Effect::Dispatch { lane: lane_id, batch: id, model: model_id, rows, members });
    }

    /// Whether best-effort batches of a model are preempted on a lane for others.
    pub(super) fn may_yield(&self, lane: &Lane, model: &Model) -> bool {
        model.preemptible && lane.round.is_none() && !lane.has_quota
    }

    /// The batch of a lane that holds nothing but a best-effort batch that can be preempted, apart from those that it gives back.
    pub(super) fn yielding(&self, lane: &Lane) -> Option<u32> {
        let held = lane.holding.iter().filter_map(|&slot| Some((slot, self.batches.at(slot)?)));
        let mut held = held.filter(|(_, batch)| !batch.is_given_back());
        let (slot, batch) = held.next().filter(|(_, batch)| batch.best_effort && lane.is_active())?;
        let can_be = self.model(batch.model).is_some_and(|model| self.may_yield(lane, model));
        (can_be && held.next().is_none()).then_some(slot)
    }

    /// Best-effort batches that a lane was asked to return and still holds.
    pub(super) fn given_back(&self, lane: &Lane) -> usize {
        let held = lane.holding.iter().filter_map(|&slot| self.batches.at(slot));
        held.filter(|batch| batch.is_given_back()).count()
    }

    /// Asks a lane that yields to return its batch.
    fn preempt_best_effort(&mut self, id: LaneId, wanted: u32, effects: &mut Effects) {
        let Some(slot) = self.lane(id).filter(|lane| lane.yields).and_then(|lane| self.yielding(lane)) else {
            return;
        };
        let Some(batch) = expected!(self.batches.at_mut(slot), "router.held_batch_unknown") else { return };
        batch.preempted = true;
        let (batch, rows) = (batch.id, batch.rows);
        self.records.note(self.now, Decided::Preempt { batch, lane: id, rows, wanted });
        effects.push(Effect::Preempt { lane: id, batch });
    }

    /// Preempts the smallest running batch, if the queue's policy wants that and no lane is free.
    pub(super) fn preempt_for(&mut self, queue_slot: u32, effects: &mut Effects) {
        let Some(queue) = expected!(self.queues.get(queue_slot), "router.ready_queue_unknown") else {
            return;
        };
        let Some(model) = expected!(self.model(queue.key.model), "router.queue_of_unknown_model") else {
            return;
        };
        let (Some(percent), Some(pool)) = (model.policy.preempts(), self.pools.get(queue.key.pool)) else {
            return;
        };
        if !pool.free.is_empty() {
            return;
        }
        let Some(Decision::Fire(proposal)) = self.decide(queue) else { return };
        // A lane with a cycle that is freed early would run another model.
        let lanes = pool.ends.iter().filter(|end| !pool.cycled.contains(end.lane));
        let running = lanes.filter_map(|end| self.lane(end.lane)).flat_map(|lane| &lane.holding);
        let running = running.filter_map(|&slot| Some((slot, self.batches.at(slot)?)));
        let own = queue.ready.map(|(class, priority, ..)| (class, priority));
        // One preemption at a time: what the lane runs next is unknown until it reports.
        let mut smallest: Option<(u32, u32)> = None;
        for (slot, batch) in running {
            if batch.preempted {
                return;
            }
            // A batch that would go first again is not preempted, and neither is one that was preempted often enough.
            let first = batch.members.first().and_then(|&id| self.requests.get(id));
            let theirs = first.map(|request| self.priority(request));
            let stays = self.model(batch.model).is_none_or(|model| !model.preemptible);
            if own > theirs || stays || batch.returned >= MAX_RETURNS {
                continue;
            }
            if smallest.is_none_or(|(_, rows)| batch.rows < rows) {
                smallest = Some((slot, batch.rows));
            }
        }
        let Some((slot, rows)) = smallest else { return };
        if u64::from(proposal.take) * 100 < u64::from(rows) * u64::from(percent) {
            return;
        }
        let Some(batch) = expected!(self.batches.at_mut(slot), "router.held_batch_unknown") else { return };
        batch.preempted = true;
        let (lane, batch) = (batch.lane, batch.id);
        self.records.note(self.now, Decided::Preempt { batch, lane, rows, wanted: proposal.take });
        effects.push(Effect::Preempt { lane, batch });
    }
}
