//! Nanily's autoscaler (Tang et al., HPCC 2019): as many instances as the predicted rate needs at the highest
//! throughput that keeps the objective, R / throughput rounded up. Its predictor is not published in what could be
//! read; here it is the mean over the last ten seconds, looked at each second.

use super::{Ewma, Motive, SAMPLE_US, Sampler, Scaler, ScalingOptions, Seen, Service, Wish};

const PERIOD_US: u64 = 1_000_000;
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
    looked_us: Option<u64>,
}

impl Nanily {
    pub(super) fn new(services: &[Service], _options: &ScalingOptions) -> Self {
        let model = |service: &Service| Instances {
            replica_rate: service.replica_rate,
            sampler: Sampler::new(SAMPLE_US),
            mean: Ewma::over(SAMPLES),
        };
        Self { models: services.iter().map(model).collect(), looked_us: None }
    }
}

impl Scaler for Nanily {
    fn wish(&mut self, now_us: u64, seen: &[Seen]) -> Vec<Wish> {
        for (model, seen) in self.models.iter_mut().zip(seen) {
            for rate in model.sampler.observe(now_us, seen.observed.arrivals).iter() {
                model.mean.observe(rate);
            }
        }
        let looked_us = *self.looked_us.get_or_insert(now_us);
        if now_us.saturating_sub(looked_us) < PERIOD_US {
            return seen.iter().map(|seen| Wish { rate: seen.target, motive: Motive::Steady }).collect();
        }
        self.looked_us = Some(now_us);
        let wish = |model: &Instances| {
            let estimate = model.mean.value();
            let replicas = (estimate / model.replica_rate).ceil();
            let motive = Motive::Replicas { replicas: replicas as u64, estimate };
            Wish { rate: replicas * model.replica_rate, motive }
        };
        self.models.iter().map(wish).collect()
    }
}
