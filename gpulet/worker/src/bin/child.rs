//! The process that the tests of this crate start: a worker whose device is made of the cores of this machine, with
//! faults on order, and a server that does nothing but have a worker.

#![expect(clippy::unwrap_used, reason = "a process for tests fails by panicking")]
#![expect(clippy::panic, reason = "it panics on order")]

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gpulet::{
    CoresDevice, Device, DeviceError, DeviceInfo, Partition, PartitionSpec, PartitionWatch, allowed_cores,
};
use gpulet_worker::{Hello, Limits, ProcessDevice, WorkerCommand, WorkerScope};
use models::engine::{Batch, RunError, Session};
use models::{LoadOptions, Loader, ModelFiles, Signature};
use oip::Tensor;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("worker") => gpulet_worker::serve(device),
        Some("server") => server(),
        _ => {
            // A program that was not told to be a worker and says something else on the conversation.
            let mut stdin = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
            stdin.write_all(&[0xFF; 40]).unwrap();
            while stdin.read(&mut [0; 99]).unwrap() > 0 {}
            ExitCode::SUCCESS
        }
    }
}

/// A server with one worker; says which process that is, and waits to be killed.
fn server() -> ExitCode {
    struct Nobody;
    impl PartitionWatch for Nobody {
        fn lost(&self, _lane: u32, _reason: &str) {}
    }
    let command = WorkerCommand::this_program();
    let info = cores().info().clone();
    let device =
        ProcessDevice::new(info, WorkerScope::Gpulet, command, String::new(), Limits::default()).unwrap();
    let spec = PartitionSpec { lane: 0, first_unit: 0, units: 1 };
    let _partition = device.open(&spec, Arc::new(Nobody)).unwrap();
    println!("ready");
    let _closed = std::io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

fn cores() -> CoresDevice {
    let loader = Arc::new(Loader::without_ort());
    CoresDevice::new("cpu0", allowed_cores().unwrap(), 1 << 30, loader)
}

fn device(hello: &Hello) -> Result<Arc<dyn Device>, DeviceError> {
    match hello.description.as_str() {
        "refuse" => Err(DeviceError("the device is away".to_owned())),
        "exit" => std::process::exit(7),
        "say units" => {
            let units = std::env::var("WORKER_TEST_UNITS").unwrap_or_else(|_| "none".to_owned());
            Err(DeviceError(format!("units: {units}")))
        }
        "hang" => loop {
            std::thread::park();
        },
        _ => Ok(Arc::new(Faulty { cores: cores() })),
    }
}

/// Cores whose sessions do what the first byte of a batch orders.
struct Faulty {
    cores: CoresDevice,
}

impl Device for Faulty {
    fn info(&self) -> &DeviceInfo {
        self.cores.info()
    }

    fn open(
        &self,
        spec: &PartitionSpec,
        watch: Arc<dyn PartitionWatch>,
    ) -> Result<Arc<dyn Partition>, DeviceError> {
        let partition = self.cores.open(spec, Arc::clone(&watch))?;
        Ok(Arc::new(FaultyPartition { partition, watch, lane: spec.lane }))
    }
}

struct FaultyPartition {
    partition: Arc<dyn Partition>,
    watch: Arc<dyn PartitionWatch>,
    lane: u32,
}

impl Partition for FaultyPartition {
    fn cores(&self) -> &[usize] {
        self.partition.cores()
    }

    fn load(&self, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Session>, DeviceError> {
        match files.name.to_string().as_str() {
            "panics" => panic!("planted"),
            "waits" => wait(),
            _ => {}
        }
        let session = self.partition.load(files, options)?;
        Ok(Box::new(FaultySession {
            session,
            watch: Arc::clone(&self.watch),
            lane: self.lane,
            held: Vec::new(),
        }))
    }
}

struct FaultySession {
    session: Box<dyn Session>,
    watch: Arc<dyn PartitionWatch>,
    lane: u32,
    held: Vec<Bytes>,
}

impl Session for FaultySession {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        // Whoever watches is told that the run begins, and where.
        if let Some(path) = std::env::var_os("WORKER_TEST_SOCKET") {
            let priority = rustix::process::getpriority_process(None).unwrap();
            let said = format!("{} {priority}", std::process::id());
            let socket = UnixDatagram::unbound().unwrap();
            // Not everybody listens, and then it is full at some time.
            socket.set_nonblocking(true).unwrap();
            let _full = socket.send_to(said.as_bytes(), path);
        }
        let data = batch.inputs.iter().flatten().map(|tensor| &tensor.data).next();
        match data.and_then(|data| data.first()) {
            Some(0xF1) => garbage(),
            Some(0xF2) => std::process::abort(),
            Some(0xF3) => panic!("planted"),
            Some(0xF4) => self.held.extend(data.cloned()),
            Some(0xF5) => self.watch.lost(self.lane, "illegal address"),
            Some(0xF7) => std::thread::sleep(Duration::from_secs(1)),
            Some(0xF6) => return Err(RunError::Input("planted".to_owned())),
            _ => {}
        }
        assert!(self.held.iter().all(|held| held.first() == Some(&0xF4)), "what was held was written over");
        self.session.run(batch)
    }

    fn signature(&self) -> &Signature {
        self.session.signature()
    }

    fn engine(&self) -> &'static str {
        self.session.engine()
    }

    fn trim(&mut self) {
        self.session.trim();
    }
}

/// Says that something is loaded, and waits for a word that it may be.
fn wait() {
    let path = std::env::var("WORKER_TEST_SOCKET").unwrap();
    let socket = UnixDatagram::bind(format!("{path}.go")).unwrap();
    socket.send_to(b"loading", path).unwrap();
    socket.recv(&mut [0; 9]).unwrap();
}

/// Says nonsense on every conversation.
fn garbage() {
    for file in 0..256 {
        #[expect(unsafe_code, reason = "the sockets are somewhere in the process, and nothing tells where")]
        // SAFETY: the number is used for one call, which fails where nothing is open.
        let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(file) };
        let _no_socket = rustix::net::send(file, &[0xFF; 9], rustix::net::SendFlags::NOSIGNAL);
    }
}
