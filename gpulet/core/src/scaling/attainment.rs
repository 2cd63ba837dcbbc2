//! The default scaler: the least capacity that is forecast to keep the attainment of all requests together.
//!
//! When a queue has grown, requests have already missed their objectives, so the scaler forecasts. It follows each
//! model's demand in several ways ([`Candidates`](super::candidates::Candidates)). It selects the candidate and the
//! multiple of it that cost least and lose no more than is allowed when a change has its effect.
//!
//! **One price for all models.** The allowed loss is spent where it saves the most capacity. A lost request has one
//! price for all models. The demand of a model may exceed its capacity for a part of the time: its cost of a unit of
//! capacity, divided by the price. The scaler moves the price until the expected loss of all models is the allowed one.
//! Models that are cheap to serve are rarely short of capacity, costly ones more often. No model is planned to lose
//! more than three times the allowed loss.
//!
//! **Unseen jumps.** At first the scaler assumes that the highest known rate (of the last half-hour, or planned for at
//! the start) returns suddenly once in fifteen minutes. The longer it does not return, the less likely a jump counts.
//! Where capacity for the jump costs less than the requests lost during a change, the model always has that capacity.
//! This is the case for models that need very little of a device.
//!
//! **Measured loss** corrects both the capacity of each model and the expected loss of all models. The corrections are
//! sums of the errors, as in conformal control (Angelopoulos, Candes and Tibshirani, NeurIPS 2023). Before the
//! correction no need is above the highest known rate, unless the forecast is.

use super::requirement::{Requirement, Pricing, cost};
use super::{Reason, Scaler, ScalingOptions, Seen, Service, Recommendation};
use crate::time::Micros;

/// Part of the allowed loss that is the goal. The rest is a reserve for unforeseen jumps.
const GOAL: f64 = 0.72;
/// Expected loss of all models together: initial, minimum and maximum, in parts of the allowed loss.
const EXPECTED: f64 = 0.45;
const EXPECTED_MIN: f64 = 0.1;
const EXPECTED_MAX: f64 = 0.85;
/// How fast the expected loss follows the measured one, per second.
const GAIN: f64 = 0.3 / 600.0;
/// Price of a request lost, in mean costs of the capacity for one a second: at first, at least and at most, and how
/// fast it moves, as a logarithm per evaluation.
const PRICE: f64 = 30.0;
const PRICE_MIN: f64 = 1.0;
const PRICE_MAX: f64 = 1e5;
const PRICE_STEP: f64 = 0.2;
/// Seconds between two returns of the highest known rate, before any observation.
const JUMP_EVERY_S: f64 = 900.0;
/// Seconds from a jump to the decision.
const NOTICED_S: f64 = 0.75;
/// Forecast loss above the expected one that causes a change, as a part of the allowed loss.
const TRIGGER: f64 = 0.5;
/// Part of the planned capacity below which the need of all models must fall before any capacity is released.
const WORTH_IT: f64 = 0.97;
/// The smallest fall of a model's rate. A smaller one saves next to nothing, and forbids a rise for the cool-down.
const LEAST_FALL: f64 = 0.06;

/// Target over the observed rate while the variation of the rate is unknown.
const FIRST: f64 = 1.25;

#[derive(Debug)]
pub(super) struct Attainment {
    requirements: Vec<Requirement>,
    /// What capacity for a request a second costs, over the mean of all models.
    costs: Vec<f64>,
    /// Part of the requests that may be lost.
    goal: f64,
    /// Part that is expected to be.
    expected: f64,
    price: f64,
    change_s: f64,
    /// Looks in a row that found capacity lacking.
    lacking: u32,
    looks: u64,
    began_us: Option<Micros>,
    observed_us: Micros,
}

impl Attainment {
    pub(super) fn new(services: &[Service], options: &ScalingOptions) -> Self {
        let costs: Vec<f64> = services.iter().map(cost).collect();
        let mean = costs.iter().sum::<f64>() / costs.len().max(1) as f64;
        let goal = 1.0 - options.attainment;
        Self {
            requirements: services.iter().map(|_| Requirement::new(options)).collect(),
            costs: costs.into_iter().map(|cost| cost / mean).collect(),
            goal,
            expected: EXPECTED * goal,
            price: PRICE,
            change_s: options.change_us.as_secs_f64(),
            lacking: 0,
            looks: 0,
            began_us: None,
            observed_us: Micros::ZERO,
        }
    }

