//! What no policy can exceed.
//!
//! A good answer costs lane time: at least that of its rows in a batch of the best size among those that are done
//! within the SLO. Requests that arrive in a stretch of time must be answered at most one SLO after its end, so the
//! lane time from its start to then is all there is for them, and the most requests are answered if those that cost
//! least come first (a fractional knapsack). Any partition of the run into stretches gives a bound; the best
//! partition is found by dynamic programming over short buckets.
//!
//! Left out, so that no schedule may reach it: that batches are whole and need enough requests that wait at once.
//! True times count at their mean, stalls as the share of time that they take, and a batch that noise may make late
//! by the probability that it is not. Requests without a deadline are good whenever they are answered, so all of
//! them count.

use std::collections::BTreeMap;

use libm::erfc;
use router_core::{Nanos, bound};
use serde::Serialize;
use workload::{Arrivals, ExecutionNoise, Extent, Model, Profile, Workload};

use crate::error::SimError;
use crate::partition::fluid;
use crate::units::{SECOND, seconds};

/// Buckets of a run at most.
const BUCKETS_MAX: usize = 600;

/// Steps of the dynamic program at most; with many kinds of requests there are fewer buckets.
const STEPS_MAX: usize = 100_000_000;

/// The most that any policy can do with a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Good answers a second, in expectation over the noise of execution times.
    pub goodput: f64,
    /// Good by offered, 0 to 1.
    pub attainment: f64,
    /// Requests offered a second.
    pub offered_rate: f64,
    /// Stretches of time that the best partition has: 1 unless the load or the lanes change.
    pub stretches: usize,
    /// For one model alone: requests a second when batches of all lanes are evenly staggered and requests evenly
    /// spaced. No bound for other arrivals, but a mark to hold goodput against.
    pub staggered: Option<f64>,
    /// The same when each lane has its own share of the requests.
    pub uncoordinated: Option<f64>,
}

/// A bound for even arrivals of one model, from the time of a batch, the SLO, lanes and the largest batch.
type Even = fn(&dyn Fn(u32) -> Nanos, Nanos, u32, u32) -> Option<bound::Bound>;

/// Requests that cost the same and are due equally soon.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kind {
    /// Lane nanoseconds of a good answer at least; infinite if none is possible.
    cost: f64,
    /// Nanoseconds; 0 without deadline.
    slo: u64,
}

/// Computes the bound for the requests of a workload and its seed.
///
/// # Errors
/// If the workload does not say how long batches of a model take.
pub fn bound(workload: &Workload) -> Result<Bound, SimError> {
    let workload = &fluid(workload)?;
    let from = workload.warmup;
    let to = match workload.extent {
        Extent::Time(time) => time,
        Extent::Requests(_) => Arrivals::new(workload).last().map_or(0, |last| last.at.saturating_add(1)),
    };
    let table = Table::new(workload)?;
    let counts = Counts::new(workload, &table, from, to);
    let supply = Supply::new(workload);
    let (good, stretches) = counts.least(&table.kinds, &supply);
    let offered: u64 = counts.sums.iter().filter_map(|sums| sums.last()).sum();
    let length = seconds(to.saturating_sub(from)).max(f64::MIN_POSITIVE);
    let even = |of: Even| {
        let model = workload.models.first().filter(|_| workload.models.len() == 1)?;
        let profile = model.profile.as_ref()?;
        let time = |rows| Nanos(profile.time(rows));
        let best = of(&time, Nanos(model.slo), workload.lanes.count, profile.max_batch())?;
        Some(best.throughput / model.rows.mean())
    };
    Ok(Bound {
        goodput: good / length,
        attainment: if offered == 0 { 1.0 } else { (good / offered as f64).min(1.0) },
        offered_rate: offered as f64 / length,
        stretches,
        staggered: even(|time, slo, lanes, largest| bound::staggered(time, slo, lanes, largest)),
        uncoordinated: even(|time, slo, lanes, largest| bound::uncoordinated(time, slo, lanes, largest)),
    })
}

