//! Our own default: the least capacity that is forecast to keep the attainment.
//!
//! Queues are short where objectives are: when one has grown, requests are lost already. So the question is asked
//! ahead: of the demand forecast for when a change would have its effect, with the errors that forecasts have had,
//! which part will the capacity not serve? If more than the attainment allows, capacity is asked for at once. It is
//! given back when for a while (the patience, no shorter than the cool-down) less would have been enough, and then no
//! lower than the highest need of that while. How much head-room a need has follows from the attainment, not from a
//! constant: traffic that can be forecast gets little, traffic that cannot gets much.
//!
//! Errors of forecasts are seen at the pace of samples, and what a queue loses within one is not. So the head-room is
//! corrected by what is really lost: a sum of the errors, as in conformal control (Angelopoulos, Candes and
//! Tibshirani, NeurIPS 2023), which keeps the long-run loss at its goal whatever the traffic is like. No need is below
//! the rate forecast, and before that correction none is above the highest rate of the last half-hour unless the
//! forecast is: a large rate times a large error, each seen, may be a demand that never was.

use super::{Forecast, MaxWindow, Motive, SAMPLE_US, Sampler, Scaler, ScalingOptions, Seen, Service, Wish};

/// Part of the loss allowed that is aimed at: the rest is for what nobody foresees.
const GOAL: f64 = 0.8;
/// Loss forecast that is planned for, and the one that asks for a change, as parts of the goal.
const AIM: f64 = 0.8;
const TRIGGER: f64 = 1.3;
/// How much less capacity all models must need together before any is given back.
const WORTH_IT: f64 = 0.97;
/// A model's own fall by less is no move: it saves next to nothing, and would forbid a rise for the cool-down.
const LEAST_FALL: f64 = 0.02;
/// Correction, as a logarithm, that a second without any loss takes away: 3 % in ten minutes. A second with twice the
/// goal lost gives it back.
const GAIN: f64 = 0.03 / 600.0;
/// Corrections at least and at most, as a logarithm.
const CORRECTION: (f64, f64) = (-0.12, 1.0);
/// Changes' times that less must have been enough for.
const PATIENCE: u64 = 3;
/// Samples in a row that must find capacity lacking: the first one of a jump shows a part of it only, and whoever
/// asks for that much has to wait for the change before asking for the rest.
const CONFIRMED: u32 = 2;
/// Samples of the half-hour whose highest rate bounds what is needed.
const HIGHEST_SAMPLES: u32 = 3_600;

#[derive(Debug)]
struct Model {
    replica_rate: f64,
    sampler: Sampler,
    forecast: Forecast,
    highest: MaxWindow,
    /// Capacity needed at each of the last samples.
    needs: MaxWindow,
    need: f64,
    /// Samples in a row that found capacity lacking.
    lacking: u32,
    correction: f64,
    observed_us: Option<u64>,
}

/// What a model's forecast says about its capacity.
#[derive(Clone, Copy, Debug)]
struct Outlook {
    forecast: f64,
    /// Requests a second needed now, and at most within the patience.
    need: f64,
    need_max: f64,
    /// Attainment forecast with the capacity there is.
    attainment: f64,
    is_lacking: bool,
}

#[derive(Debug)]
pub(super) struct Attainment {
    models: Vec<Model>,
    /// Part of the requests that may be lost.
    goal: f64,
}

impl Attainment {
    pub(super) fn new(services: &[Service], options: &ScalingOptions) -> Self {
        let goal = GOAL * (1.0 - options.attainment);
        let samples = |time_us: u64| u32::try_from(time_us.div_ceil(SAMPLE_US)).unwrap_or(u32::MAX);
        let patience_us = options.cool_down_us.max(options.change_us.saturating_mul(PATIENCE));
        let model = |service: &Service| Model {
            replica_rate: service.replica_rate,
            sampler: Sampler::new(SAMPLE_US),
            forecast: Forecast::new(samples(options.change_us).saturating_add(1), SAMPLE_US),
            highest: MaxWindow::over(HIGHEST_SAMPLES),
            needs: MaxWindow::over(samples(patience_us)),
            need: 0.0,
            lacking: 0,
            correction: 0.0,
            observed_us: None,
        };
        Self { models: services.iter().map(model).collect(), goal }
    }
}

