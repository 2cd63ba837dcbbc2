//! The device as the server sees it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpulet::{
    Compute, Device, DeviceError, DeviceInfo, FaultDomain, Partition, PartitionSpec, PartitionWatch, Resize,
};
use models::engine::Session;
use models::{LoadOptions, ModelFiles};

use crate::limits::Limits;
use crate::neighbours::{Neighbour, Neighbourhood};
use crate::process::{Process, Starter, WorkerCommand};
use crate::session;
use crate::wire::{Hello, Open, Opened, PROTOCOL, Refused, Socket};

/// What shares a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerScope {
    /// Nothing: each gpulet has a process of its own, which starts with it and ends with it.
    Gpulet,
    /// All gpulets of the device. The process starts with the first gpulet and ends with the device.
    Device,
}

/// A device whose gpulets run in other processes.
pub struct ProcessDevice {
    info: DeviceInfo,
    scope: WorkerScope,
    command: WorkerCommand,
    hello: Hello,
    limits: Limits,
    starter: Starter,
    /// None where no gpulet holds another one up.
    neighbourhood: Option<Arc<Neighbourhood>>,
    /// The process of all gpulets.
    shared: Mutex<Option<Arc<Process>>>,
}

impl ProcessDevice {
    /// A device of which `inner` is what the worker will have: the worker makes it from `description`, and it must
    /// have as many units. Nothing is started before the first gpulet is opened.
    ///
    /// The workers inherit niceness and cores from the thread that calls this.
    ///
    /// # Errors
    /// A limit that makes no sense, or a thread that could not be started.
    pub fn new(
        inner: DeviceInfo,
        scope: WorkerScope,
        command: WorkerCommand,
        description: String,
        limits: Limits,
    ) -> Result<Self, DeviceError> {
        let (hello, starter) = prepare(&inner.name, description, limits)?;
        let info = promised(inner, scope);
        let neighbourhood = neighbourhood(&info, scope);
        Ok(Self { info, scope, command, hello, limits, starter, neighbourhood, shared: Mutex::new(None) })
    }

    /// A device that only a worker can look at: one is started to say what it has, and stays where all gpulets of
    /// the device are to share it. Otherwise like [`new`](Self::new).
    ///
    /// # Errors
    /// As for [`new`](Self::new), and whatever keeps the worker from having the device.
    pub fn ask(
        name: &str,
        scope: WorkerScope,
        command: WorkerCommand,
        description: String,
        limits: Limits,
    ) -> Result<Self, DeviceError> {
        let (hello, starter) = prepare(name, description, limits)?;
        let (process, found) = Process::start(&command, &hello, limits, &starter)?;
        let mut info = DeviceInfo::try_from(found)
            .map_err(|reason| DeviceError(format!("device `{name}`: {reason}")))?;
        name.clone_into(&mut info.name);
        let info = promised(info, scope);
        let neighbourhood = neighbourhood(&info, scope);
        let shared = Mutex::new((scope == WorkerScope::Device).then(|| Arc::new(process)));
        Ok(Self { info, scope, command, hello, limits, starter, neighbourhood, shared })
    }

    fn start(&self, command: &WorkerCommand) -> Result<Arc<Process>, DeviceError> {
        let (process, found) = Process::start(command, &self.hello, self.limits, &self.starter)?;
        let (found, expected, name) = (found.units, self.info.units, &self.info.name);
        if found != expected {
            let reason = format!("device `{name}`: the worker's has {found} units: expected {expected}");
            return Err(DeviceError(reason));
        }
        Ok(Arc::new(process))
    }

    /// The process for another gpulet, of so many units.
    fn process(&self, units: u32) -> Result<Arc<Process>, DeviceError> {
        if self.scope == WorkerScope::Gpulet {
            return self.start(&self.command.for_units(units));
        }
        // Held while it starts: whoever else wants a gpulet meanwhile waits for the same process.
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = shared.as_ref().filter(|process| process.is_alive()) {
            return Ok(Arc::clone(process));
        }
        let gone = shared.take();
        drop(gone);
        let process = self.start(&self.command)?;
        *shared = Some(Arc::clone(&process));
        Ok(process)
    }
}

