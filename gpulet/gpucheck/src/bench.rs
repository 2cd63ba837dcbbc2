//! What a check works with: the GPU, the remaining time, and the report.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gpulet::{Device, DeviceError, Partition, PartitionSpec, PartitionWatch};
use gpulet_cuda::driver::{Driver, DriverError, LibraryError, Primary, SplitError};
use gpulet_cuda::{Backend, CudaDevice, CudaOptions, Cudnn, Found, device_type, probe};
use models::engine::{RunError, Session};
use models::{LoadOptions, ModelFiles};

use crate::arguments::Arguments;
use crate::exit;
use crate::makers::{Engine, Makers};
use crate::report::Report;

/// Why a check was aborted.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// There is no driver.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The GPU cannot be split.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// A gpulet could not be opened or loaded.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A batch failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Any other reason.
    #[error("{0}")]
    Other(String),
}

/// What a check works with.
pub struct Bench<'a> {
    /// The GPU.
    pub found: Found,
    /// Takes the facts.
    pub report: Report<'a>,
    /// When the check must end.
    pub until: Instant,
    /// Runs models; an error says what is missing.
    pub engine: Engine,
    /// Folder of the models.
    pub models: PathBuf,
    /// Profile file.
    pub profiles: PathBuf,
    /// ONNX Runtime from the command line, for child processes.
    pub onnxruntime: Option<PathBuf>,
}

impl Bench<'_> {
    /// Whether the time is over.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Remaining time.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// The moment when `share` (0 to 1) of the remaining time will have passed.
    pub fn after(&self, share: f64) -> Instant {
        Instant::now() + self.left().mul_f64(share.clamp(0.0, 1.0))
    }

    /// The GPU's primary context, shared with its other users.
    ///
    /// # Errors
    /// The driver failed.
    pub fn primary(&self) -> Result<Arc<Primary>, Stop> {
        Ok(Primary::retain(Driver::load()?, self.found.ordinal)?)
    }

    /// The GPU as a device of this backend.
    ///
    /// # Errors
    /// The backend is not available, or the driver failed.
    pub fn take(&self, backend: Backend, options: &CudaOptions) -> Result<CudaDevice, Stop> {
        self.take_with(backend, Cudnn::IfItRuns, options)
    }

    /// Like [`take`](Self::take), with this use of cuDNN.
    ///
    /// # Errors
    /// The backend is not available, or the driver failed.
    pub fn take_with(
        &self,
        backend: Backend,
        cudnn: Cudnn,
        options: &CudaOptions,
    ) -> Result<CudaDevice, Stop> {
        let makers = Arc::new(Makers::new(&self.engine, cudnn));
        Ok(CudaDevice::take(&self.found, backend, makers, options)?)
    }

    /// The GPU with green contexts.
    ///
    /// # Errors
    /// Green contexts are not available, or the driver failed.
    pub fn green(&self) -> Result<CudaDevice, Stop> {
        self.take(Backend::CudaGreen, &CudaOptions::default())
    }

    /// Whether the GPU has green contexts. If not, reports what is missing in place of `fact`.
    pub fn has_green(&mut self, fact: &str, section: &str) -> bool {
        let missing = self.found.green.as_ref().err().map(ToString::to_string);
        let has = missing.is_none();
        missing.into_iter().for_each(|missing| self.report.skip(fact, section, missing));
        has
    }

    /// The device type in profiles.
    pub fn device_type(&self, units: u32) -> String {
        device_type(&self.found.name, units)
    }

    /// The command line of a child process for the same GPU and models.
    pub fn arguments(&self) -> Arguments {
        Arguments {
            checks: Vec::new(),
            all: false,
            probe: false,
            device: u32::try_from(self.found.ordinal).unwrap_or(0),
            out: None,
            models: self.models.clone(),
            profiles: self.profiles.clone(),
            onnxruntime: self.onnxruntime.clone(),
            seconds: None,
            child: None,
        }
    }

    /// Prints progress.
    pub fn tell(&self, what: &str) {
        eprintln!("  {what}");
    }
}

/// The GPU with this number of the driver.
///
/// # Errors
/// Exit code and reason.
pub(crate) fn find_gpu(device: u32) -> Result<Found, (u8, String)> {
    let all = probe().map_err(|error| (exit::NO_GPU, error.to_string()))?;
    let count = all.len();
    let found = all.into_iter().find(|gpu| u32::try_from(gpu.ordinal) == Ok(device));
    found.ok_or_else(|| (exit::MISUSE, format!("--device: expected a number below {count}, got `{device}`")))
}

/// Records failed gpulets.
#[derive(Default)]
pub struct Failures(Mutex<Vec<(u32, String)>>);

impl Failures {
    /// Lanes that failed, and why.
    pub fn all(&self) -> Vec<(u32, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PartitionWatch for Failures {
    fn failed(&self, lane: u32, reason: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((lane, reason.to_owned()));
    }
}

/// A session, and the gpulet that it keeps open.
pub struct Open {
    /// The session; dropped first.
    pub session: Box<dyn Session>,
    /// The gpulet.
    pub partition: Arc<dyn Partition>,
}

/// Opens a gpulet of `units` units from `first` on.
///
/// # Errors
/// The device refused.
pub fn open(device: &CudaDevice, first: u32, units: u32) -> Result<Arc<dyn Partition>, DeviceError> {
    device.open(&PartitionSpec { lane: first, first_unit: first, units }, Arc::new(Failures::default()))
}

/// Opens a gpulet with one session of a kernel.
///
/// # Errors
/// The device refused.
pub fn serve(device: &CudaDevice, files: &ModelFiles, first: u32, units: u32) -> Result<Open, DeviceError> {
    serve_rows(device, files, (first, units), 1)
}

/// Opens a gpulet with one session of a model, whose batches have at most `rows` rows: a new session runs every size
/// once, which takes time.
///
/// # Errors
/// The device refused.
pub fn serve_rows(
    device: &CudaDevice,
    files: &ModelFiles,
    (first, units): (u32, u32),
    rows: u32,
) -> Result<Open, DeviceError> {
    let partition = open(device, first, units)?;
    let session = partition.load(files, &at_most(rows))?;
    Ok(Open { session, partition })
}

/// Load options of a model whose batches have at most `rows` rows.
pub fn at_most(rows: u32) -> LoadOptions {
    LoadOptions { max_batch: Some(rows), ..LoadOptions::default() }
}
