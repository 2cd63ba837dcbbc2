use super::{BatchOptions, BatchPolicy, Candidate, Decision, Demand, Observation, PoolView, QueueView, Proposal, Waiting, StartReason};
use crate::rate::decay;
use crate::{ConfigError, Nanos};

/// A queue fires at once when it has this many times its unit while one lane is free and no other will be soon.
const FULL: f64 = 1.45;
/// Each further lane that is free, or nearly, lowers that by this much.
const SUPPLY: f64 = 0.26;
/// A lane counts as nearly free within about this share of the objective.
const SOON: f64 = 0.291;
/// The oldest requests are dropped while they hold the batch below this share of the target batch size, if the other
/// models that share the lanes have half of their target batch sizes waiting ...
const DROP_SHARE: f64 = 0.96;
/// ... more or less than that by this much for each further such amount that waits ...
const DROP_SLOPE: f64 = 0.3;
/// ... and those left behind would be held below this one.
const DROP_REMAINDER: f64 = 0.83;
/// What the others have waiting counts up to this many times half their units.
const CROWDED: f64 = 3.0;
/// A size this close to the best throughput counts as the best.
const NEARLY: f64 = 0.985;
/// Measured throughputs within this factor of each other are not told apart where latency is at stake.
const ALIKE: f64 = 0.9;
/// Up to this share of busy lanes, batches are sized for the soonest answer on average ...
const CALM: f64 = 0.75;
/// ... and from this one for throughput alone.
const BUSY: f64 = 0.92;
/// Lanes looked at for how soon they will be free.
const LANES_AHEAD: u32 = 16;
/// A first request that came so long before the second makes its queue less urgent, by this part of the time ...
const LONELY: f64 = 0.25;
/// ... up to this share of the objective.
const LONELY_MAX: f64 = 0.27;
/// A queue that would have less than this share of the objective left to its last start suffers from waiting.
const TIGHT: f64 = 0.063;
/// That suffering, in objectives, is at most this.
const TIGHT_MAX: f64 = 0.2;
/// Models whose batches outlast others' objectives get this many times the lanes that they need.
const LANE_MARGIN: f64 = 1.1;
/// What a choice costs for each lane that would be free at about the same time as the one chosen for.
const BUNCHED: f64 = 0.013;
/// "About the same time": this many times the distance of evenly spaced lanes.
const NEAR: f64 = 3.0;
/// What a choice costs for each objective that it could still have waited.
const EARLY: f64 = 0.031;

/// The default policy. It gathers batches as large as the load and the free lanes justify, drops the oldest requests
/// if they would force small batches, and keeps the ends of the lanes' batches evenly spaced.
///
/// It believes that measured batch times hold for the next batch, that the arrival rate of the last second holds for
/// the next few milliseconds, and that every lane millisecond is worth the same. It computes the *target batch size*
/// `B`: the largest batch that the model's rate `r` fills within the objective `D`, minus the time to run it,
/// `B / r + L(B) = D`, and no larger than is efficient. A model that gains nothing from batching has `B = 1` and never
/// waits.
///
/// *When.* If lanes are often idle, no request waits. Under load a queue waits for `B (1.45 - 0.26 (S - 1))` rows,
/// where `S` is the number of lanes that are free, those soon to be free counting in part, times the models that
/// share them; or until the first request's last start.
/// *Which requests are dropped.* Under overload the oldest request would force a small batch, small batches reduce
/// throughput, and the queue stays old: policies that only consider the first request collapse and never recover. So
/// the oldest requests are dropped while they hold the batch under `0.96 B` (adjusted by what the other models have
/// waiting), if the remaining requests, on the next free lanes, would also stay under `0.83 B`.
/// *Which queue.* The earliest last start goes first, a little later for a first request that is alone; but of the
/// first eight the one is taken whose batch ends where no other lane's does, unless those before it would suffer by
/// it. Lanes that are free one at a time keep waits short; left to chance they bunch.
/// *How many.* As many as its first deadline allows; without deadlines, or with lanes to spare, the size that answers
/// what waits soonest on average: `b` rows at a time on `m` free lanes take `L(b) (ceil(n / (b m)) + 1) / 2`.
///
/// It is the wrong choice when late answers are still worth something (it drops a few to answer many), and when
/// times cannot be learned because every batch of a size takes a different time. All of it is ours; the constants
/// were found by random search and by regression on rollouts of simulated runs, and move the results little.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deadline {
    /// `B` in rows, at least 1.
    target: f64,
    /// The same, and the batches a second that the model needs at that size.
    demand: Demand,
    /// Lanes that these batches keep busy.
    lanes: f64,
    /// The smallest size whose throughput is nearly the best.
    paying: u32,
}

