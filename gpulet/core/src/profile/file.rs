//! The profile file format: JSON lines. A profiler can append cell by cell and resume, and a diff of two files shows
//! which cells changed. A `profile` line starts a profile; the lines after it belong to it.

use serde::{Deserialize, Serialize};

use super::{Coefficients, RowShape, Utilisation};

/// Where the times come from. Reports state every source other than measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Measured on the named device.
    Measured,
    /// Copied from a publication, which the note names.
    TypedIn,
    /// Computed from coefficients or roofline figures; the note describes the method.
    Synthesised,
}

/// Description of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Version of the format; 1.
    pub version: u32,
    /// Name of the model.
    pub model: String,
    /// SHA-256 of the model's files, hexadecimal; `None` without files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_sha256: Option<String>,
    /// Device type, a name that a problem's devices refer to.
    pub device: String,
    /// Engine that ran the model.
    pub engine: String,
    /// Where the times come from.
    pub source: Source,
    /// Notes for readers: driver and library versions, the publication, the method.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Shapes of the inputs that were measured; empty if the model's inputs have fixed shapes, or if they are unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<RowShape>,
    /// Units of the whole device.
    pub units_total: u32,
    /// Bytes of weights, once per device; `None` if they were not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_bytes: Option<u64>,
    /// Microseconds to copy a row in, if that overlaps with the previous batch; else 0.
    #[serde(default)]
    pub load_us_per_row: f64,
}

/// Times of one batch size on one share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Batch size, rows.
    pub batch: u32,
    /// Units of the share.
    pub units: u32,
    /// Median time, microseconds.
    pub p50_us: f64,
    /// 95th percentile of the time, microseconds.
    pub p95_us: f64,
    /// 99th percentile of the time, microseconds.
    pub p99_us: f64,
    /// Measured runs, at least 1. Weight of the cell where cells contradict each other.
    pub count: u64,
    /// Runs left out because other programs disturbed them; `None` if they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<u64>,
    /// Reason not to trust the times, for readers; `None` without doubts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// Memory of a gpulet in addition to the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArenaLine {
    /// Largest batch size, rows.
    pub batch: u32,
    /// Memory, bytes.
    pub bytes: u64,
}

/// Use of the device's shared parts, solo on the whole device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UtilisationLine {
    /// Batch size, rows.
    pub batch: u32,
    /// Used fractions, from 0 to 1.
    #[serde(flatten)]
    pub used: Utilisation,
}

/// What a synthetic co-located load does all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggressor {
    /// Computes in registers.
    Compute,
    /// Streams through more memory than any cache holds.
    Stream,
}

/// Slowdown of batches co-located with a synthetic load on other units, and of that load: sensitivity and pressure
/// (Bubble-Up, Mars et al., MICRO 2011, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentionLine {
    /// Batch size, rows.
    pub batch: u32,
    /// Units that the batch runs on.
    pub units: u32,
    /// Type of the synthetic load.
    pub aggressor: Aggressor,
    /// Units of the synthetic load.
    pub aggressor_units: u32,
    /// Median co-located time divided by the median solo time.
    pub slowdown: f64,
    /// Time of the synthetic load's work next to consecutive batches, divided by its solo time.
    pub pressure: f64,
    /// Co-located runs, at least 1.
    pub count: u64,
}

/// One line of a profile file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The start of a profile.
    Profile(Header),
    /// A measured cell. A later cell of the same batch and units replaces it.
    Cell(Cell),
    /// Memory for batches up to a size.
    Arena(ArenaLine),
    /// Use of shared parts by batches of one size.
    Utilisation(UtilisationLine),
    /// Times of batches co-located with a synthetic load. A later line of the same batch, units and load replaces it.
    Contention(ContentionLine),
    /// iGniter's coefficients.
    Coefficients(Coefficients),
}
