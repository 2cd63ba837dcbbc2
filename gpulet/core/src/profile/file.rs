//! The profile file: JSON lines, so that a profiler can append cell by cell and resume, and a diff of two files shows
//! which cells moved. A `profile` line starts a profile, the lines after it belong to it.

use serde::{Deserialize, Serialize};

use super::{Coefficients, Utilisation};

/// Where the times come from; reports built on anything but measurements say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// On the device that it names.
    Measured,
    /// From a publication; the note says which.
    TypedIn,
    /// From coefficients or roofline figures; the note says how.
    Synthesised,
}

/// What a profile says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Version of the format, 1.
    pub version: u32,
    /// Name of the model.
    pub model: String,
    /// SHA-256 of the model's files, hexadecimal; none where there is no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_sha256: Option<String>,
    /// Kind of device, a name that a problem's devices refer to.
    pub device: String,
    /// Engine that ran it.
    pub engine: String,
    /// Where the times come from.
    pub source: Source,
    /// For people: driver and library versions, the publication, the method.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Units of the whole device.
    pub units_total: u32,
    /// Bytes of weights, once a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_bytes: Option<u64>,
    /// Microseconds to copy a row in, if that overlaps the batch before; else 0.
    #[serde(default)]
    pub load_us_per_row: f64,
}

/// Times of one batch size on one share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Rows.
    pub batch: u32,
    /// Units of the device.
    pub units: u32,
    /// Median, microseconds.
    pub p50_us: f64,
    /// 95th percentile, microseconds.
    pub p95_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// Runs behind these times, at least 1; weighs the cell where cells contradict each other.
    pub count: u64,
    /// Runs that were left out, for others disturbed them; none where nobody counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<u64>,
    /// Why the times are not to be trusted, for people; none where nothing speaks against them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// Memory of a gpulet beside the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArenaLine {
    /// Largest batch, rows.
    pub batch: u32,
    /// Bytes.
    pub bytes: u64,
}

/// Use of the device's shared parts, alone on the whole device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UtilisationLine {
    /// Rows.
    pub batch: u32,
    /// How much, from 0 to 1.
    #[serde(flatten)]
    pub used: Utilisation,
}

/// What a synthetic neighbour does all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggressor {
    /// Computes, in registers.
    Compute,
    /// Goes through more memory than any cache holds.
    Stream,
}

/// What batches suffer beside a synthetic neighbour on other units, and what it suffers from them: sensitivity and
/// pressure (Bubble-Up, Mars et al., MICRO 2011, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentionLine {
    /// Rows.
    pub batch: u32,
    /// Units of the batch.
    pub units: u32,
    /// Which neighbour.
    pub aggressor: Aggressor,
    /// Units of the neighbour.
    pub aggressor_units: u32,
    /// Median time beside it over the median alone.
    pub slowdown: f64,
    /// Time of the neighbour's work beside batches, one after the other, over its time alone.
    pub pressure: f64,
    /// Runs beside it, at least 1.
    pub count: u64,
}

/// One line of a profile file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Starts a profile.
    Profile(Header),
    /// A measured cell; a later one of the same batch and units replaces it.
    Cell(Cell),
    /// Memory for batches of a size.
    Arena(ArenaLine),
    /// Use of shared parts by batches of a size.
    Utilisation(UtilisationLine),
    /// Beside a synthetic neighbour; a later line of the same batch, units and neighbour replaces it.
    Contention(ContentionLine),
    /// iGniter's coefficients.
    Coefficients(Coefficients),
}