impl Default for Deadline {
    fn default() -> Self {
        Self { target: 1.0, demand: Demand::default(), lanes: 0.0, paying: 1 }
    }
}

impl BatchPolicy for Deadline {
    const NAME: &'static str = "deadline";
    const LEARNS_WAIT: bool = true;
    const CHOICES: u32 = 8;
    const SUMMARY: &'static str = "batches as large as the load requires and deadlines allow; drops a few requests if more others then meet theirs; staggers the lanes";

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
            let rank = rank(now, queue, 0, &head, take);
            return Decision::Fire(Proposal { skip: 0, take, rank, reason: StartReason::Enough });
        }
        let (skip, first, limit) = self.drop_count(now, queue);
        let waiting = queue.rows.saturating_sub(skip_rows(queue, skip)).max(first.rows);
        let take = limit.min(waiting);
        let rank = rank(now, queue, skip, &first, take);
        let fire = |take, reason| Decision::Fire(Proposal { skip, take, rank, reason });
        // From here on one more row would make the first request late.
        let last_start = queue.latest_start(first.deadline, take.saturating_add(1).min(queue.max_batch));
        let urgent = last_start <= now;
        if self.crowds_out(queue, take, urgent) {
            return Decision::Wait(if urgent { Nanos::NEVER } else { last_start });
        }
        if take == queue.max_batch {
            return fire(take, StartReason::Full);
        }
        if urgent {
            return fire(sized(now, queue, take, self.paying), StartReason::LastStart);
        }
        // Waiting for company never costs a request more time than the batch itself.
        let wait_until = queue.oldest_arrival.after(queue.time(self.target as u32));
        if self.target <= 1.0 || wait_until <= now {
            return fire(sized(now, queue, take, self.paying), StartReason::Enough);
        }
        let last_start = last_start.min(wait_until);
        match self.enough_at(now, queue, f64::from(take)) {
            None => fire(sized(now, queue, take, self.paying), StartReason::Enough),
            Some(at) => Decision::Wait(at.min(last_start)),
        }
    }

    /// The least of three costs: what those before it in line lose by waiting for the next lane, how many lanes would
    /// be free together with this one (lanes that are evenly spaced in time are what keeps waits short), and how long
    /// it could still have waited.
    fn choose(now: Nanos, candidates: &[Candidate], pool: &PoolView<'_>) -> usize {
        let (mut slipped, mut best) = (0.0, (f64::INFINITY, 0));
        for (nth, candidate) in (0..pool.lanes).zip(candidates) {
            let slo = candidate.slo.0.max(1) as f64;
            let spare = (candidate.proposal.rank as f64 - now.0 as f64) / slo;
            let cost = slipped + BUNCHED * bunching(now, candidate.time, pool) + EARLY * spare;
            if cost < best.0 {
                best = (cost, nth as usize);
            }
            let (Some(own), Some(next)) = (pool.free_at(now, nth), pool.free_at(now, nth + 1)) else { break };
            let pain = |last_start: Nanos, start: Nanos| {
                (TIGHT - (last_start.0 as f64 - start.0 as f64) / slo).clamp(0.0, TIGHT_MAX)
            };
            for last_start in [candidate.last_start, candidate.last_start_of_rest] {
                slipped += pain(last_start, next) - pain(last_start, own);
            }
        }
        best.1
    }

    fn observe(&mut self, _now: Nanos, done: &Observation<'_>) {
        let Some(slo) = done.slo else { return };
        (self.target, self.paying) = unit(done, slo);
        let (batches, time) = (done.rate / self.target, done.cost.cautious(self.target as u32, done.row_bytes));
        self.lanes = batches * time.0 as f64 / 1e9;
        let short_lanes = if time <= done.tightest { self.lanes } else { 0.0 };
        self.demand = Demand { target_batch: self.target, batches, short_lanes };
    }

    fn demand(&self) -> Demand {
        self.demand
    }
}

