//! What is in a repository right now.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::confined;
use super::pbtxt::{Pbtxt, read_files, read_state_files};
use crate::engine::python;
use crate::{ConfigError, Format, LoadError, ModelFiles, ModelName, Version};

/// Bound on a main model file: a protobuf message cannot be longer.
const MODEL_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// Bound on `config.pbtxt`, `model.toml` and label files.
const TEXT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Bound on a file of warm-up data.
const WARM_UP_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bound on entries of the repository's folder and of each model's.
const ENTRIES_MAX: usize = 10_000;

/// A repository cannot be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model repository `{path}`: {reason}")]
pub struct RepositoryError {
    /// The repository's folder.
    pub path: PathBuf,
    /// What was wrong.
    pub reason: String,
}

/// A folder of models.
#[derive(Clone, Debug)]
pub struct Repository {
    root: PathBuf,
    strict: bool,
}

/// What a repository held at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Models by name.
    pub models: BTreeMap<ModelName, Found>,
    /// Entries that are no models, and why, so that a person can find out what became of a folder.
    pub ignored: Vec<Ignored>,
}

/// One model of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Versions, smallest first. May be empty.
    pub versions: Vec<Version>,
    /// Whether it is a single `.onnx` file in the repository's folder.
    pub single_file: bool,
}

/// An entry of a repository that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Its path inside the repository.
    pub entry: String,
    /// Why it is not served.
    pub reason: String,
}

impl Repository {
    /// Opens a repository. Fails if the folder does not exist or cannot be listed.
    pub fn open(path: &Path) -> Result<Self, RepositoryError> {
        let refuse = |reason: String| RepositoryError { path: path.to_owned(), reason };
        let root = path.canonicalize().map_err(|error| refuse(error.to_string()))?;
        if !root.is_dir() {
            return Err(refuse("is not a folder".to_owned()));
        }
        let repository = Self { root, strict: true };
        repository.scan()?;
        Ok(repository)
    }

    /// The same repository that ignores fields of `config.pbtxt` that are not supported if answers are right without them.
    #[must_use]
    pub fn lenient(self) -> Self {
        Self { strict: false, ..self }
    }

    /// The folder, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// One model as [`Repository::scan`] finds it. `None` if the repository does not have it.
    pub fn find(&self, name: &ModelName) -> Option<Found> {
        let mut snapshot = Snapshot::default();
        for entry in [name.as_str().to_owned(), format!("{name}.onnx")] {
            if !is_hidden(&entry) && std::fs::symlink_metadata(self.root.join(&entry)).is_ok() {
                // A scan tells why an entry is ignored.
                let _ = self.add(&entry, &mut snapshot);
            }
        }
        snapshot.models.remove(name)
    }

    /// Lists models and versions. Reads names only, so it is cheap and never sees half a file.
    pub fn scan(&self) -> Result<Snapshot, RepositoryError> {
        let refuse = |reason: String| RepositoryError { path: self.root.clone(), reason };
        let mut snapshot = Snapshot::default();
        for entry in list(&self.root).map_err(refuse)? {
            if is_hidden(&entry) {
                continue;
            }
            if let Err(reason) = self.add(&entry, &mut snapshot) {
                snapshot.ignored.push(Ignored { entry, reason });
            }
        }
        Ok(snapshot)
    }

    fn add(&self, entry: &str, snapshot: &mut Snapshot) -> Result<(), String> {
        let path = self.root.join(entry).canonicalize().map_err(|error| error.to_string())?;
        if !path.starts_with(&self.root) {
            return Err("is a link that leaves the repository".to_owned());
        }
        if path.is_dir() {
            let name = ModelName::new(entry).map_err(|error| error.to_string())?;
            let versions = self.versions(entry, &path, snapshot)?;
            return insert(snapshot, name, Found { versions, single_file: false });
        }
        let stem = entry.strip_suffix(".onnx").ok_or("is neither a folder nor an .onnx file")?;
        let name = ModelName::new(stem).map_err(|error| error.to_string())?;
        insert(snapshot, name, Found { versions: vec![Version(1)], single_file: true })
    }

    fn versions(&self, entry: &str, folder: &Path, snapshot: &mut Snapshot) -> Result<Vec<Version>, String> {
        let mut versions = Vec::new();
        for inner in list(folder)? {
            let Some(version) = Version::parse(&inner) else {
                // Other entries are ignored silently, except a near miss.
                if inner.bytes().all(|b| b.is_ascii_digit()) {
                    let reason = "is not a version: expected a number of 1 or more without leading zeros";
                    snapshot
                        .ignored
                        .push(Ignored { entry: format!("{entry}/{inner}"), reason: reason.to_owned() });
                }
                continue;
            };
            let real = folder.join(&inner).canonicalize().map_err(|error| format!("{inner}: {error}"))?;
            if real.starts_with(&self.root) && real.is_dir() {
                versions.push(version);
            } else {
                let reason = "is not a folder inside the repository".to_owned();
                snapshot.ignored.push(Ignored { entry: format!("{entry}/{inner}"), reason });
            }
        }
        versions.sort_unstable();
        Ok(versions)
    }

