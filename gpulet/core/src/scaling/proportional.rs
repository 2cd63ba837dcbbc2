//! After Cho et al. (MLSys 2022), of which only ideas are public: replicas count with the highest rate at which they keep
//! the objective. One is added while these rates are below the load and a margin, and one is removed if the others
//! are enough. Which device type a replica gets is the part of the policy `proportional` for variants. The load is the
//! mean of the last ten seconds, evaluated each second.

use super::mean_rate::MeanRates;
use super::{Recommendation, Scaler, ScalingOptions, Seen, Service};
use crate::time::Micros;

const PERIOD: Micros = Micros(1_000_000);
/// Margin above the load, as a part of it. The abstract names none, so this one is ours.
const MARGIN: f64 = 0.1;

#[derive(Debug)]
pub(super) struct Proportional {
    replica_rates: Vec<f64>,
    rates: MeanRates,
}

impl Proportional {
    pub(super) fn new(services: &[Service], _options: &ScalingOptions) -> Self {
        let replica_rates = services.iter().map(|service| service.replica_rate).collect();
        Self { replica_rates, rates: MeanRates::new(services.len(), PERIOD) }
    }
}

fn wish(each: f64, estimate: f64, seen: &Seen) -> Recommendation {
    let load = (1.0 + MARGIN) * estimate;
    let is_short = load > seen.target;
    let is_spare = load <= seen.target - each;
    if is_short || is_spare {
        Recommendation::replicas((load / each).ceil(), each, estimate)
    } else {
        Recommendation::stay(seen)
    }
}

impl Scaler for Proportional {
    fn recommend(&mut self, now: Micros, seen: &[Seen]) -> Vec<Recommendation> {
        self.rates.recommend(now, seen, |at, estimate, seen| match self.replica_rates.get(at) {
            Some(each) => wish(*each, estimate, seen),
            None => Recommendation::stay(seen),
        })
    }
}
