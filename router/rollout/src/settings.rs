//! What an operator decides about a roll-out.

use std::time::Duration;

/// Settings of a roll-out. Checked by their readers: `canary` is above 0 and at most 0.5, `agreement` 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Share of the requests that the canary gets.
    pub canary: f64,
    /// Least time before a promotion.
    pub bake: Duration,
    /// Least number of requests that the canary must have ended before a promotion; with `compare`, also of comparisons.
    pub samples: u64,
    /// Whether outputs of the two versions are compared.
    pub compare: bool,
    /// Least share of compared requests whose outputs must agree.
    pub agreement: f64,
    /// Number of tenants whose requests are told apart, at least 1.
    pub tenants: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            canary: 0.1,
            bake: Duration::from_secs(600),
            samples: 500,
            compare: false,
            agreement: 0.99,
            tenants: 1,
        }
    }
}
