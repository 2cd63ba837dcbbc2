//! FaST-GShare's autoscaler (Gu et al., ICPP 2023; constants of the public one, KontonGu/FaST-GShare-Autoscaler): every
//! 10 s it compares the rate with what the plan serves, and acts where they differ by more than 20 %. The placement
//! policy of the same name then adds and removes replicas.
//!
//! The public program reads mean rates over 10 s and over 30 s. How it combines them is unknown; here the higher counts,
//! so that replicas are added soon and removed late.

use std::collections::VecDeque;

use super::{Reason, Recommendation, Scaler, ScalingOptions, Seen, Service};
use crate::time::Micros;

const PERIOD: Micros = Micros(10_000_000);
/// Periods of the longer mean.
const PERIODS: usize = 3;
/// Part of the planned rate by which the rate must differ from it.
const TOLERANCE: f64 = 0.2;

/// Requests of the current period, and the mean rates of the last ones.
#[derive(Clone, Debug, Default)]
struct Load {
    arrivals: u64,
    rates: VecDeque<f64>,
}

impl Load {
    /// Ends a period. Returns the higher of its mean rate and of that over all periods.
    fn end(&mut self, seconds: f64) -> f64 {
        let last = std::mem::take(&mut self.arrivals) as f64 / seconds;
        self.rates.truncate(PERIODS - 1);
        self.rates.push_front(last);
        last.max(self.rates.iter().sum::<f64>() / self.rates.len() as f64)
    }
}

#[derive(Debug)]
pub(super) struct FastGshare {
    models: Vec<Load>,
    looked_us: Option<Micros>,
}

impl FastGshare {
    pub(super) fn new(services: &[Service], _options: &ScalingOptions) -> Self {
        Self { models: vec![Load::default(); services.len()], looked_us: None }
    }
}

impl Scaler for FastGshare {
    fn recommend(&mut self, now: Micros, seen: &[Seen]) -> Vec<Recommendation> {
        let stay = |seen: &Seen| Recommendation { rate: seen.target, reason: Reason::Steady };
        for (model, seen) in self.models.iter_mut().zip(seen) {
            model.arrivals = model.arrivals.saturating_add(seen.observed.arrivals);
        }
        let looked_us = *self.looked_us.get_or_insert(now);
        let elapsed_us = now.since(looked_us);
        if elapsed_us < PERIOD {
            return seen.iter().map(stay).collect();
        }
        self.looked_us = Some(now);
        let wish = |(model, seen): (&mut Load, &Seen)| {
            let estimate = model.end(elapsed_us.as_secs_f64());
            if (estimate - seen.target).abs() <= TOLERANCE * seen.target {
                return stay(seen);
            }
            let reason = if estimate > seen.target { Reason::Above { estimate } } else { Reason::Below { estimate } };
            Recommendation { rate: estimate, reason }
        };
        self.models.iter_mut().zip(seen).map(wish).collect()
    }
}
