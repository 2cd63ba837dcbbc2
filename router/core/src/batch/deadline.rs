use super::{BatchOptions, BatchPolicy, Candidate, Chooses, Decision, Demand, ForecastsWait, Observation, PoolView, QueueView, Proposal, Waiting, StartReason};
use crate::rate::decay;
use crate::{ConfigError, Nanos};

/// Lane time becomes scarce from this share of busy lanes on. Until then, no request waits for others or is dropped for
/// their sake.
const BUSY: f64 = 0.75;
/// A queue loses urgency, by a factor e, for each such part of the time until all candidates had a lane that its batch
/// could still wait; at a demand of all lanes.
const LOOKAHEAD: f64 = 0.4;
/// The look-ahead grows with this power of the demand.
const POWER: i32 = 2;
/// A queue loses urgency, by a factor e to the power of this, if as many lanes are free at about the time of the one it
/// gets as there would be if batches ended one at a time; less under overload.
const STAGGER: f64 = 1.5;
/// Measured throughputs within this factor of each other are not told apart: batch times are noisy.
const NOISE: f64 = 0.98;
/// Queues, and lanes in the order in which they will be free, that a decision looks at. It bounds the work.
const LOOK: u32 = 8;

/// The default policy. It gathers batches as large as the load requires, drops the oldest requests if they would force
/// small batches, and gives a lane to the queue that loses most by waiting.
///
/// It assumes that measured batch times hold for the next batch, that the arrival rate of the last second holds for the
/// next few milliseconds, and that every answer in time is worth the same. It computes the *target batch size* `B`: the
/// largest batch that the model's rate `r` fills within the objective `D`, minus the time to run it,
/// `B / r + L(B) = D`, and no larger than is efficient. A model that gains nothing from batching has `B = 1`.
///
/// *When.* While lane time is not scarce, no request waits. Models that share their lanes do not wait either: they keep
/// each other's lanes busy. A model that has its lanes for itself waits for enough rows, but not beyond its first
/// request's last start, and not longer than a batch of `B` runs. Enough is `B` times the mean, over the lanes to come, of
/// `t(n) / (n L(B) / lanes)`, at most 1 each: the time until the `n`-th of them is free, relative to that of lanes that are
/// free one at a time. So lanes that are free together start with fewer rows than `B`, and the ends of their batches spread.
/// It does not wait for rows that would be run in smaller parts anyway, because these answer sooner, nor while as many
/// requests of the model are unfinished as ever in the last second: clients that wait for their answers send no more.
/// *Which requests are dropped.* Under overload the oldest request would force a small batch, small batches reduce
/// throughput, and the queue stays old: policies that only consider the first request collapse and never recover. So
/// the oldest requests are dropped while they hold the batch under `B`, if the remaining requests, on the next free
/// lanes, would also stay under `B` by more than a row. What is enough, and under which size requests are dropped, grow
/// from nothing to the full size between 75 and 87.5 % of busy lanes.
/// *Which queue.* Of the first eight by last start the one with the largest `n / L(n) exp(-s / (k t))`: answers per lane
/// time, less urgent the longer its start could wait (`s`) compared with the time `t` until the eight had a lane each.
/// Half of that is the last start of the first request, half that of those behind it if it were dropped. `k` is 0.4
/// times the square of the demand in lanes per lane: with lane time to spare the earliest last start decides, under
/// overload the throughput. This is the apparent tardiness cost rule of machine scheduling (Vepsalainen and Morton,
/// Management Science 33(8), 1987), with a look-ahead that follows the load. Without overload, a queue whose batch would
/// end when other lanes are free too is put off: lanes that are free one at a time keep waits short, and left to chance
/// they bunch.
/// *Long batches.* A batch that takes longer than the shortest objective on its lanes does not start while requests that
/// are expected to come and be lost because of it are more than it answers.
///
/// It is the wrong choice when late answers are still worth something (it drops a few to answer many), and when
/// times cannot be learned because every batch of a size takes a different time. The combination and the constants are
/// ours; docs/policy-ablation.md says what was measured of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deadline {
    /// `B` in rows, at least 1.
    target: f64,
    /// The same, and the batches and lanes that the model needs at that size.
    demand: Demand,
    /// The smallest power of two, or the largest size within the objective, whose throughput is nearly the best.
    paying: u32,
}

impl Default for Deadline {
    fn default() -> Self {
        Self { target: 1.0, demand: Demand::default(), paying: 1 }
    }
}

impl BatchPolicy for Deadline {
    const NAME: &'static str = "deadline";
    const SUMMARY: &'static str = "batches as large as the load requires and deadlines allow; drops a few requests if more others then meet theirs; starts the batch that loses most by waiting";

