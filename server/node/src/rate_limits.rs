//! Names of the rate limiter's resources as the router's numbers.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

use models::repository::RateLimiter;
use router_core::{RateLimit, ResourceId};

use crate::config::{RateLimitMode, RateLimits};

/// Most resources that are told apart. Names of unloaded models stay known.
const RESOURCES_MAX: usize = 4_096;

/// The resources that the server knows.
pub struct Resources {
    mode: RateLimitMode,
    totals: BTreeMap<String, NonZeroU32>,
    /// Numbers by name: those with a configured total first.
    numbers: Mutex<BTreeMap<String, u32>>,
}

impl Resources {
    /// The resources of the configuration.
    pub fn new(config: &RateLimits) -> Self {
        let names = config.resources.keys().cloned();
        let numbers = Mutex::new(names.zip(0..).collect());
        Self { mode: config.mode, totals: config.resources.clone(), numbers }
    }

    /// Configured totals by number.
    pub fn totals(&self) -> Vec<u32> {
        self.totals.values().map(|total| total.get()).collect()
    }

    /// What the router must know of a model's rate limiter.
    ///
    /// # Errors
    /// The model needs more of a resource than there is, or there are too many resources.
    pub fn of(&self, limiter: &RateLimiter) -> Result<RateLimit, String> {
        if self.mode == RateLimitMode::Off {
            return Ok(RateLimit::default());
        }
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut needs = Vec::with_capacity(limiter.resources.len());
        for (name, count) in &limiter.resources {
            if let Some(total) = self.totals.get(name).filter(|total| count > total) {
                return Err(format!(
                    "config.pbtxt: instance_group.rate_limiter: needs {count} of `{name}`: expected at most \
                     rate_limit.resources.{name}, which is {total}"
                ));
            }
            let known = numbers.len();
            if known >= RESOURCES_MAX && !numbers.contains_key(name) {
                return Err(format!("the server knows {known} resources: expected no more"));
            }
            let next = u32::try_from(known).unwrap_or(u32::MAX);
            needs.push((ResourceId(*numbers.entry(name.clone()).or_insert(next)), count.get()));
        }
        Ok(RateLimit { needs, priority: limiter.priority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(name: &str, count: u32) -> RateLimiter {
        let resources = BTreeMap::from([(name.to_owned(), NonZeroU32::new(count).unwrap())]);
        RateLimiter { resources, priority: 2 }
    }

    fn config(mode: RateLimitMode) -> RateLimits {
        RateLimits { mode, resources: BTreeMap::from([("B".to_owned(), NonZeroU32::new(2).unwrap())]) }
    }

    #[test]
    fn resources_with_a_total_come_first_and_others_get_the_next_numbers() {
        let resources = Resources::new(&config(RateLimitMode::ExecutionCount));
        assert_eq!(resources.totals(), [2]);
        for (name, count, number) in [("A", 9, 1), ("B", 2, 0), ("A", 1, 1)] {
            let limit = resources.of(&limiter(name, count)).unwrap();
            assert_eq!(limit, RateLimit { needs: vec![(ResourceId(number), count)], priority: 2 });
        }
    }

    #[test]
    fn a_model_that_could_never_run_is_refused() {
        let resources = Resources::new(&config(RateLimitMode::ExecutionCount));
        let error = resources.of(&limiter("B", 3)).unwrap_err();
        assert!(
            error.contains("needs 3 of `B`: expected at most rate_limit.resources.B, which is 2"),
            "{error}"
        );
        assert!(resources.of(&limiter("C", 3)).is_ok(), "a resource without a total is as large as needed");
    }

    #[test]
    fn without_a_rate_limit_nothing_is_needed() {
        let resources = Resources::new(&config(RateLimitMode::Off));
        assert_eq!(resources.of(&limiter("B", 3)).unwrap(), RateLimit::default());
    }
}
