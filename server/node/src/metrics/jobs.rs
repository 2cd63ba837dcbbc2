//! Metrics of jobs.

use metrics::{Counter, Gauge, counter, gauge};

use super::names;

/// Words of the label `outcome` of rows.
pub const ROW_OUTCOMES: [&str; 4] = ["answered", "mistake", "failed", "refused"];
/// Words of the label `state` of jobs that ended.
pub const END_STATES: [&str; 3] = ["done", "cancelled", "failed"];

/// Jobs and their rows.
pub struct JobsMetrics {
    open: Gauge,
    rows_left: Gauge,
    rows: [Counter; 4],
    ended: [Counter; 3],
}

impl JobsMetrics {
    /// Registers with the current recorder.
    pub fn new() -> Self {
        Self {
            open: gauge!(names::JOBS_OPEN.name),
            rows_left: gauge!(names::JOB_ROWS_LEFT.name),
            rows: ROW_OUTCOMES.map(|word| counter!(names::JOB_ROWS.name, names::OUTCOME => word)),
            ended: END_STATES.map(|word| counter!(names::JOBS_ENDED.name, names::STATE => word)),
        }
    }

    /// Jobs that have not ended, and their rows without a result.
    pub fn open(&self, jobs: usize, rows_left: u64) {
        self.open.set(jobs as f64);
        self.rows_left.set(rows_left as f64);
    }

    /// A row ended, with one of [`ROW_OUTCOMES`].
    pub fn row(&self, outcome: &str) {
        count(&ROW_OUTCOMES, &self.rows, outcome);
    }

    /// A job ended, in one of [`END_STATES`].
    pub fn ended(&self, state: &str) {
        count(&END_STATES, &self.ended, state);
    }
}

impl Default for JobsMetrics {
    fn default() -> Self {
        Self::new()
    }
}

fn count(words: &[&str], counters: &[Counter], word: &str) {
    let found = words.iter().zip(counters).find(|(one, _)| **one == word);
    if let Some((_, counter)) = found {
        counter.increment(1);
    }
}
