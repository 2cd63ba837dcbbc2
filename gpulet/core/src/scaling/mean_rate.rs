//! The mean rate of each model over the last ten seconds, read once in a period.

use super::{Ewma, Recommendation, SAMPLE, Sampler, Seen};
use crate::time::Micros;

/// Samples that the rate is averaged over: ten seconds.
const SAMPLES: u32 = 20;

#[derive(Debug)]
pub(super) struct MeanRates {
    models: Vec<(Sampler, Ewma)>,
    period_us: Micros,
    looked_us: Option<Micros>,
}

impl MeanRates {
    pub(super) fn new(models: usize, period_us: Micros) -> Self {
        let model = || (Sampler::new(SAMPLE), Ewma::over(SAMPLES));
        Self { models: std::iter::repeat_with(model).take(models).collect(), period_us, looked_us: None }
    }

    /// Takes in an observation. Once in a period `wish` recommends a rate for each model, by its place and its mean rate;
    /// in between, targets stay.
    pub(super) fn recommend(
        &mut self,
        now: Micros,
        seen: &[Seen],
        wish: impl Fn(usize, f64, &Seen) -> Recommendation,
    ) -> Vec<Recommendation> {
        for ((sampler, mean), seen) in self.models.iter_mut().zip(seen) {
            for rate in sampler.observe(now, seen.observed.arrivals).iter() {
                mean.observe(rate);
            }
        }
        let looked_us = *self.looked_us.get_or_insert(now);
        if now.since(looked_us) < self.period_us {
            return seen.iter().map(Recommendation::stay).collect();
        }
        self.looked_us = Some(now);
        let models = self.models.iter().zip(seen).enumerate();
        models.map(|(at, ((_, mean), seen))| wish(at, mean.value(), seen)).collect()
    }
}
