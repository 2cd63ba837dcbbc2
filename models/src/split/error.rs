//! Why a model cannot be split.

use model_split::GraphError;

use crate::LoadError;

/// A model that cannot be split.
#[derive(Debug, thiserror::Error)]
pub enum SplitModelError {
    /// Its file cannot be served either.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It has something that stages would lose.
    #[error("model `{model}`: {field}: {reason}")]
    Refused {
        /// Model by name.
        model: String,
        /// The part of the file.
        field: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// Its graph is not valid.
    #[error("model `{model}`: {error}")]
    Graph {
        /// Model by name.
        model: String,
        /// What is wrong with which node or tensor.
        error: GraphError,
    },
    /// The types of tensors between stages are not known.
    #[error("model `{model}`: {reason}")]
    Types {
        /// Model by name.
        model: String,
        /// Which tensor, and what each engine says.
        reason: String,
    },
    /// A configuration cannot be made.
    #[error("config.pbtxt of model `{model}`: {reason}")]
    Config {
        /// Model by name.
        model: String,
        /// The field, and what would be right.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("`{path}`: {error}")]
    File {
        /// The file.
        path: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
}
