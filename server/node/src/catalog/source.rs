//! Where models come from: a folder, or the binary itself.

use std::collections::{BTreeMap, BTreeSet};

use models::repository::{Ignored, Pbtxt, Repository};
use models::{Format, LoadError, LoadOptions, ModelFiles, ModelName, Signature, Version, inspect};

use super::families;
use super::overrides::Overrides;
use super::pipelines;
use super::quality::{QUALITY_FILE, Quality};
use super::remote::{Remote, SourceError};
use crate::bundled;
use crate::config::{FamilySettings, PipelineSettings, Repository as RepositoryConfig, StageSettings};
use crate::reason::{Reason, Refusal};

/// Version of a pipeline or a family.
const PIPELINE_VERSION: u64 = 1;

/// Source of models: a repository, and what clients sent with loads.
pub struct Source {
    base: Base,
    strict: bool,
    overrides: Overrides,
    pipelines: BTreeMap<String, PipelineSettings>,
    families: BTreeMap<String, FamilySettings>,
}

enum Base {
    /// The model in the binary.
    Embedded,
    /// A model repository.
    Folder(Repository),
    /// A model repository at a URL.
    Remote(Box<Remote>),
}

impl Source {
    /// The models that a configuration names. Models at a URL are copied first.
    ///
    /// # Errors
    /// If the repository cannot be read.
    pub async fn connect(config: &RepositoryConfig) -> Result<Self, SourceError> {
        let remote =
            config.remote().map_err(|(path, reason)| SourceError::Setting(format!("{path}: {reason}")))?;
        let base = match (remote, &config.path) {
            (Some(remote), _) => Base::Remote(Box::new(Remote::connect(&remote, config).await?)),
            (None, None) => Base::Embedded,
            (None, Some(path)) => {
                let repository = Repository::open(path)?;
                Base::Folder(if config.strict { repository } else { repository.lenient() })
            }
        };
        Ok(Self {
            base,
            strict: config.strict,
            overrides: Overrides::default(),
            pipelines: BTreeMap::new(),
            families: BTreeMap::new(),
        })
    }

    /// The same source with pipelines, which are models of version 1.
    ///
    /// # Errors
    /// A pipeline has the name of a model.
    pub fn with_pipelines(self, pipelines: BTreeMap<String, PipelineSettings>) -> Result<Self, String> {
        for name in pipelines.keys() {
            let model = ModelName::new(name).map_err(|error| format!("pipelines.{name}: {error}"))?;
            if self.versions(&model).is_some() {
                return Err(format!("pipelines.{name}: a model has this name: expected another one"));
            }
        }
        Ok(Self { pipelines, ..self })
    }

    /// The same source with families, which are models of version 1.
    ///
    /// # Errors
    /// A family has the name of a model.
    pub fn with_families(self, families: BTreeMap<String, FamilySettings>) -> Result<Self, String> {
        for name in families.keys() {
            let model = ModelName::new(name).map_err(|error| format!("families.{name}: {error}"))?;
            if self.versions(&model).is_some() {
                return Err(format!("families.{name}: a model has this name: expected another one"));
            }
        }
        Ok(Self { families, ..self })
    }

    /// The settings of a family.
    pub(super) fn family_settings(&self, name: &str) -> Option<&FamilySettings> {
        self.families.get(name)
    }

    /// Whether a model is a variant of a family.
    pub(super) fn is_variant(&self, name: &str) -> bool {
        self.families.values().flat_map(|family| &family.variants).any(|variant| variant == name)
    }

    /// The measured quality of a model. `None`: it was not measured.
    ///
    /// # Errors
    /// What is wrong with its file.
    pub fn quality(&self, name: &str) -> Result<Option<Quality>, String> {
        let model = ModelName::new(name).map_err(|error| error.to_string())?;
        let read = |repository: &Repository| {
            if !repository.root().join(name).join(QUALITY_FILE).exists() {
                return Ok(None);
            }
            let text = repository.text(&model, QUALITY_FILE).map_err(|error| error.to_string())?;
            let quality = Quality::parse(&text);
            quality.map(Some).map_err(|problem| format!("{name}/{QUALITY_FILE}: {problem}"))
        };
        match &self.base {
            Base::Embedded => Ok(None),
            Base::Folder(repository) => read(repository),
            Base::Remote(remote) => read(remote.current().repository()),
        }
    }

