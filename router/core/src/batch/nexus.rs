pub mod packing;

use std::cmp::Ordering;

use super::{Assignment, BatchOptions, BatchPolicy, Decision, DropMode, Plans, Proposal, QueueView, Session, StartReason};
use invariant::expected;

use crate::{ConfigError, LaneId, Nanos};
use packing::Demand;

/// The minimum epoch of the released code.
const EPOCH: Nanos = Nanos::from_millis(10_000);

/// Nexus: a plan says which models share a lane and in which batches (squishy bin packing, see [`packing`]); requests
/// are dealt out to lanes by it as they come; each lane runs its models in turn and drops the oldest requests so that the
/// batch is as large as planned (early drop).
///
/// It believes that rates hold for an epoch and that arrivals are nearly even. It is the wrong choice for bursts and
/// for few requests a lane: a request waits for its own lane while others idle, since nothing is shared between
/// lanes, and a plan made for even arrivals runs lanes so full that uneven ones miss. The packing, the choice of
/// lanes by deficit round robin, the round of a lane and the sliding window of early drop are (seen) in the released
/// code; that residues are packed in the order of occupancy is (from memory). With `drop_mode` as `expired` it is lazy:
/// the oldest request that a batch of its own is in time for sets the size (seen). A `preferred` size stands in for
/// all planned ones, as with a statically configured backend there (seen).
///
/// Changed (ours): it plans every 10 s, the minimum epoch of the released code, whatever the rates did, where that
/// waits up to 30 s unless they moved by a fifth, and 1 s after models or lanes came or went; rates are the
/// router's, over half a second, not ten; each plan is made afresh. Where the plan needs more lanes than there are,
/// all rates are scaled down alike; lanes left over double the most loaded ones. Until a rate was seen any lane
/// takes any request, in batches that fit twice in its objective. The batch time is the cautious estimate of the
/// cost model that all policies here share, in place of mean plus deviation of a profile; times before and after
/// the batch, and network latency, are nil inside a process. Splitting the objective of a pipeline over its stages
/// is left out, as are models that share a prefix and those that fill leftover time.
#[derive(Clone, Debug, PartialEq)]
pub struct Nexus {
    drop_mode: DropMode,
    /// In place of the planned batches.
    fixed: Option<u32>,
    /// By lane.
    assigned: Vec<Assigned>,
    /// Position in `assigned` of the lane for the next request.
    next: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Assigned {
    lane: LaneId,
    batch: u32,
    /// Requests that it gets in a round, at least 1.
    quantum: f64,
    /// Requests that it may still get in this round.
    deficit: f64,
    /// When it last got a batch of this model.
    fired: Nanos,
}

impl BatchPolicy for Nexus {
    const NAME: &'static str = "nexus";
    const SUMMARY: &'static str =
        "plans which models share which lanes in which batches; drops requests to keep batch sizes";

    fn new(options: &BatchOptions) -> Result<Self, ConfigError> {
        options.only(Self::NAME, &["drop", "preferred"])?;
        let fixed = match options.preferred[..] {
            [] => None,
            [size] if size > 0 => Some(size),
            _ => {
                let problem =
                    "expected one size of 1 row or more, which is used in place of the planned ones";
                return Err(ConfigError::new("preferred", problem));
            }
        };
        let drop_mode = options.drop.unwrap_or(DropMode::Early);
        Ok(Self { drop_mode, fixed, assigned: Vec::new(), next: 0 })
    }

    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
        let planned = queue.pool.only.and_then(|lane| self.on(lane));
        // Round robin on its lane: whose last batch is longest ago.
        let rank = planned.map_or(queue.oldest_arrival, |planned| planned.fired).0;
        let fire = |skip, take, reason| Decision::Fire(Proposal { skip, take, rank, reason });
        let target = match self.fixed.or(planned.map(|planned| planned.batch)) {
            Some(size) => size.min(queue.max_batch),
            None => packing::saturate(queue.slo(), queue.max_batch, |rows| queue.time(rows)).0,
        };
        let all = target.min(queue.rows);
        if queue.pool.free == 0 {
            return fire(0, all, StartReason::Planned);
        }
        let begins = queue.pool.begins.max(now);
        let (skip, take) = match self.drop_mode {
            DropMode::Lazy => earliest(begins, queue, all),
            DropMode::Early => match window(begins, queue, all) {
                Some(found) => found,
                // Late on this lane only, which takes batches ahead: looked at again when it is free.
                None if begins > now => return Decision::Wait(begins),
                // The machine drops late requests if it should; the remaining ones run although they are late.
                None => (0, queue.head.rows),
            },
        };
        match take.cmp(&target) {
            Ordering::Less if take < all => fire(skip, take, StartReason::LastStart),
            Ordering::Less => fire(skip, take, StartReason::LaneFree),
            Ordering::Equal | Ordering::Greater => fire(skip, take, StartReason::Planned),
        }
    }

    fn drop_mode(&self) -> DropMode {
        self.drop_mode
    }

    fn planning(&self) -> Option<&dyn Plans> {
        Some(self)
    }

    fn planning_mut(&mut self) -> Option<&mut dyn Plans> {
        Some(self)
    }
}

impl Plans for Nexus {
    fn epoch(&self) -> Nanos {
        EPOCH
    }