    fn new(options: &BatchOptions) -> Result<Self, ConfigError> {
        options.only(Self::NAME, &[])?;
        Ok(Self::default())
    }

    fn decide(&self, now: Nanos, queue: &QueueView<'_>) -> Decision {
        let head = queue.head;
        if head.deadline == Nanos::NEVER {
            let take = sized(now, queue, queue.rows.min(queue.max_batch).max(head.rows), self.paying);
            return Decision::Fire(Proposal { skip: 0, take, rank: u64::MAX, reason: StartReason::SoonestOnAverage });
        }
        if queue.pool.free == 0 {
            // Only the priority matters now; the rest is decided when a lane is free.
            let take = queue.largest_by(now, head.deadline).min(queue.rows);
            let rank = queue.latest_start(head.deadline, take).0;
            return Decision::Fire(Proposal { skip: 0, take, rank, reason: StartReason::Enough });
        }
        let (skip, first, limit, rows_left) = self.drop_count(now, queue);
        let take = limit.min(rows_left).max(first.rows);
        let rank = queue.latest_start(first.deadline, take).0;
        let fire = |take, reason| Decision::Fire(Proposal { skip, take, rank, reason });
        // From here on one more row would make the first request late.
        let last_start = queue.latest_start(first.deadline, take.saturating_add(1).min(queue.max_batch));
        let urgent = last_start <= now;
        if crowds_out(now, queue, take) {
            return Decision::Wait(if urgent { Nanos::NEVER } else { last_start });
        }
        // A request may have more rows than a time slice has.
        if take >= queue.max_batch {
            return fire(take, StartReason::Full);
        }
        if urgent {
            return fire(sized(now, queue, take, self.paying), StartReason::LastStart);
        }
        // Waiting for company never costs a request more time than the batch itself.
        let wait_until = queue.oldest_arrival.after(queue.time(self.target as u32));
        let enough = self.enough(now, queue);
        if wait_until <= now || queue.missing == 0 || f64::from(take) >= enough * pressure(now, queue) {
            return fire(sized(now, queue, take, self.paying), StartReason::Enough);
        }
        // Nothing is gained by waiting for a batch that would be run in smaller parts.
        let later = (enough.ceil() as u32).clamp(take, queue.max_batch);
        if sized_among(now, queue, later, self.paying, queue.rows.max(later)) <= take {
            return fire(sized(now, queue, take, self.paying), StartReason::Enough);
        }
        Decision::Wait(last_start.min(wait_until))
    }

    fn observe(&mut self, _now: Nanos, done: &Observation<'_>) {
        let Some(slo) = done.slo else { return };
        (self.target, self.paying) = unit(done, slo);
        let (batches, time) = (done.rate / self.target, done.cost.cautious(self.target as u32, done.row_bytes));
        let lanes = batches * time.0 as f64 / 1e9;
        let short = time <= done.tightest;
        let (short_lanes, short_rate) = if short { (lanes, done.rate) } else { (0.0, 0.0) };
        self.demand = Demand { target_batch: self.target, batches, lanes, short_lanes, short_rate };
    }

    fn choosing(&self) -> Option<&dyn Chooses> {
        Some(self)
    }

    fn forecasting(&self) -> Option<&dyn ForecastsWait> {
        Some(self)
    }
}

impl Chooses for Deadline {
    fn choices(&self) -> u32 {
        LOOK
    }

    fn choose(&self, now: Nanos, candidates: &[Candidate], pool: &PoolView<'_>) -> usize {
        let lanes = f64::from(pool.lanes);
        let load = (pool.demand.lanes / lanes).powi(POWER);
        let until_all_ran = pool.mean_time.0 as f64 * candidates.len() as f64 / lanes;
        let scale = (LOOKAHEAD * load * until_all_ran).max(1.0);
        let staggering = STAGGER / load.max(1.0);
        let mut best = (f64::NEG_INFINITY, 0);
        for (nth, candidate) in candidates.iter().enumerate() {
            let urgency = |last_start: u64| {
                // Admission rejects part of its requests, without which its queue would be as old as it can be.
                let slack = if candidate.overloaded { 0 } else { last_start.saturating_sub(now.0) };
                decay(slack as f64 / scale)
            };
            let take = f64::from(candidate.proposal.take);
            let alone = candidate.last_start_of_rest == Nanos::NEVER;
            let rest = if alone { 0.0 } else { 0.5 * (take - 1.0) / take };
            let lost = (1.0 - rest) * urgency(candidate.proposal.rank) + rest * urgency(candidate.last_start_of_rest.0);
            let answers = take / candidate.time.0.max(1) as f64;
            let index = answers * lost * decay(staggering * bunching(now, candidate.time, pool));
            if index > best.0 {
                best = (index, nth);
            }
        }
        best.1
    }

