//! The invariants by name. R1, R2, R8 and R9 concern effects and are checked by the callers of the machine (property
//! tests and simulator). The others are checked on the state.
//!
//! | id | statement |
//! |---|---|
//! | R1 | every request is in one place and ends exactly once, through any number of switches |
//! | R2 | nothing is started at or after its deadline |
//! | R3 | a batch never mixes shapes or versions and never exceeds the model's limit |
//! | R4 | queues and queued bytes stay within their bounds |
//! | R5 | a lane holds no more batches than its depth; pools and lanes agree on which lane is in which pool |
//! | R6 | every unfinished request will be evaluated again |
//! | R7 | no free lane is kept from a ready queue that it may run, whatever its cycle |
//! | R8 | within a class the policy's order holds, except for requests that would be late on this lane and wait for a faster one |
//! | R9 | cancelled and expired requests never reach a lane |
//! | R10 | no batch starts on a lane while an idle lane that it follows still holds one |
//! | R11 | an idle lane is in no pool and gets no batch |

use crate::LaneId;
use crate::heap::Heap;
use crate::lane::LaneMode;
use crate::machine::Router;
use crate::request::Stage;

/// An invariant that does not hold: a bug in the core.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{id}: {detail}")]
pub struct Violation {
    /// R1 to R11.
    pub id: &'static str,
    /// What was found.
    pub detail: String,
}

fn require(id: &'static str, holds: bool, detail: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { id, detail: detail() }) }
}

