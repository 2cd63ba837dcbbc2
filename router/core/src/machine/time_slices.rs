//! Lanes with a cycle: each model runs in its time slice.

use invariant::expected;

use crate::batch::{Decision, Proposal};
use crate::cycle::SlotBatch;
use crate::lane::Lane;
use crate::machine::Router;
use crate::queue::{Queue, Urgency};
use crate::{LaneClass, LaneId, ModelId, Nanos};

/// A queue that is ready and the lane that is to run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub queue: u32,
    pub lane: LaneId,
    /// The slot of the lane's cycle. `None` if the lane has no cycle, or the cycle has no slot for the model.
    pub slot: Option<SlotBatch>,
}

impl Router {
    /// The first free lane with a cycle that may run something.
    pub(super) fn cycle_match(&self) -> Option<Match> {
        let pools = self.pools.noted().map(|(_, pool)| pool).filter(|pool| pool.ready.first().is_some());
        let free = pools.flat_map(|pool| pool.cycled.iter().filter(|&lane| pool.free.contains(lane)));
        free.filter_map(|lane| self.next_on_cycle(lane)).min_by_key(|found| found.lane)
    }

    fn next_on_cycle(&self, id: LaneId) -> Option<Match> {
        let lane = self.lane(id)?;
        let round = lane.round.as_ref()?;
        let ready = |model: ModelId| self.most_urgent_of(model, lane);
        let next = round.next_slot(
            self.begins_on(id),
            |slot| ready(slot.model),
            |slot, &queue| self.time_within(queue, slot.rows, lane.lane_class),
        );
        if let Some((slot, queue)) = next {
            return Some(Match { queue, lane: id, slot: Some(slot) });
        }
        // No model with a slot is ready, so every ready queue belongs to a model without one.
        let first = lane.pools.iter().filter_map(|&pool| self.pools.get(pool)?.ready.first());
        let first = first.filter(|&(_, queue)| self.is_in_time_on(queue, lane.lane_class)).min();
        first.map(|(_, queue)| Match { queue, lane: id, slot: None })
    }

    fn most_urgent_of(&self, model: ModelId, lane: &Lane) -> Option<u32> {
        let queues = self.model(model)?.queues.iter().filter(|(key, _)| lane.pools.contains(&key.pool));
        let ready = queues.filter_map(|&(_, slot)| Some((self.queues.get(slot)?.ready?, slot)));
        let ready = ready.filter(|&(_, slot)| self.is_in_time_on(slot, lane.lane_class));
        ready.min().map(|(_, slot): (Urgency, u32)| slot)
    }

    /// Expected time of the next batch of a queue, limited to `rows` rows.
    fn time_within(&self, queue: u32, rows: u32, lane_class: LaneClass) -> Nanos {
        let Some(queue) = expected!(self.queues.get(queue), "router.ready_queue_unknown") else {
            return Nanos::ZERO;
        };
        let Some(model) = expected!(self.model(queue.key.model), "router.queue_of_unknown_model") else {
            return Nanos::ZERO;
        };
        let Some(proposal) = self.shot_within(queue, rows, lane_class) else { return Nanos::ZERO };
        let company = self.company(queue, model);
        let take = proposal.take.min(queue.rows.saturating_add(company));
        model.costs.on(lane_class).expected(take, queue.row_bytes()).unwrap_or_default()
    }

    /// The batch that the policy would start, limited to `rows` rows.
    pub(super) fn shot_within(&self, queue: &Queue, rows: u32, lane_class: LaneClass) -> Option<Proposal> {
        let limited = |proposal: Proposal| Proposal { take: proposal.take.min(rows), ..proposal };
        match self.decide_within(queue, rows, lane_class) {
            Some(Decision::Fire(proposal)) => Some(limited(proposal)),
            // The queue is ready because of another lane class, and would become ready again.
            _ => match self.decide(queue) {
                Some(Decision::Fire(proposal)) => self.in_time_within(queue, limited(proposal), lane_class),
                _ => None,
            },
        }
    }

    /// Sets the largest batch of each model of a pool.
    pub(super) fn size_batches(&mut self, id: u32) {
        let Some(pool) = expected!(self.pools.get(id), "router.sized_pool_unknown") else { return };
        let lanes = &self.lanes;
        for (model_id, model) in self.models.iter_mut().filter(|(_, model)| model.pool == id) {
            model.largest = model.max_batch;
            if !pool.cycled.is_empty() {
                let cycle = |lane: LaneId| lanes.get(lane)?.round.as_ref();
                let quota = |lane| self.tokens.quota(lane).map(|quota| quota.rows);
                let of_cycle = |lane| cycle(lane).and_then(|round| round.cycle.rows_of(model_id));
                let rows = |lane| of_cycle(lane).or_else(|| quota(lane));
                let rows = pool.up.iter().map(|lane| rows(lane).unwrap_or(model.max_batch));
                model.largest = rows.max().unwrap_or(model.max_batch).clamp(1, model.max_batch);
            }
        }
    }
}
