//! A job that has not ended: its files, and rows that were read.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use job_core::{Event, JobId};
use job_formats::{Column, Format, FormatError, check_row, record};
use tokio::task::AbortHandle;

use super::Options;
use crate::JobError;
use crate::files::{self, Input, Output};
use crate::record::Record;
use crate::runner::RowOutcome;

/// Bytes of the rows that one job has in memory, about.
const MEMORY: u64 = 64 << 20;
/// Windows of rows that are in memory at most, results that wait for earlier ones included.
const WINDOWS_IN_MEMORY: u64 = 5;

enum RowResult {
    Answer(Bytes, Vec<Column>),
    Mistake(String),
}

pub(super) struct OpenJob {
    input: Input,
    pub output: Output,
    /// Row that [`Input::next`] reads.
    next: u64,
    /// Rows that were read and whose results are not appended.
    lines: BTreeMap<u64, Bytes>,
    /// Results that wait for those before them.
    results: BTreeMap<u64, RowResult>,
    format: Format,
    /// Outputs of the first row that was answered.
    pub columns: Vec<Column>,
    /// Bytes of the input whose results are appended.
    pub input_offset: u64,
    longest: u64,
    /// What the model said when it failed on a row.
    failures: BTreeMap<u64, String>,
    pub mistakes: u64,
    /// Tasks of rows in flight. They end with the job.
    pub running: BTreeMap<u64, AbortHandle>,
    /// Why the last row was refused.
    refused: String,
    is_ready: bool,
}

impl OpenJob {
    pub fn new(options: &Options, record: &Record) -> Result<Self, JobError> {
        let (input, results) = (record.request.input, record.request.results);
        let input_file = files::input_of(&options.folder, record.id, input);
        let output_file = files::output_of(&options.folder, record.id, results);
        Ok(Self {
            input: Input::open(input_file, input, record.input_offset)?,
            output: Output::open(output_file, results, record.output_bytes)?,
            next: record.committed,
            lines: BTreeMap::new(),
            results: BTreeMap::new(),
            format: results,
            columns: record.columns.clone(),
            input_offset: record.input_offset,
            longest: 1,
            failures: BTreeMap::new(),
            mistakes: record.mistakes,
            running: BTreeMap::new(),
            refused: String::new(),
            is_ready: true,
        })
    }

    /// A row that is to be sent. Rows are read in order, and kept until they have their result.
    pub fn line(&mut self, row: u64) -> Result<Bytes, JobError> {
        while self.next <= row {
            let line = self.input.next()?;
            self.longest = self.longest.max(self.input.bytes_of(&line));
            self.lines.insert(self.next, line);
            self.next += 1;
        }
        let line = self.lines.get(&row).cloned();
        invariant::expected!(line, "jobs.line_missing").ok_or(JobError::Row(row))
    }

    /// A window in which the rows of this job fit into memory.
    pub fn bounded(&self, window: u32) -> u32 {
        let most = (MEMORY / self.longest / WINDOWS_IN_MEMORY).max(1);
        window.min(u32::try_from(most).unwrap_or(u32::MAX))
    }

    pub fn model_is_ready(&mut self, is_ready: bool) {
        self.is_ready = is_ready;
    }

    /// Why the rows of a job of this model wait. Empty if they do not.
    pub fn waits_for(&self, model: &str) -> String {
        if self.is_ready { self.refused.clone() } else { format!("model `{model}` is not ready") }
    }

    /// Takes the outcome of a row of the job with this number.
    pub fn take(&mut self, id: JobId, row: u64, outcome: RowOutcome) -> Event {
        self.running.remove(&row);
        let result = match outcome {
            RowOutcome::Answer { result, columns } => RowResult::Answer(result, columns),
            RowOutcome::Mistake(error) => RowResult::Mistake(error),
            RowOutcome::Failed(error) => {
                self.refused.clone_from(&error);
                self.failures.insert(row, error);
                return Event::Failed(id, row);
            }
            RowOutcome::Refused(reason) => {
                self.refused = reason;
                return Event::Refused(id, row);
            }
        };
        self.refused.clear();
        self.failures.remove(&row);
        self.results.insert(row, result);
        Event::Done(id, row)
    }

    /// The model failed on a row too often: its error is the result.
    pub fn abandon(&mut self, row: u64) {
        self.refused.clear();
        let error = self.failures.remove(&row).unwrap_or_default();
        self.results.insert(row, RowResult::Mistake(error));
    }

    pub fn append(&mut self, rows: Range<u64>) -> Result<(), JobError> {
        for row in rows {
            let both = self.results.remove(&row).zip(self.lines.remove(&row));
            let both = invariant::expected!(both, "jobs.result_missing");
            let (result, line) = both.ok_or(JobError::Row(row))?;
            let told = |what: &str| JobError::Input(format!("row {row}: {what}"));
            let bytes = match result {
                RowResult::Answer(bytes, columns) => {
                    if self.columns.is_empty() {
                        self.columns.clone_from(&columns);
                    }
                    check_row(self.format, &self.columns, &columns).map_err(|error| told(&error))?;
                    bytes
                }
                RowResult::Mistake(error) if !self.format.has_errors() => return Err(told(&error)),
                RowResult::Mistake(error) => {
                    self.mistakes += 1;
                    mistake(self.format, error).map_err(|error| told(&error.to_string()))?
                }
            };
            self.output.append(&bytes)?;
            self.input_offset += self.input.bytes_of(&line);
        }
        Ok(())
    }
}

impl Drop for OpenJob {
    fn drop(&mut self) {
        self.running.values().for_each(AbortHandle::abort);
    }
}

/// What the output has for a row that cannot be answered.
fn mistake(format: Format, error: String) -> Result<Bytes, FormatError> {
    match format {
        Format::JsonLines => Ok(serde_json::json!({ "error": error }).to_string().into()),
        _ => record::encode(Err(error)),
    }
}
