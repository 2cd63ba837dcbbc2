//! Devices in worker processes: the description that a worker gets, and its entry point.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use device_sections::InterferenceSection;
use gpulet::{Device, DeviceError, DeviceInfo, Emulation};
use gpulet_worker::{Hello, Limits, ProcessDevice, WorkerCommand, WorkerScope, serve};
use models::Loader;
use models::engine::ort;
use models::engine::python::HostSlot;
use serde::{Deserialize, Serialize};

use super::Own;
use super::gpus::{self, Gpu};
use crate::config::Server;
use crate::environment::Environment;
use crate::logs;
use crate::profiles;

/// Options of `worker`.
#[derive(Args, Clone, Debug, Default)]
pub struct WorkerArgs {
    /// Print the GPUs of this machine and exit.
    #[arg(long)]
    pub describe: bool,
    /// How GPUs are shared.
    #[arg(long)]
    pub backend: Option<String>,
}

/// Description of a device for another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "backend")]
pub enum Described {
    /// Cores of this machine.
    Cores {
        /// Name in plans.
        name: String,
        /// Numbers of the cores.
        cores: Vec<usize>,
        /// Memory for models, in bytes.
        memory_bytes: u64,
        /// Path of the ONNX Runtime library, if one was found.
        ort_library: Option<PathBuf>,
    },
    /// A GPU.
    Gpu {
        /// The GPU and its partitioning.
        gpu: Gpu,
        /// Path of the ONNX Runtime library, if one was found.
        ort_library: Option<PathBuf>,
    },
    /// An emulated device.
    Emulated {
        /// The device.
        emulation: Emulation,
        /// Profile files with its batch times.
        profiles: Vec<String>,
        /// Interference between its batches.
        interference: Option<InterferenceSection>,
    },
}

impl Described {
    /// Name of the domain in which the device fails together with others.
    pub fn fault_domain(&self) -> &str {
        match self {
            Self::Cores { name, .. } => name,
            Self::Gpu { gpu, .. } => &gpu.fault_domain,
            Self::Emulated { emulation, .. } => &emulation.fault_domain,
        }
    }
}

/// Description for a worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Worker {
    device: Described,
    log: Server,
    /// What models call that run in processes of their own. Stays in the server.
    #[serde(skip)]
    model_host: HostSlot,
}

impl Worker {
    /// A worker with this device that logs as the server does.
    pub fn new(log: &Server, device: Described, model_host: HostSlot) -> Self {
        Self { device, log: log.clone(), model_host }
    }
}

/// Creates the device in separate processes.
pub(super) fn isolated(
    info: DeviceInfo,
    scope: WorkerScope,
    worker: Worker,
    units_variable: Option<&str>,
) -> Result<Arc<dyn Device>, DeviceError> {
    let description = serde_json::to_string(&worker).map_err(|error| DeviceError(error.to_string()))?;
    let variables = gpulet_cuda::ENVIRONMENT.map(|(name, value)| (name.into(), value.into()));
    let (variables, units_variable) = (variables.to_vec(), units_variable.map(Into::into));
    let command = WorkerCommand { variables, units_variable, ..WorkerCommand::this_program() };
    let device = ProcessDevice::new(info, scope, command, description, Limits::default())?;
    Ok(Arc::new(device.with_model_host(worker.model_host)))
}

/// A GPU. Its gpulets run in one process, or each in its own if the backend assigns shares to processes.
pub(super) fn isolated_gpu(worker: Worker) -> Result<Arc<dyn Device>, DeviceError> {
    match &worker.device {
        Described::Gpu { gpu, .. } => {
            let (info, variable) = (gpus::info(gpu)?, gpus::share_variable(gpu));
            let scope = if variable.is_some() { WorkerScope::Gpulet } else { WorkerScope::Device };
            isolated(info, scope, worker, variable)
        }
        Described::Cores { name, .. } | Described::Emulated { emulation: Emulation { name, .. }, .. } => {
            Err(DeviceError(format!("device `{name}` is not a GPU")))
        }
    }
}

/// Runs `tessera worker`: runs gpulets for the server that started it, or prints the GPUs.
pub fn run(arguments: &WorkerArgs, environment: &Environment) -> ExitCode {
    if arguments.describe {
        return gpus::describe(arguments.backend.as_deref(), environment);
    }
    serve(|hello: &Hello| {
        let refuse = |error: String| DeviceError(format!("worker: {error}"));
        let worker: Worker =
            serde_json::from_str(&hello.description).map_err(|error| refuse(error.to_string()))?;
        logs::install(&worker.log, environment.stderr_is_terminal, None)
            .map_err(|error| refuse(error.to_string()))?;
        let (loader, profiles) = match &worker.device {
            Described::Cores { ort_library: Some(path), .. } => {
                (Loader::new(ort::discover(Some(path), &environment.ort)), Vec::new())
            }
            Described::Cores { ort_library: None, .. } => (Loader::without_ort(), Vec::new()),
            Described::Gpu { gpu, ort_library } => {
                return gpus::take(gpu, ort_library.as_ref(), environment);
            }
            Described::Emulated { profiles: files, .. } => {
                let known = profiles::named("partition.profiles", files, Path::new(""));
                (Loader::without_ort(), known.map_err(|error| refuse(error.to_string()))?)
            }
        };
        let device = Own::new(loader, profiles).device(&worker.device);
        device.ok_or_else(|| refuse("the device cannot run in this process".to_owned()))
    })
}
