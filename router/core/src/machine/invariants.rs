//! The invariants by name. R1, R2, R8 and R9 concern effects and are checked by the callers of the machine (property
//! tests and simulator). The others are checked on the state.
//!
//! | id | statement |
//! |---|---|
//! | R1 | every request is in one place and ends exactly once, through any number of switches |
//! | R2 | nothing is started at or after its deadline |
//! | R3 | a batch never mixes shapes or versions and never exceeds the model's limit |
//! | R4 | queues and queued bytes stay within their bounds, and their counts are right |
//! | R5 | a lane holds at most two batches and gets a second one only if its models' policies plan ahead, apart from a best-effort batch that it gives back; pools and lanes agree on which lane is in which pool |
//! | R6 | every unfinished request will be evaluated again |
//! | R7 | no free lane is kept from a ready queue that it may run, whatever its cycle |
//! | R8 | within a class the policy's order holds, except for requests that would be late on this lane and wait for a faster one |
//! | R9 | cancelled and expired requests never reach a lane |
//! | R10 | no batch starts on a lane while an idle lane that it follows still holds one |
//! | R11 | an idle lane is in no pool and gets no batch |
//! | R12 | running batches hold no more of a resource than its total |
//! | R13 | lanes with time quotas that run at once do not use more units than their device has |
//! | R14 | a tenant's quota never holds more tokens than its burst, and reserves what its queued requests reserved |
//! | R15 | the limit of best-effort work counts the best-effort batches that run |
//!
//! [`Router::check`] checks everything, in tests after each event. [`Checker`] checks a few items at a time, in
//! production.

mod checker;

use std::collections::BTreeMap;

use crate::lane::{Batch, Lane, LaneMode};
use crate::machine::Router;
use crate::model::Model;
use crate::pool::Pool;
use crate::queue::Queue;
use crate::request::{Request, Stage};
use crate::{LaneId, ModelId};

pub use checker::Checker;

/// An invariant that does not hold: a bug in the core.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{id}: {detail}")]
pub struct Violation {
    /// R1 to R15.
    pub id: &'static str,
    /// What was found.
    pub detail: String,
}

fn require(id: &'static str, holds: bool, detail: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { id, detail: detail() }) }
}

/// A part of the state that is checked item by item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Group {
    #[default]
    Requests,
    Queues,
    Batches,
    Lanes,
    Pools,
    Models,
    Totals,
}

const GROUPS: [Group; 7] = [
    Group::Requests,
    Group::Queues,
    Group::Batches,
    Group::Lanes,
    Group::Pools,
    Group::Models,
    Group::Totals,
];

impl Router {
    /// Checks the whole state, in time proportional to its size.
    pub fn check(&self) -> Result<(), Violation> {
        for group in GROUPS {
            for index in 0..self.items(group) {
                self.check_item(group, index, usize::MAX)?;
            }
        }
        self.check_protection()
    }

    /// R15, which looks at every batch.
    fn check_protection(&self) -> Result<(), Violation> {
        let Some(protection) = &self.protection else { return Ok(()) };
        let slots = (0..self.batches.slots()).filter_map(|slot| u32::try_from(slot).ok());
        let running =
            slots.filter_map(|slot| self.batches.at(slot)).filter(|batch| batch.best_effort).count();
        let counted = protection.running();
        require("R15", counted as usize == running, || {
            format!("{counted} best-effort batches are counted, expected {running}")
        })
    }

    /// Places in a group, vacant ones included.
    fn items(&self, group: Group) -> usize {
        match group {
            Group::Requests => self.requests.slots(),
            Group::Queues => self.queues.slots(),
            Group::Batches => self.batches.slots(),
            Group::Lanes => self.lanes.slots(),
            Group::Pools => self.pools.slots(),
            Group::Models => self.models.slots(),
            Group::Totals => 1,
        }
    }

