//! The GPUs of this machine. Only worker processes use them, because a GPU fault destroys the process that uses the GPU
//! and the server must keep its requests.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use gpulet::{Device, DeviceError, DeviceInfo};
use gpulet_cuda::{
    Backend, CudaDevice, CudaOptions, ENVIRONMENT, Found, MPS_FOLDER, MPS_FOLDER_VARIABLE,
    MPS_SHARE_VARIABLE, MpsAbsent, OnnxMaker, OnnxOptions, SessionMaker, choose, mps_daemon, probe,
};
use models::Loader;
use models::engine::ort::discover;
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::output;

/// Largest description of GPUs in bytes.
const DESCRIPTION_BYTES: usize = 1 << 20;

/// A GPU as the worker that examined it describes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gpu {
    /// The driver's index of the GPU.
    pub ordinal: i32,
    /// UUID as `nvidia-smi -L` prints it.
    pub uuid: String,
    /// How it is shared, a value of `devices.gpu_backend`.
    pub backend: String,
    /// Preferred backends that are unavailable, with the reasons.
    pub passed_over: Vec<String>,
    /// Name in plans.
    pub name: String,
    /// Device type in profiles.
    pub device_type: String,
    /// Number of smallest shares.
    pub units: u32,
    /// Allowed sizes of gpulets in units.
    pub sizes: Vec<u32>,
    /// Bytes for models.
    pub memory_bytes: u64,
    /// Bytes of them that the GPU takes once.
    pub base_bytes: u64,
    /// Bytes of them that each gpulet takes in addition to its models.
    pub gpulet_bytes: u64,
    /// Name of the domain in which GPUs fail together.
    pub fault_domain: String,
}

/// Result of examining the machine: GPUs, or why none can be used.
type Looked = Result<Vec<Gpu>, String>;

/// Runs `tessera worker --describe`: examines every GPU and prints the result as JSON.
pub fn describe(forced: Option<&str>, environment: &Environment) -> ExitCode {
    match serde_json::to_string(&look(forced, environment)) {
        Ok(text) => {
            output::line(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            output::complain(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Whether an MPS daemon runs where its clients search for it.
pub fn mps(environment: &Environment) -> Result<(), MpsAbsent> {
    mps_daemon(environment.variable(MPS_FOLDER_VARIABLE).unwrap_or(MPS_FOLDER).as_ref())
}

fn look(forced: Option<&str>, environment: &Environment) -> Looked {
    let forced = forced.map(str::parse::<Backend>).transpose().map_err(|error| error.to_string())?;
    let found = probe().map_err(|error| error.to_string())?;
    let mps = mps(environment);
    found.iter().map(|found| look_at(found, forced, &mps)).collect()
}

/// Opens the GPU for a moment, because only then its partitioning is known.
fn look_at(found: &Found, forced: Option<Backend>, mps: &Result<(), MpsAbsent>) -> Result<Gpu, String> {
    let choice = choose(found, mps, forced).map_err(|error| error.to_string())?;
    let maker = maker(Loader::without_ort());
    let device = CudaDevice::take(found, choice.backend, maker, &CudaOptions::default());
    let device = device.map_err(|error| error.to_string())?;
    let DeviceInfo {
        name,
        device_type,
        units,
        sizes,
        memory_bytes,
        base_bytes,
        gpulet_bytes,
        fault_domain,
        ..
    } = device.info().clone();
    let passed_over = choice.passed_over.iter().map(|(backend, why)| format!("{backend}: {why}")).collect();
    let (ordinal, uuid, backend) = (found.ordinal, found.uuid.clone(), choice.backend.to_string());
    Ok(Gpu {
        ordinal,
        uuid,
        backend,
        passed_over,
        name,
        device_type,
        units,
        sizes,
        memory_bytes,
        base_bytes,
        gpulet_bytes,
        fault_domain,
    })
}

/// Requests the GPUs of the machine from a worker process.
///
/// # Errors
/// Says why no GPU can be used.
pub fn find(forced: Option<&str>) -> Looked {
    let mut command = Command::new("/proc/self/exe");
    command.args(["worker", "--describe"]).envs(ENVIRONMENT);
    command.args(forced.map(|word| format!("--backend={word}")));
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let told =
        command.output().map_err(|error| format!("cannot start the process that looks for GPUs: {error}"))?;
    if !told.status.success() {
        return Err(format!("the process that looks for GPUs ended with {}", told.status));
    }
    let text = told.stdout.get(..told.stdout.len().min(DESCRIPTION_BYTES)).unwrap_or_default();
    serde_json::from_slice::<Looked>(text)
        .map_err(|error| format!("what was found cannot be read: {error}"))?
}

/// The environment variable with a gpulet's share, if each gpulet needs its own process, as under MPS.
pub fn share_variable(gpu: &Gpu) -> Option<&'static str> {
    (gpu.backend == Backend::CudaMps.as_str()).then_some(MPS_SHARE_VARIABLE)
}

/// The GPU as planners see it.
pub fn info(gpu: &Gpu) -> Result<DeviceInfo, DeviceError> {
    let backend: Backend =
        gpu.backend.parse().map_err(|error| DeviceError(format!("{}: {error}", gpu.name)))?;
    Ok(DeviceInfo {
        name: gpu.name.clone(),
        backend: backend.as_str(),
        device_type: gpu.device_type.clone(),
        units: gpu.units,
        sizes: gpu.sizes.clone(),
        memory_bytes: gpu.memory_bytes,
        base_bytes: gpu.base_bytes,
        gpulet_bytes: gpu.gpulet_bytes,
        fault_domain: gpu.fault_domain.clone(),
        guarantees: backend.guarantees(),
    })
}

/// Opens the GPU in the worker process.
///
/// # Errors
/// If the GPU has changed or cannot be opened.
pub fn take(
    gpu: &Gpu,
    ort_library: Option<&PathBuf>,
    environment: &Environment,
) -> Result<Arc<dyn Device>, DeviceError> {
    let refuse = |why: String| DeviceError(format!("{}: {why}", gpu.name));
    let found = probe().map_err(|error| refuse(error.to_string()))?;
    let found = found.iter().find(|found| found.ordinal == gpu.ordinal && found.uuid == gpu.uuid);
    let found = found.ok_or_else(|| {
        let (uuid, number) = (&gpu.uuid, gpu.ordinal);
        refuse(format!("the driver no longer lists {uuid} as number {number}: restart the server to use the GPUs that it lists"))
    })?;
    let backend: Backend = gpu.backend.parse().map_err(|error| refuse(format!("{error}")))?;
    let library = discover(ort_library.map(PathBuf::as_path), &environment.ort);
    let mps_share = environment.variable(MPS_SHARE_VARIABLE).and_then(|share| share.parse().ok());
    let options = CudaOptions { mps_share, ..CudaOptions::default() };
    let device = CudaDevice::take(found, backend, maker(Loader::new(library)), &options)?;
    Ok(Arc::new(device))
}

fn maker(loader: Loader) -> Arc<dyn SessionMaker> {
    Arc::new(OnnxMaker::new(Arc::new(loader), OnnxOptions::default()))
}