    fn demand(&self) -> Demand {
        self.demand
    }
}

impl ForecastsWait for Deadline {
    fn target_batch(&self) -> f64 {
        self.demand.target_batch
    }
}

impl Deadline {
    /// How many of the oldest requests to drop, the first request after them, the largest batch that its deadline
    /// allows, and the rows that remain.
    fn drop_count(&self, now: Nanos, queue: &QueueView<'_>) -> (u32, Waiting, u32, u32) {
        let least = self.target * pressure(now, queue);
        let (mut skip, mut first, mut rows_left) = (0, queue.head, queue.rows);
        let mut limit = loop {
            let rows_in_time = queue.fractional_rows_by(now, first.deadline);
            let limit = rows_in_time as u32;
            let enough = limit >= rows_left || rows_in_time >= least;
            if enough || self.rest_fares_well(now, queue, after(queue, skip, limit)) {
                break limit;
            }
            let Some(&next) = queue.get(skip + 1) else { break limit };
            rows_left = rows_left.saturating_sub(first.rows);
            (skip, first) = (skip + 1, next);
        };
        // Requests that fit without making the batch smaller are not dropped after all.
        let take = limit.min(rows_left);
        while let Some(&last) = skip.checked_sub(1).and_then(|last| queue.get(last)) {
            let rows = rows_left.saturating_add(last.rows);
            let with_it = queue.largest_by(now, last.deadline);
            if with_it.min(rows) < take {
                break;
            }
            (skip, first, limit, rows_left) = (skip - 1, last, with_it, rows);
        }
        (skip, first, limit, rows_left)
    }

    /// Whether those behind the next batch still get decent batches if each takes its turn on the lanes to come, of
    /// which the model gets its share.
    fn rest_fares_well(&self, now: Nanos, queue: &QueueView<'_>, mut position: u32) -> bool {
        let share = self.share(queue);
        let mut lane = share;
        while let Some(first) = queue.get(position) {
            // Beyond the last lane the first ones come round again, a batch later.
            let (round, nth) = (lane as u32 / queue.pool.lanes, lane as u32 % queue.pool.lanes);
            let Some(at) = queue.pool.free_at(now, nth) else { return false };
            let at = at.after(Nanos(queue.time(self.target as u32).0.saturating_mul(u64::from(round))));
            let rows_in_time = queue.fractional_rows_by(at, first.deadline);
            if rows_in_time as u32 >= queue.len() - position {
                return true;
            }
            if rows_in_time < self.target - 1.0 {
                return false;
            }
            position = after(queue, position, rows_in_time as u32);
            lane += share;
        }
        true
    }

    /// Rows that are enough to start if lane time is scarce.
    fn enough(&self, now: Nanos, queue: &QueueView<'_>) -> f64 {
        let (pool, time) = (&queue.pool, queue.time(self.target as u32).0 as f64);
        if self.demand.batches < NOISE * pool.demand.batches {
            return 1.0;
        }
        let apart = (time / f64::from(pool.lanes)).max(1.0);
        let evenly = |nth: u32| {
            // The lane that starts now is the last one to be free again, a batch later.
            pool.free_at(now, nth).map_or(1.0, |at| (at.since(now).0 as f64 / (apart * f64::from(nth))).min(1.0))
        };
        let lanes = pool.lanes.min(LOOK);
        self.target * (1..=lanes).map(evenly).sum::<f64>() / f64::from(lanes)
    }

    /// One in this many batches on the lanes is this model's.
    fn share(&self, queue: &QueueView<'_>) -> f64 {
        let (own, all) = (self.demand.batches, queue.pool.demand.batches);
        if own > 0.0 { (all / own).max(1.0) } else { f64::from(queue.pool.models) }
    }
}

/// Whether a batch that outlasts the shortest objective on its lanes would cost more answers than it gives: requests of
/// models with short batches come while fewer lanes become free than they need.
fn crowds_out(now: Nanos, queue: &QueueView<'_>, take: u32) -> bool {
    let (pool, time) = (&queue.pool, queue.time(take));
    if time <= pool.tightest {
        return false;
    }
    let needed = (pool.demand.short_lanes.ceil() as u32).clamp(1, pool.lanes);
    let blocked = (1..=needed).map(|nth| {
        let wait = pool.free_at(now, nth).map_or(time, |at| at.since(now)).min(time);
        wait.0.saturating_sub(pool.tightest.0) as f64
    });
    let seconds = blocked.sum::<f64>() / f64::from(needed) / 1e9;
    seconds * pool.demand.short_rate > f64::from(take)
}

