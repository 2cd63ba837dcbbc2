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
    /// Predicted from other models that were measured on the device; no cell was measured.
    Predicted,
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

/// Interval that holds the median of a predicted cell in 90 % of cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end, microseconds.
    pub low_us: f64,
    /// Upper end, microseconds.
    pub high_us: f64,
}

/// Times of one batch size on one share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "CellLine", into = "CellLine")]
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
    /// Measured runs, at least 1; 0 for a predicted cell. Weight of the cell where cells contradict each other.
    pub count: u64,
    /// Runs left out because other programs disturbed them; `None` if they were not counted.
    pub left_out: Option<u64>,
    /// Reason not to trust the times, for readers; `None` without doubts.
    pub doubt: Option<String>,
    /// The interval of a cell that was predicted and not measured; `None` for a measured one. In a file, `source` is then `predicted`, with
    /// `low_us` and `high_us`.
    pub predicted: Option<Interval>,
}

/// Where the times of a cell come from, if it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CellSource {
    Measured,
    Predicted,
}

/// A cell as the file has it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CellLine {
    batch: u32,
    units: u32,
    p50_us: f64,
    p95_us: f64,
    p99_us: f64,
    count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_out: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    doubt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<CellSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    low_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    high_us: Option<f64>,
}

impl TryFrom<CellLine> for Cell {
    type Error = &'static str;

    fn try_from(line: CellLine) -> Result<Self, Self::Error> {
        let predicted = match (line.source, line.low_us, line.high_us) {
            (None | Some(CellSource::Measured), None, None) => None,
            (Some(CellSource::Predicted), Some(low_us), Some(high_us)) => Some(Interval { low_us, high_us }),
            _ => {
                return Err(
                    "expected `low_us` and `high_us` in a cell with source `predicted`, and in no other",
                );
            }
        };
        let CellLine { batch, units, p50_us, p95_us, p99_us, count, left_out, doubt, .. } = line;
        Ok(Self { batch, units, p50_us, p95_us, p99_us, count, left_out, doubt, predicted })
    }
}

impl From<Cell> for CellLine {
    fn from(cell: Cell) -> Self {
        let Cell { batch, units, p50_us, p95_us, p99_us, count, left_out, doubt, predicted } = cell;
        Self {
            batch,
            units,
            p50_us,
            p95_us,
            p99_us,
            count,
            left_out,
            doubt,
            source: predicted.map(|_| CellSource::Predicted),
            low_us: predicted.map(|interval| interval.low_us),
            high_us: predicted.map(|interval| interval.high_us),
        }
    }
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

/// Work of all operators of one class of the model, from which the times of other models are predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkLine {
    /// Name of the class, such as `convolution`.
    pub class: String,
    /// Number of operators.
    pub operators: f64,
    /// Multiply-accumulate operations for one row.
    pub macs: f64,
    /// Bytes of weights.
    pub weight_bytes: f64,
    /// Bytes of activations for one row.
    pub activation_bytes: f64,
    /// Sum of the operations that each element of an output takes one after the other.
    pub path: f64,
}

/// One line of a profile file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The start of a profile.
    Profile(Header),
    /// A measured or predicted cell. A later cell of the same batch and units replaces it.
    Cell(Cell),
    /// Memory for batches up to a size.
    Arena(ArenaLine),
    /// Use of shared parts by batches of one size.
    Utilisation(UtilisationLine),
    /// Times of batches co-located with a synthetic load. A later line of the same batch, units and load replaces it.
    Contention(ContentionLine),
    /// iGniter's coefficients.
    Coefficients(Coefficients),
    /// Work of the model's operators. A later line of the same class replaces it.
    Work(WorkLine),
}
