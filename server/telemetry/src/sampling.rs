//! Tail sampling: which requests become spans, decided when they have ended.
//!
//! Keeping a fixed share of all requests would lose nearly every request that an operator looks for. So the decision
//! waits for the outcome: all refused, failed and late requests are kept, the slowest 1 % of each model, those whose client
//! keeps the trace, and 1 in N of the others. Each cause has a rate limit, so that an overload, in which most requests fail,
//! does not flood the collector. The decision has no clock and no randomness: it is the same for the same requests.

mod latency;
mod rate_limit;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::request::{Ended, Outcome};
use latency::Latencies;
use rate_limit::RateLimit;

/// Why a request is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Refused before it ran.
    Refused,
    /// It ran, and failed.
    Failed,
    /// Answered after its objective.
    Late,
    /// Among the slowest 1 % of its model.
    Slow,
    /// The client keeps the trace.
    Parent,
    /// One in N, by trace id.
    Ratio,
}

impl Cause {
    /// Every cause, in the order in which they are tried.
    pub const ALL: [Self; 6] =
        [Self::Refused, Self::Failed, Self::Late, Self::Slow, Self::Parent, Self::Ratio];

    /// The value of `tessera.sampled_by`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Late => "late",
            Self::Slow => "slow",
            Self::Parent => "parent",
            Self::Ratio => "ratio",
        }
    }
}

/// Whether a request is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It becomes spans.
    Keep(Cause),
    /// It would be kept, but the rate limit of each of its causes is reached. The first of them is given.
    Limited(Cause),
    /// It is like most requests.
    Drop,
}

/// Most models whose latencies are known. Requests of further models are never `Slow`.
const MODELS_MAX: usize = 1024;
/// If there are more models, those without a request for this long are forgotten.
const IDLE: Duration = Duration::from_secs(600);
/// Time between two searches for idle models.
const SEARCH_PERIOD: Duration = Duration::from_secs(60);

/// Decides about one request after another.
#[derive(Clone, Debug)]
pub struct Sampler {
    /// Largest low half of a trace id that is kept by [`Cause::Ratio`]. The samplers of OpenTelemetry compare the same half, so that
    /// services with the same ratio keep the same traces.
    ratio: u64,
    limits: [RateLimit; Cause::ALL.len()],
    models: HashMap<Box<str>, Latencies>,
    /// When idle models may be searched again.
    next_search: Duration,
}

impl Sampler {
    /// A sampler that keeps 1 in `one_in` requests, and at most `limit` per second for each cause.
    pub fn new(one_in: NonZeroU32, limit: NonZeroU32) -> Self {
        Self {
            ratio: u64::MAX / u64::from(one_in.get()),
            limits: [RateLimit::new(limit); Cause::ALL.len()],
            models: HashMap::new(),
            next_search: Duration::ZERO,
        }
    }

    /// Decides about a request. `now` is the time since any fixed moment; it does not go backwards.
    pub fn decide(&mut self, now: Duration, request: &Ended<'_>) -> Decision {
        let is_slow = self.observe(now, request);
        let mut limited = None;
        for (cause, limit) in Cause::ALL.into_iter().zip(&mut self.limits) {
            let applies = match cause {
                Cause::Refused => request.outcome == Outcome::Refused,
                Cause::Failed => request.outcome == Outcome::Failed,
                Cause::Late => request.outcome == Outcome::Late,
                Cause::Slow => is_slow,
                Cause::Parent => request.parent.is_some_and(|parent| parent.sampled),
                // A client that does not keep a trace decides that for the whole trace.
                Cause::Ratio => request.parent.is_none() && request.trace_id.low() <= self.ratio,
            };
            if applies {
                if limit.take(now) {
                    return Decision::Keep(cause);
                }
                limited = limited.or(Some(cause));
            }
        }
        limited.map_or(Decision::Drop, Decision::Limited)
    }

    /// Adds the latency of an answered request, and says whether it was among the slowest 1 % of its model.
    fn observe(&mut self, now: Duration, request: &Ended<'_>) -> bool {
        if !matches!(request.outcome, Outcome::InTime | Outcome::Late) {
            return false;
        }
        if let Some(latencies) = self.models.get_mut(request.model) {
            return latencies.add(now, request.total);
        }
        if self.models.len() >= MODELS_MAX && now >= self.next_search {
            self.next_search = now + SEARCH_PERIOD;
            self.models.retain(|_, latencies| now.saturating_sub(latencies.used) < IDLE);
        }
        if self.models.len() < MODELS_MAX {
            self.models.entry(request.model.into()).or_default().add(now, request.total);
        }
        false
    }
}

#[cfg(test)]
mod tests;