impl Deadline {
    /// How many of the oldest requests to drop, the first request after them, and the largest batch that its deadline
    /// allows.
    fn drop_count(&self, now: Nanos, queue: &QueueView<'_>) -> (u32, Waiting, u32) {
        let crowd = self.crowd(queue);
        let share = self.share(queue);
        let least = (DROP_SHARE + DROP_SLOPE * (crowd - 1.0) * (1.0 - 1.0 / share)).clamp(0.3, 1.5) * self.target;
        // A first request that allows the largest possible batch delays no other request.
        let least = least.min(f64::from(queue.max_batch));
        let step = 1.0 + (share - 1.0) * crowd;
        let (mut skip, mut first) = (0, queue.head);
        let mut rows_left = queue.rows;
        let mut limit = loop {
            let rows_in_time = queue.fractional_rows_by(now, first.deadline);
            let limit = rows_in_time as u32;
            if limit >= rows_left
                || rows_in_time >= least
                || self.rest_fares_well(now, queue, after(queue, skip, limit), step)
            {
                break limit;
            }
            let Some(&next) = queue.get(skip + 1) else { break limit };
            rows_left = rows_left.saturating_sub(first.rows);
            (skip, first) = (skip + 1, next);
        };
        // Requests that fit without making the batch smaller are not dropped after all.
        let take = limit.min(rows_left);
        while let Some(&last) = skip.checked_sub(1).filter(|_| share > 1.0).and_then(|last| queue.get(last)) {
            rows_left = rows_left.saturating_add(last.rows);
            let with_it = queue.largest_by(now, last.deadline);
            if with_it.min(rows_left) < take {
                break;
            }
            (skip, first, limit) = (skip - 1, last, with_it);
        }
        (skip, first, limit)
    }

    /// Whether those behind the next batch still get decent batches if each takes its turn on the lanes to come, of
    /// which every `step`-th is this model's.
    fn rest_fares_well(&self, now: Nanos, queue: &QueueView<'_>, mut position: u32, step: f64) -> bool {
        let mut lane = step;
        while let Some(first) = queue.get(position) {
            // Beyond the last lane the first ones come round again, a batch later.
            let (round, nth) = (lane as u32 / queue.pool.lanes, lane as u32 % queue.pool.lanes);
            let Some(at) = queue.pool.free_at(now, nth) else { return false };
            let at = at.after(Nanos(queue.time(self.target as u32).0.saturating_mul(u64::from(round))));
            let rows_in_time = queue.fractional_rows_by(at, first.deadline);
            if rows_in_time as u32 >= queue.len() - position {
                return true;
            }
            if rows_in_time < DROP_REMAINDER * self.target {
                return false;
            }
            position = after(queue, position, rows_in_time as u32);
            lane += step;
        }
        true
    }

    /// Whether one more batch would hold a lane for longer than another model can wait, although this model has as
    /// many lanes as it needs already and may only take more when it is urgent and another lane is free; or although
    /// the others would then have less than they need. A few models with long batches would otherwise sit on all
    /// lanes at once.
    fn crowds_out(&self, queue: &QueueView<'_>, take: u32, urgent: bool) -> bool {
        if queue.time(take) <= queue.pool.tightest {
            return false;
        }
        let needed = |lanes: f64| (lanes * LANE_MARGIN).ceil().max(1.0);
        let left = f64::from(queue.pool.lanes) - f64::from(queue.pool.long);
        let others_short = queue.pool.demand.short_lanes > 0.0 && left <= needed(queue.pool.demand.short_lanes);
        let enough = f64::from(queue.running) >= needed(self.lanes);
        (others_short && queue.pool.long > 0) || (enough && !(urgent && queue.pool.free > 1))
    }

    /// One in this many batches on the lanes is this model's.
    fn share(&self, queue: &QueueView<'_>) -> f64 {
        let (own, all) = (self.demand.batches, queue.pool.demand.batches);
        if own > 0.0 { (all / own).max(1.0) } else { f64::from(queue.pool.models) }
    }

    /// How much the other models of the pool have waiting, in halves of their units.
    fn crowd(&self, queue: &QueueView<'_>) -> f64 {
        let rows = queue.pool.queued.saturating_sub(u64::from(queue.rows)) as f64;
        let units = queue.pool.demand.target_batch - self.target;
        if units < 0.5 { 0.0 } else { (rows / (0.5 * units)).min(CROWDED) }
    }

    /// When `rows` rows will be enough for the lanes that are free by then; `None` if they are enough now.
    fn enough_at(&self, now: Nanos, queue: &QueueView<'_>, rows: f64) -> Option<Nanos> {
        let soon = SOON * queue.slo().0 as f64;
        let full = FULL * pressure(now, queue);
        let wanted = ((full - rows / self.target) / SUPPLY + 1.0) / self.share(queue);
        let free = f64::from(queue.pool.free);
        let (mut busy, mut supply) = (0.0, free);
        for nth in queue.pool.free..queue.pool.lanes.min(LANES_AHEAD) {
            let Some(at) = queue.pool.free_at(now, nth).filter(|_| supply < wanted) else { break };
            busy += decay(at.since(now).0 as f64 / soon);
            supply = free + busy;
        }
        if supply >= wanted {
            return None;
        }
        // The busy lanes' part grows as exp(t / soon); two terms of the logarithm, rather too early than too late.
        let growth = (wanted - supply) / busy.max(1e-3);
        let wait = soon * 2.0 * growth / (2.0 + growth);
        Some(now.after(Nanos((wait as u64).max(1_000))))
    }
}

