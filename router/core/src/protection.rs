//! A feedback limit of best-effort work: it is held back while it makes a percentile of other requests longer than allowed.
//!
//! Best-effort batches start during a share of the time only. In the rest, requests meet none of them, and show how long they take without.
//! The share grows by steps and halves, as that of TGS does (Wu et al., NSDI 2023, section 4.2), which compares the throughput of
//! training jobs where this compares a percentile of latencies.

use std::collections::BTreeMap;

use crate::{ModelId, Nanos};

/// Time with and without best-effort work together.
const PERIOD: Nanos = Nanos::from_millis(2_000);
/// The share of time at first, in thousandths.
const FIRST_SHARE: u32 = 500;
/// The share is never smaller, so that it is noticed when there is more space again.
const SHARE_MIN: u32 = 10;
/// The share is never larger, so that it stays known how long requests take without best-effort work.
const SHARE_MAX: u32 = 950;
/// Growth of the share after a comparison that shows no harm.
const STEP: u32 = 50;
/// Requests that met best-effort work between two comparisons. Of fewer, hardly any is above a 99th percentile.
const COMPARED: usize = 200;
/// Latencies of each kind that are remembered.
const REMEMBERED: usize = 1_000;
/// How long best-effort work has an effect on requests that come after it. They are of neither kind.
const SETTLING: Nanos = Nanos::from_millis(100);
/// Without enough requests for a comparison, the share grows after this time.
const COMPARE_TIMEOUT: Nanos = Nanos::from_millis(10_000);
/// How soon it is looked again whether the last batch has ended.
const LOOK: Nanos = Nanos::from_millis(20);
/// Standard deviations by which more requests must be longer than chance would make. Of 200 comparisons without harm, one shows harm.
const DEVIATIONS: f64 = 3.0;

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
    /// Best-effort batches that run.
    running: u32,
    /// When the last of them ended; `None` before the first.
    ended: Option<Nanos>,
    compared_at: Nanos,
    models: BTreeMap<ModelId, Latencies>,
}

impl Protection {
    pub(crate) fn new(protect: Protect) -> Self {
        Self {
            protect,
            share: FIRST_SHARE,
            phase: Phase::Closed { until: Nanos::ZERO },
            running: 0,
            ended: None,
            compared_at: Nanos::ZERO,
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
        let (open, closed) = (span(self.share), span(1_000 - self.share));
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
            self.phase = Phase::Open { until: now.after(open) };
        }
        if now.since(self.compared_at) >= COMPARE_TIMEOUT {
            self.compared_at = now;
            self.share = self.grown();
        }
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
        if !met {
            let settled = self.ended.is_none_or(|ended| ended.after(SETTLING) < arrived);
            if settled {
                latencies.without.note(now.since(arrived));
            }
            return;
        }
        latencies.with.note(now.since(arrived));
        latencies.new += 1;
        if latencies.new < COMPARED {
            return;
        }
        latencies.new = 0;
        self.compared_at = now;
        if latencies.is_harmed(self.protect) {
            // What was seen so far was at a larger share.
            latencies.with = Ring::default();
            self.share = (self.share / 2).max(SHARE_MIN);
        } else if latencies.without.0.len() >= COMPARED {
            self.share = self.grown();
        }
    }

    /// The model is removed.
    pub(crate) fn forget(&mut self, model: ModelId) {
        self.models.remove(&model);
    }

    fn grown(&self) -> u32 {
        (self.share + STEP).min(SHARE_MAX)
    }
}

fn span(share: u32) -> Nanos {
    Nanos(PERIOD.0 * u64::from(share) / 1_000)
}

/// What is known about one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Latencies {
    /// Of requests that met no best-effort work.
    without: Ring,
    /// Of requests that did.
    with: Ring,
    /// Those among `with` that came since the last comparison.
    new: usize,
}

impl Latencies {
    /// Whether more of the requests that met best-effort work took longer than allowed than chance would make.
    fn is_harmed(&self, protect: Protect) -> bool {
        if self.without.0.len() < COMPARED {
            return false;
        }
        let mut without = self.without.0.clone();
        let place = without.len() * protect.percentile.min(999) as usize / 1_000;
        let (_, usual, _) = without.select_nth_unstable(place);
        let allowed = Nanos(usual.0.saturating_mul(u64::from(protect.factor)) / 1_000);
        let longer = self.with.0.iter().filter(|latency| **latency > allowed).count();
        let by_chance =
            self.with.0.len() as f64 * f64::from(1_000_u32.saturating_sub(protect.percentile)) / 1_000.0;
        longer as f64 > by_chance + DEVIATIONS * by_chance.sqrt()
    }
}

/// The newest latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ring(Vec<Nanos>, usize);

impl Ring {
    fn note(&mut self, latency: Nanos) {
        if self.0.len() < REMEMBERED {
            self.0.push(latency);
        } else if let Some(place) = self.0.get_mut(self.1) {
            *place = latency;
            self.1 = (self.1 + 1) % REMEMBERED;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: ModelId = ModelId(0);

    /// Requests every 5 ms that take 10 ms, and `slower` while best-effort work runs, which runs whenever it may. Returns the part of
    /// the time in which it ran in the second half.
    fn worked(slower: impl Fn(u64) -> u64, seconds: u64) -> f64 {
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
                let took = if runs_until.is_some() { slower(milli / 5).max(usual) } else { usual };
                protection.answered(now, MODEL, now.before(Nanos::from_millis(took)));
            }
        }
        work as f64 / (total - total / 2) as f64
    }

    #[test]
    fn work_without_harm_gets_almost_all_of_the_time() {
        let part = worked(|_| 10, 120);
        assert!(part > 0.9, "{part}");
    }

    #[test]
    fn work_that_makes_the_percentile_longer_gets_little() {
        // Every request 20 % longer; one in 20 four times as long.
        for slower in [|_| 12, |request: u64| if request.is_multiple_of(20) { 40 } else { 10 }] {
            let part = worked(slower, 240);
            assert!(part < 0.15, "{part}");
        }
    }

    #[test]
    fn work_within_the_factor_grows() {
        let mut protection = Protection::new(Protect { percentile: 900, factor: 2_000 });
        for at in 0..4_000_u64 {
            let now = Nanos::from_millis(at * 10);
            let with = at >= 2_000;
            if at == 2_000 {
                protection.starts();
            }
            // 19 ms instead of 10.
            protection.answered(now, MODEL, now.before(Nanos::from_millis(if with { 19 } else { 10 })));
        }
        assert!(protection.share() > 0.9, "{}", protection.share());
    }

    #[test]
    fn without_other_requests_it_grows() {
        let mut protection = Protection::new(Protect { percentile: 990, factor: 1_050 });
        for second in 0..200 {
            protection.advance(Nanos::from_millis(second * 1_000));
        }
        assert!(protection.share() >= 0.95 - 1e-9, "{}", protection.share());
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
