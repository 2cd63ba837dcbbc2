//! A job that has not ended: its files, and rows that were read.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use tokio::task::AbortHandle;

use super::Options;
use crate::JobError;
use crate::files::{self, Input, Output};
use crate::record::Record;
use crate::runner::RowOutcome;

/// Times that a row on which the model fails is run, before its error is its result.
const ATTEMPTS: u32 = 3;
/// Bytes of the rows that one job has in memory, about.
const MEMORY: u64 = 64 << 20;
/// Windows of rows that are in memory at most, results that wait for earlier ones included.
const WINDOWS_IN_MEMORY: u64 = 5;

pub(super) struct OpenJob {
    input: Input,
    pub output: Output,
    /// Row that [`Input::next`] reads.
    next: u64,
    /// Rows that were read and have no result.
    lines: BTreeMap<u64, Bytes>,
    /// Results that wait for those before them, and whether each is a mistake.
    results: BTreeMap<u64, (Bytes, bool)>,
    /// Bytes of the input whose results are appended.
    pub input_offset: u64,
    line_bytes: BTreeMap<u64, u64>,
    longest: u64,
    /// How often the model failed on rows in flight.
    failures: BTreeMap<u64, u32>,
    pub mistakes: u64,
    /// Tasks of rows in flight. They end with the job.
    pub running: BTreeMap<u64, AbortHandle>,
    /// Why its rows wait.
    pub waits_for: String,
}

impl OpenJob {
    pub fn new(options: &Options, record: &Record) -> Result<Self, JobError> {
        Ok(Self {
            input: Input::open(files::input_of(&options.folder, record.id), record.input_offset)?,
            output: Output::open(files::output_of(&options.folder, record.id), record.output_bytes)?,
            next: record.committed,
            lines: BTreeMap::new(),
            results: BTreeMap::new(),
            input_offset: record.input_offset,
            line_bytes: BTreeMap::new(),
            longest: 1,
            failures: BTreeMap::new(),
            mistakes: record.mistakes,
            running: BTreeMap::new(),
            waits_for: String::new(),
        })
    }

    /// A row that is to be sent. Rows are read in order, and kept until they have their result.
    pub fn line(&mut self, row: u64) -> Result<Bytes, JobError> {
        while self.next <= row {
            let line = self.input.next()?;
            let bytes = line.len() as u64 + 1;
            self.longest = self.longest.max(bytes);
            self.line_bytes.insert(self.next, bytes);
            self.lines.insert(self.next, line);
            self.next += 1;
        }
        Ok(self.lines.get(&row).cloned().unwrap_or_default())
    }

    /// A window in which the rows of this job fit into memory.
    pub fn bounded(&self, window: u32) -> u32 {
        let most = (MEMORY / self.longest / WINDOWS_IN_MEMORY).max(1);
        window.min(u32::try_from(most).unwrap_or(u32::MAX))
    }

    pub fn model_is_ready(&mut self, ready: bool, model: &str) {
        if !ready {
            self.waits_for = format!("model `{model}` is not ready");
        } else if self.waits_for.ends_with("is not ready") {
            self.waits_for.clear();
        }
    }

    /// Takes the outcome of a row. False: it must be sent again.
    pub fn take(&mut self, row: u64, outcome: RowOutcome) -> bool {
        self.running.remove(&row);
        let result = match outcome {
            RowOutcome::Answer(line) => (line, false),
            RowOutcome::Mistake(error) => (mistake(&error), true),
            RowOutcome::Failed(error) => {
                let failures = self.failures.entry(row).or_default();
                *failures += 1;
                if *failures < ATTEMPTS {
                    self.waits_for = error;
                    return false;
                }
                (mistake(&error), true)
            }
            RowOutcome::Refused(reason) => {
                self.waits_for = reason;
                return false;
            }
        };
        self.waits_for.clear();
        self.failures.remove(&row);
        self.lines.remove(&row);
        self.results.insert(row, result);
        true
    }

    pub fn append(&mut self, rows: Range<u64>) -> Result<(), JobError> {
        for row in rows {
            let Some((line, is_mistake)) = self.results.remove(&row) else {
                invariant::violated!("jobs.result_missing");
                continue;
            };
            self.output.append(&line)?;
            self.mistakes += u64::from(is_mistake);
            self.input_offset += self.line_bytes.remove(&row).unwrap_or(0);
        }
        Ok(())
    }
}

impl Drop for OpenJob {
    fn drop(&mut self) {
        self.running.values().for_each(AbortHandle::abort);
    }
}

fn mistake(error: &str) -> Bytes {
    serde_json::json!({ "error": error }).to_string().into()
}
