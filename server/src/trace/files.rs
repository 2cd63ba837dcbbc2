//! Trace files: JSON arrays to which records are added. A file is complete at any time.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::settings::Target;

/// What each file takes on disk at least.
const BLOCK: u64 = 4096;
/// Names of files that one run of the server uses.
const NAMES_MAX: usize = 256;

/// Why a trace was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    /// The limit is reached.
    #[error("the traces of this run take {0} bytes, as many as `trace.max_bytes` allows")]
    Bytes(u64),
    /// So is that of names.
    #[error("{NAMES_MAX} different names of trace files were used, expected at most that")]
    Names,
    /// The disk is full, or the folder is not writable.
    #[error("{path}: {1}", path = .0.display())]
    Disk(PathBuf, #[source] io::Error),
}

/// Files of one name.
#[derive(Default)]
struct Series {
    /// The file without a number, once this run of the server has begun it.
    whole: bool,
    /// Number of the current file with a number.
    number: u64,
    /// Traces in it.
    traces: u32,
}

/// The files of one folder.
pub(super) struct Files {
    folder: PathBuf,
    max_bytes: u64,
    used: u64,
    by_name: BTreeMap<Arc<str>, Series>,
}

impl Files {
    pub fn new(folder: &Path, max_bytes: u64) -> Self {
        Self { folder: folder.to_owned(), max_bytes, used: 0, by_name: BTreeMap::new() }
    }

    /// Adds a trace, as JSON objects without the brackets around them.
    pub fn add(&mut self, target: &Target, objects: &str) -> Result<(), Lost> {
        let name = &target.file;
        if !self.by_name.contains_key(name) && self.by_name.len() >= NAMES_MAX {
            return Err(Lost::Names);
        }
        let series = self.by_name.entry(Arc::clone(name)).or_default();
        let (path, begun) = match target.log_frequency {
            0 => (self.folder.join(&**name), series.whole),
            _ => (self.folder.join(format!("{name}.{}", series.number)), series.traces > 0),
        };
        let bytes = (objects.len() as u64).saturating_add(1);
        let used = if begun { bytes } else { bytes.max(BLOCK) };
        if self.used.saturating_add(used) > self.max_bytes {
            return Err(Lost::Bytes(self.max_bytes));
        }
        write(&path, begun, objects).map_err(|error| Lost::Disk(path, error))?;
        self.used = self.used.saturating_add(used);
        if target.log_frequency == 0 {
            series.whole = true;
        } else {
            series.traces = series.traces.saturating_add(1);
            if series.traces >= target.log_frequency {
                series.traces = 0;
                series.number = series.number.saturating_add(1);
            }
        }
        Ok(())
    }
}

/// Writes objects into a new file, or to the end of the array in one that was `begun`. If that fails, the array stays as it was.
fn write(path: &Path, begun: bool, objects: &str) -> io::Result<()> {
    // A link could lead out of the folder.
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(flags);
    let opened = if begun { options.open(path) } else { options.create(true).truncate(true).open(path) };
    let (mut file, begun) = match opened {
        // It was moved away: the next one starts.
        Err(error) if begun && error.kind() == io::ErrorKind::NotFound => {
            (options.create(true).open(path)?, false)
        }
        opened => (opened?, begun),
    };
    let end = if begun { file.seek(SeekFrom::End(0))? } else { 0 };
    let from = file.seek(SeekFrom::Start(end.saturating_sub(1)))?;
    let text = format!("{}{objects}]", if end > 0 { "," } else { "[" });
    let written = file.write_all(text.as_bytes());
    if written.is_err() {
        restore(&mut file, from, end)?;
    }
    written
}

fn restore(file: &mut File, from: u64, end: u64) -> io::Result<()> {
    file.set_len(end)?;
    if end > 0 {
        file.seek(SeekFrom::Start(from))?;
        file.write_all(b"]")?;
    }
    Ok(())
}
