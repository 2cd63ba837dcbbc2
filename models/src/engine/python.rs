//! The `python` engine: Triton's `model.py`, in a process of its own for each session.
//!
//! The process runs a small runtime of ours, which gives the model the interface of Triton's
//! `triton_python_backend_utils`. A batch is one message to the process and one back; see `packets`. The requests of a batch
//! stay separate: the model gets a list of them and gives a response for each.
//!
//! A process that ends, hangs or gives an invalid answer fails its batch, and is replaced in the background. The
//! server and its other models go on.

mod calls;
mod config;
mod environment;
mod events;
mod host;
mod output;
mod packets;
mod process;
mod session;
mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Content, Engine, Libraries, Prepared, Session};
use crate::{EngineFailure, Format, LoadError, LoadOptions, ModelFiles, Signature};
pub(crate) use config::to_json;
use environment::Interpreter;
pub use host::{CallError, CheckedCall, HostSlot, MetricType, ModelHost, ModelMetric, RecordCall, Respond};
pub(crate) use process::prepare;
use process::{Process, Setup};
use session::PythonSession;

/// Name of this engine.
pub const NAME: &str = "python";

/// Name of a version's main file, unless `default_model_filename` says otherwise.
pub const DEFAULT_FILE: &str = "model.py";

/// Function of a model that completes its configuration.
const AUTO_COMPLETE: &[u8] = b"auto_complete_config";

/// The engine.
pub(crate) const ENGINE: Engine = Engine {
    name: NAME,
    platform: "",
    format: Format::Python,
    runs_on_gpus: true,
    takes_undecoded: false,
    load,
};

/// How to run Python models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonOptions {
    /// The interpreter. `None`: that of `EXECUTION_ENV_PATH`, else `python3`.
    pub interpreter: Option<PathBuf>,
    /// Longest time for the import of the model and `initialize`.
    pub load_timeout: Duration,
    /// Longest time of one call of `execute`.
    pub run_timeout: Duration,
    /// Whether sample inputs are run before the model is ready, to measure it.
    pub sample_runs: bool,
}

impl Default for PythonOptions {
    fn default() -> Self {
        let (load_timeout, run_timeout) = (Duration::from_secs(600), Duration::from_secs(60));
        Self { interpreter: None, load_timeout, run_timeout, sample_runs: true }
    }
}

/// What the loader reads of a Python model: its configuration and signature.
pub(crate) fn inspect(files: &ModelFiles, options: &LoadOptions) -> Result<(Value, Signature), LoadError> {
    let refuse = |reason: String| LoadError::Files { model: files.name.to_string(), reason };
    let config = files.config.as_ref().ok_or_else(|| refuse("has no configuration".to_owned()))?;
    let config: Value = serde_json::from_slice(config).map_err(|error| refuse(error.to_string()))?;
    if let Some(known) = &options.known {
        return Ok((config, known.signature.clone()));
    }
    let completed = if completes(files) {
        let setup = setup(files, &config, options, HostSlot::default()).map_err(refuse)?;
        Process::complete(&setup).map_err(refuse)?
    } else {
        config.clone()
    };
    let mut signature = config::signature(&completed).map_err(refuse)?;
    if let Some(wanted) = options.max_batch {
        crate::batching::check_request(files, wanted, signature.max_batch)?;
        signature.max_batch = wanted;
    }
    Ok((config, signature))
}

/// Whether the model completes its configuration itself.
fn completes(files: &ModelFiles) -> bool {
    memchr::memmem::find(&files.bytes, AUTO_COMPLETE).is_some()
}

fn setup(files: &ModelFiles, config: &Value, options: &LoadOptions, host: HostSlot) -> Result<Setup, String> {
    let folder = files.folder().and_then(Path::parent).ok_or("lies in no folder")?;
    let file = config.get("default_model_filename").and_then(Value::as_str).unwrap_or(DEFAULT_FILE);
    let device = match &options.accelerator {
        Some(cuda) => ("GPU", u32::try_from(cuda.stream.device()).unwrap_or(0)),
        None => ("CPU", 0),
    };
    Ok(Setup {
        model: files.name.to_string(),
        version: files.version.0,
        file: file.to_owned(),
        folder: folder.display().to_string(),
        config: config.clone(),
        auto_complete: completes(files),
        interpreter: Interpreter::of(options.python.interpreter.as_deref(), config, folder)?,
        cores: options.cores.clone(),
        idle_priority: options.idle_priority,
        device,
        load_timeout: options.python.load_timeout,
        host,
    })
}

fn load(
    model: &Prepared<'_>,
    libraries: &Libraries<'_>,
    options: &LoadOptions,
) -> Result<Box<dyn Session>, EngineFailure> {
    let failure = |reason: String| EngineFailure { engine: NAME, operator: None, reason };
    let Content::Python(config) = &model.content else {
        return Err(failure("takes only Python models".to_owned()));
    };
    let setup = setup(model.files, config, options, libraries.host.clone()).map_err(failure)?;
    let session =
        PythonSession::start(setup, model.signature.clone(), options.python.clone()).map_err(failure)?;
    if session.decoupled() && !options.reshapes.is_empty() {
        return Err(failure(
            "`reshape` of a decoupled model is not supported: reshape in model.py".to_owned(),
        ));
    }
    Ok(Box::new(session))
}
