//! The waits before restarts, and the limit of deaths.

use serde::{Deserialize, Serialize};

use crate::time::Micros;

/// The longest time that an option may have: a day.
const TIME_MAX: Micros = Micros(86_400_000_000);
/// Largest value of `deaths_max`.
const DEATHS_MAX: u16 = 100;

/// Waits and limits of restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SupervisionOptions {
    /// Wait before the first restart. Each further restart waits twice as long as the previous one.
    pub backoff_us: Micros,
    /// Longest wait before a restart.
    pub backoff_max_us: Micros,
    /// Uptime after which the next restart waits for `backoff_us` again.
    pub healthy_us: Micros,
    /// Number of deaths within `deaths_within_us` that disables the domain.
    pub deaths_max: u16,
    /// Microseconds in which deaths are counted; see `deaths_max`.
    pub deaths_within_us: Micros,
}

impl Default for SupervisionOptions {
    fn default() -> Self {
        Self {
            backoff_us: Micros(100_000),
            backoff_max_us: Micros(30_000_000),
            healthy_us: Micros(60_000_000),
            deaths_max: 3,
            deaths_within_us: Micros(600_000_000),
        }
    }
}

/// An option that is out of range, and what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: expected {expected}, got {got}")]
pub struct OptionsError {
    /// The field, like `backoff_us`.
    pub field: &'static str,
    /// The values that are allowed.
    pub expected: String,
    /// The value that was given.
    pub got: u64,
}

impl SupervisionOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// [`OptionsError`] for a time of 0 or of more than a day, a longest wait that is shorter than the first one, or
    /// deaths that are not 1 to 100.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let ranges = [
            ("backoff_us", self.backoff_us.0, 1, TIME_MAX.0),
            ("backoff_max_us", self.backoff_max_us.0, self.backoff_us.0, TIME_MAX.0),
            ("healthy_us", self.healthy_us.0, 1, TIME_MAX.0),
            ("deaths_max", u64::from(self.deaths_max), 1, u64::from(DEATHS_MAX)),
            ("deaths_within_us", self.deaths_within_us.0, 1, TIME_MAX.0),
        ];
        for (field, got, least, most) in ranges {
            if !(least..=most).contains(&got) {
                return Err(OptionsError { field, expected: format!("{least} to {most}"), got });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_nonsense_is_named() {
        let defaults = SupervisionOptions::default();
        assert_eq!(defaults.validate(), Ok(()));
        let wrong = SupervisionOptions { backoff_max_us: Micros(99_999), ..defaults };
        let message = wrong.validate().unwrap_err().to_string();
        assert_eq!(message, "backoff_max_us: expected 100000 to 86400000000, got 99999");
        for (wrong, field) in [
            (SupervisionOptions { backoff_us: Micros::ZERO, ..defaults }, "backoff_us"),
            (SupervisionOptions { healthy_us: TIME_MAX.after(Micros(1)), ..defaults }, "healthy_us"),
            (SupervisionOptions { deaths_max: 0, ..defaults }, "deaths_max"),
            (SupervisionOptions { deaths_max: 101, ..defaults }, "deaths_max"),
            (SupervisionOptions { deaths_within_us: Micros::ZERO, ..defaults }, "deaths_within_us"),
        ] {
            assert_eq!(wrong.validate().unwrap_err().field, field);
        }
    }
}
