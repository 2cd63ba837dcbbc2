//! Errors of the configuration.

/// A configuration that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// The option, by its name in the configuration.
    pub field: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl ConfigError {
    /// Names the option and the problem.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}
