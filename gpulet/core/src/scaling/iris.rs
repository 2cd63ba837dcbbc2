//! After IRIS (Ferikoglou et al., CLOUD 2023), whose predictor is not public: the rate of one engine under co-location
//! is predicted, and the level of parallelism is the least number of engines whose predicted rates reach the load. Here
//! the prediction is the rate of a replica alone times what the plan serves, with the interference learned so far, of the
//! rate that it was made for. The load is the mean of the last ten seconds, evaluated every five.

use super::{Ewma, Reason, Recommendation, SAMPLE, Sampler, Scaler, ScalingOptions, Seen, Service};
use crate::time::Micros;

const PERIOD: Micros = Micros(5_000_000);
/// Samples that the rate is averaged over: ten seconds.
const SAMPLES: u32 = 20;
/// Least predicted part of the rate alone: below it, the plan is still being carried out.
const CO_LOCATED_MIN: f64 = 0.25;

#[derive(Debug)]
struct Engines {
    replica_rate: f64,
    sampler: Sampler,
    mean: Ewma,
}

#[derive(Debug)]
pub(super) struct Iris {
    models: Vec<Engines>,
    looked_us: Option<Micros>,
}

impl Iris {
    pub(super) fn new(services: &[Service], _options: &ScalingOptions) -> Self {
        let model = |service: &Service| Engines {
            replica_rate: service.replica_rate,
            sampler: Sampler::new(SAMPLE),
            mean: Ewma::over(SAMPLES),
        };
        Self { models: services.iter().map(model).collect(), looked_us: None }
    }
}

impl Engines {
    fn wish(&self, seen: &Seen) -> Recommendation {
        let estimate = self.mean.value();
        let served = if seen.target > 0.0 { seen.observed.capacity / seen.target } else { 1.0 };
        let predicted = self.replica_rate * served.clamp(CO_LOCATED_MIN, 1.0);
        let replicas = (estimate / predicted).ceil();
        let reason = Reason::Replicas { replicas: replicas as u64, estimate };
        Recommendation { rate: replicas * self.replica_rate, reason }
    }
}

impl Scaler for Iris {
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
