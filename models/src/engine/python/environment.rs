//! The interpreter of a model: the one of its settings, the one in its `EXECUTION_ENV_PATH`, or `python3`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::Value;
use tempfile::TempDir;

use super::config::parameter;

/// Parameter of `config.pbtxt` that names a folder or an archive with an interpreter.
const EXECUTION_ENV_PATH: &str = "EXECUTION_ENV_PATH";
/// What a path of the parameter may start with: the model's folder.
const MODEL_DIRECTORY: &str = "$$TRITON_MODEL_DIRECTORY";
/// Interpreter of models that name none.
const DEFAULT: &str = "python3";

/// An interpreter, and the unpacked archive that it lies in.
#[derive(Clone, Debug)]
pub(super) struct Interpreter {
    pub program: PathBuf,
    /// Folder of the environment, for `VIRTUAL_ENV` and `PATH`.
    pub environment: Option<PathBuf>,
    _unpacked: Option<Arc<TempDir>>,
}

impl Interpreter {
    /// The interpreter of a model. `folder` is the model's.
    ///
    /// # Errors
    /// Names the setting and what is wrong with it.
    pub fn of(setting: Option<&Path>, config: &Value, folder: &Path) -> Result<Self, String> {
        if let Some(program) = setting {
            return Ok(Self { program: program.to_owned(), environment: None, _unpacked: None });
        }
        let Some(named) = parameter(config, EXECUTION_ENV_PATH) else {
            return Ok(Self { program: DEFAULT.into(), environment: None, _unpacked: None });
        };
        let refuse = |reason: String| format!("parameters.{EXECUTION_ENV_PATH}: `{named}`: {reason}");
        let path = match named.strip_prefix(MODEL_DIRECTORY) {
            Some(inner) => folder.join(inner.trim_start_matches('/')),
            None => folder.join(named),
        };
        let found = fs::metadata(&path).map_err(|error| refuse(error.to_string()))?;
        let (environment, unpacked) = if found.is_dir() {
            (path, None)
        } else {
            let unpacked = unpacked(&path, found.modified().ok()).map_err(refuse)?;
            (unpacked.path().to_owned(), Some(unpacked))
        };
        let program = ["bin/python3", "bin/python"].map(|inner| environment.join(inner));
        let program = program.into_iter().find(|program| program.is_file());
        let program = program.ok_or_else(|| refuse("expected an interpreter at bin/python3".to_owned()))?;
        Ok(Self { program, environment: Some(environment), _unpacked: unpacked })
    }
}

type Archives = BTreeMap<(PathBuf, Option<SystemTime>), Arc<TempDir>>;

/// Archives that were unpacked, until the server ends: several models and lanes share one.
static ARCHIVES: LazyLock<Mutex<Archives>> = LazyLock::new(Mutex::default);

fn unpacked(archive: &Path, changed: Option<SystemTime>) -> Result<Arc<TempDir>, String> {
    let mut archives = ARCHIVES.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (archive.to_owned(), changed);
    if let Some(known) = archives.get(&key) {
        return Ok(Arc::clone(known));
    }
    let private = fs::Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new().prefix("tessera-env-").permissions(private).tempdir();
    let folder = folder.map_err(|error| error.to_string())?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(archive).arg("-C").arg(folder.path()).stdin(Stdio::null());
    let output = tar.output().map_err(|error| format!("cannot run `tar` to unpack it: {error}"))?;
    if !output.status.success() {
        let said = super::super::guard::one_line(&String::from_utf8_lossy(&output.stderr));
        return Err(format!("expected a folder or a .tar.gz archive: {said}"));
    }
    // Packed environments hold the paths of the machine that made them; conda-pack's own program repairs that.
    let repair = folder.path().join("bin/conda-unpack");
    if repair.is_file() {
        let repaired = Command::new(&repair).stdin(Stdio::null()).stdout(Stdio::null()).status();
        if !repaired.is_ok_and(|status| status.success()) {
            tracing::warn!(archive = %archive.display(), "conda-unpack failed: paths inside the environment may be wrong");
        }
    }
    let folder = Arc::new(folder);
    archives.insert(key, Arc::clone(&folder));
    Ok(folder)
}
