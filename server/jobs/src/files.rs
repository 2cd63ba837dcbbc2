//! The files of jobs.
//!
//! ```text
//! folder/
//!   journal.redb
//!   JOB/input.jsonl     one row a line, without empty lines
//!   JOB/output.jsonl    one result a line, in the same order
//! ```

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use job_core::JobId;
use tempfile::{NamedTempFile, TempPath};

use crate::JobError;
use crate::space::Space;

/// Start of the names of inputs that are being received.
const INCOMING: &str = "incoming-";

pub(crate) fn folder_of(folder: &Path, id: JobId) -> PathBuf {
    folder.join(id.to_string())
}

pub(crate) fn input_of(folder: &Path, id: JobId) -> PathBuf {
    folder_of(folder, id).join("input.jsonl")
}

pub(crate) fn output_of(folder: &Path, id: JobId) -> PathBuf {
    folder_of(folder, id).join("output.jsonl")
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
        let input = input_of(folder, id);
        let others = fs::read_dir(folder_of(folder, id))?.filter(|file| match file {
            Ok(file) => file.path() != input,
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

/// An input that is being received.
#[derive(Debug)]
pub struct Incoming {
    writer: BufWriter<File>,
    path: TempPath,
    line_max: usize,
    space: Space,
    /// The line that is not complete.
    line: Vec<u8>,
    lines: u64,
    rows: u64,
    bytes: u64,
}

impl Incoming {
    pub(crate) fn new(folder: &Path, line_max: usize, space: Space) -> Result<Self, JobError> {
        let file = tempfile::Builder::new().prefix(INCOMING).tempfile_in(folder);
        let (file, path) = NamedTempFile::into_parts(file.map_err(|error| JobError::file(folder, error))?);
        let writer = BufWriter::new(file);
        Ok(Self { writer, path, line_max, space, line: Vec::new(), lines: 0, rows: 0, bytes: 0 })
    }

    /// Adds a part of the input.
    ///
    /// # Errors
    /// A line or the input is too long, or not a JSON object, or the file cannot be written.
    pub fn add(&mut self, part: &[u8]) -> Result<(), JobError> {
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + piece.len() > self.line_max {
                let line = self.lines + 1;
                let most = self.line_max;
                return Err(JobError::Input(format!(
                    "line {line}: expected at most {most} bytes (`limits.body`)"
                )));
            }
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line()?;
            }
        }
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), JobError> {
        self.lines += 1;
        let line = std::mem::take(&mut self.line);
        let row = line.trim_ascii();
        if row.is_empty() {
            return Ok(());
        }
        if !row.starts_with(b"{") {
            return Err(JobError::Input(format!("line {}: expected a JSON object", self.lines)));
        }
        let bytes = row.len() as u64 + 1;
        self.space.take(bytes)?;
        self.bytes += bytes;
        self.rows += 1;
        let written = self.writer.write_all(row).and_then(|()| self.writer.write_all(b"\n"));
        written.map_err(|error| JobError::file(&self.path, error))
    }

    /// The input is complete. Returns its rows and bytes.
    pub(crate) fn keep(mut self, folder: &Path, id: JobId) -> Result<(u64, u64), JobError> {
        self.finish()?;
        let (own, input) = (folder_of(folder, id), input_of(folder, id));
        let failed = |error| JobError::file(&input, error);
        fs::create_dir_all(&own).map_err(failed)?;
        self.writer.flush().map_err(failed)?;
        self.writer.get_ref().sync_all().map_err(failed)?;
        fs::rename(&self.path, &input).map_err(failed)?;
        for folder in [own.as_path(), folder] {
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        }
        // From now on they are the job's.
        Ok((self.rows, std::mem::take(&mut self.bytes)))
    }

    fn finish(&mut self) -> Result<(), JobError> {
        if !self.line.is_empty() {
            self.end_line()?;
        }
        match self.rows {
            0 => Err(JobError::Input("the input has no rows: expected one JSON object a line".to_owned())),
            _ => Ok(()),
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.space.give_back(self.bytes);
    }
}

/// Rows of an input, in order.
#[derive(Debug)]
pub(crate) struct Input {
    reader: BufReader<File>,
    path: PathBuf,
}

impl Input {
    pub fn open(path: PathBuf, offset: u64) -> Result<Self, JobError> {
        let open = || {
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(offset))?;
            Ok(file)
        };
        let reader = BufReader::new(open().map_err(|error| JobError::file(&path, error))?);
        Ok(Self { reader, path })
    }

    /// The next row without its line break.
    pub fn next(&mut self) -> Result<Bytes, JobError> {
        let mut line = Vec::new();
        let read = self.reader.read_until(b'\n', &mut line);
        read.map_err(|error| JobError::file(&self.path, error))?;
        if line.pop() != Some(b'\n') {
            let short = io::Error::new(io::ErrorKind::UnexpectedEof, "the input is shorter than it was");
            return Err(JobError::file(&self.path, short));
        }
        Ok(line.into())
    }
}

/// The output of a job.
#[derive(Debug)]
pub(crate) struct Output {
    writer: BufWriter<File>,
    path: PathBuf,
    bytes: u64,
}

impl Output {
    /// Opens an output and removes what is behind its durable bytes.
    pub fn open(path: PathBuf, durable: u64) -> Result<Self, JobError> {
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
        Ok(Self { writer, path, bytes: durable })
    }

    pub fn append(&mut self, line: &[u8]) -> Result<(), JobError> {
        let written = self.writer.write_all(line).and_then(|()| self.writer.write_all(b"\n"));
        self.bytes = self.bytes.saturating_add(line.len() as u64 + 1);
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