/// Lane seconds that a second of the workload's traffic needs at least.
pub(crate) fn lane_time_a_second(workload: &Workload) -> Result<f64, SimError> {
    let workload = &fluid(workload)?;
    let noise = ExecutionNoise::new(workload)?;
    let mut lane_time = 0.0;
    for (id, model) in (0..).zip(&workload.models) {
        let mut a_request = 0.0;
        for (rows, share) in model.rows.iter() {
            a_request += share * request_cost(workload, &noise, (id, model), rows)?;
        }
        lane_time += model.mean_rate() * a_request / SECOND as f64;
    }
    Ok(lane_time / up_share(workload))
}

/// Share of a lane's time that is not stalled.
fn up_share(workload: &Workload) -> f64 {
    workload
        .lanes
        .noise
        .stalls
        .map_or(1.0, |stalls| stalls.every as f64 / (stalls.every as f64 + stalls.time as f64).max(1.0))
}

/// The least lane time, in nanoseconds, that a good answer takes. For a pipeline, its stages in the mean, as if each had the whole
/// objective; for a family, its cheapest variant.
fn request_cost(
    workload: &Workload,
    noise: &ExecutionNoise,
    (id, model): (u32, &Model),
    rows: u32,
) -> Result<f64, SimError> {
    let cv = workload.lanes.noise.cv;
    if let Some(family) = &model.family {
        let mut least = f64::INFINITY;
        for variant in family.allowed() {
            let Some(of_variant) = workload.models.get(variant.model as usize) else { continue };
            least = least.min(cost(model, of_variant.profiled()?, noise.factor(variant.model), cv, rows));
        }
        return Ok(least);
    }
    let Some(pipeline) = &model.pipeline else {
        return Ok(cost(model, model.profiled()?, noise.factor(id), cv, rows));
    };
    let mut sum = 0.0;
    for (stage, rows) in pipeline.stages.iter().zip(pipeline.mean_rows()) {
        let Some(of_stage) = workload.models.get(stage.model as usize) else { continue };
        sum += rows * cost(model, of_stage.profiled()?, noise.factor(stage.model), cv, 1);
    }
    Ok(sum)
}

/// The least lane time, in nanoseconds, that a good answer to a request of `rows` rows takes.
fn cost(model: &Model, profile: &Profile, factor: f64, cv: f64, rows: u32) -> f64 {
    let sigma = libm::sqrt(libm::log(1.0 + cv * cv));
    let a_row = |batch: u32| {
        let time = profile.time(batch) as f64 * factor;
        let in_time = if model.deadline { in_time(time, model.slo as f64, sigma) } else { 1.0 };
        time / (f64::from(batch) * in_time)
    };
    f64::from(rows) * (rows..=profile.max_batch()).map(a_row).fold(f64::INFINITY, f64::min)
}

/// Probability that a batch of that mean time is done within the SLO, its time varying by a lognormal factor of
/// mean 1.
fn in_time(time: f64, slo: f64, sigma: f64) -> f64 {
    if sigma == 0.0 {
        return if time <= slo { 1.0 } else { 0.0 };
    }
    let z = (libm::log(slo / time) + sigma * sigma / 2.0) / sigma;
    erfc(-z / std::f64::consts::SQRT_2) / 2.0
}

/// Kinds of requests, cheapest first.
struct Table {
    kinds: Vec<Kind>,
    /// Kind by model and rows.
    of: Vec<BTreeMap<u32, usize>>,
}

impl Table {
    fn new(workload: &Workload) -> Result<Self, SimError> {
        let noise = ExecutionNoise::new(workload)?;
        let mut by_model: Vec<Vec<(u32, Kind)>> = Vec::with_capacity(workload.models.len());
        for (id, model) in (0..).zip(&workload.models) {
            let kind = |rows| -> Result<Kind, SimError> {
                let cost = request_cost(workload, &noise, (id, model), rows)?;
                let (cost, slo) = if model.deadline { (cost, model.slo) } else { (0.0, 0) };
                Ok(Kind { cost, slo })
            };
            let kinds = model.rows.iter().map(|(rows, _)| Ok((rows, kind(rows)?)));
            by_model.push(kinds.collect::<Result<_, SimError>>()?);
        }
        let mut kinds: Vec<Kind> = by_model.iter().flatten().map(|(_, kind)| *kind).collect();
        let order = |a: &Kind, b: &Kind| a.cost.total_cmp(&b.cost).then(a.slo.cmp(&b.slo));
        kinds.sort_unstable_by(order);
        kinds.dedup();
        let place = |kind: &Kind| kinds.binary_search_by(|other| order(other, kind)).unwrap_or(0);
        let of = by_model.iter().map(|model| model.iter().map(|(rows, kind)| (*rows, place(kind))).collect());
        Ok(Self { of: of.collect(), kinds })
    }
}

