//! After IRIS (Ferikoglou et al., CLOUD 2023), whose predictor is not public: the rate of one engine under co-location
//! is predicted, and the level of parallelism is the least number of engines whose predicted rates reach the load. Here
//! the prediction is the rate of a replica alone times what the plan serves, with the interference learned so far, of the
//! rate that it was made for. The load is the mean of the last ten seconds, evaluated every five.

use super::mean_rate::MeanRates;
use super::{Recommendation, Scaler, ScalingOptions, Seen, Service};
use crate::time::Micros;

const PERIOD: Micros = Micros(5_000_000);
/// Least predicted part of the rate alone: below it, the plan is still being carried out.
const CO_LOCATED_MIN: f64 = 0.25;

#[derive(Debug)]
pub(super) struct Iris {
    replica_rates: Vec<f64>,
    rates: MeanRates,
}

impl Iris {
    pub(super) fn new(services: &[Service], _options: &ScalingOptions) -> Self {
        let replica_rates = services.iter().map(|service| service.replica_rate).collect();
        Self { replica_rates, rates: MeanRates::new(services.len(), PERIOD) }
    }
}

fn wish(each: f64, estimate: f64, seen: &Seen) -> Recommendation {
    let served = if seen.target > 0.0 { seen.observed.capacity / seen.target } else { 1.0 };
    let predicted = each * served.clamp(CO_LOCATED_MIN, 1.0);
    Recommendation::replicas((estimate / predicted).ceil(), each, estimate)
}

impl Scaler for Iris {
    fn recommend(&mut self, now: Micros, seen: &[Seen]) -> Vec<Recommendation> {
        self.rates.recommend(now, seen, |at, estimate, seen| match self.replica_rates.get(at) {
            Some(each) => wish(*each, estimate, seen),
            None => Recommendation::stay(seen),
        })
    }
}
