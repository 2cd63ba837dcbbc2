//! Autoscaling: decides which rates to plan for as the load changes.
//!
//! A control loop reports its observations of each model to [`Autoscaler`], which returns the rates to plan for,
//! headroom included, each with its reason. Each scaler is one file and only recommends rates. This module enforces two
//! rules for all of them:
//! - no model's rate moves twice in opposite directions within the cool-down (G4);
//! - models without requests leave the device step by step, until a request wakes them. Waking does not count as a move
//!   of the rate and does not wait for the cool-down.
//!
//! The module is pure: time is part of the observation. Its memory is bounded.

mod candidates;
mod eviction;
mod level;
mod losses;
mod mean_rate;
mod rate;
mod reason;
mod requirement;
mod sample;
mod standby;

use std::fmt;

use serde::Serialize;

pub use self::eviction::{NotEnough, Resident, evict};
pub use self::rate::{Ewma, MaxWindow};
pub use self::reason::Reason;
pub use self::sample::{Sampler, Samples};
use self::standby::IdleTimer;
pub use self::standby::{Standby, StandbyAfter};
use crate::time::Micros;

/// Microseconds between two samples of a rate, the same as in gpulet.
pub const SAMPLE: Micros = Micros(500_000);
/// Smallest planned rate of a model on a device, requests a second.
const RATE_MIN: f64 = 1.0;
/// Relative difference below which two rates count as equal.
const SAME_RATE: f64 = 1e-9;

/// The fixed properties of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Name of the workload.
    pub name: String,
    /// Requests a second that one replica serves within the objective: its largest batch over its time.
    pub replica_rate: f64,
    /// Part of a device that one replica fills, above 0. Only the ratios between models matter.
    pub replica_share: f64,
    /// Microseconds from weights in host memory to ready.
    pub warm_load_us: Micros,
    /// Microseconds from unloaded to ready.
    pub cold_load_us: Micros,
    /// Highest rate that will ever come, requests a second; only `static` uses it.
    pub peak_rate: f64,
    /// Minimum number of replicas. A model with a minimum above 0 is never unloaded.
    pub replicas_min: u32,
}

/// The options of all scalers.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingOptions {
    /// Part of the requests that must be answered within their objective, below 1.
    pub attainment: f64,
    /// Microseconds from a decision to its effect.
    pub change_us: Micros,
    /// Cool-down: microseconds in which a model's rate moves in one direction only.
    pub cool_down_us: Micros,
    /// When models without requests are unloaded; without a value, models stay on their devices.
    pub standby: Option<StandbyAfter>,
}

impl Default for ScalingOptions {
    fn default() -> Self {
        Self {
            attainment: 0.99,
            change_us: Micros::from_secs(2),
            cool_down_us: Micros::from_secs(10),
            standby: None,
        }
    }
}

/// What happened to a model since the previous observation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelObservation {
    /// Requests that arrived, refused ones included.
    pub arrivals: u64,
    /// Requests that are queued now.
    pub queued: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Part of the ended requests, refused ones included, that were answered within their objective, from 0 to 1; none
    /// if no request ended.
    pub attainment: Option<f64>,
    /// Requests a second that the plan can serve: the one that is being carried out if there is one, else the one in
    /// force.
    pub capacity: f64,
}

/// What happened to all models, in the order of the services.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation<'a> {
    /// Time of the observation on the caller's clock; never decreases.
    pub now: Micros,
    /// One observation per service. A missing one counts as no requests.
    pub models: &'a [ModelObservation],
}

/// The target of one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// Requests a second, headroom included; 0 for a model that is not on a device.
    pub rate: f64,
    /// Where its weights should be.
    pub standby: Standby,
    /// Reason of the target; displayed as a sentence.
    pub reason: Reason,
}

/// The targets of all models.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// Time of the decision, microseconds.
    #[serde(rename = "now_us")]
    pub now: Micros,
    /// Whether a target differs from the previous decision, so that a new plan is useful.
    pub is_change: bool,
    /// One for each service, in order.
    pub targets: Vec<Target>,
}

/// The recommendation of a scaler for one model.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Recommendation {
    rate: f64,
    reason: Reason,
}

impl Recommendation {
    /// The target stays.
    fn stay(seen: &Seen) -> Self {
        Self { rate: seen.target, reason: Reason::Steady }
    }

