//! Where models come from: a folder, or the binary itself.

use std::collections::BTreeMap;

use models::repository::{Ignored, Pbtxt, Repository, RepositoryError};
use models::{Format, LoadError, ModelFiles, ModelName, Version};

use super::overrides::Overrides;
use crate::bundled;
use crate::config::Repository as RepositoryConfig;
use crate::reason::{Reason, Refusal};

/// Source of models: a repository, and what clients sent with loads.
pub struct Source {
    base: Base,
    strict: bool,
    overrides: Overrides,
}

enum Base {
    /// The model in the binary.
    Embedded,
    /// A model repository.
    Folder(Repository),
}

impl Source {
    /// The models that a configuration names.
    pub fn open(config: &RepositoryConfig) -> Result<Self, RepositoryError> {
        let base = match &config.path {
            None => Base::Embedded,
            Some(path) => {
                let repository = Repository::open(path)?;
                Base::Folder(if config.strict { repository } else { repository.lenient() })
            }
        };
        Ok(Self { base, strict: config.strict, overrides: Overrides::default() })
    }

    /// Whether fields that cannot be honored are errors.
    pub(super) fn is_strict(&self) -> bool {
        self.strict
    }

    /// What clients sent with loads.
    pub(super) fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Current models and their versions.
    pub fn names(&self) -> Result<BTreeMap<String, Vec<u64>>, Refusal> {
        let mut names = self.base_names()?;
        names.extend(self.overrides.names());
        Ok(names)
    }

    /// Entries of the repository that are no models.
    ///
    /// # Errors
    /// If the repository cannot be read.
    pub fn ignored(&self) -> Result<Vec<Ignored>, RepositoryError> {
        match &self.base {
            Base::Embedded => Ok(Vec::new()),
            Base::Folder(repository) => Ok(repository.scan()?.ignored),
        }
    }

    fn base_names(&self) -> Result<BTreeMap<String, Vec<u64>>, Refusal> {
        match &self.base {
            Base::Embedded => Ok(BTreeMap::from([(bundled::NAME.to_owned(), vec![bundled::VERSION])])),
            Base::Folder(repository) => {
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
        if let Some(sent) = self.overrides.get(name.as_str()) {
            return Ok(Some(sent.config.clone()));
        }
        match &self.base {
            Base::Embedded => Ok(Some(Pbtxt::parse(name, bundled::CONFIG, true)?)),
            Base::Folder(repository) => repository.config(name),
        }
    }

    /// The files of one version, read once.
    pub fn read(
        &self,
        name: &ModelName,
        version: Version,
        config: Option<&Pbtxt>,
    ) -> Result<ModelFiles, LoadError> {
        if let Some(sent) = self.overrides.get(name.as_str())
            && let Some((files, _)) = &sent.files
        {
            return files.read(name, version, config);
        }
        match &self.base {
            Base::Embedded => Ok(ModelFiles::from_bytes(name.clone(), version, Format::Onnx, bundled::MODEL)),
            Base::Folder(repository) => repository.read(name, version, config),
        }
    }

    /// The lines of a label file.
    pub fn labels(&self, name: &ModelName, file: &str) -> Result<Vec<String>, LoadError> {
        match &self.base {
            Base::Embedded => Ok(bundled::LABELS.lines().map(str::to_owned).collect()),
            Base::Folder(repository) => repository.labels(name, file),
        }
    }
}