/// How many lanes would be free at about the time when this batch would be done, taking those that are free before
/// as free again a batch later; relative to batches that end one at a time. About the time: half a batch earlier or later,
/// or while half of the lanes that a decision looks at would be free.
fn bunching(now: Nanos, time: Nanos, pool: &PoolView<'_>) -> f64 {
    let evenly = f64::from(pool.lanes.min(LOOK)) / 2.0;
    let near = evenly * pool.mean_time.0 as f64 / f64::from(pool.lanes);
    let (done, near_nanos) = (now.after(time), Nanos(near as u64));
    let around = |at: Nanos| {
        let ends = pool.ends_between(at.before(near_nanos), at.after(near_nanos));
        ends.map(|end| 1.0 - end.0.abs_diff(at.0) as f64 / near.max(1.0)).sum::<f64>()
    };
    (around(done) + around(done.before(pool.mean_time))) / evenly
}

/// How scarce lane time is: 0 while lanes are idle so often that waiting would only cost time, 1 from halfway between that
/// share of busy lanes and all of them.
fn pressure(now: Nanos, queue: &QueueView<'_>) -> f64 {
    ((queue.pool.load(now) - BUSY) / (0.5 * (1.0 - BUSY))).clamp(0.0, 1.0)
}

/// Position of the request after a batch of at most `rows` rows from `position` on.
fn after(queue: &QueueView<'_>, position: u32, rows: u32) -> u32 {
    if queue.rows == queue.len() {
        return position + rows.max(1);
    }
    let (mut position, mut rows_left) = (position + 1, rows.saturating_sub(queue.get(position).map_or(0, |w| w.rows)));
    while let Some(next) = queue.get(position).filter(|next| next.rows <= rows_left) {
        rows_left -= next.rows;
        position += 1;
    }
    position
}

/// `B`, where gathering and running a batch fill the objective or larger ones stop to pay; and where that is.
fn unit(done: &Observation<'_>, slo: Nanos) -> (f64, u32) {
    let time = |rows: u32| done.cost.cautious(rows, done.row_bytes).0 as f64;
    let fill = |rows: u32| f64::from(rows) * 1e9 / done.rate.max(1e-3) + time(rows);
    let budget = slo.0 as f64;
    let (mut below, mut above) = (1, done.max_batch.saturating_add(1));
    while above - below > 1 {
        let middle = below.midpoint(above);
        if fill(middle) <= budget { below = middle } else { above = middle }
    }
    let part = (budget - fill(below)) / (fill(above) - fill(below)).max(1.0);
    let filled = f64::from(below) + part.clamp(0.0, 1.0);
    let throughput = |rows: u32| f64::from(rows) / time(rows).max(1.0);
    let feasible = done.cost.largest_within(slo, done.row_bytes, done.max_batch).max(1);
    let sizes = || std::iter::successors(Some(1), |&size| (size < feasible).then(|| (size * 2).min(feasible)));
    let best = sizes().map(throughput).fold(0.0, f64::max);
    if throughput(1) >= NOISE * best {
        return (1.0, 1);
    }
    let paying = sizes().find(|&size| throughput(size) >= NOISE * best).unwrap_or(feasible);
    (filled.min(f64::from(paying)).max(1.0), paying)
}

/// How many of at most `limit` rows to take: what answers all that wait soonest on average, the more by throughput
/// the scarcer lane time is.
fn sized(now: Nanos, queue: &QueueView<'_>, limit: u32, paying: u32) -> u32 {
    sized_among(now, queue, limit, paying, queue.rows)
}

/// The same if `rows` rows were waiting.
fn sized_among(now: Nanos, queue: &QueueView<'_>, limit: u32, paying: u32, rows: u32) -> u32 {
    let head = queue.head.rows;
    let pressure = pressure(now, queue);
    if pressure >= 1.0 && limit <= paying {
        return limit;
    }
    // Nothing is known beyond the largest measured size: it is explored by doubling.
    let Some(largest) = queue.cost.largest_measured(queue.row_bytes) else { return limit };
    let limit = limit.min(largest.saturating_mul(2)).max(head);
    if limit <= head {
        return limit;
    }
    let time = |size: u32| queue.cost.hopeful(size.min(largest), queue.row_bytes).map_or(1, |time| time.0.max(1));
    let sizes = || std::iter::successors(Some(head), |&size| (size < limit).then(|| (size * 2).min(limit)));
    let throughput = |size: u32| f64::from(size) / time(size) as f64;
    let least = NOISE * pressure * sizes().map(throughput).fold(0.0, f64::max);
    let mean = |size: u32| {
        let a_round = u64::from(size) * u64::from(queue.pool.free.max(1));
        u128::from(time(size)) * u128::from(u64::from(rows).div_ceil(a_round) + 1)
    };
    sizes().filter(|&size| throughput(size) >= least).min_by_key(|&size| mean(size)).unwrap_or(limit)
}

#[cfg(test)]
mod tests;
