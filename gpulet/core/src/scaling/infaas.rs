//! INFaaS' worker autoscaler (Romero et al., ATC 2021; constants of the released code, stanford-mast/INFaaS), evaluated
//! each second. It adds replicas at once when the load exceeds what the replicas serve, less headroom for the requests
//! that arrive while further ones load. It removes one when the others would have been enough twenty times in a row.
//! Upgrades to another variant are the part of the policy `infaas` for variants.

use super::{Reason, Scaler, ScalingOptions, Seen, Service, Recommendation};
use crate::time::Micros;

const PERIOD: Micros = Micros(1_000_000);
/// Headroom for requests that arrive while a replica loads: this times load times milliseconds of loading.
const LOADING: f64 = 0.000_2;
/// Evaluations in a row that must agree before a replica is removed, on GPUs.
const SPARE_TICKS: u32 = 20;
/// A shortage up to this part of a replica is a rounding error and adds no replica.
const ROUNDING: f64 = 1e-6;

#[derive(Debug)]
struct Replicas {
    /// Requests a second that one serves.
    each: f64,
    load_ms: f64,
    arrivals: f64,
    spare_ticks: u32,
}

#[derive(Debug)]
pub(super) struct Infaas {
    models: Vec<Replicas>,
    looked_us: Option<Micros>,
}

impl Infaas {
    pub(super) fn new(services: &[Service], options: &ScalingOptions) -> Self {
        let model = |service: &Service| Replicas {
            each: service.replica_rate,
            load_ms: options.change_us.max(service.warm_load_us).0 as f64 / 1e3,
            arrivals: 0.0,
            spare_ticks: 0,
        };
        Self { models: services.iter().map(model).collect(), looked_us: None }
    }
}

impl Replicas {
    fn wish(&mut self, seconds: f64, seen: &Seen) -> Recommendation {
        let load = self.arrivals / seconds;
        self.arrivals = 0.0;
        let replicas = (seen.target / self.each).ceil();
        let lacking = load - replicas * self.each + LOADING * load * self.load_ms;
        if lacking > ROUNDING * self.each {
            self.spare_ticks = 0;
            let replicas = replicas + (lacking / self.each).ceil();
            let reason = Reason::Replicas { replicas: replicas as u64, estimate: load };
            return Recommendation { rate: replicas * self.each, reason };
        }
        let is_spare = replicas > 1.0 && load <= (replicas - 1.0) * self.each;
        self.spare_ticks = if is_spare { self.spare_ticks.saturating_add(1) } else { 0 };
        if self.spare_ticks < SPARE_TICKS {
            return Recommendation { rate: replicas * self.each, reason: Reason::Steady };
        }
        self.spare_ticks = 0;
        Recommendation { rate: (replicas - 1.0) * self.each, reason: Reason::Spare { ticks: SPARE_TICKS } }
    }
}

impl Scaler for Infaas {
    fn recommend(&mut self, now: Micros, seen: &[Seen]) -> Vec<Recommendation> {
        let stay = |seen: &Seen| Recommendation { rate: seen.target, reason: Reason::Steady };
        let Some(looked_us) = self.looked_us else {
            self.looked_us = Some(now);
            return seen.iter().map(stay).collect();
        };
        for (model, seen) in self.models.iter_mut().zip(seen) {
            model.arrivals += seen.observed.arrivals as f64;
        }
        let elapsed_us = now.since(looked_us);
        if elapsed_us < PERIOD {
            return seen.iter().map(stay).collect();
        }
        self.looked_us = Some(now);
        let seconds = elapsed_us.as_secs_f64();
        self.models.iter_mut().zip(seen).map(|(model, seen)| model.wish(seconds, seen)).collect()
    }
}