    /// Checks one item and returns how many others it was compared with; 0 for a vacant place. Sums over more than
    /// `most` others are left out.
    fn check_item(&self, group: Group, index: usize, most: usize) -> Result<usize, Violation> {
        let slot = u32::try_from(index).unwrap_or(u32::MAX);
        match group {
            Group::Requests => self.requests.at(slot).map_or(Ok(0), |request| self.check_request(request)),
            Group::Queues => {
                let open = self.queues.get(slot).filter(|queue| !queue.is_empty());
                open.map_or(Ok(0), |queue| self.check_queue(slot, queue, most))
            }
            Group::Batches => self.batches.at(slot).map_or(Ok(0), |batch| self.check_batch(slot, batch)),
            Group::Lanes => {
                self.lane(LaneId(slot)).map_or(Ok(0), |lane| self.check_lane(LaneId(slot), lane, most))
            }
            Group::Pools => self.pools.get(slot).map_or(Ok(0), |pool| self.check_pool(slot, pool, most)),
            Group::Models => self.model(ModelId(slot)).map_or(Ok(0), |model| self.check_model(index, model)),
            Group::Totals if self.requests.len() + self.models.slots() + self.lanes.slots() > most => Ok(0),
            Group::Totals => self.check_totals(),
        }
    }

    /// R1: a request is where it says that it is.
    fn check_request(&self, request: &Request) -> Result<usize, Violation> {
        let (there, others) = match request.stage {
            Stage::Queued => {
                let queue = self.queues.get(request.queue);
                let place = |queue: &Queue| queue.waiting.position((request.wanted_by, request.sequence));
                let found = queue.and_then(|queue| queue.waiting.get(place(queue)));
                (found.is_some_and(|waiting| waiting.slot == request.id.slot()), 1)
            }
            Stage::InFlight { batch } => {
                let members =
                    self.batches.at(batch).map(|batch| batch.members.as_slice()).unwrap_or_default();
                (members.contains(&request.id), members.len())
            }
        };
        require("R1", there, || format!("{:?} is not where it should be: {:?}", request.id, request.stage))?;
        Ok(others)
    }

    /// R1 and R4: a queue holds unfinished requests of its own kind, as many as it counts, and its model knows it.
    fn check_queue(&self, slot: u32, queue: &Queue, most: usize) -> Result<usize, Violation> {
        let listed = self.model(queue.key.model).and_then(|model| model.queue(queue.key));
        require("R1", listed == Some(slot), || format!("queue {slot} is not listed by its model"))?;
        require("R5", self.pools.get(queue.key.pool).is_some(), || {
            format!("queue {slot} waits for the lanes of an unknown pool {}", queue.key.pool)
        })?;
        if queue.len() > most {
            return Ok(1);
        }
        let (mut rows, mut bytes) = (0_u32, 0_u64);
        for request_slot in queue.slots() {
            let Some(request) = self.requests.at(request_slot) else {
                return Err(Violation { id: "R1", detail: format!("queue {slot} holds a finished request") });
            };
            (rows, bytes) = (rows + request.rows, bytes + request.bytes);
            let in_own_queue = (request.stage, request.queue) == (Stage::Queued, slot)
                && (request.model, request.class, request.tenant, request.shape)
                    == (queue.key.model, queue.key.class, queue.key.tenant, queue.key.shape);
            require("R1", in_own_queue, || format!("{:?} is in the wrong queue", request.id))?;
        }
        require("R4", (rows, bytes) == (queue.rows, queue.bytes), || {
            format!("queue {slot} miscounts its rows")
        })?;
        Ok(queue.len())
    }

