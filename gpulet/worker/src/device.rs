//! The device as the server sees it.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use gpulet::{
    Compute, Device, DeviceError, DeviceInfo, FaultDomain, Partition, PartitionSpec, PartitionWatch, Resize,
};
use models::engine::Session;
use models::engine::python::HostSlot;
use models::{LoadOptions, Loader, ModelFiles};

use crate::contention::Contention;
use crate::gpulet::Gpulet;
use crate::limits::Limits;
use crate::process::{Process, Starter, WorkerCommand};
use crate::session;
use crate::wire::{Hello, Open, Opened, PROTOCOL, Refused, Socket};

/// Which gpulets share a worker process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerScope {
    /// Each gpulet has its own process, which starts and ends with it.
    Gpulet,
    /// All gpulets of the device. The process starts with the first gpulet and ends with the device.
    Device,
}

/// A device whose gpulets run in worker processes.
pub struct ProcessDevice {
    info: DeviceInfo,
    scope: WorkerScope,
    command: WorkerCommand,
    hello: Hello,
    limits: Limits,
    starter: Starter,
    /// None where no gpulet can delay another one.
    contention: Option<Arc<Contention>>,
    /// Loads the models that have processes of their own. They are loaded by this process: a worker in between would only
    /// pass messages on.
    own_processes: Arc<Loader>,
    /// The process of all gpulets, with [`WorkerScope::Device`].
    shared: Mutex<Option<Arc<Process>>>,
}

impl ProcessDevice {
    /// Wraps the device `inner`. Each worker makes its own from `description`, which must have as many units. No
    /// process is started before the first gpulet is opened.
    ///
    /// Workers inherit niceness and cores from the thread that calls this.
    ///
    /// # Errors
    /// A limit is out of range, or a thread did not start.
    pub fn new(
        inner: DeviceInfo,
        scope: WorkerScope,
        command: WorkerCommand,
        description: String,
        limits: Limits,
    ) -> Result<Self, DeviceError> {
        let name = inner.name.clone();
        let refuse = |reason: String| DeviceError(format!("device `{name}`: {reason}"));
        limits.validate().map_err(|error| refuse(error.to_string()))?;
        let starter =
            Starter::new(&name).map_err(|error| refuse(format!("cannot start a thread: {error}")))?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let hello = Hello { protocol: PROTOCOL, version, device: name.clone(), description };
        let info = with_workers(inner, scope);
        // Gpulets delay each other where they share units or a process.
        let shares_units = info.guarantees.compute != Compute::Exclusive;
        let contention =
            (shares_units || scope == WorkerScope::Device).then(|| Contention::new(shares_units));
        let shared = Mutex::new(None);
        let own_processes = Arc::new(Loader::for_own_processes(HostSlot::default()));
        Ok(Self { info, scope, command, hello, limits, starter, contention, own_processes, shared })
    }

    /// The same device, whose models may call the server.
    #[must_use]
    pub fn with_model_host(self, host: HostSlot) -> Self {
        Self { own_processes: Arc::new(Loader::for_own_processes(host)), ..self }
    }

    fn start(&self, command: &WorkerCommand) -> Result<Arc<Process>, DeviceError> {
        let (process, units) = Process::start(command, &self.hello, self.limits, &self.starter)?;
        let (expected, name) = (self.info.units, &self.info.name);
        if units != expected {
            let reason = format!("device `{name}`: expected {expected} units, the worker's has {units}");
            return Err(DeviceError(reason));
        }
        Ok(Arc::new(process))
    }

    /// The process for a new gpulet of `units` units.
    fn process(&self, units: u32) -> Result<Arc<Process>, DeviceError> {
        if self.scope == WorkerScope::Gpulet {
            return self.start(&self.command.for_units(units));
        }
        // Held while the process starts, so that concurrent callers get the same process.
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = shared.as_ref().filter(|process| process.is_alive()) {
            return Ok(Arc::clone(process));
        }
        drop(shared.take());
        let process = self.start(&self.command)?;
        *shared = Some(Arc::clone(&process));
        Ok(process)
    }
}

/// What a device guarantees when its gpulets are in worker processes.
fn with_workers(mut info: DeviceInfo, scope: WorkerScope) -> DeviceInfo {
    match scope {
        WorkerScope::Gpulet => {
            // A fault that reaches the whole device also crosses processes.
            if info.guarantees.fault_domain == FaultDomain::Process {
                info.guarantees.fault_domain = FaultDomain::Gpulet;
            }
            if info.guarantees.resize == Resize::Live {
                info.guarantees.resize = Resize::NewProcess;
            }
        }
        WorkerScope::Device => info.guarantees.fault_domain = FaultDomain::Device,
    }
    info
}

impl Device for ProcessDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn open(
        &self,
        spec: &PartitionSpec,
        watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError> {
        self.open_in_process(spec, false, watch)
    }

    fn open_at_idle_priority(
        &self,
        spec: &PartitionSpec,
        watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError> {
        self.open_in_process(spec, true, watch)
    }
}

impl ProcessDevice {
    fn open_in_process(
        &self,
        spec: &PartitionSpec,
        idle_priority: bool,
        watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError> {
        let refuse = |reason: String| DeviceError(format!("device `{}`: {reason}", self.info.name));
        let process = self.process(spec.units)?;
        let (mut socket, end) = Socket::pair().map_err(|error| refuse(error.to_string()))?;
        let PartitionSpec { lane, first_unit, units } = *spec;
        let open = Open { lane, first_unit, units, idle_priority };
        let sent = process.open(&open, end.as_fd());
        drop(end);
        let limit = self.limits.start;
        let opened = match sent.and_then(|()| socket.receive(Some(limit))) {
            Ok((Ok::<Opened, Refused>(opened), _)) => opened,
            Ok((Err(Refused(reason)), _)) => return Err(DeviceError(reason)),
            Err(error) => return Err(DeviceError(process.failed(error, limit, " to opening a gpulet"))),
        };
        let token = process.watch(spec.lane, watch)?;
        let gpulet = Gpulet {
            process,
            socket: Mutex::new(socket),
            limits: self.limits,
            exclusive: self.info.guarantees.compute == Compute::Exclusive,
            co_located: self.contention.as_ref().map(Contention::join),
            token,
        };
        let own_processes = Arc::clone(&self.own_processes);
        let (cores, gpulet) = (opened.cores, Arc::new(gpulet));
        Ok(Arc::new(ProcessPartition { cores, idle_priority, gpulet, own_processes }))
    }
}

struct ProcessPartition {
    cores: Vec<usize>,
    idle_priority: bool,
    gpulet: Arc<Gpulet>,
    own_processes: Arc<Loader>,
}

impl Partition for ProcessPartition {
    fn cores(&self) -> &[usize] {
        &self.cores
    }

    fn idle_priority(&self) -> bool {
        self.idle_priority
    }

    fn load(&self, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Session>, DeviceError> {
        if files.format.has_own_process() {
            return self.own_processes.load(files, options).map_err(|error| DeviceError(error.to_string()));
        }
        session::load(&self.gpulet, files, options)
    }
}
