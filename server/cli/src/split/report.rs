//! The result as a table and as JSON.

use std::fmt::Write as _;

use charts::{number, percent};
use node::output;
use serde::Serialize;

use super::equality::Equality;

/// Crossing tensors that the table names, at most.
const NAMED_MAX: usize = 4;

/// The result of a split.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub model: String,
    pub version: u64,
    pub engine: String,
    /// Rows of the batches that were timed, and cores that they ran on.
    pub batch: u32,
    pub cores: u32,
    pub stages: Vec<StageReport>,
    /// Median time of the whole model.
    pub whole_ms: f64,
    /// Time of the slowest stage on its device, as a share of the time of all stages on theirs.
    pub slowest_share: f64,
    /// Possible split points, and parts that were timed to choose among them.
    pub possible_points: usize,
    pub timed_parts: usize,
    pub equality: Equality,
    /// Folder that the stages were written to.
    pub out: Option<String>,
    pub notes: Vec<String>,
}

/// One stage.
#[derive(Clone, Debug, Serialize)]
pub struct StageReport {
    pub name: String,
    pub nodes: usize,
    pub weights_bytes: u64,
    /// Tensors that it gets from earlier stages, and inputs of the model that it gets if it is not the first.
    pub crossing: Vec<String>,
    /// Bytes of these for one row.
    pub crossing_bytes_per_row: u64,
    /// Median time.
    pub time_ms: f64,
    /// Relative speed of its device.
    pub speed: f64,
    /// Its time on its device, as a share of that of all stages.
    pub share: f64,
}

impl Report {
    /// The report for people.
    pub fn text(&self) -> String {
        let cores = if self.cores == 1 { "1 core".to_owned() } else { format!("{} cores", self.cores) };
        let mut text = format!(
            "{} version {}: {} stages; engine {}, {cores}, batches of {}\n\n",
            self.model,
            self.version,
            self.stages.len(),
            self.engine,
            self.batch
        );
        let header =
            ["stage", "nodes", "weights MiB", "crossing tensors", "bytes per row", "time ms", "share"];
        text.push_str(&output::table(&header, self.stages.iter().map(StageReport::row)));
        let sum: f64 = self.stages.iter().map(|stage| stage.time_ms).sum();
        let _ = writeln!(
            text,
            "\nWhole model: {} ms; all stages: {} ms ({} of it). The slowest stage has {} of the time.",
            number(self.whole_ms),
            number(sum),
            percent(sum / self.whole_ms),
            percent(self.slowest_share)
        );
        let _ = writeln!(
            text,
            "Split points: {} possible, chosen by the times of {} parts of the model.",
            self.possible_points, self.timed_parts
        );
        let _ = writeln!(text, "Equality: {}.", self.equality.words());
        for note in &self.notes {
            let _ = writeln!(text, "Note: {note}.");
        }
        if let Some(out) = &self.out {
            let _ = writeln!(text, "Written to {out}: the stages, and the ensemble `{}`.", self.model);
        }
        text
    }
}

impl StageReport {
    fn row(&self) -> Vec<String> {
        let mut names: Vec<&str> = self.crossing.iter().map(String::as_str).take(NAMED_MAX).collect();
        let more = format!("{} more", self.crossing.len().saturating_sub(NAMED_MAX));
        if self.crossing.len() > NAMED_MAX {
            names.push(&more);
        }
        let is_first = self.crossing.is_empty();
        vec![
            self.name.clone(),
            self.nodes.to_string(),
            format!("{:.2}", self.weights_bytes as f64 / (1 << 20) as f64),
            if is_first { "-".to_owned() } else { names.join(", ") },
            if is_first { "-".to_owned() } else { self.crossing_bytes_per_row.to_string() },
            number(self.time_ms),
            percent(self.share),
        ]
    }
}