    /// R1, R3 and R5: one model and shape a batch, within the model's limit, and on its lane.
    fn check_batch(&self, slot: u32, batch: &Batch) -> Result<usize, Violation> {
        let limit = self.model(batch.model).map_or(0, |model| model.max_batch);
        require("R3", batch.rows <= limit, || format!("{} rows in a batch, limit {limit}", batch.rows))?;
        let held = self.lane(batch.lane).is_some_and(|lane| lane.holding.contains(&slot));
        require("R5", held, || format!("{:?} is not on its lane {:?}", batch.id, batch.lane))?;
        let mut shape = None;
        // A batch still lists its cancelled members, which are finished.
        for request in batch.members.iter().filter_map(|&id| self.requests.get(id)) {
            let here = request.stage == Stage::InFlight { batch: slot };
            require("R1", here, || format!("{:?} is in a batch and elsewhere", request.id))?;
            let alike = request.model == batch.model && *shape.get_or_insert(request.shape) == request.shape;
            require("R3", alike, || format!("{:?} mixes shapes", batch.id))?;
        }
        Ok(batch.members.len())
    }

    /// R5, R10 and R11: a lane holds at most two batches, is in the pools that want it, and one that is idle or waits
    /// for lanes that it follows has no new batches.
    fn check_lane(&self, id: LaneId, lane: &Lane, most: usize) -> Result<usize, Violation> {
        let given_back = self.given_back(lane);
        let held = lane.holding.len() - given_back;
        require("R5", held <= 2, || format!("{id:?} holds {held} batches"))?;
        let given = lane.holding.iter().filter_map(|&slot| self.batches.at(slot));
        let given = given.map(|batch| batch.id).find(|&batch| lane.fence.is_before(batch));
        if lane.is_active() {
            let leased = self.lease_end(lane).is_none();
            require("R10", leased || given.is_none(), || {
                format!("{id:?} was given {given:?} without a lease")
            })?;
            require("R10", leased || lane.end.is_some(), || {
                format!("{id:?} waits and its pools think it free")
            })?;
            let few = self.pools.slots() <= most;
            let pools = self.pools.iter().filter(|(_, pool)| few && pool.lanes.contain(id));
            for (pool, _) in pools {
                require("R5", lane.pools.contains(&pool), || format!("{id:?} is missing from pool {pool}"))?;
            }
            let ahead = self.least_ahead(lane);
            require("R5", lane.ahead == ahead, || {
                format!("{id:?} gets batches {} ahead, expected {ahead}", lane.ahead)
            })?;
            require("R5", lane.yields == self.yielding(lane).is_some(), || {
                format!("{id:?} yields: {}", lane.yields)
            })?;
            let marked = self.pools.iter().filter(|(pool, _)| few && lane.pools.contains(pool));
            for (pool, state) in marked {
                require(
                    "R5",
                    state.yielding.contains(id) == (lane.yields && state.free.contains(id)),
                    || format!("{id:?} yields: {}, and pool {pool} has another mark", lane.yields),
                )?;
            }
            let is_full = held >= lane.depth() && !lane.yields;
            require("R5", !is_full || lane.end.is_some(), || {
                format!("{id:?} holds {held} batches and its pools think it free")
            })?;
        } else {
            require("R11", given.is_none(), || format!("{id:?} is not active and was given {given:?}"))?;
            let apart = lane.pools.is_empty() && lane.own_pool.is_none();
            require("R11", apart, || format!("{id:?} is not active and is in {:?}", lane.pools))?;
            let idle = lane.mode == LaneMode::Idle;
            require("R11", idle == lane.holding.is_empty(), || format!("{id:?} is {:?}", lane.mode))?;
        }
        Ok(held + self.pools.slots().min(most))
    }

