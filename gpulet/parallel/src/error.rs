//! What can be wrong with the input, and what would be right.

use std::fmt::Display;

/// Why a plan or a simulation was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParallelError {
    /// A value that makes no sense.
    #[error("`{field}`: expected {expected}, got {got}")]
    Invalid {
        /// Path of the value, such as `devices.1.speed`.
        field: String,
        /// A description of what would be right.
        expected: String,
        /// The value.
        got: String,
    },
    /// No choice fits the memory of the devices.
    #[error("{what} does not fit: {problem}")]
    DoesNotFit {
        /// The model, or the part of it.
        what: String,
        /// What is missing, with numbers.
        problem: String,
    },
    /// An exact search would take too long.
    #[error("`{field}`: expected at most {most} for an exact search, got {got}")]
    TooLarge {
        /// What makes the search large.
        field: String,
        /// The largest value that is searched.
        most: u64,
        /// The value.
        got: u64,
    },
}

impl ParallelError {
    pub(crate) fn invalid(field: impl Into<String>, expected: impl Into<String>, got: impl Display) -> Self {
        Self::Invalid { field: field.into(), expected: expected.into(), got: got.to_string() }
    }
}

/// Refuses everything but finite numbers above zero.
pub(crate) fn positive(field: impl Into<String>, value: f64) -> Result<(), ParallelError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(ParallelError::invalid(field, "a number above 0", value))
}

/// Refuses everything but finite numbers from zero on.
pub(crate) fn not_negative(field: impl Into<String>, value: f64) -> Result<(), ParallelError> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(ParallelError::invalid(field, "a number of at least 0", value))
}

/// Refuses counts outside of a range.
pub(crate) fn within(field: &str, value: usize, least: usize, most: usize) -> Result<(), ParallelError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ParallelError::invalid(field, format!("a number from {least} to {most}"), value))
}
