//! What runs the rows of jobs.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use job_formats::Column;

use crate::record::{JobState, Record};

/// How a row ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowOutcome {
    /// It was answered.
    Answer {
        /// Its result: one line without a line break, or a record (`job_formats::record`), as the job's format is.
        result: Bytes,
        /// The outputs in a record. Empty for a line.
        columns: Vec<Column>,
    },
    /// The row cannot be answered: what is wrong with it.
    Mistake(String),
    /// The model failed on it. It is tried again a few times.
    Failed(String),
    /// It was refused for now: why.
    Refused(String),
}

/// Runs single rows. Implemented by the server.
pub trait RowRunner: Send + Sync + 'static {
    /// Runs a row of a job: a line without a line break, or a record, as the format of its input is.
    fn run(&self, job: &Record, row: u64, input: Bytes) -> Pin<Box<dyn Future<Output = RowOutcome> + Send>>;

    /// Rows of the job's model that are worth being in flight together. `None`: the model is not ready.
    fn window(&self, job: &Record) -> Option<u32>;
}

/// Counts what jobs do. Implemented by the server.
pub trait JobMetrics: Send + Sync + 'static {
    /// Jobs that have not ended, and their rows without a result.
    fn open(&self, jobs: usize, rows_left: u64);
    /// A row ended.
    fn row(&self, outcome: &RowOutcome);
    /// A job ended.
    fn ended(&self, state: JobState);
}