impl Model {
    fn observe(&mut self, now_us: u64, seen: &Seen, goal: f64) {
        self.correct(now_us, seen, goal);
        for rate in self.sampler.observe(now_us, seen.observed.arrivals).iter() {
            self.forecast.observe(rate, AIM * goal);
            let highest = self.highest.observe(rate);
            let Some(expected) = self.forecast.expected() else { continue };
            let need = expected.capacity_for(AIM * goal).min(highest.max(expected.rate));
            self.need = (need * libm::exp(self.correction)).max(expected.rate);
            self.needs.observe(self.need);
            let capacity = seen.observed.capacity;
            let is_lacking = self.shortfall(capacity) > TRIGGER * goal && capacity < self.need;
            self.lacking = if is_lacking { self.lacking.saturating_add(1) } else { 0 };
        }
    }

    /// Part of the demand forecast that a capacity will not serve, corrected.
    fn shortfall(&self, capacity: f64) -> f64 {
        let capacity = if capacity.is_finite() { capacity.max(0.0) } else { 0.0 };
        let capacity = capacity * libm::exp(-self.correction);
        self.forecast.expected().map_or(0.0, |expected| expected.shortfall(capacity))
    }

    fn correct(&mut self, now_us: u64, seen: &Seen, goal: f64) {
        let elapsed_us = self.observed_us.map_or(0, |before| now_us.saturating_sub(before));
        self.observed_us = Some(now_us);
        let Some(attainment) = seen.observed.attainment.filter(|part| part.is_finite()) else { return };
        let seconds = (elapsed_us as f64 / 1e6).min(10.0);
        let expected = self.forecast.expected().map_or(0.0, |expected| expected.rate) * seconds;
        // A moment with few requests says less than one with many.
        let weight = (seen.observed.arrivals as f64 / expected.max(1.0)).min(4.0);
        let loss = 1.0 - attainment.clamp(0.0, 1.0);
        let corrected = self.correction + GAIN * seconds * weight * (loss - goal) / goal;
        self.correction = corrected.clamp(CORRECTION.0, CORRECTION.1);
    }

    fn outlook(&self, capacity: f64) -> Option<Outlook> {
        Some(Outlook {
            forecast: self.forecast.expected()?.rate,
            need: self.need,
            need_max: self.needs.value(),
            attainment: 1.0 - self.shortfall(capacity),
            is_lacking: self.lacking >= CONFIRMED,
        })
    }
}

impl Outlook {
    fn lower(&self, target: f64) -> f64 {
        self.need_max.min(target)
    }

    fn wish(&self, target: f64) -> Wish {
        let forecast = self.forecast;
        if self.need > target {
            let rising = Motive::Rising { forecast, attainment: self.attainment };
            let motive = if self.is_lacking { rising } else { Motive::Along { forecast } };
            return Wish { rate: self.need, motive };
        }
        let lower = self.lower(target);
        if lower < (1.0 - LEAST_FALL) * target {
            return Wish { rate: lower, motive: Motive::Falling { forecast } };
        }
        Wish { rate: target, motive: Motive::Steady }
    }
}

impl Scaler for Attainment {
    fn wish(&mut self, now_us: u64, seen: &[Seen]) -> Vec<Wish> {
        let stay = |seen: &Seen| Wish { rate: seen.target, motive: Motive::Steady };
        let mut outlooks = Vec::with_capacity(self.models.len());
        let (mut needed, mut planned) = (0.0, 0.0);
        for (model, seen) in self.models.iter_mut().zip(seen) {
            model.observe(now_us, seen, self.goal);
            let outlook = model.outlook(seen.observed.capacity);
            if let Some(outlook) = &outlook {
                needed += outlook.lower(seen.target) / model.replica_rate;
                planned += seen.target / model.replica_rate;
            }
            outlooks.push(outlook);
        }
        let is_lacking = outlooks.iter().flatten().any(|outlook| outlook.is_lacking);
        let is_full = self.models.iter().all(|model| model.needs.is_full());
        let is_saving = is_full && needed < WORTH_IT * planned;
        if !is_lacking && !is_saving {
            return seen.iter().map(stay).collect();
        }
        let wish = |(outlook, seen): (&Option<Outlook>, &Seen)| {
            outlook.map_or_else(|| stay(seen), |outlook| outlook.wish(seen.target))
        };
        outlooks.iter().zip(seen).map(wish).collect()
    }
}
