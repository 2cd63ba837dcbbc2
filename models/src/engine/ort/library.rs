//! The ONNX Runtime library of this process.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::ort::environment::Environment as OrtEnvironment;
use ::ort::logging::LogLevel;

use super::pool::Nursery;
use super::prepared::PreparedGraphs;
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
    prepared: Arc<PreparedGraphs>,
}

impl OrtLibrary {
    pub(super) fn environment(&self) -> &OrtEnvironment {
        &self.environment
    }

    pub(super) fn nursery(&self) -> &Nursery {
        &self.nursery
    }

    pub(super) fn prepared(&self) -> &PreparedGraphs {
        &self.prepared
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
/// `onnxruntime` wheel of 1.31 or later in the Python environment that this program is installed in, in the active virtual
/// environment, or where `python3` finds it.
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
    let library =
        OrtLibrary { version: version(&path), path, environment, nursery, prepared: Arc::default() };
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

/// Logs a message of the library. `model` is the log id of the session, which is the model's name.
fn log(level: LogLevel, category: &str, model: &str, location: &str, message: &str) {
    // Its warnings speak of optimisations that it could not make: nothing for an operator to act on. What fails is also
    // returned as an error, and logged or answered where it happens.
    if !matches!(level, LogLevel::Error | LogLevel::Fatal) {
        tracing::debug!(category, model, location, "ort: {message}");
        return;
    }
    let repeated = REPEATED.lock().unwrap_or_else(PoisonError::into_inner).note(location, Instant::now());
    match repeated {
        Some(0) => tracing::info!(category, model, location, "ort: {message}"),
        Some(repeated) => tracing::info!(category, model, location, repeated, "ort: {message}"),
        None => tracing::debug!(category, model, location, "ort: {message}"),
    }
}

/// How often a message from one place of the library is logged.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Most places that are remembered.
const PLACES: usize = 64;

static REPEATED: Mutex<Repeated> = Mutex::new(Repeated(Vec::new()));

/// When messages from a place were logged, and how many were not since.
struct Repeated(Vec<(String, Instant, u64)>);

impl Repeated {
    /// How many messages of this place were left out since the last one that was logged; `None` if this is left out.
    fn note(&mut self, location: &str, now: Instant) -> Option<u64> {
        if let Some((_, at, left_out)) = self.0.iter_mut().find(|(known, ..)| known == location) {
            if now.saturating_duration_since(*at) < LOG_EVERY {
                *left_out += 1;
                return None;
            }
            *at = now;
            return Some(std::mem::take(left_out));
        }
        if self.0.len() >= PLACES {
            self.0.remove(0);
        }
        self.0.push((location.to_owned(), now, 0));
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_logged_once_in_a_while_and_says_how_often_it_came() {
        let (mut repeated, start) = (Repeated(Vec::new()), Instant::now());
        assert_eq!(repeated.note("a.cc:1", start), Some(0));
        assert_eq!(repeated.note("a.cc:1", start), None);
        assert_eq!(repeated.note("b.cc:2", start), Some(0));
        assert_eq!(repeated.note("a.cc:1", start + LOG_EVERY), Some(1));
        assert_eq!(repeated.note("a.cc:1", start + LOG_EVERY * 2), Some(0));
        for place in 0..2 * PLACES {
            repeated.note(&format!("{place}"), start);
        }
        assert_eq!(repeated.0.len(), PLACES);
    }
}