/// Arrivals by kind and bucket.
struct Counts {
    from: u64,
    to: u64,
    width: u64,
    buckets: usize,
    /// For each kind: arrivals before bucket 0, 1, 2 ...
    sums: Vec<Vec<u64>>,
}

impl Counts {
    fn new(workload: &Workload, table: &Table, from: u64, to: u64) -> Self {
        let pairs = STEPS_MAX / table.kinds.len().max(1);
        let most = pairs.isqrt().clamp(1, BUCKETS_MAX) as u64;
        let width = to.saturating_sub(from).div_ceil(most).max(1);
        let buckets = to.saturating_sub(from).div_ceil(width) as usize;
        let mut sums = vec![vec![0_u64; buckets + 1]; table.kinds.len()];
        for offered in Arrivals::new(workload).filter(|offered| (from..to).contains(&offered.at)) {
            let kind = table.of.get(offered.model as usize).and_then(|rows| rows.get(&offered.rows));
            let bucket = ((offered.at - from) / width) as usize + 1;
            let entry = kind.and_then(|&kind| sums.get_mut(kind)).and_then(|sums| sums.get_mut(bucket));
            match entry {
                Some(entry) => *entry += 1,
                None => invariant::violated!("sim.arrival_of_unknown_kind"),
            }
        }
        for sums in &mut sums {
            let mut before = 0;
            for sum in sums {
                before += *sum;
                *sum = before;
            }
        }
        Self { from, to, width, buckets, sums }
    }

    fn start(&self, bucket: usize) -> u64 {
        self.from.saturating_add(self.width.saturating_mul(bucket as u64)).min(self.to)
    }

    /// The smallest bound over all partitions, and how many stretches it has.
    fn least(&self, kinds: &[Kind], supply: &Supply) -> (f64, usize) {
        let carry = kinds.iter().map(|kind| kind.slo).max().unwrap_or(0);
        let before: Vec<f64> = (0..=self.buckets).map(|bucket| supply.before(self.start(bucket))).collect();
        let until: Vec<f64> = (0..=self.buckets)
            .map(|bucket| supply.before(self.start(bucket).saturating_add(carry)))
            .collect();
        let mut best: Vec<(f64, usize)> = vec![(0.0, 0)];
        for end in 1..=self.buckets {
            let mut least = (f64::INFINITY, 0);
            for (start, (&(so_far, stretches), &from)) in best.iter().zip(&before).enumerate() {
                let lane_time = until.get(end).map_or(0.0, |until| until - from);
                let good = so_far + self.most(kinds, start, end, lane_time);
                // Ties within rounding go to the longer stretch.
                if good < least.0 - 1e-6 {
                    least = (good, stretches + 1);
                }
            }
            best.push(least);
        }
        best.last().copied().unwrap_or_default()
    }

    /// The most good answers to the requests of the buckets from `start` to `end` within `lane_time` nanoseconds.
    fn most(&self, kinds: &[Kind], start: usize, end: usize, mut lane_time: f64) -> f64 {
        let mut good = 0.0;
        for (kind, sums) in kinds.iter().zip(&self.sums) {
            let (Some(before), Some(until)) = (sums.get(start), sums.get(end)) else {
                invariant::violated!("sim.unknown_bucket");
                continue;
            };
            let offered = (until - before) as f64;
            if offered * kind.cost <= lane_time {
                good += offered;
                lane_time -= offered * kind.cost;
            } else if offered > 0.0 {
                return good + lane_time / kind.cost;
            }
        }
        good
    }
}

/// Lane time over the run.
struct Supply {
    /// Time, lane nanoseconds up to then, lanes from then on.
    steps: Vec<(u64, f64, f64)>,
}

