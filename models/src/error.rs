//! Why a model cannot be served.

use std::fmt;

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

/// An invalid setting of a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model `{model}`: {field}: {reason}")]
pub struct ConfigError {
    /// Model by name.
    pub model: String,
    /// Where: the source and the path of the setting, as in `config.pbtxt: dynamic_batching.preserve_ordering`.
    pub field: String,
    /// What was wrong and what would be right.
    pub reason: String,
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
