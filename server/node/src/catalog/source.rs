//! Where models come from: a folder, or the binary itself.

use std::collections::BTreeMap;

use models::repository::{Pbtxt, Repository, RepositoryError};
use models::{Format, LoadError, ModelFiles, ModelName, Version};

use crate::bundled;
use crate::config::Repository as RepositoryConfig;
use crate::reason::{Reason, Refusal};

/// Source of models.
pub enum Source {
    /// The model in the binary.
    Embedded,
    /// A model repository.
    Folder(Repository),
}

impl Source {
    /// The models that a configuration names.
    pub fn open(config: &RepositoryConfig) -> Result<Self, RepositoryError> {
        let Some(path) = &config.path else { return Ok(Self::Embedded) };
        let repository = Repository::open(path)?;
        Ok(Self::Folder(if config.strict { repository } else { repository.lenient() }))
    }

    /// Current models and their versions.
    pub fn names(&self) -> Result<BTreeMap<String, Vec<u64>>, Refusal> {
        match self {
            Self::Embedded => Ok(BTreeMap::from([(bundled::NAME.to_owned(), vec![bundled::VERSION])])),
            Self::Folder(repository) => {
                let snapshot =
                    repository.scan().map_err(|error| Refusal::new(Reason::Internal, error.to_string()))?;
                for ignored in &snapshot.ignored {
                    tracing::debug!(entry = %ignored.entry, reason = %ignored.reason, "not a model");
                }
                let row = |(name, found): (ModelName, models::repository::Found)| {
                    (name.as_str().to_owned(), found.versions.iter().map(|version| version.0).collect())
                };
                Ok(snapshot.models.into_iter().map(row).collect())
            }
        }
    }

    /// A model's `config.pbtxt`.
    pub fn config(&self, name: &ModelName) -> Result<Option<Pbtxt>, LoadError> {
        match self {
            Self::Embedded => Ok(Some(Pbtxt::parse(name, bundled::CONFIG, true)?)),
            Self::Folder(repository) => repository.config(name),
        }
    }

    /// The files of one version, read once.
    pub fn read(
        &self,
        name: &ModelName,
        version: Version,
        config: Option<&Pbtxt>,
    ) -> Result<ModelFiles, LoadError> {
        match self {
            Self::Embedded => Ok(ModelFiles::from_bytes(name.clone(), version, Format::Onnx, bundled::MODEL)),
            Self::Folder(repository) => repository.read(name, version, config),
        }
    }

    /// The lines of a label file.
    pub fn labels(&self, name: &ModelName, file: &str) -> Result<Vec<String>, LoadError> {
        match self {
            Self::Embedded => Ok(bundled::LABELS.lines().map(str::to_owned).collect()),
            Self::Folder(repository) => repository.labels(name, file),
        }
    }
}