    /// Corrects by what was really lost since the previous evaluation.
    fn correct(&mut self, now: Micros, seen: &[Seen]) {
        self.began_us.get_or_insert(now);
        let elapsed_us = if self.looks > 0 { now.since(self.observed_us) } else { Micros::ZERO };
        self.observed_us = now;
        let seconds = elapsed_us.as_secs_f64().min(10.0);
        let (mut lost, mut arrived, mut usual) = (0.0, 0.0, 0.0);
        for (need, seen) in self.requirements.iter_mut().zip(seen) {
            usual += need.level() * seconds;
            let Some(attainment) = seen.observed.attainment.filter(|part| part.is_finite()) else { continue };
            let (came, loss) = (seen.observed.arrivals as f64, 1.0 - attainment.clamp(0.0, 1.0));
            need.correct(seconds, came, loss, self.goal);
            lost += loss * came;
            arrived += came;
        }
        if arrived > 0.0 {
            let weight = (arrived / usual.max(1.0)).min(4.0);
            let missed = GOAL - lost / arrived / self.goal;
            let expected = self.expected * libm::exp(GAIN * seconds * weight * missed);
            self.expected = expected.clamp(EXPECTED_MIN * self.goal, EXPECTED_MAX * self.goal);
        }
    }

    /// Part of the time for which a jump is not served, if nothing stands there for it.
    fn jump(&self) -> f64 {
        let elapsed_us = self.began_us.map_or(Micros::ZERO, |began| self.observed_us.since(began));
        (self.change_s + NOTICED_S) / (JUMP_EVERY_S + elapsed_us.as_secs_f64())
    }

    /// Finds what each model needs at the price, and moves the price. Returns whether capacity is lacking.
    fn weigh(&mut self, seen: &[Seen]) -> bool {
        let (goal, look, jump) = (self.goal, self.looks, self.jump());
        let (mut loss, mut demand) = (0.0, 0.0);
        let (mut lacking, mut level, mut is_lacking) = (0.0, 0.0, false);
        for ((number, need), (cost, seen)) in (0_u64..).zip(&mut self.requirements).zip(self.costs.iter().zip(seen))
        {
            let capacity = seen.observed.capacity;
            need.weigh(&Pricing { tail: cost / self.price, jump, goal, look }, number, capacity);
            if need.is_ready() {
                loss += need.loss_with_jump(jump) * need.demand();
                demand += need.demand();
                lacking += need.lost_without(capacity);
                level += need.level();
                is_lacking |= need.is_lacking();
            }
        }
        if demand > 0.0 {
            let step = 0.5 * libm::log((loss / demand).max(1e-6) / self.expected);
            let price = self.price * libm::exp(step.clamp(-PRICE_STEP, PRICE_STEP));
            self.price = price.clamp(PRICE_MIN, PRICE_MAX);
        }
        self.lacking = if lacking > TRIGGER * goal * level { self.lacking.saturating_add(1) } else { 0 };
        is_lacking || self.lacking >= super::requirement::CONFIRMED
    }

    fn is_saving(&self, seen: &[Seen]) -> bool {
        let (mut needed, mut planned) = (0.0, 0.0);
        for ((need, cost), seen) in self.requirements.iter().zip(&self.costs).zip(seen) {
            needed += cost * need.rate().min(seen.target);
            planned += cost * seen.target;
        }
        needed < WORTH_IT * planned
    }
}

fn stay(seen: &Seen) -> Recommendation {
    Recommendation { rate: seen.target, reason: Reason::Steady }
}

/// The recommendation while there are too few samples: at least the observed rate, with headroom.
fn first(need: &Requirement, seen: &Seen) -> Recommendation {
    let forecast = need.level();
    if forecast <= seen.target {
        return stay(seen);
    }
    Recommendation { rate: FIRST * forecast, reason: Reason::Above { estimate: forecast } }
}

fn wish(need: &Requirement, seen: &Seen) -> Recommendation {
    let (rate, forecast) = (need.rate(), need.level());
    let is_move = rate > seen.target || rate < (1.0 - LEAST_FALL) * seen.target;
    if !is_move {
        return stay(seen);
    }
    let reason = if need.is_insured() && rate <= need.highest() {
        Reason::Insured { highest: need.highest() }
    } else if rate < seen.target {
        Reason::Falling { forecast }
    } else if need.lost_without(seen.observed.capacity) > 0.0 {
        Reason::Rising { forecast, attainment: 1.0 - need.shortfall(seen.observed.capacity) }
    } else {
        Reason::Along { forecast }
    };
    Recommendation { rate, reason }
}

impl Scaler for Attainment {
    fn set_change_time(&mut self, change_us: Micros) {
        self.change_s = change_us.as_secs_f64();
        self.requirements.iter_mut().for_each(|need| need.set_change_time(change_us));
    }

    fn recommend(&mut self, now: Micros, seen: &[Seen]) -> Vec<Recommendation> {
        self.correct(now, seen);
        let mut is_sample = false;
        for (need, seen) in self.requirements.iter_mut().zip(seen) {
            is_sample |= need.observe(now, seen);
        }
        self.looks = self.looks.saturating_add(1);
        let is_lacking = is_sample && self.weigh(seen);
        let is_ready = self.requirements.iter().all(Requirement::is_ready);
        if !is_ready {
            return self.requirements.iter().zip(seen).map(|(need, seen)| first(need, seen)).collect();
        }
        if !(is_lacking || self.is_saving(seen)) {
            return seen.iter().map(stay).collect();
        }
        self.requirements.iter().zip(seen).map(|(need, seen)| wish(need, seen)).collect()
    }
}