    /// The settings of a pipeline.
    pub(super) fn pipeline_settings(&self, name: &str) -> Option<&PipelineSettings> {
        self.pipelines.get(name)
    }

    /// The configuration of a pipeline, by what the models of its stages take and give.
    fn pipeline(&self, name: &ModelName, settings: &PipelineSettings) -> Result<Pbtxt, LoadError> {
        let wrong = |reason: String| LoadError::Files { model: name.to_string(), reason };
        let signature = |stage: &StageSettings| self.signature(&stage.model, stage.version);
        let ensemble = pipelines::ensemble(name.as_str(), settings, signature)
            .map_err(|problem| wrong(format!("pipelines.{name}.{problem}")))?;
        Ok(Pbtxt::of_ensemble(name, ensemble)?)
    }

    /// The configuration of a family, by what its variants take and give.
    fn family(&self, name: &ModelName, settings: &FamilySettings) -> Result<Pbtxt, LoadError> {
        let wrong = |reason: String| LoadError::Files { model: name.to_string(), reason };
        let ensemble = families::ensemble(name.as_str(), settings, |variant| self.signature(variant, None))
            .map_err(|problem| wrong(format!("families.{name}.{problem}")))?;
        Ok(Pbtxt::of_ensemble(name, ensemble)?)
    }

    /// What a version of a model takes and gives; the newest one without a version.
    fn signature(&self, model: &str, version: Option<u64>) -> Result<Signature, String> {
        let model = ModelName::new(model).map_err(|error| error.to_string())?;
        let config = self.config(&model).map_err(|error| error.to_string())?;
        let known = self.versions(&model).ok_or_else(|| format!("model `{model}` is unknown"))?;
        let version = version.or_else(|| known.last().copied()).unwrap_or_default();
        let files =
            self.read(&model, Version(version), config.as_ref()).map_err(|error| error.to_string())?;
        inspect(&files, &LoadOptions::default()).map_err(|error| error.to_string())
    }