    /// R5 and R7: a pool's lanes are those of the machine, each free or busy, and no free one waits while a queue is
    /// ready.
    fn check_pool(&self, id: u32, pool: &Pool, most: usize) -> Result<usize, Violation> {
        let first = pool.ready.first();
        let is_best_effort = first.is_some_and(|(urgency, _)| urgency.0.is_best_effort());
        let lane = if is_best_effort { self.idle_lane(pool) } else { pool.free.first() };
        let kept = first.map(|(_, queue)| queue).zip(lane);
        require("R7", kept.is_none(), || format!("pool {id}: (queue, lane) {kept:?} are ready and free"))?;
        let counted = pool.free.len() as usize + pool.ends.len();
        require("R5", counted == pool.up.len() as usize, || {
            format!("pool {id}: {} lanes up, {counted} free or busy", pool.up.len())
        })?;
        if counted > most {
            return Ok(1);
        }
        let mut lane_classes: BTreeMap<_, u32> = BTreeMap::new();
        for lane in pool.up.iter() {
            let known = self.lane(lane).filter(|lane| lane.pools.contains(&id));
            require("R5", known.is_some(), || format!("pool {id} has {lane:?}, which does not know it"))?;
            *lane_classes.entry(self.lane(lane).map(|lane| lane.lane_class)).or_default() += 1;
        }
        let mut counted: Vec<_> =
            pool.lane_classes.iter().map(|&(lane_class, lanes)| (Some(lane_class), lanes)).collect();
        counted.sort_unstable();
        require("R5", lane_classes.iter().map(|(&class, &lanes)| (class, lanes)).eq(counted), || {
            format!("pool {id} counts {:?}, expected {lane_classes:?}", pool.lane_classes)
        })?;
        Ok(pool.up.len() as usize)
    }

    /// R4 and R5: a model's queues are within their bounds and counted, and its pool is known. Requests queued again
    /// after a batch that failed or was preempted were admitted once and do not count twice.
    fn check_model(&self, index: usize, model: &Model) -> Result<usize, Violation> {
        require("R5", self.pools.get(model.pool).is_some(), || {
            format!("model {index} runs on an unknown pool {}", model.pool)
        })?;
        let mut queued = [0_u32; crate::Class::NUMBERS];
        for &(key, slot) in &model.queues {
            let waiting = self.queued_by(model, key.class, key.tenant, key.borrowed);
            let limit = model.bound_of(key.class);
            let within = waiting <= limit || waiting.saturating_sub(self.queued_again().count()) <= limit;
            require("R4", within, || {
                format!("model {index} has {waiting} queued of {:?} in {:?}", key.tenant, key.class)
            })?;
            let queue = self.queues.get(slot).filter(|queue| queue.key == key);
            require("R1", queue.is_some(), || format!("model {index} lists a queue {slot} of another key"))?;
            if let Some(count) = queued.get_mut(usize::from(key.class.level())) {
                *count += u32::try_from(queue.map_or(0, Queue::len)).unwrap_or(u32::MAX);
            }
        }
        require("R4", queued == model.queued, || {
            format!("model {index} counts {:?} queued, expected {queued:?}", model.queued)
        })?;
        Ok(model.queues.len() * model.queues.len())
    }

    /// Requests that were in a batch before. Others may have been admitted to their places since.
    fn queued_again(&self) -> impl Iterator<Item = &Request> {
        let was_started = |request: &&Request| request.alone || request.returned > 0;
        self.requests.iter().filter(|request| request.stage == Stage::Queued).filter(was_started)
    }

    /// R12: running batches hold what is counted, and never more than the total.
    fn check_resources(&self) -> Result<(), Violation> {
        for (id, total, held) in self.resources.amounts() {
            let models = self.models.iter().map(|(_, model)| model);
            let needs = models.flat_map(|model| {
                model.limited.limit.needs.iter().map(move |&need| (need, u64::from(model.running)))
            });
            let of_this = needs.filter(|((resource, _), _)| *resource == id);
            let expected: u64 =
                of_this.map(|(need, running)| u64::from(self.resources.held_by(need)) * running).sum();
            require("R12", expected == u64::from(held) && held <= total, || {
                format!("{id:?}: {held} of {total} are counted as held, batches hold {expected}")
            })?;
        }
        Ok(())
    }

