//! Nanily's autoscaler (Tang et al., HPCC 2019): as many instances as the predicted rate needs at the highest
//! throughput that keeps the objective, R / throughput rounded up. The available publication does not
//! describe its predictor; here it is the mean over the last ten seconds, evaluated each second.

use super::{Ewma, Reason, SAMPLE, Sampler, Scaler, ScalingOptions, Seen, Service, Recommendation};
use crate::time::Micros;

const PERIOD: Micros = Micros(1_000_000);
/// Samples that the rate is averaged over: ten seconds.
const SAMPLES: u32 = 20;

#[derive(Debug)]
struct Instances {
    replica_rate: f64,
    sampler: Sampler,
    mean: Ewma,
}

#[derive(Debug)]
pub(super) struct Nanily {
    models: Vec<Instances>,
    looked_us: Option<Micros>,
}

impl Nanily {
    pub(super) fn new(services: &[Service], _options: &ScalingOptions) -> Self {
        let model = |service: &Service| Instances {
            replica_rate: service.replica_rate,
            sampler: Sampler::new(SAMPLE),
            mean: Ewma::over(SAMPLES),
        };
        Self { models: services.iter().map(model).collect(), looked_us: None }
    }
}

impl Scaler for Nanily {
    fn recommend(&mut self, now: Micros, seen: &[Seen]) -> Vec<Recommendation> {
        for (model, seen) in self.models.iter_mut().zip(seen) {
            for rate in model.sampler.observe(now, seen.observed.arrivals).iter() {
                model.mean.observe(rate);
            }
        }
        let looked_us = *self.looked_us.get_or_insert(now);
        if now.since(looked_us) < PERIOD {
            return seen.iter().map(|seen| Recommendation { rate: seen.target, reason: Reason::Steady }).collect();
        }
        self.looked_us = Some(now);
        let wish = |model: &Instances| {
            let estimate = model.mean.value();
            let replicas = (estimate / model.replica_rate).ceil();
            let reason = Reason::Replicas { replicas: replicas as u64, estimate };
            Recommendation { rate: replicas * model.replica_rate, reason }
        };
        self.models.iter().map(wish).collect()
    }
}
