//! Records as NumPy files.

use std::io::{BufWriter, Write};

use bytes::Bytes;
use oip::Datatype;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::record::Records;
use crate::{Column, FormatError, Open, array};

const BUFFER: usize = 256 << 10;

fn write_array(
    column: &Column,
    place: usize,
    rows: u64,
    open: Open<'_>,
    out: &mut impl Write,
) -> Result<(), FormatError> {
    // NumPy has no bfloat16; every one is a float as well.
    let datatype = if column.datatype == Datatype::Bf16 { Datatype::Fp32 } else { column.datatype };
    let header = array::header(datatype, rows, &column.shape).ok_or_else(|| {
        FormatError::Input(format!("output `{}`: NumPy arrays have no {datatype}", column.name))
    })?;
    out.write_all(&header)?;
    let lost = |row: usize| FormatError::Input(format!("row {row} has no result"));
    let mut records = Records::new(open()?);
    for row in 0..rows {
        let row = usize::try_from(row).unwrap_or(usize::MAX);
        let tensors = records.next().ok_or_else(|| lost(row))??.map_err(|_| lost(row))?;
        let tensor = tensors.into_iter().nth(place).ok_or_else(|| lost(row))?;
        out.write_all(&if datatype == column.datatype { tensor.data } else { widened(&tensor.data) })?;
    }
    Ok(())
}

/// bfloat16 as floats, of which they are the upper halves.
fn widened(data: &Bytes) -> Bytes {
    data.as_chunks::<2>().0.iter().flat_map(|[low, high]| [0, 0, *low, *high]).collect()
}

pub(crate) fn write_npy(
    columns: &[Column],
    rows: u64,
    open: Open<'_>,
    out: &mut (dyn Write + Send),
) -> Result<(), FormatError> {
    let mut out = BufWriter::with_capacity(BUFFER, out);
    match columns {
        // Before the first result it is not known what the array will be.
        [] => write_array(
            &Column { name: String::new(), datatype: Datatype::Fp32, shape: Vec::new() },
            0,
            0,
            open,
            &mut out,
        )?,
        [column, ..] => write_array(column, 0, rows, open, &mut out)?,
    }
    Ok(out.flush()?)
}

pub(crate) fn write_npz(
    columns: &[Column],
    rows: u64,
    open: Open<'_>,
    out: &mut (dyn Write + Send),
) -> Result<(), FormatError> {
    let failed = |error: zip::result::ZipError| FormatError::Io(error.into());
    let mut archive = ZipWriter::new_stream(BufWriter::with_capacity(BUFFER, out));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    for (place, column) in columns.iter().enumerate() {
        archive.start_file(format!("{}.npy", column.name), options).map_err(failed)?;
        write_array(column, place, rows, open, &mut archive)?;
    }
    let inner = archive.finish().map_err(failed)?;
    Ok(inner.into_inner().flush()?)
}
