//! Configurations and files that clients send with a load, in place of the repository's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use models::repository::{Pbtxt, Repository};
use models::{ModelName, Version};
use tempfile::TempDir;

use crate::reason::{Reason, Refusal};

/// Bound on the files of one load.
const FILES_MAX: usize = 1024;
/// Bound on models whose files came from clients.
const MODELS_MAX: usize = 1024;

/// What a client sends with a load.
#[derive(Clone, Debug, Default)]
pub struct LoadParameters {
    /// A `ModelConfig` as JSON, instead of `config.pbtxt`.
    pub config: Option<String>,
    /// Files by path inside the model's folder, as `1/model.onnx`, instead of those of the repository.
    pub files: BTreeMap<String, Bytes>,
}

/// A configuration, and files if there are any, that replace those of the repository.
pub(super) struct Override {
    pub config: Pbtxt,
    /// The files, in a folder of their own that goes with the override.
    pub files: Option<(Repository, TempDir)>,
}

/// Overrides of loaded models.
#[derive(Default)]
pub(super) struct Overrides(Mutex<BTreeMap<String, Arc<Override>>>);

impl Overrides {
    pub fn get(&self, name: &str) -> Option<Arc<Override>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Sets or removes the override of a model. Returns the one before.
    pub fn replace(&self, name: &str, with: Option<Arc<Override>>) -> Result<Option<Arc<Override>>, Refusal> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(with) = with else { return Ok(all.remove(name)) };
        if all.len() >= MODELS_MAX && !all.contains_key(name) {
            let message =
                format!("{MODELS_MAX} models are loaded with parameters, which is the most: unload one");
            return Err(Refusal::new(Reason::Unsupported, message));
        }
        Ok(all.insert(name.to_owned(), with))
    }

    /// Sets what [`Overrides::replace`] returned.
    pub fn restore(&self, name: &str, before: Option<Arc<Override>>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match before {
            Some(before) => all.insert(name.to_owned(), before),
            None => all.remove(name),
        };
    }

    /// Versions of a model whose files a client sent.
    pub fn versions(&self, name: &str) -> Option<Vec<u64>> {
        self.get(name)?.versions(name)
    }

    /// Models whose files came from clients, with their versions.
    pub fn names(&self) -> BTreeMap<String, Vec<u64>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(|(name, one)| Some((name.clone(), one.versions(name)?))).collect()
    }
}

impl Override {
    /// Checks what a client sent and writes its files to a new folder. `None` if it sent nothing.
    pub fn new(name: &ModelName, sent: LoadParameters, strict: bool) -> Result<Option<Self>, Refusal> {
        let refuse = |message: String| Refusal::new(Reason::Malformed, message);
        let Some(config) = sent.config else {
            return match sent.files.keys().next() {
                None => Ok(None),
                Some(file) => {
                    Err(refuse(format!("parameters.file:{file}: expected `config` along with files")))
                }
            };
        };
        let config = Pbtxt::parse_json(name, &config, strict).map_err(|error| refuse(error.to_string()))?;
        if sent.files.is_empty() {
            return Ok(Some(Self { config, files: None }));
        }
        if sent.files.len() > FILES_MAX {
            return Err(refuse(format!("parameters: expected at most {FILES_MAX} files")));
        }
        let internal = |error: std::io::Error| {
            Refusal::new(Reason::Internal, format!("the files of the load cannot be written: {error}"))
        };
        let folder = tempfile::Builder::new().prefix("tessera-load-").tempdir().map_err(internal)?;
        for (path, content) in &sent.files {
            let inside = inside(path).map_err(refuse)?;
            let file = folder.path().join(name.as_str()).join(inside);
            file.parent().map_or(Ok(()), fs::create_dir_all).map_err(internal)?;
            fs::write(file, content).map_err(internal)?;
        }
        let repository = Repository::open(folder.path())
            .map_err(|error| Refusal::new(Reason::Internal, error.to_string()))?;
        Ok(Some(Self { config, files: Some((repository, folder)) }))
    }

    /// Versions that its files have. `None` if the files are the repository's.
    fn versions(&self, name: &str) -> Option<Vec<u64>> {
        let (repository, _) = self.files.as_ref()?;
        let snapshot = repository.scan().ok()?;
        let found = snapshot.models.iter().find(|(known, _)| known.as_str() == name)?;
        Some(found.1.versions.iter().map(|version| version.0).collect())
    }
}

/// `VERSION/FILE` as a path that cannot leave the model's folder.
fn inside(path: &str) -> Result<PathBuf, String> {
    let shown: String = path.chars().take(128).collect();
    let wrong =
        || format!("parameters.file:{shown}: expected a version and a file name, as in `1/model.onnx`");
    let parts: Vec<Component<'_>> = Path::new(path).components().collect();
    let (Some(Component::Normal(version)), true) = (parts.first(), parts.len() > 1) else {
        return Err(wrong());
    };
    let is_plain = parts.iter().all(|part| matches!(part, Component::Normal(_)));
    let version = version.to_str().and_then(Version::parse);
    if !is_plain || version.is_none() || path.ends_with('/') {
        return Err(wrong());
    }
    Ok(parts.iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(config: Option<&str>, files: &[&str]) -> Result<Option<Override>, String> {
        let files = files.iter().map(|file| ((*file).to_owned(), Bytes::from_static(b"x"))).collect();
        let parameters = LoadParameters { config: config.map(str::to_owned), files };
        Override::new(&ModelName::new("m").unwrap(), parameters, true).map_err(|refusal| refusal.message)
    }

    #[test]
    fn files_lie_in_their_versions_and_go_with_the_override() {
        let made = sent(Some("{}"), &["3/model.onnx", "5/model.onnx", "5/deep/data.bin"]).unwrap().unwrap();
        assert_eq!(made.versions("m"), Some(vec![3, 5]));
        let folder = made.files.as_ref().unwrap().1.path().to_owned();
        assert_eq!(fs::read(folder.join("m/5/deep/data.bin")).unwrap(), b"x");
        drop(made);
        assert!(!folder.exists());
        assert!(sent(None, &[]).unwrap().is_none());
        assert!(sent(Some("{}"), &[]).unwrap().unwrap().versions("m").is_none());
    }

    #[test]
    fn files_cannot_leave_the_folder_and_need_a_configuration() {
        for path in ["../x", "/etc/x", "1/../../x", "model.onnx", "1", "1/", "one/model.onnx", "0/x", ""] {
            let message = sent(Some("{}"), &[path]).err().unwrap();
            assert!(
                message.ends_with("expected a version and a file name, as in `1/model.onnx`"),
                "{message}"
            );
        }
        assert!(sent(None, &["1/model.onnx"]).err().unwrap().contains("expected `config`"));
    }
}