impl Supply {
    fn new(workload: &Workload) -> Self {
        let share = up_share(workload);
        let mut lanes = f64::from(workload.lanes.count) * share;
        let (mut at, mut sum) = (0, 0.0);
        let mut steps = vec![(0, 0.0, lanes)];
        for change in &workload.lanes.changes {
            sum += (change.at - at) as f64 * lanes;
            at = change.at;
            lanes += if change.up { share } else { -share };
            steps.push((at, sum, lanes));
        }
        Self { steps }
    }

    /// Lane nanoseconds from the start of the run to a time.
    fn before(&self, at: u64) -> f64 {
        let next = self.steps.partition_point(|(from, ..)| *from <= at);
        let step = next.checked_sub(1).and_then(|last| self.steps.get(last));
        step.map_or(0.0, |&(from, sum, lanes)| sum + (at - from) as f64 * lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(text: &str) -> Workload {
        let mut files = |name: &str| Err(format!("no file {name}"));
        Workload::parse(text, &mut files).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Batches of 4 in 10 ms are the largest within the SLO: 400 a second and lane.
    fn one(rate: f64, more: &str) -> Workload {
        workload(&format!(
            "name = \"one\"\nduration = \"10s\"\n{more}\n[models.m]\nslo = \"10ms\"\nrate = {rate}\n\
             profile = {{ alpha = \"1ms\", beta = \"6ms\", max_batch = 8 }}\narrivals = {{ process = \"uniform\" }}\n"
        ))
    }

    #[test]
    fn lanes_at_their_best_batch_size_bound_the_goodput() {
        let bound = bound(&one(1_000.0, "[lanes]\ncount = 2")).unwrap();
        // The SLO after the end is lane time as well: 10.01 s.
        assert!((bound.goodput - 800.8).abs() < 0.1, "{bound:?}");
        assert!((bound.attainment - 0.8008).abs() < 1e-4 && bound.stretches == 1);
        assert_eq!(super::bound(&one(100.0, "")).unwrap().attainment, 1.0);
    }

    #[test]
    fn capacity_of_a_failed_lane_is_not_made_good_later() {
        let half = "[lanes]\ncount = 2\n[[lanes.failures]]\nlane = 0\nfrom = \"5s\"";
        let bound = bound(&one(700.0, half)).unwrap();
        // 700 a second while both lanes run, then 400 on one lane; the rest is lost.
        assert!((bound.goodput - 550.0).abs() < 1.0 && bound.stretches > 1, "{bound:?}");
    }

    #[test]
    fn cheap_requests_come_first() {
        let both = workload(
            r#"
            name = "two"
            duration = "10s"
            [models.dear]
            slo = "100ms"
            profile = { points = [[1, "20ms"]] }
            rate = 50.0
            arrivals = { process = "uniform" }
            [models.cheap]
            slo = "100ms"
            profile = { points = [[1, "5ms"]] }
            rate = 100.0
            arrivals = { process = "uniform" }
            "#,
        );
        // 100 cheap ones take half of each second, 25 dear ones the other half; the carry is worth 5 dear ones.
        assert!((bound(&both).unwrap().goodput - 125.5).abs() < 0.1);
    }

    #[test]
    fn noise_and_stalls_cost_what_they_cost_on_average() {
        assert!((in_time(10.0, 10.0, 1e-9) - 0.5).abs() < 1e-6);
        assert!((in_time(5.0, 10.0, 0.1) - 1.0).abs() < 1e-9);
        let stalled =
            bound(&one(1_000.0, "[lanes.noise]\nstalls = { every = \"9s\", time = \"1s\" }")).unwrap();
        assert!((stalled.goodput - 360.4).abs() < 0.1, "{stalled:?}");
        let slower = bound(&one(1_000.0, "[lanes.noise]\nbias = 1.25")).unwrap();
        // Only 2 rows in 10 ms now.
        assert!((slower.goodput - 200.2).abs() < 0.1, "{slower:?}");
    }

    #[test]
    fn best_effort_requests_all_count() {
        let text = "name = \"one\"\nduration = \"10s\"\n[models.m]\nslo = \"10ms\"\ndeadline = false\nrate = 900.0\n\
                    profile = { points = [[1, \"10ms\"]] }\n";
        assert_eq!(bound(&workload(text)).unwrap().attainment, 1.0);
    }
}
