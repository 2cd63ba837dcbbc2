//! A feedback limit of best-effort work: it is held back while it makes a percentile of other requests longer than allowed.
//!
//! Best-effort batches start during a share of each period only. In the rest, requests meet none of them, and show how long they take
//! without. The share grows by steps and halves, as that of TGS does (Wu et al., NSDI 2023, section 4.2), which compares the
//! throughput of training jobs where this compares a percentile of latencies.
//!
//! Latencies are not independent: one stall or burst makes many requests late together. So periods are counted, not requests: it is
//! harm if the percentile is exceeded in more of them than chance explains.

use std::collections::{BTreeMap, VecDeque};

use crate::{ModelId, Nanos};

/// Time with and without best-effort work together.
const PERIOD: Nanos = Nanos::from_millis(2_000);
/// The share of time at first, in thousandths.
const FIRST_SHARE: u32 = 500;
/// The share is never smaller, so that it is noticed when there is more space again.
const SHARE_MIN: u32 = 10;
/// The share is never larger, so that it stays known how long requests take without best-effort work.
const SHARE_MAX: u32 = 900;
/// Growth of the share after a comparison that shows no harm.
const STEP: u32 = 50;
/// Requests of a model that met best-effort work between two comparisons. Of fewer, hardly any is above a 99th percentile.
const COMPARED: usize = 200;
/// Requests without best-effort work that a comparison needs.
const COMPARED_WITHOUT: usize = 100;
/// Latencies of each kind that are remembered of a period: the first, and then every second, third ... if there are more.
const REMEMBERED: u32 = 256;
/// Periods that are remembered at least.
const PERIODS_REMEMBERED: usize = 30;
/// Of models with few requests, more periods are remembered, up to this many requests.
const REMEMBERED_IN_ALL: usize = 4_000;
const PERIODS_REMEMBERED_MAX: usize = 300;
/// How long best-effort work has an effect on requests that come after it. They are of neither kind.
const SETTLING: Nanos = Nanos::from_millis(50);
/// Periods without enough requests for a comparison after which the share grows.
const PERIODS_IDLE: u64 = 5;
/// The same if some requests met best-effort work.
const PERIODS_WAITING: u64 = 30;
/// How soon it is looked again whether the last batch has ended.
const LOOK: Nanos = Nanos::from_millis(20);
/// Standard deviations of the periods' sum by which the percentile must be exceeded. Of 160 comparisons without harm, one shows harm.
const DEVIATIONS: f64 = 2.5;
/// Periods that all exceed it alike are enough for that.
const PERIODS_CERTAIN: u64 = 7;
/// The standard deviation of fewer periods is not known.
const PERIODS_MIN: usize = 5;

/// How much longer a percentile of a model's requests may become by best-effort work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protect {
    /// The percentile, in thousandths: 990 is the 99th.
    pub percentile: u32,
    /// How often as long it may become, in thousandths: 1050 is 5 % longer.
    pub factor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Best-effort batches start.
    Open { until: Nanos },
    /// None starts.
    Closed { until: Nanos },
}

/// The limit and what it learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Protection {
    protect: Protect,
    /// Share of the time in which best-effort work starts, in thousandths.
    share: u32,
    phase: Phase,
    /// Periods so far.
    period: u64,
    /// The period in which the share changed last.
    changed: u64,
    /// There was harm since the share was largest: it grows only once harm at this share would have shown.
    cautious: bool,
    /// Best-effort batches that run.
    running: u32,
    /// When the last of them ended; `None` before the first.
    ended: Option<Nanos>,
    models: BTreeMap<ModelId, Latencies>,
}

impl Protection {
    pub(crate) fn new(protect: Protect) -> Self {
        Self {
            protect,
            share: FIRST_SHARE,
            phase: Phase::Closed { until: Nanos::ZERO },
            period: 0,
            changed: 0,
            cautious: false,
            running: 0,
            ended: None,
            models: BTreeMap::new(),
        }
    }

