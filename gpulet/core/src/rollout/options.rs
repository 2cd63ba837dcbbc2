//! Time limits of a change, and the length of the history.

use serde::{Deserialize, Serialize};

use crate::time::Micros;

/// The longest time that an option may have: a day.
const TIME_MAX: Micros = Micros(86_400_000_000);
/// Largest number of attempts.
const ATTEMPTS_MAX: u32 = 100;
/// Largest number of history entries.
const HISTORY_MAX: usize = 100_000;

/// Deadlines and bounds of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RolloutOptions {
    /// Deadline for opening a gpulet: its context and queue, no model.
    pub open_us: Micros,
    /// Deadline for loading and warming one model on one gpulet.
    pub prepare_us: Micros,
    /// Deadline for running one known input.
    pub verify_us: Micros,
    /// Deadline for the router to apply a new table.
    pub switch_us: Micros,
    /// Deadline for a draining gpulet to finish its batches. Passing it is an incident and loses no request.
    pub drain_us: Micros,
    /// Deadline for closing one session or one gpulet, or freeing one arena.
    pub close_us: Micros,
    /// How long the old gpulets stay open after a switch, for a rollback.
    pub bake_us: Micros,
    /// Attempts to close a session or gpulet, or to switch, before an incident is reported.
    pub attempts: u32,
    /// Number of history entries that are kept; older ones are removed.
    pub history: usize,
}

impl Default for RolloutOptions {
    fn default() -> Self {
        Self {
            open_us: Micros(5_000_000),
            prepare_us: Micros(120_000_000),
            verify_us: Micros(30_000_000),
            switch_us: Micros(1_000_000),
            drain_us: Micros(5_000_000),
            close_us: Micros(10_000_000),
            bake_us: Micros(3_000_000),
            attempts: 3,
            history: 512,
        }
    }
}

/// An option that makes no sense: the field, and what would.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: expected {expected}, got {got}")]
pub struct OptionsError {
    /// The field, like `drain_us`.
    pub field: &'static str,
    /// What would be right.
    pub expected: String,
    /// What it was.
    pub got: u64,
}

impl RolloutOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// [`OptionsError`] for a deadline of 0 or of more than a day, a baking of more than a day, attempts that are
    /// not 1 to 100, or a history that is not 1 to 100,000 entries.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let deadlines = [
            ("open_us", self.open_us.0),
            ("prepare_us", self.prepare_us.0),
            ("verify_us", self.verify_us.0),
            ("switch_us", self.switch_us.0),
            ("drain_us", self.drain_us.0),
            ("close_us", self.close_us.0),
        ];
        let history = u64::try_from(self.history).unwrap_or(u64::MAX);
        let history_max = u64::try_from(HISTORY_MAX).unwrap_or(u64::MAX);
        let bounded = deadlines.into_iter().map(|(field, got)| (field, got, 1, TIME_MAX.0));
        let others = [
            ("bake_us", self.bake_us.0, 0, TIME_MAX.0),
            ("attempts", u64::from(self.attempts), 1, u64::from(ATTEMPTS_MAX)),
            ("history", history, 1, history_max),
        ];
        for (field, got, least, most) in bounded.chain(others) {
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
        assert_eq!(RolloutOptions::default().validate(), Ok(()));
        let wrong = RolloutOptions { drain_us: Micros::ZERO, ..RolloutOptions::default() };
        let message = wrong.validate().unwrap_err().to_string();
        assert_eq!(message, "drain_us: expected 1 to 86400000000, got 0");
        let wrong = RolloutOptions { attempts: 101, ..RolloutOptions::default() };
        assert_eq!(wrong.validate().unwrap_err().field, "attempts");
        let wrong = RolloutOptions { history: 0, ..RolloutOptions::default() };
        assert_eq!(wrong.validate().unwrap_err().field, "history");
    }
}
