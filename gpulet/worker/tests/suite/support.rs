//! Workers, models and batches for tests.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use gpulet::{
    Compute, CoresDevice, Device, DeviceError, Partition, PartitionSpec, PartitionWatch, allowed_cores,
};
use gpulet_worker::{Limits, ProcessDevice, WorkerCommand, WorkerScope};
use models::engine::{Batch, RunError, Session};
use models::{Format, LoadOptions, Loader, ModelFiles, ModelName, Version};
use oip::{Datatype, Shape, Tensor};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::process::Role;

/// Upper bound on waiting for an event that must happen.
pub const SOON: Duration = Duration::from_secs(30);

/// A device whose workers report when they start a batch.
pub struct World {
    pub device: ProcessDevice,
    reports: UnixDatagram,
    folder: tempfile::TempDir,
}

pub fn limits() -> Limits {
    Limits { start: SOON, load: SOON, first_run: SOON, ..Limits::default() }
}

pub fn command() -> WorkerCommand {
    command_of(Role::Worker)
}

/// Starts this test program again.
pub fn command_of(role: Role) -> WorkerCommand {
    let (variable, value) = role.variable();
    WorkerCommand {
        program: std::env::current_exe().unwrap(),
        name: "worker-of-a-test".into(),
        arguments: Role::ARGUMENTS.map(Into::into).to_vec(),
        // Writing a backtrace takes longer than a batch may.
        variables: vec![("RUST_BACKTRACE".into(), "0".into()), (variable.into(), value.into())],
        units_variable: None,
    }
}

/// The workers' device, in this process.
pub fn cores() -> CoresDevice {
    CoresDevice::new("cpu0", allowed_cores().unwrap(), 1 << 30, Arc::new(Loader::without_ort()))
}

pub fn device(
    scope: WorkerScope,
    description: &str,
    command: WorkerCommand,
    limits: Limits,
) -> ProcessDevice {
    promising(Compute::Exclusive, scope, description, command, limits)
}

fn promising(
    compute: Compute,
    scope: WorkerScope,
    description: &str,
    command: WorkerCommand,
    limits: Limits,
) -> ProcessDevice {
    let mut info = cores().info().clone();
    info.guarantees.compute = compute;
    ProcessDevice::new(info, scope, command, description.to_owned(), limits).unwrap()
}

impl World {
    pub fn new(scope: WorkerScope) -> Self {
        Self::with(scope, limits())
    }

    pub fn with(scope: WorkerScope, limits: Limits) -> Self {
        Self::promising(Compute::Exclusive, scope, limits)
    }

    /// A device whose gpulets share units.
    pub fn shared(limits: Limits) -> Self {
        Self::promising(Compute::None, WorkerScope::Device, limits)
    }

    fn promising(compute: Compute, scope: WorkerScope, limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reports");
        let reports = UnixDatagram::bind(&path).unwrap();
        reports.set_read_timeout(Some(SOON)).unwrap();
        let mut command = command();
        command.variables.push(("WORKER_TEST_SOCKET".into(), path.into()));
        Self { device: promising(compute, scope, "", command, limits), reports, folder }
    }

    /// Opens a gpulet on the first core.
    pub fn open(&self, lane: u32) -> (Arc<dyn Partition>, Losses) {
        let (losses, watch) = Losses::new();
        (self.device.open(&PartitionSpec { lane, first_unit: 0, units: 1 }, watch).unwrap(), losses)
    }

    /// The next report of a worker.
    pub fn report(&self) -> String {
        let mut buffer = [0; 64];
        let length = self.reports.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    /// Process and niceness of the next batch that started.
    pub fn started(&self) -> (Pid, i32) {
        let report = self.report();
        let (id, priority) = report.split_once(' ').unwrap();
        (Pid::from_raw(id.parse().unwrap()).unwrap(), priority.parse().unwrap())
    }

    /// Lets a worker finish loading the model `waits`.
    pub fn go(&self) {
        self.reports.send_to(b"go", self.folder.path().join("reports.go")).unwrap();
    }
}

/// Lane and reason of failed gpulets.
pub struct Losses(Receiver<(u32, String)>);

struct Watch(Sender<(u32, String)>);

impl PartitionWatch for Watch {
    fn failed(&self, lane: u32, reason: &str) {
        // A test that is not interested has dropped the receiver.
        let _dropped = self.0.send((lane, reason.to_owned()));
    }
}

impl Losses {
    pub fn new() -> (Self, Arc<dyn PartitionWatch>) {
        let (sender, receiver) = channel();
        (Self(receiver), Arc::new(Watch(sender)))
    }

