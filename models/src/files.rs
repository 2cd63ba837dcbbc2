//! The files of one model version, read once.

use std::any::Any;
use std::fmt;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{ModelName, Version};

/// Files of a folder that are counted, at most.
const ENTRIES_MAX: usize = 10_000;

/// Format of a version's main file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `model.onnx`: an ONNX graph.
    Onnx,
    /// `model.toml`: the description of a synthetic model.
    Synthetic,
    /// `model.py`: a model of Triton's Python backend.
    Python,
    /// No file: the configuration says which other models run.
    Ensemble,
}

impl Format {
    /// Whether each session of such a model has a process of its own.
    pub fn has_own_process(self) -> bool {
        self == Self::Python
    }

    /// The name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Onnx => "ONNX",
            Self::Synthetic => "synthetic",
            Self::Python => "Python",
            Self::Ensemble => "ensemble",
        }
    }
}

/// SHA-256 of a version's main file: equal hashes are the same model whatever its name or version.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// Hash of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One version of a model as bytes in memory. Everything later works on these bytes, so a file that is
/// replaced during a load is read either completely before or completely after the change.
#[derive(Clone, Debug)]
pub struct ModelFiles {
    /// Name of the model.
    pub name: ModelName,
    /// Version of these files.
    pub version: Version,
    /// What `bytes` hold.
    pub format: Format,
    /// The main file.
    pub bytes: Bytes,
    /// Hash of `bytes`. Of a Python model, also of its configuration and of the names, sizes and times of the other files of
    /// its version.
    pub hash: ContentHash,
    /// The configuration of a Python model as JSON.
    pub config: Option<Bytes>,
    /// Folder that external weight files must lie in; `None` for a model that was not read from a folder of
    /// its own and thus can have none.
    folder: Option<PathBuf>,
    /// Keeps `folder` in place.
    guard: Option<FolderGuard>,
}

/// Keeps a folder from being removed for as long as it lives.
#[derive(Clone)]
pub struct FolderGuard(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for FolderGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FolderGuard")
    }
}

impl ModelFiles {
    /// A model from bytes: embedded in the program, or made by a test.
    pub fn from_bytes(name: ModelName, version: Version, format: Format, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let hash = ContentHash::of(&bytes);
        Self { name, version, format, bytes, hash, config: None, folder: None, guard: None }
    }

    /// The same files, allowed to refer to weight files inside `folder`.
    #[must_use]
    pub fn in_folder(mut self, folder: PathBuf) -> Self {
        self.folder = Some(folder);
        self
    }

    /// The same files, whose folder stays in place while they or copies of them live.
    #[must_use]
    pub fn guarded(mut self, guard: FolderGuard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Another model with the same folder.
    #[must_use]
    pub(crate) fn with_content(&self, name: ModelName, bytes: Bytes) -> Self {
        let hash = ContentHash::of(&bytes);
        Self { name, bytes, hash, config: None, ..self.clone() }
    }

    /// The same version without its content.
    #[must_use]
    pub(crate) fn without_content(&self) -> Self {
        Self { bytes: Bytes::new(), config: None, folder: None, guard: None, ..self.clone() }
    }

    /// The same files with the configuration of a Python model. To be called after [`ModelFiles::in_folder`].
    #[must_use]
    pub(crate) fn with_config(mut self, config: String) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.hash.0);
        hasher.update(&config);
        let entries = self.folder().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
        let mut others: Vec<_> = entries.take(ENTRIES_MAX).filter_map(Result::ok).collect();
        others.sort_by_key(fs::DirEntry::file_name);
        for entry in others {
            let Ok(metadata) = entry.metadata() else { continue };
            // Interpreters write their caches next to modules.
            if metadata.is_file() {
                hasher.update(format!(
                    "{:?} {} {:?}",
                    entry.file_name(),
                    metadata.len(),
                    metadata.modified()
                ));
            }
        }
        self.hash = ContentHash(hasher.finalize().into());
        self.config = Some(config.into());
        self
    }

    /// Folder that external weight files must lie in.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Bytes of the main file, or of all files in its folder: a session takes hardly less memory. Unreadable files count
    /// as 0.
    pub fn size(&self) -> u64 {
        let entries = self.folder().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
        let sizes = entries.take(ENTRIES_MAX).filter_map(|entry| entry.ok()?.metadata().ok());
        let folder = sizes.filter(Metadata::is_file).fold(0_u64, |sum, file| sum.saturating_add(file.len()));
        folder.max(self.bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_in_other_files_of_the_folder_count() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("model.onnx"), [0; 10]).unwrap();
        fs::write(folder.path().join("weights.bin"), [0; 90]).unwrap();
        fs::create_dir(folder.path().join("other")).unwrap();
        let name = ModelName::new("m").unwrap();
        let files = ModelFiles::from_bytes(name, Version(1), Format::Onnx, vec![0; 10]);
        assert_eq!(files.size(), 10);
        assert_eq!(files.in_folder(folder.path().to_owned()).size(), 100);
    }
}