impl Router {
    /// Checks the state; costs time in proportion to everything in it.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_accounts()?;
        self.check_batches()?;
        self.check_bounds_hold()?;
        self.check_progress()?;
        self.check_leases_hold()
    }

    /// R1: every unfinished request is in exactly one place.
    fn check_accounts(&self) -> Result<(), Violation> {
        let mut queued = 0;
        for (slot, queue) in self.queues.iter() {
            let (mut rows, mut bytes) = (0_u32, 0_u64);
            for request_slot in queue.slots() {
                let found = self.requests.at(request_slot);
                require("R1", found.is_some(), || format!("queue {slot} holds a finished request"))?;
                let Some(request) = found else { continue };
                (rows, bytes) = (rows + request.rows, bytes + request.bytes);
                let in_own_queue = request.stage == Stage::Queued
                    && (request.model, request.class, request.shape)
                        == (queue.key.model, queue.key.class, queue.key.shape);
                require("R1", in_own_queue, || format!("{:?} is in the wrong queue", request.id))?;
            }
            require("R1", (rows, bytes) == (queue.rows, queue.bytes), || {
                format!("queue {slot} miscounts its rows")
            })?;
            queued += queue.len();
        }
        let mut in_flight = 0;
        for (slot, batch) in self.batches.iter() {
            for &member in &batch.members {
                let Some(request) = self.requests.get(member) else { continue };
                in_flight += 1;
                let here = request.stage == Stage::InFlight { batch: slot };
                require("R1", here, || format!("{member:?} is in a batch and elsewhere"))?;
            }
        }
        require("R1", queued + in_flight == self.requests.len(), || {
            format!("{queued} queued and {in_flight} in flight, {} unfinished", self.requests.len())
        })
    }

    /// R3: one model and shape a batch, within the model's limit.
    fn check_batches(&self) -> Result<(), Violation> {
        for (_, batch) in self.batches.iter() {
            let limit = self.model(batch.model).map_or(0, |model| model.max_batch);
            require("R3", batch.rows <= limit, || format!("{} rows in a batch, limit {limit}", batch.rows))?;
            let mut pairs =
                batch.members.iter().filter_map(|&id| self.requests.get(id)).map(|r| (r.model, r.shape));
            let first = pairs.next();
            require("R3", pairs.all(|pair| Some(pair) == first), || format!("{:?} mixes shapes", batch.id))?;
        }
        Ok(())
    }

    /// R4 and R5: queues, bytes and lanes within bounds. Requests queued again after a failed batch were
    /// admitted once and do not count twice.
    fn check_bounds_hold(&self) -> Result<(), Violation> {
        let again = |request: &&crate::request::Request| request.stage == Stage::Queued && request.alone;
        let again_bytes: u64 = self.requests.iter().filter(again).map(|request| request.bytes).sum();
        let bytes = self.queued_bytes.saturating_sub(again_bytes);
        require("R4", bytes <= self.config.queued_bytes_limit, || format!("{bytes} bytes queued"))?;
        let again = self.requests.iter().filter(again).count();
        for (id, model) in self.models.iter().enumerate() {
            let Some(model) = model else { continue };
            for (key, _) in &model.queues {
                let queued = self.queued_by(model, key.class, key.tenant).saturating_sub(again);
                require("R4", queued <= model.queue_limit as usize, || {
                    format!("model {id} has {queued} queued of {:?} in {:?}", key.tenant, key.class)
                })?;
            }
        }
        for (id, lane) in self.lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            let held = lane.holding.len();
            require("R5", held <= lane.depth as usize, || format!("lane {id} holds {held} batches"))?;
        }
        Ok(())
    }

    /// R6 and R7: unfinished work is evaluated again, and no free lane waits while a queue is ready.
    fn check_progress(&self) -> Result<(), Violation> {
        let busy = self.lanes.iter().flatten().any(|lane| !lane.holding.is_empty());
        let watched = self.next_wake().is_some() || busy || self.requests.len() == 0;
        require("R6", watched, || "work is queued and nothing will wake it".to_owned())?;
        for (id, pool) in self.pools.iter() {
            let kept = pool.ready.first().map(|(_, queue)| queue).zip(pool.free.first());
            require("R7", kept.is_none(), || {
                format!("pool {id}: (queue, lane) {kept:?} are ready and free")
            })?;
            self.check_pool(id, pool)?;
        }
        let sound = self.timers.len() <= self.queues.iter().count();
        require("R6", sound, || format!("{} timers for fewer queues", Heap::len(&self.timers)))
    }

    /// R5: a pool's lanes are those of the machine, each free or busy.
    fn check_pool(&self, id: u32, pool: &crate::pool::Pool) -> Result<(), Violation> {
        let counted = pool.free.len() as usize + pool.ends.len();
        require("R5", counted == pool.up.len() as usize, || {
            format!("pool {id}: {} lanes up, {counted} free or busy", pool.up.len())
        })?;
        let theirs = self.queues.iter().filter(|(_, queue)| queue.key.pool == id);
        let rows: u64 = theirs.map(|(_, queue)| u64::from(queue.rows)).sum();
        require("R4", rows == pool.queued, || format!("pool {id} counts {} of {rows} rows", pool.queued))?;
        for lane in pool.up.iter() {
            let known = self.lane(lane).is_some_and(|lane| lane.pools.contains(&id));
            require("R5", known, || format!("pool {id} has {lane:?}, which does not know it"))?;
        }
        for &(lane_class, lanes) in &pool.lane_classes {
            let alike = pool
                .up
                .iter()
                .filter(|&lane| self.lane(lane).is_some_and(|lane| lane.lane_class == lane_class));
            let alike = u32::try_from(alike.count()).unwrap_or(u32::MAX);
            require("R5", lanes == alike, || {
                format!("pool {id} counts {lanes} of {alike} lanes of {lane_class:?}")
            })?;
        }
        let counted: u32 = pool.lane_classes.iter().map(|(_, lanes)| lanes).sum();
        require("R5", counted == pool.up.len(), || format!("pool {id} counts the pairs of {counted} lanes"))?;
        let models = self.models.iter().flatten().filter(|model| model.pool == id).count();
        let used = models + usize::from(pool.bound);
        require("R5", used > 0 && used == pool.models as usize, || {
            format!("pool {id} counts {} models, {used} use it", pool.models)
        })
    }

    /// R10 and R11: a lane that is idle, or waits for lanes that it follows, has no new batches.
    fn check_leases_hold(&self) -> Result<(), Violation> {
        for (id, lane) in (0..).map(LaneId).zip(&self.lanes) {
            let Some(lane) = lane else { continue };
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
                let pools = self.pools.iter().filter(|(_, pool)| pool.lanes.contain(id)).map(|(id, _)| id);
                for pool in pools {
                    require("R5", lane.pools.contains(&pool), || {
                        format!("{id:?} is missing from pool {pool}")
                    })?;
                }
            } else {
                require("R11", given.is_none(), || format!("{id:?} rests and was given {given:?}"))?;
                let apart = lane.pools.is_empty() && lane.own_pool.is_none();
                require("R11", apart, || format!("{id:?} rests and is in {:?}", lane.pools))?;
                let said = lane.mode == LaneMode::Idle;
                require("R11", said == lane.holding.is_empty(), || format!("{id:?} is {:?}", lane.mode))?;
            }
        }
        let cycles = self.lanes.iter().flatten().filter(|lane| lane.round.is_some()).count();
        require("R5", cycles == self.cycles as usize, || {
            format!("{cycles} lanes have cycles, not {}", self.cycles)
        })?;
        for model in self.models.iter().flatten() {
            let known = self.pools.get(model.pool).is_some();
            require("R5", known, || format!("a model's pool {} is unknown", model.pool))?;
        }
        Ok(())
    }
}
