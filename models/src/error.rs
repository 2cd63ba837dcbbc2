//! Why a model cannot be served.

use std::fmt;

use crate::ModelName;

/// The error of an engine that could not load a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineFailure {
    /// Engine by name.
    pub engine: &'static str,
    /// ONNX operator at fault (`If`), with its node where known; `None` when no single one is to blame.
    pub operator: Option<String>,
    /// The engine's message.
    pub reason: String,
}

impl fmt::Display for EngineFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.operator {
            Some(operator) => write!(f, "engine `{}`: operator {operator}: {}", self.engine, self.reason),
            None => write!(f, "engine `{}`: {}", self.engine, self.reason),
        }
    }
}

/// Invalid settings of a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model `{model}`: {}", list(.problems))]
pub struct ConfigError {
    /// Model by name.
    pub model: String,
    /// What is wrong, at least one problem.
    pub problems: Vec<Problem>,
}

/// A setting that is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Source and path of the setting, as in `config.pbtxt:3:1: dynamic_batching.preferred_batch_size`.
    pub field: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl ConfigError {
    /// An error with one problem.
    pub(crate) fn one(model: &ModelName, field: String, reason: String) -> Self {
        Self { model: model.to_string(), problems: vec![Problem { field, reason }] }
    }
}

fn list(problems: &[Problem]) -> String {
    let each =
        problems.iter().map(|Problem { field, reason }| format!("{field}: {reason}")).collect::<Vec<_>>();
    match each.as_slice() {
        [_, _, ..] => format!("{} problems: {}", each.len(), each.join("; ")),
        _ => each.concat(),
    }
}

/// Why a model could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Its files are missing, unreadable, incomplete or outside the repository.
    #[error("model `{model}`: {reason}")]
    Files {
        /// Model by name.
        model: String,
        /// What was wrong with which file.
        reason: String,
    },
    /// Its graph has inputs or outputs that the protocol cannot carry.
    #[error("model `{model}`: {tensor}: {reason}")]
    Signature {
        /// Model by name.
        model: String,
        /// ``input `x` `` or ``output `y` ``.
        tensor: String,
        /// What was wrong and what would be right.
        reason: String,
    },
    /// Its configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its configuration asks for batches, and it cannot be batched.
    #[error("model `{model}`: cannot be batched: {reason}")]
    Batch {
        /// Model by name.
        model: String,
        /// The tensor that prevents batching, and why.
        reason: String,
    },
    /// No allowed engine could load it.
    #[error("model `{model}` version {version}: {}", join(.failures))]
    Engines {
        /// Model by name.
        model: String,
        /// Version that was to be loaded.
        version: u64,
        /// The error of each engine, in the order in which they were tried.
        failures: Vec<EngineFailure>,
    },
    /// It was loaded but cannot run.
    #[error("model `{model}`: warm-up: {reason}")]
    Warm {
        /// Model by name.
        model: String,
        /// The engine's message.
        reason: String,
    },
}

fn join(failures: &[EngineFailure]) -> String {
    if failures.is_empty() {
        return "no engine takes its format".to_owned();
    }
    failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
