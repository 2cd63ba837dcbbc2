//! What a question is asked with: the GPU, the time that is left, and who listens.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gpulet::{Device, DeviceError, Partition, PartitionSpec, PartitionWatch};
use gpulet_cuda::driver::{Driver, DriverError, LibraryError, Primary, SplitError};
use gpulet_cuda::{Backend, CudaDevice, CudaOptions, Cudnn, Found};
use models::engine::{RunError, Session};
use models::{LoadOptions, ModelFiles};

use crate::answer::Answers;
use crate::arguments::Arguments;
use crate::makers::{Engine, Makers};

/// Why a question was given up.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The driver.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// No driver.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The GPU cannot be cut.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// A gpulet.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A batch.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// What a question is asked with.
pub struct Bench<'a> {
    /// The GPU.
    pub found: Found,
    /// Where answers go.
    pub answers: Answers<'a>,
    /// When everything must be said.
    pub until: Instant,
    /// What runs models, or what is missing for that.
    pub engine: Engine,
    /// Folder of the models.
    pub models: PathBuf,
    /// Profile file.
    pub profiles: PathBuf,
    /// ONNX Runtime as the command line names it, for processes of this program.
    pub onnxruntime: Option<PathBuf>,
}

impl Bench<'_> {
    /// Whether the time is over.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Time that is left.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// The moment when so much of what is left will be over.
    pub fn after(&self, share: f64) -> Instant {
        Instant::now() + self.left().mul_f64(share.clamp(0.0, 1.0))
    }

    /// The GPU's primary context, beside whoever else has it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn primary(&self) -> Result<Arc<Primary>, Stop> {
        Ok(Primary::retain(Driver::load()?, self.found.ordinal)?)
    }

    /// The GPU as a device that is shared in a way.
    ///
    /// # Errors
    /// What it lacks.
    pub fn take(&self, backend: Backend, options: &CudaOptions) -> Result<CudaDevice, Stop> {
        self.take_with(backend, Cudnn::IfItRuns, options)
    }

    /// The same, with models that may use cuDNN so.
    ///
    /// # Errors
    /// What it lacks.
    pub fn take_with(
        &self,
        backend: Backend,
        cudnn: Cudnn,
        options: &CudaOptions,
    ) -> Result<CudaDevice, Stop> {
        let makers = Arc::new(Makers::new(&self.engine, cudnn));
        Ok(CudaDevice::take(&self.found, backend, makers, options)?)
    }

    /// The GPU cut into green contexts.
    ///
    /// # Errors
    /// What it lacks.
    pub fn cut(&self) -> Result<CudaDevice, Stop> {
        self.take(Backend::CudaGreen, &CudaOptions::default())
    }

    /// The command line of a process of this program that asks the same GPU about the same models.
    pub fn arguments(&self) -> Arguments {
        Arguments {
            questions: Vec::new(),
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

    /// Says for people what is being done.
    pub fn tell(&self, what: &str) {
        eprintln!("  {what}");
    }
}

/// Hears of lost gpulets.
#[derive(Default)]
pub struct Losses(Mutex<Vec<(u32, String)>>);

impl Losses {
    /// Lanes that were lost, and why.
    pub fn heard(&self) -> Vec<(u32, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PartitionWatch for Losses {
    fn failed(&self, lane: u32, reason: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((lane, reason.to_owned()));
    }
}

/// A session, and the gpulet that it keeps open.
pub struct Open {
    /// The session; ends first.
    pub session: Box<dyn Session>,
    /// The gpulet.
    pub partition: Arc<dyn Partition>,
}

/// Opens a gpulet on `units` units from `first` on.
///
/// # Errors
/// What the device says.
pub fn open(device: &CudaDevice, first: u32, units: u32) -> Result<Arc<dyn Partition>, DeviceError> {
    device.open(&PartitionSpec { lane: first, first_unit: first, units }, Arc::new(Losses::default()))
}

/// Opens a gpulet with one session of a kernel.
///
/// # Errors
/// What the device says.
pub fn serve(device: &CudaDevice, files: &ModelFiles, first: u32, units: u32) -> Result<Open, DeviceError> {
    serve_rows(device, files, (first, units), 1)
}

/// Opens a gpulet with one session of a model, whose batches have at most so many rows: a new session runs every size
/// once, which takes time.
///
/// # Errors
/// What the device says.
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

/// Options of a model whose batches have at most so many rows.
pub fn at_most(rows: u32) -> LoadOptions {
    LoadOptions { max_batch: Some(rows), ..LoadOptions::default() }
}