    fn plan(&self, sessions: &[Session<'_>], lanes: &[LaneId]) -> Vec<Vec<Assignment>> {
        let mut plan = vec![Vec::new(); sessions.len()];
        if sessions.iter().all(|session| session.rate <= 0.0) {
            return plan;
        }
        let times: Vec<_> =
            sessions.iter().map(|session| |rows| session.cost.cautious(rows, session.row_bytes)).collect();
        let demand = |(session, time)| {
            let (session, time): (&Session<'_>, &dyn Fn(u32) -> Nanos) = (session, time);
            let slo = if session.slo == Nanos::ZERO { Nanos::NEVER } else { session.slo };
            Demand { rate: session.rate, slo, max_batch: session.max_batch, time }
        };
        let times = times.iter().map(|time| time as &dyn Fn(u32) -> Nanos);
        let demands: Vec<Demand<'_>> = sessions.iter().zip(times).map(demand).collect();
        let nodes = packing::fit(&demands, lanes.len());
        let mut throughput = vec![0.0; sessions.len()];
        for (node, &lane) in nodes.iter().zip(lanes) {
            for share in &node.shares {
                let session = plan.get_mut(share.session).zip(throughput.get_mut(share.session));
                let Some((assignments, sum)) = expected!(session, "nexus.share_of_unknown_session") else { continue };
                let rate = node.throughput(share);
                *sum += rate;
                assignments.push(Assignment { lane, rate, batch: share.batch });
            }
        }
        // Requests go to lanes by what these can do, not by what was left over for them.
        for (assignments, (session, sum)) in plan.iter_mut().zip(sessions.iter().zip(throughput)) {
            assignments
                .iter_mut()
                .for_each(|assignment| assignment.rate *= session.rate.max(f64::EPSILON) / sum);
        }
        plan
    }

    fn assign(&mut self, mut assignments: Vec<Assignment>) {
        assignments.sort_unstable_by_key(|assignment| assignment.lane);
        assignments.dedup_by_key(|assignment| assignment.lane);
        let least = assignments.iter().map(|assignment| assignment.rate).fold(f64::INFINITY, f64::min);
        let assigned = |assignment: &Assignment| {
            let before = self.on(assignment.lane);
            Assigned {
                lane: assignment.lane,
                batch: assignment.batch,
                quantum: if least > 0.0 { assignment.rate / least } else { 1.0 },
                deficit: 0.0,
                fired: before.map_or(Nanos::ZERO, |before| before.fired),
            }
        };
        self.assigned = assignments.iter().map(assigned).collect();
        self.next = 0;
    }

    fn bind(&mut self) -> Option<LaneId> {
        if self.assigned.iter().all(|assigned| assigned.deficit < 1.0) {
            for assigned in &mut self.assigned {
                assigned.deficit += assigned.quantum;
            }
        }
        for _ in 0..self.assigned.len() {
            let position = self.next;
            self.next = (self.next + 1) % self.assigned.len();
            if let Some(assigned) = self.assigned.get_mut(position).filter(|assigned| assigned.deficit >= 1.0)
            {
                assigned.deficit -= 1.0;
                return Some(assigned.lane);
            }
        }
        None
    }

    fn fired(&mut self, now: Nanos, lane: LaneId) {
        if let Ok(position) = self.assigned.binary_search_by_key(&lane, |assigned| assigned.lane)
            && let Some(assigned) = self.assigned.get_mut(position)
        {
            assigned.fired = now;
        }
    }
}

impl Nexus {
    fn on(&self, lane: LaneId) -> Option<&Assigned> {
        let position = self.assigned.binary_search_by_key(&lane, |assigned| assigned.lane).ok()?;
        self.assigned.get(position)
    }
}

/// Lazy drop: the oldest request that a batch of its own is in time for sets the size. Returns how many requests to
/// drop and how many rows to take. Late requests run if there are no others.
fn earliest(begins: Nanos, queue: &QueueView<'_>, target: u32) -> (u32, u32) {
    let mut rows_left = queue.rows;
    for (skip, waiting) in (0..).zip(queue.iter()) {
        if begins.after(queue.time(waiting.rows)) <= waiting.deadline {
            let allowed = queue.largest_by(begins, waiting.deadline);
            return (skip, allowed.min(target).min(rows_left).max(waiting.rows));
        }
        rows_left = rows_left.saturating_sub(waiting.rows);
    }
    (0, queue.head.rows)
}

/// Early drop: passes over heads that a batch of `target` rows would be late for, and over more for the smaller batch
/// that is left when too few remain. Returns how many requests to drop and how many rows to take.
fn window(begins: Nanos, queue: &QueueView<'_>, target: u32) -> Option<(u32, u32)> {
    let (mut rows_left, mut take) = (queue.rows, target);
    let mut done = begins.after(queue.time(take));
    for (skip, waiting) in (0..).zip(queue.iter()) {
        if done <= waiting.deadline {
            return Some((skip, take.max(waiting.rows)));
        }
        rows_left = rows_left.saturating_sub(waiting.rows);
        if rows_left < take {
            take = rows_left;
            done = begins.after(queue.time(take));
        }
    }
    None
}

#[cfg(test)]
mod tests;
