//! The capacity that one model needs, and what it has really lost.

use super::candidates::Candidates;
use super::{SAMPLE, Sampler, ScalingOptions, Seen, Service};
use crate::time::Micros;

/// Largest loss of a model, in parts of the allowed loss of all models.
const LOSS_MAX: f64 = 3.0;
/// A model whose measured loss over [`LONG_S`] is larger is corrected faster; in parts of the allowed loss.
const LOSS_WORST: f64 = 4.0;
const LONG_S: f64 = 600.0;
const FASTER: f64 = 10.0;
/// The largest excess loss that speeds up the correction, in parts of the allowed loss. More is a jump, not a lack of
/// headroom.
const FASTER_UP_TO: f64 = 5.0;
/// Correction, as a logarithm, that a second without any of the loss expected takes away, if that is the loss allowed:
/// 3 % in ten minutes. A second with twice that lost gives it back.
const GAIN: f64 = 0.03 / 600.0;
/// Corrections at least and at most, as a logarithm.
const CORRECTION: (f64, f64) = (-0.12, 2.5);
/// What was planned for at the start counts as the highest rate known for half an hour.
const PLANNED: Micros = Micros(1_800_000_000);
/// Evaluations between two choices of a candidate, and between two choices of its multiple.
const CHOICE_EVERY: u64 = 20;
const MULTIPLE_EVERY: u64 = 4;
/// Evaluations in a row that must find capacity lacking. The first one of a jump shows only a part of it, and a change
/// for that part would delay the change for the rest.
pub(super) const CONFIRMED: u32 = 2;

/// Lost and arrived requests, with exponential decay.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    lost: f64,
    arrived: f64,
}

/// The terms on which a model's capacity is priced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pricing {
    /// What it costs, in requests lost.
    pub(super) tail: f64,
    /// Part of the time for which a jump to the highest rate known is not served without it.
    pub(super) jump: f64,
    /// Part of all requests that may be lost.
    pub(super) goal: f64,
    /// Number of the evaluation.
    pub(super) look: u64,
}

#[derive(Debug)]
pub(super) struct Requirement {
    sampler: Sampler,
    candidates: Candidates,
    /// What was planned for at the start, requests a second, and until when that counts.
    planned: Option<(f64, Micros)>,
    highest: f64,
    /// Multiple of the chosen candidate.
    times: Option<f64>,
    /// Requests a second.
    rate: f64,
    /// Part of the demand that is expected to be lost with that.
    loss: f64,
    is_insured: bool,
    correction: f64,
    long: Count,
    /// Evaluations in a row that found capacity lacking.
    lacking: u32,
}

/// Number of samples that begin within a time.
fn samples(time_us: Micros) -> u32 {
    u32::try_from(time_us.0.div_ceil(SAMPLE.0)).unwrap_or(u32::MAX)
}

/// Number of samples until a change that is requested now has its effect.
fn horizon(change_us: Micros) -> u32 {
    samples(change_us).saturating_add(1)
}

impl Requirement {
    pub(super) fn new(options: &ScalingOptions) -> Self {
        let hold = samples(options.cool_down_us);
        Self {
            sampler: Sampler::new(SAMPLE),
            candidates: Candidates::new(horizon(options.change_us), hold, SAMPLE),
            planned: None,
            highest: 0.0,
            times: None,
            rate: 0.0,
            loss: 0.0,
            is_insured: false,
            correction: 0.0,
            long: Count::default(),
            lacking: 0,
        }
    }

    pub(super) fn set_change_time(&mut self, change_us: Micros) {
        self.candidates.look_ahead(horizon(change_us));
    }

    /// Takes in the arrivals. Returns whether they complete a sample.
    pub(super) fn observe(&mut self, now: Micros, seen: &Seen) -> bool {
        let (planned, until_us) = *self.planned.get_or_insert((seen.target, now.after(PLANNED)));
        let mut is_sample = false;
        for rate in self.sampler.observe(now, seen.observed.arrivals).iter() {
            self.candidates.observe(rate);
            is_sample = true;
        }
        let planned = if now < until_us { planned } else { 0.0 };
        self.highest = self.candidates.highest().max(planned);
        is_sample
    }

