//! An input that a client is sending.

use std::fs::{self, File};
use std::io::{BufWriter, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use job_core::JobId;
use job_formats::{Format, FormatError, record};
use tempfile::{NamedTempFile, TempPath};

use crate::JobError;
use crate::files::{INCOMING, folder_of, input_of};
use crate::space::Space;

/// An input that is being received. Its rows are checked: of JSON lines as they arrive, and of other formats once it is complete.
#[derive(Debug)]
pub struct Incoming {
    format: Format,
    folder: PathBuf,
    writer: BufWriter<File>,
    path: TempPath,
    /// Bytes of a row, at most.
    row_max: usize,
    space: Space,
    /// The line that is not complete.
    line: Vec<u8>,
    lines: u64,
    rows: u64,
    bytes: u64,
}

impl Incoming {
    pub(crate) fn new(folder: &Path, format: Format, row_max: usize, space: Space) -> Result<Self, JobError> {
        let file = tempfile::Builder::new().prefix(INCOMING).tempfile_in(folder);
        let (file, path) = NamedTempFile::into_parts(file.map_err(|error| JobError::file(folder, error))?);
        let (writer, folder) = (BufWriter::new(file), folder.to_owned());
        Ok(Self {
            format,
            folder,
            writer,
            path,
            row_max,
            space,
            line: Vec::new(),
            lines: 0,
            rows: 0,
            bytes: 0,
        })
    }

    /// Adds a part of the input.
    ///
    /// # Errors
    /// A line or the input is too long, or not a JSON object, or the file cannot be written.
    pub fn add(&mut self, part: &[u8]) -> Result<(), JobError> {
        if self.format != Format::JsonLines {
            return self.write(part);
        }
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + piece.len() > self.row_max {
                let (line, most) = (self.lines + 1, self.row_max);
                let told = format!("line {line}: expected at most {most} bytes (`limits.body`)");
                return Err(JobError::Input(told));
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
        let mut line = std::mem::take(&mut self.line);
        line.truncate(line.trim_ascii_end().len());
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        if !line.trim_ascii().starts_with(b"{") {
            return Err(JobError::Input(format!("line {}: expected a JSON object", self.lines)));
        }
        line.push(b'\n');
        self.rows += 1;
        self.write(line.trim_ascii_start())
    }

    fn write(&mut self, part: &[u8]) -> Result<(), JobError> {
        let bytes = part.len() as u64;
        self.space.take(bytes)?;
        self.bytes += bytes;
        self.writer.write_all(part).map_err(|error| JobError::file(&self.path, error))
    }

    /// The input is complete: checks what was not checked yet. Takes long for a large file that is not of JSON lines.
    ///
    /// # Errors
    /// What is wrong with a row, or the file cannot be read or written.
    pub(crate) fn complete(mut self) -> Result<Self, JobError> {
        if !self.line.is_empty() {
            self.end_line()?;
        }
        if self.format != Format::JsonLines {
            self = self.records()?;
        }
        match (self.rows, self.format) {
            (0, Format::JsonLines) => {
                Err(JobError::Input("the input has no rows: expected one JSON object a line".to_owned()))
            }
            (0, _) => Err(JobError::Input("the input has no rows".to_owned())),
            _ => Ok(self),
        }
    }

    /// The rows of the file that was received, each checked, as records in another file.
    fn records(mut self) -> Result<Self, JobError> {
        let mut records = Self::new(&self.folder, self.format, self.row_max, self.space.clone())?;
        let failed = |error| JobError::file(&self.path, error);
        self.writer.flush().map_err(failed)?;
        self.writer.get_mut().rewind().map_err(failed)?;
        // Errors of our own file are not those of the client's.
        let mut refused = None;
        let read = job_formats::read(self.writer.get_ref(), self.format, self.row_max, &mut |row| {
            let record = record::encode(Ok(row))?;
            records.rows += 1;
            records.write(&record).map_err(|error| {
                refused = Some(error);
                FormatError::Input(String::new())
            })
        });
        match (refused, read) {
            (Some(error), _) => Err(error),
            (None, Err(FormatError::Input(told))) => Err(JobError::Input(told)),
            (None, Err(FormatError::Io(error))) => Err(JobError::file(&self.path, error)),
            (None, Ok(())) => Ok(records),
        }
    }

    /// Makes the input that of a job. Returns its rows and bytes.
    pub(crate) fn keep(mut self, id: JobId) -> Result<(u64, u64), JobError> {
        let folder = self.folder.as_path();
        let (own, input) = (folder_of(folder, id), input_of(folder, id, self.format));
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
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.space.give_back(self.bytes);
    }
}
