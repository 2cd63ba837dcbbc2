//! Errors of a run.

use std::{fmt, io};

use workload::WorkloadError;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The workload or its stages are invalid.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The address is invalid.
    #[error(transparent)]
    Endpoint(#[from] crate::target::BadEndpoint),
    /// An option is invalid.
    #[error("{option}: {problem}")]
    Option {
        /// The option.
        option: String,
        /// What was wrong, and what is expected.
        problem: String,
    },
    /// The server does not answer, or not in the protocol.
    #[error("{url}: {problem}")]
    Server {
        /// The server's address.
        url: String,
        /// What went wrong.
        problem: String,
    },
    /// The server does not have a model, or does not accept its requests.
    #[error("model `{model}`: {problem}")]
    Model {
        /// The server's name of the model.
        model: String,
        /// What went wrong, and what is expected.
        problem: String,
    },
    /// Inputs have no shape. The server accepts the suggested ones.
    #[error("{}:{}", .0, workload::flags("--shape", .0.flags.iter().cloned()))]
    Shapes(MissingShapes),
    /// A system call that a run needs failed.
    #[error("cannot {what}: {error}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// The error of the system.
        error: io::Error,
    },
    /// A sending thread ended without its results.
    #[error("a sending thread ended without its results: this is a fault of tessera")]
    Lost,
}

/// Inputs whose free dimensions have no extent, and shapes that the server accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingShapes {
    /// The server's name of the first model.
    pub model: String,
    /// Its first input without a shape, and why it needs one.
    pub problem: String,
    /// Values for `--shape` that give every input of every model a shape.
    pub flags: Vec<String>,
    /// Where they come from.
    pub origin: &'static str,
}

impl fmt::Display for MissingShapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, problem, origin, .. } = self;
        write!(f, "model `{model}`: {problem}: expected sizes; the server accepts these, from {origin}")
    }
}

impl LoadError {
    pub(crate) fn option(option: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Option { option: option.into(), problem: problem.into() }
    }

    pub(crate) fn model(model: &str, problem: impl Into<String>) -> Self {
        Self::Model { model: model.to_owned(), problem: problem.into() }
    }

    pub(crate) fn system(what: &'static str, error: impl Into<io::Error>) -> Self {
        Self::System { what, error: error.into() }
    }
}