    /// R14: reservations are those of queued requests, and buckets are no fuller than their bursts.
    fn check_tenants(&self) -> Result<(), Violation> {
        if !self.tenants.is_limited() {
            return Ok(());
        }
        let mut reserved: BTreeMap<usize, u64> = BTreeMap::new();
        for request in self.requests.iter().filter(|request| request.stage == Stage::Queued) {
            *reserved.entry(usize::from(request.tenant.number())).or_default() += request.counted_time.0;
        }
        for (tenant, (counted, within)) in self.tenants.reservations().enumerate() {
            let expected = reserved.get(&tenant).copied().unwrap_or_default();
            require("R14", counted == expected, || {
                format!("tenant {tenant} reserves {counted} ns, expected {expected}")
            })?;
            require("R14", within, || format!("tenant {tenant} has more tokens than its burst"))?;
        }
        Ok(())
    }

    /// R1, R4, R5, R6 and R12 to R14: the sums over everything.
    fn check_totals(&self) -> Result<usize, Violation> {
        let busy = self.lanes.iter().map(|(_, lane)| lane).any(|lane| !lane.holding.is_empty());
        let watched = self.next_wake().is_some() || busy || self.requests.len() == 0;
        require("R6", watched, || "work is queued and nothing will wake it".to_owned())?;
        let (mut queues, mut queued, mut bytes) = (0, 0, 0_u64);
        for (_, queue) in self.queues.iter() {
            (queues, queued, bytes) = (queues + 1, queued + queue.len(), bytes + queue.bytes);
        }
        let timers = self.queues.timers();
        require("R6", timers <= queues, || format!("{timers} timers for {queues} queues"))?;
        require("R4", bytes == self.queues.bytes(), || {
            format!("{} bytes are counted as queued, expected {bytes}", self.queues.bytes())
        })?;
        let limit = self.config.queued_bytes_limit;
        let again = |router: &Self| router.queued_again().map(|request| request.bytes).sum();
        let within = bytes <= limit || bytes.saturating_sub(again(self)) <= limit;
        require("R4", within, || format!("{bytes} bytes queued"))?;

        let mut in_flight = 0;
        let mut batches: BTreeMap<u32, (u32, usize)> = BTreeMap::new();
        for (_, batch) in self.batches.iter() {
            in_flight += batch.members.iter().filter(|&&id| self.requests.get(id).is_some()).count();
            let (running, members) = batches.entry(batch.model.0).or_default();
            (*running, *members) = (*running + 1, *members + batch.members.len());
        }
        require("R1", queued + in_flight == self.requests.len(), || {
            format!("{queued} queued and {in_flight} in flight, {} unfinished", self.requests.len())
        })?;
        let mut users: BTreeMap<u32, u32> = BTreeMap::new();
        for (ModelId(index), model) in self.models.iter() {
            *users.entry(model.pool).or_default() += 1;
            let (running, members) = batches.get(&index).copied().unwrap_or_default();
            require("R1", (running, members) == (model.running, model.in_flight as usize), || {
                format!(
                    "model {index} counts {} requests in {} batches, expected {members} in {running}",
                    model.in_flight, model.running
                )
            })?;
        }
        for (id, pool) in self.pools.iter() {
            let used = users.get(&id).copied().unwrap_or_default() + u32::from(pool.bound);
            require("R5", used > 0 && used == pool.models, || {
                format!("pool {id} counts {} models, {used} use it", pool.models)
            })?;
        }
        self.check_resources()?;
        self.check_tenants()?;
        let overfull = self.tokens.violation();
        require("R13", overfull.is_none(), || overfull.unwrap_or_default())?;
        let cycles = self.lanes.iter().map(|(_, lane)| lane).filter(|lane| lane.round.is_some()).count();
        require("R5", cycles == self.lanes.cycles() as usize, || {
            format!("{cycles} lanes have cycles, not {}", self.lanes.cycles())
        })?;
        Ok(self.requests.len() + self.models.slots() + self.lanes.slots())
    }
}
