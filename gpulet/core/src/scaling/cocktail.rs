//! Cocktail's resource controller (Gunasekaran et al., NSDI 2022): each minute, the load of all models together is
//! predicted, and each model gets the part of it that it had of the last requests (importance sampling), in whole
//! instances. Its predictor is a trained network (DeepAR); here it is a level with a damped trend, a minute ahead. Its
//! choice of ensembles is `tessera variants vote`, and its spot instances are those of `tessera plan`.

use super::level::Level;
use super::{Recommendation, Sampler, Scaler, ScalingOptions, Seen, Service};
use crate::time::Micros;

/// Interval between two decisions.
const INTERVAL: Micros = Micros(60_000_000);
/// Interval over which popularity is counted.
const SAMPLING: Micros = Micros(30_000_000);
/// Microseconds of a sample of the load.
const SAMPLE: Micros = Micros(5_000_000);
/// Samples of an interval.
const SAMPLES: usize = 12;

#[derive(Debug)]
struct Pool {
    replica_rate: f64,
    /// Requests since the last count.
    arrivals: u64,
    /// Requests in the last sampling interval.
    popularity: u64,
}

#[derive(Debug)]
pub(super) struct Cocktail {
    pools: Vec<Pool>,
    sampler: Sampler,
    level: Level,
    counted_us: Option<Micros>,
    decided_us: Option<Micros>,
}

impl Cocktail {
    pub(super) fn new(services: &[Service], _options: &ScalingOptions) -> Self {
        let pool =
            |service: &Service| Pool { replica_rate: service.replica_rate, arrivals: 0, popularity: 0 };
        Self {
            pools: services.iter().map(pool).collect(),
            sampler: Sampler::new(SAMPLE),
            level: Level::new((SAMPLES as f64, true)),
            counted_us: None,
            decided_us: None,
        }
    }

    /// Counts how popular each model was once in a sampling interval.
    fn count(&mut self, now: Micros, seen: &[Seen]) {
        for (pool, seen) in self.pools.iter_mut().zip(seen) {
            pool.arrivals = pool.arrivals.saturating_add(seen.observed.arrivals);
        }
        let counted_us = *self.counted_us.get_or_insert(now);
        if now.since(counted_us) >= SAMPLING {
            self.counted_us = Some(now);
            for pool in &mut self.pools {
                pool.popularity = std::mem::take(&mut pool.arrivals);
            }
        }
    }
}

impl Scaler for Cocktail {
    fn recommend(&mut self, now: Micros, seen: &[Seen]) -> Vec<Recommendation> {
        self.count(now, seen);
        let all = seen.iter().map(|seen| seen.observed.arrivals).fold(0, u64::saturating_add);
        for rate in self.sampler.observe(now, all).iter() {
            self.level.observe(rate);
        }
        let decided_us = *self.decided_us.get_or_insert(now);
        let total: u64 = self.pools.iter().map(|pool| pool.popularity).fold(0, u64::saturating_add);
        if now.since(decided_us) < INTERVAL || total == 0 {
            return seen.iter().map(Recommendation::stay).collect();
        }
        self.decided_us = Some(now);
        let forecast = self.level.ahead(Level::lead(SAMPLES));
        let wish = |pool: &Pool| {
            let estimate = forecast * pool.popularity as f64 / total as f64;
            Recommendation::replicas((estimate / pool.replica_rate).ceil(), pool.replica_rate, estimate)
        };
        self.pools.iter().map(wish).collect()
    }
}
