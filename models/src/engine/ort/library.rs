//! The ONNX Runtime library of this process.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ::ort::environment::Environment as OrtEnvironment;
use ::ort::logging::LogLevel;

use super::pool::Nursery;
use super::search::{self, Environment};

/// A library that was loaded and can make sessions. A process has at most one.
#[derive(Clone, Debug)]
pub struct OrtLibrary {
    /// The file.
    pub path: PathBuf,
    /// Version of ONNX Runtime, as in `1.31.0`.
    pub version: String,
    environment: OrtEnvironment,
    nursery: Nursery,
}

impl OrtLibrary {
    pub(super) fn environment(&self) -> &OrtEnvironment {
        &self.environment
    }

    pub(super) fn nursery(&self) -> &Nursery {
        &self.nursery
    }
}

/// No usable library, and what was tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrtMissing {
    /// Each place that was looked at and why it did not give a library, in order.
    pub tried: Vec<(String, String)>,
}

impl fmt::Display for OrtMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no ONNX Runtime library")?;
        for (index, (place, why)) in self.tried.iter().enumerate() {
            write!(f, "{} {place}: {why}", if index == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl std::error::Error for OrtMissing {}

/// The library in use. It can be loaded once in a process and never unloaded.
static LOADED: Mutex<Option<OrtLibrary>> = Mutex::new(None);

/// Finds and loads ONNX Runtime. Places, in order: the configured path, `ORT_DYLIB_PATH`, an installed
/// `onnxruntime` wheel of 1.31 or later in the active virtual environment or where `python3` finds it.
///
/// A path that a person named is the only place: a mistake in it is reported and not papered over by another
/// library. Later calls in the same process give the library that is already loaded, or refuse if it is not
/// the named one.
pub fn discover(configured: Option<&Path>, environment: &Environment) -> Result<OrtLibrary, OrtMissing> {
    let mut missing = OrtMissing::default();
    for candidate in search::candidates(configured, environment) {
        match candidate.path.and_then(|path| load(&path)) {
            Ok(library) => return Ok(library),
            Err(why) => missing.tried.push((candidate.place, why)),
        }
    }
    Err(missing)
}

fn load(path: &Path) -> Result<OrtLibrary, String> {
    let path = path.canonicalize().map_err(|error| format!("`{}`: {error}", path.display()))?;
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = loaded.as_ref() {
        return if library.path == path {
            Ok(library.clone())
        } else {
            Err(format!(
                "`{}`: this process already uses `{}`, and cannot use two",
                path.display(),
                library.path.display()
            ))
        };
    }
    let environment = ::ort::init_from(&path)
        .map_err(|error| error.to_string())?
        .with_name("tessera")
        .with_telemetry(false)
        .with_logger(Arc::new(log))
        .build()
        .map_err(|error| error.message().to_owned())?;
    environment.set_log_level(LogLevel::Warning);
    let nursery = Nursery::new().map_err(|error| format!("cannot start a thread: {error}"))?;
    let library = OrtLibrary { version: version(&path), path, environment, nursery };
    *loaded = Some(library.clone());
    Ok(library)
}

/// The version, from the file's name (`libonnxruntime.so.1.31.0`) or else from the build's own description.
fn version(path: &Path) -> String {
    let of_name = path
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(|name| name.split_once(".so."))
        .map(|(_, version)| version.to_owned());
    of_name.unwrap_or_else(|| {
        let described = ::ort::info();
        let branch = described.split_once("git-branch=").map_or("unknown", |(_, rest)| rest);
        branch.split(',').next().unwrap_or("unknown").trim_start_matches("rel-").to_owned()
    })
}

fn log(level: LogLevel, category: &str, id: &str, location: &str, message: &str) {
    match level {
        LogLevel::Verbose | LogLevel::Info => tracing::debug!(category, id, location, "ort: {message}"),
        // Its warnings speak of optimisations it could not make: nothing for an operator to act on.
        LogLevel::Warning => tracing::debug!(category, id, location, "ort warns: {message}"),
        LogLevel::Error | LogLevel::Fatal => tracing::warn!(category, id, location, "ort: {message}"),
    }
}
