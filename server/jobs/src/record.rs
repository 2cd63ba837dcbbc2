//! A job as the journal and clients see it.

use job_core::{Forecast, JobId, Millis, Verdict};
use job_formats::{Column, Format};
use serde::{Deserialize, Serialize};

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the model.
    pub model: String,
    /// Its version. `None`: the one that requests without a version get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Outputs that results have. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// Format of the input.
    #[serde(default)]
    pub input: Format,
    /// Format of the results.
    #[serde(default)]
    pub results: Format,
    /// Whose job it is, by name.
    pub tenant: String,
    /// When it should have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Millis>,
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Its rows are sent, or wait for other jobs and requests.
    Open,
    /// Every row has its result.
    Done,
    /// It was cancelled. The results until then are kept.
    Cancelled,
    /// Its files could not be read or written.
    Failed,
}

impl JobState {
    /// The state in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// What is durable of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its number.
    pub id: JobId,
    /// What was asked for.
    #[serde(flatten)]
    pub request: Request,
    /// Where it is.
    pub state: JobState,
    /// When it was submitted.
    pub submitted: Millis,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Millis>,
    /// Its rows.
    pub rows: u64,
    /// Bytes of its input.
    pub input_bytes: u64,
    /// Rows whose results are in the output.
    pub committed: u64,
    /// Bytes of the input that these rows are.
    pub input_offset: u64,
    /// Bytes of the output that their results are.
    pub output_bytes: u64,
    /// Rows among them that could not be answered.
    pub mistakes: u64,
    /// Outputs of each row, as they were in the first. Empty for results in JSON, and before the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// A job as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// What is durable of it.
    #[serde(flatten)]
    pub record: Record,
    /// Rows with results, in order from the first. Those after `committed` are not durable yet.
    pub done: u64,
    /// Rows that are in the server.
    pub in_flight: u32,
    /// When it will end, and how sure that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Forecast>,
    /// Whether it will end by its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Why its rows wait, if the last one was refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waits_for: String,
}
