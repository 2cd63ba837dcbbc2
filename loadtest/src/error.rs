//! Why a run cannot start, or cannot go on.

use std::io;

use workload::WorkloadError;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The workload, or its stages.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The address.
    #[error(transparent)]
    Endpoint(#[from] crate::target::BadEndpoint),
    /// An option.
    #[error("{option}: {problem}")]
    Option {
        /// Which one.
        option: String,
        /// What was wrong, and what would be right.
        problem: String,
    },
    /// The server does not answer, or not in the protocol.
    #[error("{url}: {problem}")]
    Server {
        /// Where it was looked for.
        url: String,
        /// What went wrong.
        problem: String,
    },
    /// A model is not there, or does not take what would be sent.
    #[error("model `{model}`: {problem}")]
    Model {
        /// What the server calls it.
        model: String,
        /// What went wrong, and what would be right.
        problem: String,
    },
    /// This machine refused something that a run needs.
    #[error("cannot {what}: {error}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// A sending thread ended without its results.
    #[error("a sending thread ended without its results: this is a fault of tessera")]
    Lost,
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
