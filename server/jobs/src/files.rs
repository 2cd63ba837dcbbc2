//! The files of jobs.
//!
//! ```text
//! folder/
//!   journal.redb
//!   JOB/input.jsonl     one row a line, without empty lines
//!   JOB/output.jsonl    one result a line, in the same order
//!   JOB/input.rows      records of rows instead, if the client sent another format
//!   JOB/output.rows     records of results instead, if the client asked for another format
//! ```

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use job_core::JobId;
use job_formats::{Format, record};

use crate::JobError;

/// Start of the names of inputs that are being received.
pub(crate) const INCOMING: &str = "incoming-";

pub(crate) fn folder_of(folder: &Path, id: JobId) -> PathBuf {
    folder.join(id.to_string())
}

/// Ending of the files that hold rows of this format.
fn ending(format: Format) -> &'static str {
    if format == Format::JsonLines { "jsonl" } else { "rows" }
}

pub(crate) fn input_of(folder: &Path, id: JobId, format: Format) -> PathBuf {
    folder_of(folder, id).join(format!("input.{}", ending(format)))
}

pub(crate) fn output_of(folder: &Path, id: JobId, format: Format) -> PathBuf {
    folder_of(folder, id).join(format!("output.{}", ending(format)))
}

/// Removes the inputs without a record, which a server left that was killed before it wrote one. A folder with other files is not ours.
pub(crate) fn remove_unrecorded(folder: &Path, is_recorded: impl Fn(JobId) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let id = entry.file_name().to_str().and_then(|name| name.parse().ok()).map(JobId);
        let Some(id) = id.filter(|id| !is_recorded(*id)) else { continue };
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let inputs = Format::ALL.map(|format| input_of(folder, id, format));
        let others = fs::read_dir(folder_of(folder, id))?.filter(|file| match file {
            Ok(file) => !inputs.contains(&file.path()),
            Err(_) => true,
        });
        if others.count() == 0 {
            fs::remove_dir_all(folder_of(folder, id))?;
        }
    }
    Ok(())
}

/// Removes inputs that were not received completely before the server ended.
pub(crate) fn remove_incoming(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(INCOMING)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Rows of an input, in order.
#[derive(Debug)]
pub(crate) struct Input {
    reader: BufReader<File>,
    path: PathBuf,
    format: Format,
}

impl Input {
    pub fn open(path: PathBuf, format: Format, offset: u64) -> Result<Self, JobError> {
        let open = || {
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(offset))?;
            Ok(file)
        };
        let reader = BufReader::new(open().map_err(|error| JobError::file(&path, error))?);
        Ok(Self { reader, path, format })
    }

    /// The next row: a line without its line break, or a record.
    pub fn next(&mut self) -> Result<Bytes, JobError> {
        let row = if self.format == Format::JsonLines { self.line() } else { record::next(&mut self.reader) };
        let row = row.map_err(|error| JobError::file(&self.path, error))?;
        let short = || io::Error::new(io::ErrorKind::UnexpectedEof, "the input is shorter than it was");
        row.ok_or_else(|| JobError::file(&self.path, short()))
    }

    fn line(&mut self) -> io::Result<Option<Bytes>> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        Ok((line.pop() == Some(b'\n')).then(|| line.into()))
    }

    /// Bytes of the file that a row takes.
    pub fn bytes_of(&self, row: &Bytes) -> u64 {
        row.len() as u64 + u64::from(self.format == Format::JsonLines)
    }
}

/// The output of a job.
#[derive(Debug)]
pub(crate) struct Output {
    writer: BufWriter<File>,
    path: PathBuf,
    format: Format,
    bytes: u64,
}

impl Output {
    /// Opens an output and removes what is behind its durable bytes.
    pub fn open(path: PathBuf, format: Format, durable: u64) -> Result<Self, JobError> {
        let open = || {
            let file = File::options().create(true).truncate(false).read(true).write(true).open(&path)?;
            if file.metadata()?.len() < durable {
                let short = "the output is shorter than it was when it was committed";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, short));
            }
            file.set_len(durable)?;
            let mut file = file;
            file.seek(SeekFrom::Start(durable))?;
            Ok(file)
        };
        let writer = BufWriter::new(open().map_err(|error| JobError::file(&path, error))?);
        Ok(Self { writer, path, format, bytes: durable })
    }

    pub fn append(&mut self, result: &[u8]) -> Result<(), JobError> {
        let end: &[u8] = if self.format == Format::JsonLines { b"\n" } else { b"" };
        let written = self.writer.write_all(result).and_then(|()| self.writer.write_all(end));
        self.bytes = self.bytes.saturating_add(result.len() as u64).saturating_add(end.len() as u64);
        written.map_err(|error| JobError::file(&self.path, error))
    }

    /// Makes what was appended durable. Returns the bytes of the output.
    pub fn sync(&mut self) -> Result<u64, JobError> {
        let synced = self.writer.flush().and_then(|()| self.writer.get_ref().sync_data());
        synced.map_err(|error| JobError::file(&self.path, error))?;
        Ok(self.bytes)
    }
}

/// The durable part of an output, for a reader.
pub(crate) fn durable(path: &Path, from: u64, bytes: u64) -> io::Result<io::Take<File>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    Ok(file.take(bytes.saturating_sub(from)))
}