    /// The rate of this number of replicas, each with the rate `each`, for an estimated load.
    fn replicas(replicas: f64, each: f64, estimate: f64) -> Self {
        Self { rate: replicas * each, reason: Reason::Replicas { replicas: replicas as u64, estimate } }
    }
}

/// The input of a scaler for one model.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    observed: ModelObservation,
    /// The rate that is planned for, requests a second.
    target: f64,
}

/// What every scaler implements.
trait Scaler: fmt::Debug {
    /// Recommends a rate for each model, in order: the target itself where nothing should change.
    fn recommend(&mut self, now: Micros, seen: &[Seen]) -> Vec<Recommendation>;

    /// Sets how long a change takes, from the decision to its effect.
    fn set_change_time(&mut self, _change_us: Micros) {}
}

macro_rules! scalers {
    ($($module:ident::$scaler:ident = $name:literal, $about:literal);+ $(;)?) => {
        $(mod $module;)+

        /// Every scaler: its name, and what it does in one line.
        pub const SCALERS: &[(&str, &str)] = &[$(($name, $about)),+];

        fn scaler(name: &str, services: &[Service], options: &ScalingOptions) -> Option<Box<dyn Scaler + Send>> {
            match name {
                $($name => Some(Box::new($module::$scaler::new(services, options))),)+
                _ => None,
            }
        }
    };
}

scalers![
    attainment::Attainment = "attainment", "our default: the least capacity that is forecast to keep the attainment of all requests together";
    gpulet::Gpulet = "gpulet", "highest mean rate of 30 s times 1.2 or 1.5, evaluated every 20 s";
    fast_gshare::FastGshare = "fast-gshare", "mean rate, evaluated every 10 s, where it differs from the plan by 20 %";
    infaas::Infaas = "infaas", "as many replicas as the load of the last second needs, with headroom for the time that further ones load";
    nanily::Nanily = "nanily", "predicted rate over the highest throughput of a replica, rounded up";
    cocktail::Cocktail = "cocktail", "each minute, the predicted load of all models by how popular each was, in whole replicas";
    proportional::Proportional = "proportional", "replicas whose rates reach the load of ten seconds and a margin of 10 %";
    iris::Iris = "iris", "replicas whose rates, as predicted under co-location, reach the load of ten seconds";
    fixed::Fixed = "static", "the peak, known beforehand, at all times";
];

/// Why there is no autoscaler.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ScalingError {
    /// The field, like `scaler`.
    pub field: &'static str,
    /// What was wrong and what would be right.
    pub problem: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Move {
    is_up: bool,
    at_us: Micros,
}

#[derive(Debug)]
struct Kept {
    target: f64,
    last: Option<Move>,
    idle: IdleTimer,
}

/// A scaler with the rules that apply to all scalers.
#[derive(Debug)]
pub struct Autoscaler {
    scaler: Box<dyn Scaler + Send>,
    name: &'static str,
    options: ScalingOptions,
    kept: Vec<Kept>,
    last_us: Micros,
    /// Whether requests came.
    has_load: bool,
    /// Whether a rate was planned for, before or since.
    has_target: bool,
}

impl Autoscaler {
    /// Creates the scaler of that name. `planned` has the currently planned rate of each service, requests a second.
    ///
    /// # Errors
    /// [`ScalingError`] for an unknown name, a number out of range, or the wrong number of rates.
    pub fn new(
        name: &str,
        services: &[Service],
        options: ScalingOptions,
        planned: &[f64],
    ) -> Result<Self, ScalingError> {
        let fault = |field, problem| Err(ScalingError { field, problem });
        if !(options.attainment > 0.0 && options.attainment < 1.0) {
            return fault("attainment", format!("expected above 0 and below 1, got {}", options.attainment));
        }
        if planned.len() != services.len() || planned.iter().any(|rate| !is_rate(*rate)) {
            return fault("planned", format!("expected {} rates of at least 0", services.len()));
        }
        for service in services {
            let is_above = |number: f64| number > 0.0 && number.is_finite();
            let is_known = is_above(service.replica_rate) && is_above(service.replica_share);
            if !(is_known && is_rate(service.peak_rate)) {
                let problem = format!(
                    "`{}`: expected replica_rate above 0, replica_share above 0, and peak_rate of at least 0",
                    service.name
                );
                return fault("services", problem);
            }
        }
        let known = SCALERS.iter().find(|(word, _)| *word == name);
        let (Some((name, _)), Some(scaler)) = (known, scaler(name, services, &options)) else {
            let words: Vec<&str> = SCALERS.iter().map(|(word, _)| *word).collect();
            return fault("scaler", format!("expected one of {}, got `{name}`", words.join(", ")));
        };
        let kept = services.iter().zip(planned).map(|(service, rate)| Kept {
            target: *rate,
            last: None,
            idle: IdleTimer::new(options.standby.filter(|_| service.replicas_min == 0)),
        });
        let has_target = planned.iter().any(|rate| *rate > RATE_MIN);
        let (kept, last_us) = (kept.collect(), Micros::ZERO);
        Ok(Self { scaler, name, kept, options, last_us, has_load: false, has_target })
    }