    /// [`Source::connect`] for a program without a runtime.
    ///
    /// # Errors
    /// If the repository cannot be read.
    pub fn open(config: &RepositoryConfig) -> Result<Self, SourceError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(Self::connect(config))
    }

    /// Copies models at a URL again, if they changed.
    ///
    /// # Errors
    /// Why that failed. What was copied before stays in use.
    pub(super) async fn refresh(&self) -> Result<(), SourceError> {
        match &self.base {
            Base::Remote(remote) => remote.refresh().await,
            Base::Embedded | Base::Folder(_) => Ok(()),
        }
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
        names.extend(self.pipelines.keys().map(|name| (name.clone(), vec![PIPELINE_VERSION])));
        names.extend(self.families.keys().map(|name| (name.clone(), vec![PIPELINE_VERSION])));
        names.extend(self.overrides.names());
        Ok(names)
    }

    /// Current versions of a model. `None` if the model is unknown. Reads only this model's folder, because a repository may
    /// have thousands.
    pub fn versions(&self, name: &ModelName) -> Option<Vec<u64>> {
        let found = |repository: &Repository| {
            let found = repository.find(name)?;
            Some(found.versions.iter().map(|version| version.0).collect())
        };
        if self.pipelines.contains_key(name.as_str()) || self.families.contains_key(name.as_str()) {
            return Some(vec![PIPELINE_VERSION]);
        }
        self.overrides.versions(name.as_str()).or_else(|| match &self.base {
            Base::Embedded => (name.as_str() == bundled::NAME).then(|| vec![bundled::VERSION]),
            Base::Folder(repository) => found(repository),
            Base::Remote(remote) => found(remote.current().repository()),
        })
    }

    /// Entries of the repository that are no models.
    ///
    /// # Errors
    /// If the repository cannot be read.
    pub fn ignored(&self) -> Result<Vec<Ignored>, SourceError> {
        match &self.base {
            Base::Embedded => Ok(Vec::new()),
            Base::Folder(repository) => Ok(repository.scan()?.ignored),
            Base::Remote(remote) => Ok(remote.current().repository().scan()?.ignored),
        }
    }

    fn base_names(&self) -> Result<BTreeMap<String, Vec<u64>>, Refusal> {
        match &self.base {
            Base::Embedded => Ok(BTreeMap::from([(bundled::NAME.to_owned(), vec![bundled::VERSION])])),
            Base::Folder(repository) => names_in(repository),
            Base::Remote(remote) => names_in(remote.current().repository()),
        }
    }

    /// A model's `config.pbtxt`.
    pub fn config(&self, name: &ModelName) -> Result<Option<Pbtxt>, LoadError> {
        if let Some(sent) = self.overrides.get(name.as_str()) {
            return Ok(Some(sent.config.clone()));
        }
        if let Some(settings) = self.pipelines.get(name.as_str()) {
            return self.pipeline(name, settings).map(Some);
        }
        if let Some(settings) = self.families.get(name.as_str()) {
            return self.family(name, settings).map(Some);
        }
        match &self.base {
            Base::Embedded => Ok(Some(Pbtxt::parse(name, bundled::CONFIG, true)?)),
            Base::Folder(repository) => repository.config(name),
            Base::Remote(remote) => remote.current().repository().config(name),
        }
    }

    /// Models that a model runs. Empty unless it is an ensemble, a pipeline or a family. A configuration that is wrong has none: loading the
    /// model says what is wrong. Reads no files of models.
    pub(super) fn members(&self, name: &str) -> BTreeSet<String> {
        if let Some(settings) = self.pipelines.get(name) {
            return settings.stages.iter().map(|stage| stage.model.clone()).collect();
        }
        if let Some(settings) = self.families.get(name) {
            return settings.variants.iter().cloned().collect();
        }
        let config = ModelName::new(name).ok().and_then(|name| self.config(&name).ok().flatten());
        config.map(|config| config.members()).unwrap_or_default()
    }

    /// The files of one version, read once.
    pub fn read(
        &self,
        name: &ModelName,
        version: Version,
        config: Option<&Pbtxt>,
    ) -> Result<ModelFiles, LoadError> {
        if let Some(ensemble) = config.and_then(|config| config.ensemble.as_ref()) {
            return Ok(ModelFiles::from_bytes(name.clone(), version, Format::Ensemble, ensemble.to_bytes()));
        }
        if let Some(sent) = self.overrides.get(name.as_str())
            && let Some((files, _)) = &sent.files
        {
            return files.read(name, version, config);
        }
        match &self.base {
            Base::Embedded => Ok(ModelFiles::from_bytes(name.clone(), version, Format::Onnx, bundled::MODEL)),
            Base::Folder(repository) => repository.read(name, version, config),
            Base::Remote(remote) => {
                let copy = remote.current();
                Ok(copy.repository().read(name, version, config)?.guarded(copy.guard()))
            }
        }
    }

    /// The lines of a label file.
    pub fn labels(&self, name: &ModelName, file: &str) -> Result<Vec<String>, LoadError> {
        match &self.base {
            Base::Embedded => Ok(bundled::LABELS.lines().map(str::to_owned).collect()),
            Base::Folder(repository) => repository.labels(name, file),
            Base::Remote(remote) => remote.current().repository().labels(name, file),
        }
    }
}

fn names_in(repository: &Repository) -> Result<BTreeMap<String, Vec<u64>>, Refusal> {
    let snapshot = repository.scan().map_err(|error| Refusal::new(Reason::Internal, error.to_string()))?;
    for ignored in &snapshot.ignored {
        tracing::debug!(entry = %ignored.entry, reason = %ignored.reason, "not a model");
    }
    let row = |(name, found): (ModelName, models::repository::Found)| {
        (name.as_str().to_owned(), found.versions.iter().map(|version| version.0).collect())
    };
    Ok(snapshot.models.into_iter().map(row).collect())
}