    /// A model's `config.pbtxt`; `None` when it has none.
    pub fn config(&self, name: &ModelName) -> Result<Option<Pbtxt>, LoadError> {
        let inner = Path::new(name.as_str()).join("config.pbtxt");
        if std::fs::symlink_metadata(self.root.join(&inner)).is_err() {
            return Ok(None);
        }
        let bytes =
            confined::read(&self.root, &inner, TEXT_BYTES_MAX).map_err(|reason| files_error(name, reason))?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| files_error(name, "config.pbtxt: is not UTF-8".to_owned()))?;
        let mut file = Pbtxt::parse(name, text, self.strict)?;
        let read = |inner: &Path| {
            confined::read(&self.root, &Path::new(name.as_str()).join(inner), WARM_UP_BYTES_MAX)
        };
        read_files(&mut file.warm_ups, read)
            .map_err(|(field, reason)| ConfigError::one(name, field, reason))?;
        if let Some(sequences) = &mut file.sequences {
            read_state_files(sequences, read)
                .map_err(|(field, reason)| ConfigError::one(name, field, reason))?;
        }
        Ok(Some(file))
    }

    /// Reads the files of one version, whole, once.
    pub fn read(
        &self,
        name: &ModelName,
        version: Version,
        config: Option<&Pbtxt>,
    ) -> Result<ModelFiles, LoadError> {
        let refuse = |reason: String| files_error(name, reason);
        let folder = Path::new(name.as_str()).join(version.to_string());
        let single = PathBuf::from(format!("{name}.onnx"));
        if version == Version(1)
            && !self.root.join(name.as_str()).is_dir()
            && self.root.join(&single).is_file()
        {
            let bytes = confined::read(&self.root, &single, MODEL_BYTES_MAX).map_err(refuse)?;
            return Ok(ModelFiles::from_bytes(name.clone(), version, Format::Onnx, bytes));
        }
        if !self.root.join(&folder).is_dir() {
            return Err(refuse(format!("version {version} is not in the repository")));
        }
        if let Some(ensemble) = config.and_then(|config| config.ensemble.as_ref()) {
            return Ok(ModelFiles::from_bytes(name.clone(), version, Format::Ensemble, ensemble.to_bytes()));
        }
        let main = match config.and_then(|config| config.model_filename.as_deref()) {
            Some(named) => named.to_owned(),
            None if config.is_some_and(Pbtxt::is_python) => python::DEFAULT_FILE.to_owned(),
            None if self.root.join(&folder).join("model.toml").is_file() => "model.toml".to_owned(),
            None if config.is_none() && self.is_python(&folder) => python::DEFAULT_FILE.to_owned(),
            None => "model.onnx".to_owned(),
        };
        let (format, limit) = match Path::new(&main).extension().and_then(OsStr::to_str) {
            Some("toml") => (Format::Synthetic, TEXT_BYTES_MAX),
            Some("py") => (Format::Python, TEXT_BYTES_MAX),
            _ => (Format::Onnx, MODEL_BYTES_MAX),
        };
        let bytes = confined::read(&self.root, &folder.join(&main), limit).map_err(refuse)?;
        let files = ModelFiles::from_bytes(name.clone(), version, format, bytes);
        let files = files.in_folder(self.root.join(&folder));
        if format != Format::Python {
            return Ok(files);
        }
        Ok(files.with_config(Pbtxt::python_config(config, name, &main).map_err(refuse)?))
    }

    /// Whether a version without a configuration is a Python model.
    fn is_python(&self, folder: &Path) -> bool {
        let folder = self.root.join(folder);
        folder.join(python::DEFAULT_FILE).is_file() && !folder.join("model.onnx").exists()
    }

    /// The labels of an output: the lines of the file that `config.pbtxt` names, in the model's folder.
    pub fn labels(&self, name: &ModelName, file: &str) -> Result<Vec<String>, LoadError> {
        let text = self.text(name, file)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The text of a file in a model's folder.
    pub fn text(&self, name: &ModelName, file: &str) -> Result<String, LoadError> {
        let refuse = |reason: String| files_error(name, reason);
        let inner = Path::new(name.as_str()).join(file);
        let bytes = confined::read(&self.root, &inner, TEXT_BYTES_MAX).map_err(refuse)?;
        String::from_utf8(bytes.into()).map_err(|_| refuse(format!("{file}: is not UTF-8")))
    }
}

/// Whether an entry is not meant to be served: hidden, or being written.
fn is_hidden(entry: &str) -> bool {
    entry.starts_with('.') || entry.ends_with(".tmp")
}

fn insert(snapshot: &mut Snapshot, name: ModelName, found: Found) -> Result<(), String> {
    if snapshot.models.contains_key(&name) {
        return Err(format!("there is another model `{name}`: a folder and a file of one name"));
    }
    snapshot.models.insert(name, found);
    Ok(())
}

/// Names in a folder, sorted so that a scan does not depend on the disk: the folder `x` before the file `x.onnx`.
fn list(folder: &Path) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| error.to_string())? {
        if names.len() >= ENTRIES_MAX {
            return Err(format!("`{}` has more than {ENTRIES_MAX} entries", folder.display()));
        }
        let entry = entry.map_err(|error| error.to_string())?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

fn files_error(name: &ModelName, reason: String) -> LoadError {
    LoadError::Files { model: name.to_string(), reason }
}
