//! Rows of NumPy files.

use std::fs::File;
use std::io::{BufReader, Read};

use oip::{Shape, Tensor};
use zip::ZipArchive;
use zip::read::Config;
use zip::unstable::read::ZipIterable;

use crate::FormatError;
use crate::array::Array;

/// Arrays of a file, at most.
const ARRAYS_MAX: usize = 256;

struct Source<R> {
    name: String,
    array: Array,
    row_bytes: u64,
    reader: R,
}

impl<R: Read> Source<R> {
    fn new(name: String, mut reader: R) -> Result<Self, FormatError> {
        let array = Array::read(&mut reader);
        let wrong = |what: String| {
            let place = if name.is_empty() { String::new() } else { format!("array `{name}`: ") };
            FormatError::Input(format!("{place}{what}"))
        };
        let array = array.map_err(|error| wrong(error.to_string()))?;
        if array.shape.is_empty() {
            return Err(wrong("expected rows along its first dimension, and it has no dimension".to_owned()));
        }
        let row_bytes = array.row_bytes().filter(|bytes| *bytes > 0);
        let row_bytes = row_bytes
            .ok_or_else(|| wrong(format!("rows of shape {:?} have no elements or too many", array.shape)))?;
        if array.shape.len() > Shape::MAX_RANK {
            return Err(wrong(format!("expected at most {} dimensions", Shape::MAX_RANK)));
        }
        Ok(Self { name, array, row_bytes, reader })
    }

    fn row(&mut self, row: u64) -> Result<Tensor, FormatError> {
        let mut bytes = Vec::new();
        let read = self.reader.by_ref().take(self.row_bytes).read_to_end(&mut bytes);
        if read? as u64 != self.row_bytes {
            return Err(FormatError::Input(format!("row {row}: the array ends here, before its last row")));
        }
        Ok(Tensor {
            name: self.name.clone(),
            datatype: self.array.datatype(),
            shape: Shape::from_extents(self.array.shape.get(1..).unwrap_or_default()),
            data: self
                .array
                .data(bytes)
                .map_err(|error| FormatError::Input(format!("row {row}: {error}")))?,
        })
    }
}

fn rows<R: Read>(
    mut sources: Vec<Source<R>>,
    row_max: usize,
    each: &mut dyn FnMut(Vec<Tensor>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let Some(first) = sources.first() else {
        return Err(FormatError::Input("the file has no arrays".to_owned()));
    };
    let rows = first.array.shape.first().copied().unwrap_or_default();
    for other in &sources {
        let others = other.array.shape.first().copied().unwrap_or_default();
        if others != rows {
            let (name, first) = (&other.name, &first.name);
            return Err(FormatError::Input(format!(
                "array `{name}` has {others} rows, and array `{first}` {rows}: expected the same number"
            )));
        }
    }
    let bytes = sources.iter().fold(0_u64, |bytes, source| bytes.saturating_add(source.row_bytes));
    if bytes > row_max as u64 {
        return Err(FormatError::Input(format!(
            "a row has {bytes} bytes: expected at most {row_max} (`limits.body`)"
        )));
    }
    for row in 0..rows {
        let tensors: Result<Vec<Tensor>, FormatError> =
            sources.iter_mut().map(|source| source.row(row)).collect();
        each(tensors?)?;
    }
    Ok(())
}

pub(crate) fn read_npy(
    file: &File,
    row_max: usize,
    each: &mut dyn FnMut(Vec<Tensor>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    rows(vec![Source::new(String::new(), BufReader::new(file))?], row_max, each)
}

pub(crate) fn read_npz(
    file: &File,
    row_max: usize,
    each: &mut dyn FnMut(Vec<Tensor>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let damaged = |error: zip::result::ZipError| match error {
        zip::result::ZipError::Io(error) => FormatError::Io(error),
        other => FormatError::Input(format!("expected NumPy arrays by name (`numpy.savez`): {other}")),
    };
    // Rows need all arrays at once, and an archive is read through one place at a time.
    let reader = || BufReader::new(SharedFile { file, at: 0 });
    let open = || ZipArchive::new(reader()).map_err(damaged);
    // Tells the number of arrays without reading their descriptions, which could be many.
    let count = ZipIterable::try_new(reader(), Config::default()).map_err(damaged)?.len();
    if count > ARRAYS_MAX {
        return Err(FormatError::Input(format!(
            "the file has {count} arrays: expected at most {ARRAYS_MAX}"
        )));
    }
    let mut archives: Vec<_> = (0..count).map(|_| open()).collect::<Result<_, _>>()?;
    let mut sources = Vec::with_capacity(count);
    for (index, archive) in archives.iter_mut().enumerate() {
        let member = archive.by_index(index).map_err(damaged)?;
        let name = member.name().map_err(damaged)?.into_owned();
        let name = name.strip_suffix(".npy").unwrap_or(&name).to_owned();
        sources.push(Source::new(name, BufReader::new(member))?);
    }
    rows(sources, row_max, each)
}

/// A file that is read at several places.
struct SharedFile<'a> {
    file: &'a File,
    at: u64,
}

impl Read for SharedFile<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = std::os::unix::fs::FileExt::read_at(self.file, bytes, self.at)?;
        self.at = self.at.saturating_add(read as u64);
        Ok(read)
    }
}

impl std::io::Seek for SharedFile<'_> {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        let at = match to {
            std::io::SeekFrom::Start(at) => Some(at),
            std::io::SeekFrom::End(by) => self.file.metadata()?.len().checked_add_signed(by),
            std::io::SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}