/// The last start of a batch, later for a first request that is alone: giving that one up would cost little.
fn rank(now: Nanos, queue: &QueueView<'_>, skip: u32, first: &Waiting, take: u32) -> u64 {
    let second = queue.get(skip + 1).map_or(now, |second| second.arrived);
    let alone = (second.since(first.arrived).0 as f64).min(LONELY_MAX * queue.slo().0 as f64);
    queue.latest_start(first.deadline, take).after(Nanos((LONELY * alone) as u64)).0
}

/// How many lanes would be free at about the time when this batch would be done, taking those that are free before
/// as free again a batch later.
fn bunching(now: Nanos, time: Nanos, pool: &PoolView<'_>) -> f64 {
    let near = NEAR * pool.mean_time.0 as f64 / f64::from(pool.lanes);
    let (done, near_nanos) = (now.after(time), Nanos(near as u64));
    let around = |at: Nanos| {
        let ends = pool.ends_between(at.before(near_nanos), at.after(near_nanos));
        ends.map(|end| 1.0 - end.0.abs_diff(at.0) as f64 / near.max(1.0)).sum::<f64>()
    };
    around(done) + around(done.before(pool.mean_time))
}

/// 0 while lanes are idle often enough that waiting would only cost time, 1 when their time is scarce.
fn pressure(now: Nanos, queue: &QueueView<'_>) -> f64 {
    ((queue.pool.load(now) - CALM) / (BUSY - CALM)).clamp(0.0, 1.0)
}

/// Rows of the first `skip` requests.
fn skip_rows(queue: &QueueView<'_>, skip: u32) -> u32 {
    queue.iter().take(skip as usize).map(|waiting| waiting.rows).fold(0, u32::saturating_add)
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
    if throughput(1) >= ALIKE * best {
        return (1.0, 1);
    }
    let (mut small, mut paying) = (0, sizes().find(|&size| throughput(size) >= NEARLY * best).unwrap_or(feasible));
    while paying - small > 1 {
        let middle = small.midpoint(paying);
        if throughput(middle) >= NEARLY * best { paying = middle } else { small = middle }
    }
    (filled.min(f64::from(paying)).max(1.0), paying)
}