    /// The only loss. The watch is dropped, so there cannot be another one.
    pub fn only(self) -> (u32, String) {
        let loss = self.0.recv_timeout(SOON).unwrap();
        assert!(self.0.recv_timeout(SOON).is_err_and(|error| error.to_string().contains("closed")));
        loss
    }

    pub fn none_yet(&self) -> bool {
        self.0.try_recv().is_err()
    }
}

pub fn signal(worker: Pid, signal: Signal) {
    kill_process(worker, signal).unwrap();
}

/// Stops a worker and waits until it has stopped, which takes a moment after the signal.
pub fn stop(worker: Pid) {
    signal(worker, Signal::STOP);
    waitid(WaitId::Pid(worker), WaitIdOptions::STOPPED).unwrap().unwrap();
}

fn files(name: &str, format: Format, bytes: impl Into<bytes::Bytes>) -> ModelFiles {
    ModelFiles::from_bytes(ModelName::new(name).unwrap(), Version(1), format, bytes)
}

/// The model that is bundled with the server.
pub fn digits() -> ModelFiles {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/bundled/digits/1/model.onnx");
    files("digits", Format::Onnx, std::fs::read(path).unwrap())
}

pub fn broken() -> ModelFiles {
    files("broken", Format::Onnx, "no graph")
}

/// A model that returns its input, with additional lines of configuration.
pub fn echo(name: &str, more: &str) -> ModelFiles {
    let text = format!(
        "max_batch = 8\n\
         inputs = [{{ name = \"x\", datatype = \"UINT8\", dims = [-1, -1] }}]\n\
         outputs = [{{ name = \"y\", datatype = \"UINT8\", dims = [-1, -1] }}]\n{more}"
    );
    synthetic(name, &text)
}

pub fn synthetic(name: &str, text: &str) -> ModelFiles {
    files(name, Format::Synthetic, text.to_owned())
}

/// Rows of `width` bytes, all equal to `byte`.
pub fn bytes(rows: u32, width: usize, byte: u8) -> Batch {
    let shape = Shape::from_extents(&[u64::from(rows), width as u64]);
    let data = vec![byte; rows as usize * width].into();
    Batch {
        inputs: vec![Some(Tensor { name: "x".to_owned(), datatype: Datatype::Uint8, shape, data })],
        rows,
    }
}

pub fn load(partition: &Arc<dyn Partition>, files: &ModelFiles) -> Box<dyn Session> {
    try_load(partition, files).unwrap()
}

pub fn try_load(partition: &Arc<dyn Partition>, files: &ModelFiles) -> Result<Box<dyn Session>, DeviceError> {
    partition.load(files, &LoadOptions::default())
}

/// Runs a batch of the echo model and checks the output.
pub fn echoes(session: &mut dyn Session, rows: u32, width: usize) {
    let batch = bytes(rows, width, 7);
    let outputs = session.run(&batch).unwrap();
    let (input, output) = (batch.inputs[0].as_ref().unwrap(), &outputs[0]);
    assert_eq!((output.name.as_str(), outputs.len()), ("y", 1));
    assert_eq!((&output.shape, output.datatype), (&input.shape, input.datatype));
    assert!(output.data == input.data);
}

/// Why a batch was lost.
pub fn lost(result: Result<Vec<Tensor>, RunError>) -> String {
    match result {
        Err(RunError::DeviceFailed(reason)) => reason,
        other => panic!("not lost: {other:?}"),
    }
}
