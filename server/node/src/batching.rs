//! A model's batching settings as the router's policy.

use models::EffectiveConfig;
use router_core::Nanos;
use router_core::batch::{BatchOptions, Policy};

/// The policy, or what is wrong with its settings.
pub fn policy(config: &EffectiveConfig) -> Result<Policy, String> {
    let options = BatchOptions {
        max_delay: (!config.max_delay.is_zero()).then(|| Nanos::from(config.max_delay)),
        preferred: config.preferred.iter().map(|size| size.get()).collect(),
        drop: None,
    };
    Policy::new(&config.policy, &options).map_err(|error| format!("models.{}.batching.{error}", config.name))
}
