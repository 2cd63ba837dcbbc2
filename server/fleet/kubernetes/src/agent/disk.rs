//! The last accepted plan on disk, from which an agent starts while the API server is away.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use thiserror::Error;

use super::reconciler::Accepted;

/// Name of the file in the agent's folder.
pub const FILE: &str = "node-plan.json";
/// Largest file that is read. A plan of 4,096 models takes less than a megabyte.
const BYTES_MAX: u64 = 16 << 20;

/// A stored plan that cannot be read or written.
#[derive(Debug, Error)]
pub enum DiskError {
    /// The folder or the file cannot be used.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        error: io::Error,
    },
    /// The file has another content.
    #[error("{path}: expected a plan as the agent writes it, got {error}; the agent continues without it")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// The file is too large.
    #[error("{path}: expected at most {BYTES_MAX} bytes, got {bytes}; the agent continues without it")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
}

/// Reads the plan that was stored last; `None` before the first one.
///
/// # Errors
/// The file exists and cannot be used.
pub fn load(folder: &Path) -> Result<Option<Accepted>, DiskError> {
    let path = folder.join(FILE);
    let failed = |error| DiskError::Io { path: path.clone(), error };
    let bytes = match fs::metadata(&path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if bytes > BYTES_MAX {
        return Err(DiskError::TooLarge { path, bytes });
    }
    let text = fs::read(&path).map_err(failed)?;
    serde_json::from_slice(&text).map(Some).map_err(|error| DiskError::Content { path, error })
}

/// Stores a plan. After a crash at any moment, the file has the old plan or the new one.
///
/// # Errors
/// The plan cannot be written. The old one stays.
pub fn store(folder: &Path, accepted: &Accepted) -> Result<(), DiskError> {
    let path = folder.join(FILE);
    let write = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(&serde_json::to_vec(accepted)?)?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| DiskError::Io { path: path.clone(), error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::node_plan::NodePlanSpec;

    #[test]
    fn a_stored_plan_is_read_again_and_a_damaged_one_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("state");
        assert!(load(&folder).unwrap().is_none());
        let accepted = Accepted { generation: 4, plan: NodePlanSpec { epoch: 3, ..NodePlanSpec::default() } };
        store(&folder, &accepted).unwrap();
        assert_eq!(load(&folder).unwrap(), Some(accepted));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
        fs::write(folder.join(FILE), "{").unwrap();
        let said = load(&folder).unwrap_err().to_string();
        assert!(said.contains("node-plan.json: expected a plan as the agent writes it"), "{said}");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let file = NamedTempFile::new().unwrap();
        let accepted = Accepted { generation: 1, plan: NodePlanSpec::default() };
        assert!(store(file.path(), &accepted).is_err());
    }
}
