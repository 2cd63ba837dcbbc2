//! A model's batching settings as the router's policy.

use models::EffectiveConfig;
use router_core::batch::{BatchOptions, Policy};
use router_core::{Class, Nanos};

/// The router's class for a class of a model's configuration, whose first is 1.
pub fn class(number: u32) -> Class {
    Class::new(u8::try_from(number.saturating_sub(1)).unwrap_or(u8::MAX))
}

/// The policy, or what is wrong with its settings.
pub fn policy(config: &EffectiveConfig) -> Result<Policy, String> {
    let options = BatchOptions {
        max_delay: (!config.max_delay.is_zero()).then(|| Nanos::from(config.max_delay)),
        preferred: config.preferred.iter().map(|size| size.get()).collect(),
        drop: None,
    };
    Policy::new(&config.policy, &options).map_err(|error| format!("models.{}.batching.{error}", config.name))
}
