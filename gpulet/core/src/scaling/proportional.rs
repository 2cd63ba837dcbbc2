//! After Cho et al. (MLSys 2022), of which only ideas are public: replicas count with the highest rate at which they keep
//! the objective. One is added while these rates are below the load and a margin, and one is removed if the others
//! are enough. Which device type a replica gets is the part of the policy `proportional` for variants. The load is the
//! mean of the last ten seconds, evaluated each second.

use super::{Ewma, Reason, Recommendation, SAMPLE, Sampler, Scaler, ScalingOptions, Seen, Service};
use crate::time::Micros;

const PERIOD: Micros = Micros(1_000_000);
/// Samples that the rate is averaged over: ten seconds.
const SAMPLES: u32 = 20;
/// Margin above the load, as a part of it. The abstract names none, so this one is ours.
const MARGIN: f64 = 0.1;

#[derive(Debug)]
struct Replicas {
    replica_rate: f64,
    sampler: Sampler,
    mean: Ewma,
}

#[derive(Debug)]
pub(super) struct Proportional {
    models: Vec<Replicas>,
    looked_us: Option<Micros>,
}

impl Proportional {
    pub(super) fn new(services: &[Service], _options: &ScalingOptions) -> Self {
        let model = |service: &Service| Replicas {
            replica_rate: service.replica_rate,
            sampler: Sampler::new(SAMPLE),
            mean: Ewma::over(SAMPLES),
        };
        Self { models: services.iter().map(model).collect(), looked_us: None }
    }
}

impl Replicas {
    fn wish(&self, seen: &Seen) -> Recommendation {
        let estimate = self.mean.value();
        let load = (1.0 + MARGIN) * estimate;
        let is_short = load > seen.target;
        let is_spare = load <= seen.target - self.replica_rate;
        if !is_short && !is_spare {
            return Recommendation { rate: seen.target, reason: Reason::Steady };
        }
        let replicas = (load / self.replica_rate).ceil();
        let reason = Reason::Replicas { replicas: replicas as u64, estimate };
        Recommendation { rate: replicas * self.replica_rate, reason }
    }
}

impl Scaler for Proportional {
    fn recommend(&mut self, now: Micros, seen: &[Seen]) -> Vec<Recommendation> {
        for (model, seen) in self.models.iter_mut().zip(seen) {
            for rate in model.sampler.observe(now, seen.observed.arrivals).iter() {
                model.mean.observe(rate);
            }
        }
        let looked_us = *self.looked_us.get_or_insert(now);
        if now.since(looked_us) < PERIOD {
            let stay = |seen: &Seen| Recommendation { rate: seen.target, reason: Reason::Steady };
            return seen.iter().map(stay).collect();
        }
        self.looked_us = Some(now);
        self.models.iter().zip(seen).map(|(model, seen)| model.wish(seen)).collect()
    }
}