/// How many of at most `limit` rows to take: what answers all that wait soonest on average, the more by throughput
/// the busier the lanes are.
fn sized(now: Nanos, queue: &QueueView<'_>, limit: u32, paying: u32) -> u32 {
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
    let least = sizes().map(throughput).fold(0.0, f64::max) * pressure;
    let mean = |size: u32| {
        let a_round = u64::from(size) * u64::from(queue.pool.free.max(1));
        u128::from(time(size)) * u128::from(u64::from(queue.rows).div_ceil(a_round) + 1)
    };
    sizes().filter(|&size| throughput(size) >= least * ALIKE).min_by_key(|&size| mean(size)).unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::super::Scene;
    use super::*;

    /// 1 ms a row and 5 ms a batch.
    fn scene() -> Scene {
        let points: Vec<_> = [1, 2, 4, 8, 16, 32].map(|rows| (rows, 1_000 * u64::from(rows) + 5_000)).into();
        Scene::new(&points)
    }

    /// What it has learned after one batch at this rate and objective.
    fn learned(scene: &Scene, rate: f64, slo_ms: u64) -> Deadline {
        let mut policy = Deadline::default();
        let slo = Some(Nanos::from_millis(slo_ms));
        let (cost, max_batch) = (&scene.cost, scene.max_batch);
        let time = Nanos::from_millis(6);
        policy.observe(Nanos::ZERO, &Observation {
            rows: 1,
            row_bytes: 64,
            time,
            slo,
            rate,
            max_batch,
            tightest: Nanos::NEVER,
            cost,
        });
        policy
    }

    fn fired(decision: Decision) -> Option<(u32, u32, StartReason)> {
        match decision {
            Decision::Fire(proposal) => Some((proposal.skip, proposal.take, proposal.reason)),
            Decision::Wait(_) => None,
        }
    }

    #[test]
    fn the_unit_is_what_the_rate_fills_within_the_objective() {
        // b rows arrive in b / 1,000 s and take b + 5 ms: 10 of them fill 25 ms.
        assert!((learned(&scene(), 1_000.0, 25).target - 10.0).abs() < 0.05);
        assert_eq!(learned(&scene(), 10.0, 25).target, 1.0, "nothing to gather");
        let no_gain = Scene::new(&[(1, 10_000), (2, 20_500), (4, 42_000), (8, 85_000)]);
        assert_eq!(learned(&no_gain, 1_000.0, 500).target, 1.0, "a model that loses by batching");
    }

    #[test]
    fn with_idle_lanes_no_request_waits() {
        let mut scene = scene();
        scene.arrive(0, Some(25_000));
        let decision = learned(&scene, 1_000.0, 25).decide(Nanos::ZERO, &scene.view());
        assert_eq!(fired(decision), Some((0, 1, StartReason::Enough)));
    }

    #[test]
    fn when_lane_time_is_scarce_a_batch_gathers_until_its_first_request_must_start() {
        let mut scene = scene();
        scene.load = 1.0;
        scene.arrive(0, Some(25_000)).arrive(0, Some(25_000)).busy_until(30_000);
        let policy = learned(&scene, 1_000.0, 25);
        let Decision::Wait(until) = policy.decide(Nanos::ZERO, &scene.view()) else { panic!("it should wait") };
        assert!(until <= Nanos::from_millis(17), "three rows must start at 17 ms: {until}");
        let last = policy.decide(Nanos::from_millis(17), &scene.view());
        assert_eq!(fired(last), Some((0, 2, StartReason::LastStart)));
    }

    #[test]
    fn lanes_that_are_soon_free_make_fewer_rows_enough() {
        let waits = |busy_until_us: u64| {
            let mut scene = scene();
            scene.load = 1.0;
            (0..9).for_each(|_| {
                scene.arrive(0, Some(25_000));
            });
            for lane in 0..3 {
                scene.busy_until(busy_until_us + lane);
            }
            fired(learned(&scene, 1_000.0, 25).decide(Nanos::ZERO, &scene.view())).is_none()
        };
        assert!(waits(25_000) && !waits(100));
    }

    #[test]
    fn requests_that_would_force_small_batches_are_dropped() {
        let mut scene = scene();
        scene.load = 1.0;
        // Five that could only go in a batch of two, and forty behind them.
        (0..5).for_each(|_| {
            scene.arrive(0, Some(7_500));
        });
        (0..40).for_each(|n| {
            scene.arrive(1_000 + n, Some(25_000 + n));
        });
        scene.busy_until(12_000);
        let decision = learned(&scene, 2_000.0, 25).decide(Nanos::ZERO, &scene.view());
        let Some((skip, take, _)) = fired(decision) else { panic!("a lane is free") };
        assert!(skip == 5 && take >= 13, "{skip} dropped for {take}");
    }

    #[test]
    fn a_few_behind_an_old_head_are_no_reason_to_give_it_up() {
        let mut scene = scene();
        scene.load = 1.0;
        scene.arrive(0, Some(7_500)).arrive(1_000, Some(25_000)).arrive(1_000, Some(25_000)).arrive(1_000, Some(25_000));
        scene.busy_until(2_000);
        let decision = learned(&scene, 1_000.0, 25).decide(Nanos::ZERO, &scene.view());
        assert_eq!(fired(decision), Some((0, 2, StartReason::LastStart)));
    }

    #[test]
    fn a_model_that_loses_by_batching_is_not_batched_and_one_that_gains_is() {
        let taken = |points: &[(u32, u64)], waiting: u32| {
            let mut scene = Scene::new(points);
            scene.crowd(waiting);
            fired(Deadline::default().decide(Nanos::ZERO, &scene.view())).unwrap().1
        };
        let magika_like = [(1, 10_000), (2, 21_000), (4, 46_000), (8, 100_000), (16, 200_000), (32, 400_000)];
        for waiting in [1, 2, 8, 31, 500] {
            assert_eq!(taken(&magika_like, waiting), 1, "{waiting} waiting");
        }
        let tiny = [(1, 20), (2, 22), (4, 26), (8, 34), (16, 50), (32, 82)];
        assert_eq!([1, 8, 500].map(|waiting| taken(&tiny, waiting)), [1, 8, 32]);
        let flat_then_linear = [(1, 100), (2, 104), (4, 110), (8, 220), (16, 440), (32, 880)];
        assert_eq!(taken(&flat_then_linear, 500), 4);
        assert_eq!(taken(&[(1, 20)], 20), 2, "beyond what was measured it goes by doubling");
    }
}
