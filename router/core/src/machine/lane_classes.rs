//! Lanes of different speed.

use invariant::expected;

use crate::batch::{DropMode, Proposal, StartReason};
use crate::machine::Router;
use crate::pool::Pool;
use crate::queue::{Queue, Urgency};
use crate::{LaneClass, LaneId, Nanos};

impl Router {
    pub(super) fn lane_class_of(&self, lane: LaneId) -> LaneClass {
        self.lane(lane).map(|lane| lane.lane_class).unwrap_or_default()
    }

    /// A ready queue and a free lane for it, if both exist. Lanes with a cycle are matched by `cycle_match`.
    pub(super) fn first_match(&self, pool: &Pool) -> Option<(Urgency, u32, LaneId)> {
        let (urgency, slot) = pool.ready.first()?;
        if pool.only_lane_class().is_some() {
            return match urgency.0.is_best_effort() {
                true => Some((urgency, slot, self.idle_lane(pool)?)),
                false => pool.first_match(),
            };
        }
        let lane = self.fastest(self.queues.get(slot)?, pool).filter(|&lane| !pool.cycled.contains(lane))?;
        Some((urgency, slot, lane))
    }

    /// Whether a lane holds nothing. Others take no best-effort batch, which would be in the way of the next one.
    fn is_idle(&self, lane: LaneId) -> bool {
        self.lane(lane).is_some_and(|lane| lane.holding.is_empty())
    }

    /// A free lane for a best-effort batch.
    pub(super) fn idle_lane(&self, pool: &Pool) -> Option<LaneId> {
        pool.free.iter().find(|&lane| !pool.cycled.contains(lane) && self.is_idle(lane))
    }

    /// Defers queues that were ready for lanes that are busy by now and that cannot start on any free lane. The queues
    /// behind them go first.
    pub(super) fn set_stranded_aside(&mut self) {
        let mut nth = 0;
        while let Some(pool) = self.pools.nth_noted(nth) {
            while let Some(slot) = self.stranded(pool) {
                self.file_ready(slot, None);
                self.note_deferred(slot, pool);
            }
            nth += 1;
        }
    }

    fn stranded(&self, id: u32) -> Option<u32> {
        let pool = self.pools.get(id)?;
        if pool.only_lane_class().is_some() || pool.free.is_empty() {
            return None;
        }
        let (_, slot) = pool.ready.first()?;
        self.fastest(self.queues.get(slot)?, pool).is_none().then_some(slot)
    }

    /// The free lane on which the next batch of a queue would end first. Lanes without a cycle are preferred if one of
    /// them is in time.
    fn fastest(&self, queue: &Queue, pool: &Pool) -> Option<LaneId> {
        let (head, model) = self.head_of(queue)?;
        let time = |lane_class| {
            model.costs.on(lane_class).expected(head.rows, queue.row_bytes()).unwrap_or_default()
        };
        let best_effort = queue.key.class.is_best_effort();
        let lanes = pool.free.iter().filter(|&lane| !best_effort || self.is_idle(lane));
        let lanes = lanes.map(|lane| (lane, self.lane_class_of(lane)));
        let in_time = lanes.filter(|&(_, lane_class)| self.first_in_time_on(queue, lane_class).is_some());
        let order = |&(lane, lane_class): &(LaneId, LaneClass)| {
            (pool.cycled.contains(lane), pool.yielding.contains(lane), time(lane_class), lane)
        };
        in_time.min_by_key(order).map(|(lane, _)| lane)
    }

    /// The lane class of the next batch of a queue: that of the free lane it would use, otherwise of the lane that is free
    /// first.
    pub(super) fn next_lane_class(&self, queue: &Queue) -> LaneClass {
        let Some(pool) = expected!(self.pools.get(queue.key.pool), "router.queue_of_unknown_pool") else {
            return LaneClass::default();
        };
        if let Some(lane_class) = pool.only_lane_class() {
            return lane_class;
        }
        let next = self.fastest(queue, pool).or_else(|| pool.free.first());
        let next = next.or_else(|| pool.ends.first().map(|end| end.lane));
        next.map(|lane| self.lane_class_of(lane)).unwrap_or_default()
    }

    /// Position, from 0, of the first request that would be in time on a free lane of a class. The requests before it may
    /// be in time on a lane of another class, or on none.
    pub(super) fn first_in_time_on(&self, queue: &Queue, lane_class: LaneClass) -> Option<usize> {
        let mixed = self.pools.get(queue.key.pool).filter(|pool| pool.only_lane_class().is_none());
        let Some((pool, (head, model))) = mixed.zip(self.head_of(queue)) else { return Some(0) };
        let probe = self.requests.at(head.slot).is_some_and(|request| request.probe);
        if probe || head.deadline == Nanos::NEVER || model.policy.drop_mode() == DropMode::Lazy {
            return Some(0);
        }
        let done =
            |lane_class, rows| self.now.after(model.costs.on(lane_class).cautious(rows, queue.row_bytes()));
        let is_late = |lane_class| done(lane_class, head.rows) > head.deadline;
        if !is_late(lane_class) || pool.lane_classes.iter().all(|&(other, _)| is_late(other)) {
            return Some(0);
        }
        let first = queue.waiting.position((done(lane_class, head.rows), 0));
        queue
            .waiting
            .get(first)
            .filter(|waiting| done(lane_class, waiting.rows) <= waiting.deadline)
            .map(|_| first)
    }

    /// As many rows as keep the deadline of the first request that is not passed over.
    pub(super) fn shot_past(
        &self,
        queue: &Queue,
        first: usize,
        rows: u32,
        lane_class: LaneClass,
    ) -> Option<Proposal> {
        let (_, model) = self.head_of(queue)?;
        let waiting = queue.waiting.get(first)?;
        let limit = model.largest.min(rows).max(waiting.rows);
        let time = waiting.deadline.since(self.now);
        let most = model.costs.on(lane_class).largest_within(time, queue.row_bytes(), limit);
        let take = most.min(queue.rows).max(waiting.rows);
        Some(Proposal { skip: 0, take, rank: waiting.deadline.0, reason: StartReason::PassedOver })
    }

    /// A batch that was proposed for another lane, limited to what a lane of this class has time for.
    pub(super) fn in_time_within(
        &self,
        queue: &Queue,
        proposal: Proposal,
        lane_class: LaneClass,
    ) -> Option<Proposal> {
        let mixed = self.pools.get(queue.key.pool).is_some_and(|pool| pool.only_lane_class().is_none());
        match self.first_in_time_on(queue, lane_class)? {
            _ if !mixed => Some(proposal),
            0 => {
                let (head, model) = self.head_of(queue)?;
                let time = head.deadline.since(self.now);
                let most = model.costs.on(lane_class).largest_within(time, queue.row_bytes(), proposal.take);
                Some(Proposal { skip: 0, take: most.max(head.rows), ..proposal })
            }
            first => self.shot_past(queue, first, proposal.take, lane_class),
        }
    }

    /// Whether a ready queue has something to be started on a lane of a lane class.
    pub(super) fn is_in_time_on(&self, slot: u32, lane_class: LaneClass) -> bool {
        self.queues.get(slot).is_some_and(|queue| self.first_in_time_on(queue, lane_class).is_some())
    }
}