fn prepare(name: &str, description: String, limits: Limits) -> Result<(Hello, Starter), DeviceError> {
    let refuse = |reason: String| DeviceError(format!("device `{name}`: {reason}"));
    limits.validate().map_err(|error| refuse(error.to_string()))?;
    let starter = Starter::new(name).map_err(|error| refuse(format!("cannot start a thread: {error}")))?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok((Hello { protocol: PROTOCOL, version, device: name.to_owned(), description }, starter))
}

/// Its gpulets, if one can hold up another: they share units, or a process.
fn neighbourhood(info: &DeviceInfo, scope: WorkerScope) -> Option<Arc<Neighbourhood>> {
    let shares_units = info.guarantees.compute != Compute::Exclusive;
    (shares_units || scope == WorkerScope::Device).then(|| Neighbourhood::new(shares_units))
}

/// What a device promises where its gpulets are in other processes.
fn promised(mut info: DeviceInfo, scope: WorkerScope) -> DeviceInfo {
    match scope {
        WorkerScope::Gpulet => {
            // What ends a device's other gpulets does so from another process too.
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
        let refuse = |reason: String| DeviceError(format!("device `{}`: {reason}", self.info.name));
        let process = self.process(spec.units)?;
        let (mut socket, end) = Socket::pair().map_err(|error| refuse(error.to_string()))?;
        let open = Open { lane: spec.lane, first_unit: spec.first_unit, units: spec.units };
        let asked = process.open(&open, std::os::fd::AsFd::as_fd(&end));
        drop(end);
        let limit = self.limits.start;
        let opened = match asked.and_then(|()| socket.receive(Some(limit))) {
            Ok((Ok::<Opened, Refused>(opened), _)) => opened,
            Ok((Err(Refused(reason)), _)) => return Err(DeviceError(reason)),
            Err(error) => return Err(DeviceError(process.failed(error, limit, " to opening a gpulet"))),
        };
        let token = process.watch(spec.lane, watch)?;
        let exclusive = self.info.guarantees.compute == Compute::Exclusive;
        let neighbour = self.neighbourhood.as_ref().map(Neighbourhood::join);
        let (socket, limits) = (Mutex::new(socket), self.limits);
        let gpulet = Gpulet { process, socket, token, limits, exclusive, neighbour };
        Ok(Arc::new(ProcessPartition { cores: opened.cores, gpulet: Arc::new(gpulet) }))
    }
}

/// A gpulet in another process. It is closed there when this is dropped.
pub(crate) struct Gpulet {
    pub process: Arc<Process>,
    pub socket: Mutex<Socket>,
    pub limits: Limits,
    /// Whether nobody else's work can make its batches slow.
    pub exclusive: bool,
    /// None where no other gpulet holds it up.
    pub neighbour: Option<Neighbour>,
    token: u64,
}

impl Drop for Gpulet {
    fn drop(&mut self) {
        self.process.unwatch(self.token);
        let socket = self.socket.get_mut().unwrap_or_else(PoisonError::into_inner);
        close(socket, &self.process, self.limits.close, "gpulet");
    }
}

/// Closes something in another process and waits until it is closed. A process that cannot even do that is ended: it
/// would keep what it has for ever.
pub(crate) fn close(socket: &mut Socket, process: &Process, limit: Duration, what: &str) {
    if process.is_alive()
        && let Err(error) = socket.close(limit)
    {
        process.failed(error, limit, &format!(" to closing a {what}"));
    }
}

struct ProcessPartition {
    cores: Vec<usize>,
    gpulet: Arc<Gpulet>,
}

impl Partition for ProcessPartition {
    fn cores(&self) -> &[usize] {
        &self.cores
    }

    fn load(&self, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Session>, DeviceError> {
        session::load(&self.gpulet, files, options)
    }
}