    /// Corrects the need by what was lost of `arrived` requests in `seconds`; `loss` is a part from 0 to 1.
    pub(super) fn correct(&mut self, seconds: f64, arrived: f64, loss: f64, goal: f64) {
        let kept = libm::exp(-seconds / LONG_S);
        self.long.lost = kept * self.long.lost + loss * arrived;
        self.long.arrived = kept * self.long.arrived + arrived;
        // A period with few requests says less than one with many.
        let weight = (arrived / (self.candidates.level() * seconds).max(1.0)).min(4.0);
        let excess = (loss - self.loss.min(LOSS_MAX * goal)) / goal;
        let is_worst = self.long.lost > LOSS_WORST * goal * self.long.arrived;
        let excess =
            if is_worst && excess > 0.0 { excess.max(FASTER * excess.min(FASTER_UP_TO)) } else { excess };
        let corrected = self.correction + GAIN * seconds * weight * excess;
        self.correction = corrected.clamp(CORRECTION.0, CORRECTION.1);
    }

    /// Finds what is needed on these terms. `number` is the model's, so that not all choose at the same evaluation.
    pub(super) fn weigh(&mut self, terms: &Pricing, number: u64, capacity: f64) {
        if !self.is_ready() {
            return;
        }
        let allowed = LOSS_MAX * terms.goal;
        let evaluation = terms.look.wrapping_add(number);
        if evaluation.is_multiple_of(CHOICE_EVERY) {
            self.candidates.choose(terms.tail, allowed);
        }
        if evaluation.is_multiple_of(MULTIPLE_EVERY) || self.times.is_none() {
            let cheapest = self.candidates.cheapest(terms.tail, allowed);
            self.loss = cheapest.map_or(self.loss, |cheapest| cheapest.loss);
            self.times = cheapest.map(|cheapest| cheapest.times);
        }
        let rate = self.candidates.rate(self.times.unwrap_or(1.0));
        // A large rate times a large error, each seen, may be a demand that never was.
        let rate = rate.min(self.highest.max(self.candidates.crest()).max(self.candidates.wish()));
        self.rate = (libm::exp(self.correction) * rate).max(self.candidates.mean());
        self.is_insured = terms.jump >= terms.tail;
        if self.is_insured {
            self.rate = self.rate.max(self.highest);
        }
        let capacity = if capacity.is_finite() { capacity.max(0.0) } else { 0.0 };
        let is_short = capacity < self.rate && self.shortfall(capacity) > LOSS_MAX * terms.goal + self.loss;
        self.lacking = if is_short { self.lacking.saturating_add(1) } else { 0 };
    }

    /// Part of the demand that is expected to be lost, a jump to the highest rate known included.
    pub(super) fn loss_with_jump(&self, jump: f64) -> f64 {
        let missing = (self.highest - self.rate).max(0.0) / self.level().max(self.candidates.mean()).max(1.0);
        self.loss + jump * missing
    }

    /// Part of the demand that a capacity will not serve, corrected.
    pub(super) fn shortfall(&self, capacity: f64) -> f64 {
        let capacity = if capacity.is_finite() { capacity.max(0.0) } else { 0.0 };
        self.candidates.shortfall(capacity * libm::exp(-self.correction))
    }

    /// Requests a second, of those that come, that more will be lost with a capacity than with what is needed.
    pub(super) fn lost_without(&self, capacity: f64) -> f64 {
        if capacity >= self.rate {
            return 0.0;
        }
        (self.shortfall(capacity) - self.loss).max(0.0) * self.candidates.level()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.candidates.is_ready()
    }

    pub(super) fn is_lacking(&self) -> bool {
        self.lacking >= CONFIRMED
    }

    pub(super) fn is_insured(&self) -> bool {
        self.is_insured
    }

    /// Rate that is needed, requests a second.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Rate that arrives, requests a second.
    pub(super) fn level(&self) -> f64 {
        self.candidates.level()
    }

    /// The highest known rate, requests a second.
    pub(super) fn highest(&self) -> f64 {
        self.highest
    }

    /// All the demand remembered; comparable between models that were observed together.
    pub(super) fn demand(&self) -> f64 {
        self.candidates.demand()
    }
}

/// What a model's replica costs for each request a second.
pub(super) fn cost(service: &Service) -> f64 {
    service.replica_share / service.replica_rate
}