    /// The share of time in which best-effort work starts, from 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        f64::from(self.share) / 1_000.0
    }

    /// Best-effort batches that run.
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// Time goes by.
    pub(crate) fn advance(&mut self, now: Nanos) {
        let closed = span(1_000 - self.share);
        if let Phase::Open { until } = self.phase
            && now >= until
            && self.running == 0
        {
            let from = self.ended.unwrap_or_default().max(until);
            self.phase = Phase::Closed { until: from.after(closed) };
        }
        if let Phase::Closed { until } = self.phase
            && now >= until
        {
            self.compare();
            self.phase = Phase::Open { until: now.after(span(self.share)) };
        }
    }

    /// A period begins: what is known by now decides its share.
    fn compare(&mut self) {
        self.period += 1;
        let protect = self.protect;
        let (mut seen, mut met) = (false, false);
        let mut harmed = false;
        for latencies in self.models.values_mut() {
            met |= latencies.new > 0;
            if latencies.new < COMPARED || latencies.without().count() < COMPARED_WITHOUT {
                continue;
            }
            latencies.new = 0;
            seen = true;
            harmed |= latencies.are_harmed(protect);
        }
        let unchanged = self.period.saturating_sub(self.changed);
        if harmed {
            self.cautious = true;
            // What was seen so far was at a larger share.
            for latencies in self.models.values_mut() {
                latencies.periods.iter_mut().for_each(|period| period.with.took.clear());
                latencies.new = 0;
            }
            self.change((self.share / 2).max(SHARE_MIN));
        } else if seen && (!self.cautious || unchanged >= PERIODS_CERTAIN)
            || unchanged >= if met { PERIODS_WAITING } else { PERIODS_IDLE }
        {
            self.change((self.share + STEP).min(SHARE_MAX));
            self.cautious &= self.share < SHARE_MAX;
        }
    }

    fn change(&mut self, share: u32) {
        (self.share, self.changed) = (share, self.period);
    }

    /// Until when no best-effort batch starts. `None`: one may start now.
    pub(crate) fn closed_until(&self, now: Nanos) -> Option<Nanos> {
        match self.phase {
            Phase::Open { until } => (now >= until).then(|| now.after(LOOK)),
            Phase::Closed { until } => Some(until.max(now.after(Nanos(1)))),
        }
    }

    /// A best-effort batch starts.
    pub(crate) fn starts(&mut self) {
        self.running = self.running.saturating_add(1);
    }

    /// A best-effort batch ended.
    pub(crate) fn ends(&mut self, now: Nanos) {
        self.running = self.running.saturating_sub(1);
        self.ended = Some(now);
    }

    /// A request of a model, not of best effort, was answered.
    pub(crate) fn answered(&mut self, now: Nanos, model: ModelId, arrived: Nanos) {
        let met = self.running > 0 || self.ended.is_some_and(|ended| ended >= arrived);
        let latencies = self.models.entry(model).or_default();
        if met {
            latencies.new += 1;
        } else if self.ended.is_some_and(|ended| ended.after(SETTLING) >= arrived) {
            return;
        }
        latencies.note(self.period, met, now.since(arrived));
    }

    /// The model is removed.
    pub(crate) fn forget(&mut self, model: ModelId) {
        self.models.remove(&model);
    }
}

fn span(share: u32) -> Nanos {
    Nanos(PERIOD.0 * u64::from(share) / 1_000)
}

/// What is known about one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Latencies {
    periods: VecDeque<Seen>,
    /// Requests that met best-effort work since the last comparison.
    new: usize,
}

/// Latencies of one period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    period: u64,
    /// Of requests that met best-effort work.
    with: Sample,
    /// Of those that did not.
    without: Sample,
}

/// Some of the latencies of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sample {
    took: Vec<Nanos>,
    count: u32,
    /// Every how many requests one is kept.
    stride: u32,
}

impl Sample {
    /// Of the period after another one.
    fn after(before: &Self) -> Self {
        // Odd, so that it is less likely to be in step with requests that come at even intervals.
        Self { stride: before.count.div_ceil(REMEMBERED) | 1, ..Self::default() }
    }

    fn note(&mut self, took: Nanos) {
        if self.count.is_multiple_of(self.stride.max(1)) && self.took.len() < REMEMBERED as usize {
            self.took.push(took);
        }
        self.count += 1;
    }
}

impl Latencies {
    fn note(&mut self, period: u64, met: bool, took: Nanos) {
        let newest = self.periods.back();
        if newest.is_none_or(|newest| newest.period != period) {
            let (with, without) = newest.map_or_else(Default::default, |newest| {
                (Sample::after(&newest.with), Sample::after(&newest.without))
            });
            self.periods.push_back(Seen { period, with, without });
            self.forget();
        }
        if let Some(newest) = self.periods.back_mut() {
            if met { newest.with.note(took) } else { newest.without.note(took) }
        }
    }

    fn forget(&mut self) {
        let kept = |seen: &Seen| seen.with.took.len() + seen.without.took.len();
        let mut all: usize = self.periods.iter().map(kept).sum();
        while self.periods.len() > PERIODS_REMEMBERED_MAX
            || self.periods.len() > PERIODS_REMEMBERED && all > REMEMBERED_IN_ALL
        {
            all -= self.periods.pop_front().as_ref().map_or(0, kept);
        }
    }

    fn without(&self) -> impl Iterator<Item = Nanos> {
        self.periods.iter().flat_map(|seen| seen.without.took.iter().copied())
    }

