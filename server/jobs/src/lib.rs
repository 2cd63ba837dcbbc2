//! Jobs on a node: rows of a file through one model, behind the requests of clients.
//!
//! [`job_core`] decides which row is sent next and when results are committed. One thread carries this out: it reads input, hands rows to
//! a [`RowRunner`], appends results in order, and records in a journal what is durable. After a crash, a job goes on behind the last
//! committed row, and its output has the result of every row once.

#![forbid(unsafe_code)]

mod files;
mod incoming;
mod journal;
mod record;
mod runner;
mod space;
mod thread;

pub use incoming::Incoming;
pub use job_core::{Forecast, JobId, Millis, Verdict};
pub use job_formats::{Column, Format};
pub use record::{JobState, JobView, Record, Request};
pub use runner::{JobMetrics, RowOutcome, RowRunner};
pub use thread::{Jobs, Options};

/// Why a job cannot be accepted, found or changed.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The job does not exist, or belongs to another tenant.
    #[error("job {0}: not found")]
    Unknown(JobId),
    /// The job has ended.
    #[error("job {0} has ended")]
    Ended(JobId),
    /// As many jobs as are allowed have not ended.
    #[error("{0} jobs have not ended, which is the most (`jobs.max_jobs`): cancel one, or wait")]
    TooMany(usize),
    /// The files of all jobs would take too much.
    #[error(
        "the files of jobs would take more than {0} bytes (`jobs.max_bytes`): wait until older jobs are removed"
    )]
    TooLarge(u64),
    /// The input is wrong.
    #[error("{0}")]
    Input(String),
    /// A file cannot be read or written.
    #[error("{what}: {cause}")]
    File {
        /// Which file.
        what: String,
        /// Error of the operating system.
        cause: std::io::Error,
    },
    /// A row or its result was lost, which is a bug.
    #[error("row {0} was lost, which is a bug in this server")]
    Row(u64),
    /// The thread that checked an input ended early.
    #[error("the input was not checked, which is a bug in this server: {0}")]
    NotChecked(String),
    /// The journal cannot be read or written.
    #[error("the journal of jobs: {0}")]
    Journal(String),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Stopping,
}

impl JobError {
    pub(crate) fn file(path: &std::path::Path, cause: std::io::Error) -> Self {
        Self::File { what: path.display().to_string(), cause }
    }
}
