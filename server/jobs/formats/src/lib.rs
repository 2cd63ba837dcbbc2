//! Files of jobs: which formats there are, rows of NumPy and Parquet files as tensors, and tensors as such files.
//!
//! JSON lines are rows as they are. Rows of the other formats are kept as [records](record) between the two ends, so that a job can go
//! on behind any row whatever its format is.

#![forbid(unsafe_code)]

mod array;
mod cast;
mod column;
mod error;
mod format;
mod numpy_input;
mod numpy_output;
mod parquet_input;
mod parquet_output;
pub mod record;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read, Write};

use oip::Tensor;

pub use cast::cast;
pub use column::{Column, check_row};
pub use error::FormatError;
pub use format::{Format, UnknownFormat};
pub use record::Records;

/// Reads each row of a file as tensors without a batch dimension, in order. The one of an `.npy` file has no name.
///
/// # Errors
/// The file is not of this format, has values that tensors do not have, or `each` fails.
pub fn read(
    file: &File,
    format: Format,
    row_max: usize,
    each: &mut dyn FnMut(Vec<Tensor>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    match format {
        Format::JsonLines => Err(FormatError::Input("JSON lines are rows as they are".to_owned())),
        Format::Npy => numpy_input::read_npy(file, row_max, each),
        Format::Npz => numpy_input::read_npz(file, row_max, each),
        Format::Parquet => parquet_input::read(file, row_max, each),
    }
}

/// Records from their beginning.
pub type Open<'a> = &'a dyn Fn() -> io::Result<Box<dyn Read + Send>>;

/// Writes records as a file of this format. `columns` are those of every row that has a result.
///
/// # Errors
/// The records cannot be read or the file cannot be written.
pub fn write(
    format: Format,
    columns: &[Column],
    rows: u64,
    open: Open<'_>,
    out: &mut (dyn Write + Send),
) -> Result<(), FormatError> {
    match format {
        Format::JsonLines => io::copy(&mut open()?, out).map(|_| ()).map_err(FormatError::from),
        Format::Npy => numpy_output::write_npy(columns, rows, open, out),
        Format::Npz => numpy_output::write_npz(columns, rows, open, out),
        Format::Parquet => parquet_output::write(columns, open, out),
    }
}