    /// Whether the requests that met best-effort work exceed what is allowed more often than chance explains.
    fn are_harmed(&self, protect: Protect) -> bool {
        let mut without: Vec<Nanos> = self.without().collect();
        let Some(last) = without.len().checked_sub(1) else { return false };
        let below = f64::from(protect.percentile.min(999)) / 1_000.0;
        // The percentile itself is known only from these requests: the end of its confidence interval.
        let count = without.len() as f64;
        let place = (count * below + (count * below * (1.0 - below)).sqrt()) as usize;
        let (_, usual, _) = without.select_nth_unstable(place.min(last));
        let allowed = Nanos(usual.0.saturating_mul(u64::from(protect.factor)) / 1_000);
        let (mut periods, mut sum, mut squares) = (0, 0.0, 0.0);
        for seen in self.periods.iter().filter(|seen| !seen.with.took.is_empty()) {
            let longer = seen.with.took.iter().filter(|took| **took > allowed).count();
            let excess = longer as f64 - seen.with.took.len() as f64 * (1.0 - below);
            (periods, sum, squares) = (periods + 1, sum + excess, squares + excess * excess);
        }
        periods >= PERIODS_MIN && sum > DEVIATIONS * squares.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: ModelId = ModelId(0);

    /// Requests every 5 ms that take 10 ms, or as `slower` says of the time in milliseconds and of whether best-effort work runs, which
    /// runs whenever it may. Returns the part of the time in which it ran in the second half.
    fn worked(slower: impl Fn(u64, bool) -> u64, seconds: u64) -> f64 {
        let mut protection = Protection::new(Protect { percentile: 990, factor: 1_050 });
        let (mut runs_until, mut work) = (None, 0);
        let total = seconds * 1_000;
        for milli in 0..total {
            let now = Nanos::from_millis(milli);
            protection.advance(now);
            if runs_until.is_some_and(|until| until <= milli) {
                protection.ends(now);
                runs_until = None;
            }
            if runs_until.is_none() && protection.closed_until(now).is_none() {
                protection.starts();
                runs_until = Some(milli + 30);
            }
            if runs_until.is_some() && milli >= total / 2 {
                work += 1;
            }
            if milli % 5 == 0 {
                let usual = 10 + u64::from(milli % 700 == 0);
                let took = slower(milli, runs_until.is_some()).max(usual);
                protection.answered(now, MODEL, now.before(Nanos::from_millis(took)));
            }
        }
        work as f64 / (total - total / 2) as f64
    }

    #[test]
    fn work_without_harm_gets_almost_all_of_the_time() {
        let part = worked(|_, _| 10, 120);
        assert!(part > 0.85, "{part}");
    }

    #[test]
    fn work_that_makes_the_percentile_longer_gets_little() {
        // Every request 20 % longer; one in 20 four times as long.
        let all = |_, met| if met { 12 } else { 10 };
        let some = |milli: u64, met| if met && milli.is_multiple_of(100) { 40 } else { 10 };
        for (part, of) in [(worked(all, 240), "all"), (worked(some, 240), "some")] {
            assert!(part < 0.15, "{of}: {part}");
        }
    }

    #[test]
    fn stalls_that_have_nothing_to_do_with_it_take_little_of_its_time() {
        // Of 200 ms each, at moments like those of a hash. In every second minute, 6 % of all requests take longer, in the others none.
        let stalls = |milli: u64| {
            milli / 60_000 % 2 == 1
                && ((milli / 200).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).is_multiple_of(16)
        };
        let part = worked(|milli, _| if stalls(milli) { 100 } else { 10 }, 1_200);
        assert!(part > 0.6, "{part}");
    }

    #[test]
    fn a_stall_of_long_ago_does_not_hide_harm() {
        let stalls = |milli: u64| milli < 60_000 && (milli / 200).is_multiple_of(16);
        let part = worked(
            |milli, met| match (stalls(milli), milli > 120_000 && met) {
                (true, _) => 100,
                (false, true) => 20,
                (false, false) => 10,
            },
            600,
        );
        assert!(part < 0.15, "{part}");
    }

    #[test]
    fn work_within_the_factor_grows() {
        let mut protection = Protection::new(Protect { percentile: 900, factor: 2_000 });
        for at in 0..8_000_u64 {
            let now = Nanos::from_millis(at * 10);
            protection.advance(now);
            let with = protection.closed_until(now).is_none();
            if with {
                protection.starts();
            }
            // 19 ms instead of 10.
            protection.answered(now, MODEL, now.before(Nanos::from_millis(if with { 19 } else { 10 })));
            if with {
                protection.ends(now);
            }
        }
        assert!(protection.share() > 0.85, "{}", protection.share());
    }

    #[test]
    fn without_other_requests_it_grows() {
        let mut protection = Protection::new(Protect { percentile: 990, factor: 1_050 });
        for second in 0..200 {
            protection.advance(Nanos::from_millis(second * 1_000));
        }
        assert!(protection.share() >= 0.9 - 1e-9, "{}", protection.share());
    }

    #[test]
    fn the_time_without_work_begins_when_the_last_batch_ends() {
        let mut protection = Protection::new(Protect { percentile: 990, factor: 1_050 });
        protection.advance(Nanos::ZERO);
        assert_eq!(protection.closed_until(Nanos::ZERO), None);
        protection.starts();
        let late = Nanos::from_millis(5_000);
        protection.advance(late);
        assert_eq!(protection.closed_until(late), Some(late.after(LOOK)), "a batch of before still runs");
        protection.ends(late);
        protection.advance(late);
        assert_eq!(protection.closed_until(late), Some(late.after(Nanos::from_millis(1_000))));
        protection.advance(Nanos::from_millis(6_000));
        assert_eq!(protection.closed_until(Nanos::from_millis(6_000)), None);
    }
}
