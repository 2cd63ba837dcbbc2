//! Nanily's autoscaler (Tang et al., HPCC 2019): as many instances as the predicted rate needs at the highest
//! throughput that keeps the objective, R / throughput rounded up. The available publication does not
//! describe its predictor; here it is the mean over the last ten seconds, evaluated each second.

use super::mean_rate::MeanRates;
use super::{Recommendation, Scaler, ScalingOptions, Seen, Service};
use crate::time::Micros;

const PERIOD: Micros = Micros(1_000_000);

#[derive(Debug)]
pub(super) struct Nanily {
    replica_rates: Vec<f64>,
    rates: MeanRates,
}

impl Nanily {
    pub(super) fn new(services: &[Service], _options: &ScalingOptions) -> Self {
        let replica_rates = services.iter().map(|service| service.replica_rate).collect();
        Self { replica_rates, rates: MeanRates::new(services.len(), PERIOD) }
    }
}

impl Scaler for Nanily {
    fn recommend(&mut self, now: Micros, seen: &[Seen]) -> Vec<Recommendation> {
        self.rates.recommend(now, seen, |at, estimate, seen| match self.replica_rates.get(at) {
            Some(each) => Recommendation::replicas((estimate / each).ceil(), *each, estimate),
            None => Recommendation::stay(seen),
        })
    }
}