    /// The name of the scaler.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Sets how long a change takes, from the decision to its effect. The initial value is that of the options.
    pub fn set_change_time(&mut self, change_us: Micros) {
        self.scaler.set_change_time(change_us);
    }

    /// Whether requests come, but the scaler has not seen them for long enough to recommend a rate: its targets say nothing yet.
    pub fn is_watching(&self) -> bool {
        self.has_load && !self.has_target
    }

    /// Decides what to plan for. An earlier time than the previous one counts as the previous one.
    pub fn decide(&mut self, observation: &Observation<'_>) -> Decision {
        let now = observation.now.max(self.last_us);
        self.last_us = now;
        let observed = |at: usize| observation.models.get(at).copied().unwrap_or_default();
        let seen: Vec<Seen> = self
            .kept
            .iter()
            .enumerate()
            .map(|(at, kept)| Seen { observed: observed(at), target: kept.target })
            .collect();
        let mut wishes = self.scaler.recommend(now, &seen).into_iter();
        let mut is_change = false;
        let mut targets = Vec::with_capacity(self.kept.len());
        for (kept, seen) in self.kept.iter_mut().zip(&seen) {
            let wish = wishes.next().unwrap_or_else(|| {
                invariant::violated!("scaling.model_without_recommendation");
                Recommendation { rate: kept.target, reason: Reason::Steady }
            });
            self.has_target |= wish.reason != Reason::Steady;
            let before = (kept.idle.standby(), kept.target);
            let target = kept.settled(now, wish, &seen.observed, self.options.cool_down_us);
            is_change |= before != (target.standby, kept.target);
            targets.push(target);
        }
        self.has_load |= observation.models.iter().any(|model| model.arrivals > 0);
        if self.is_watching() {
            for target in targets.iter_mut().filter(|target| target.reason == Reason::Steady) {
                target.reason = Reason::Watching;
            }
        }
        Decision { now, is_change, targets }
    }
}

fn is_rate(rate: f64) -> bool {
    rate >= 0.0 && rate.is_finite()
}

impl Kept {
    fn settled(
        &mut self,
        now: Micros,
        wish: Recommendation,
        observed: &ModelObservation,
        cool_down_us: Micros,
    ) -> Target {
        let was_away = self.idle.standby() != Standby::Ready;
        let has_load = observed.arrivals > 0 || observed.queued > 0;
        let idle_us = self.idle.observe(now, has_load);
        let standby = self.idle.standby();
        if standby != Standby::Ready {
            return Target { rate: 0.0, standby, reason: Reason::Idle { idle_us, standby } };
        }
        let reason = self.moved(now, wish, cool_down_us);
        Target {
            rate: self.target.max(RATE_MIN),
            standby,
            reason: if was_away { Reason::Woken } else { reason },
        }
    }

    /// Moves the target as recommended, unless the cool-down forbids it.
    fn moved(&mut self, now: Micros, wish: Recommendation, cool_down_us: Micros) -> Reason {
        let wanted = if is_rate(wish.rate) { wish.rate } else { self.target };
        if (wanted - self.target).abs() <= SAME_RATE * self.target {
            return wish.reason;
        }
        let is_up = wanted > self.target;
        if let Some(last) = self.last.filter(|last| last.is_up != is_up) {
            let until_us = last.at_us.after(cool_down_us);
            if now < until_us {
                return Reason::CoolingDown { wanted, until_us };
            }
        }
        self.last = Some(Move { is_up, at_us: now });
        self.target = wanted;
        wish.reason
    }
}
