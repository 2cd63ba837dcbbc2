//! The process that the other tests start: this test program again, with the name of the one test below.
//!
//! As [`Role::Worker`] its device is made of cores and fails on request. As [`Role::Server`] it only has a worker.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gpulet::{CoresDevice, Device, DeviceError, DeviceInfo, Partition, PartitionSpec, PartitionWatch};
use gpulet_worker::{Hello, WorkerScope};
use models::engine::{Batch, RunError, Session};
use models::{LoadOptions, ModelFiles, Signature};
use oip::Tensor;

use crate::support::{self, Losses, command, cores, limits};

/// What the process does, from the variable `WORKER_TEST_ROLE`.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    Worker,
    Server,
    /// Sends bytes that are not a message.
    Stranger,
}

const ROLE: &str = "WORKER_TEST_ROLE";

impl Role {
    /// Arguments with which this test program runs only [`child_process`].
    pub const ARGUMENTS: [&str; 4] = ["--ignored", "--exact", "--nocapture", "process::child_process"];

    /// The variable that chooses the role.
    pub fn variable(self) -> (&'static str, String) {
        (ROLE, format!("{self:?}"))
    }
}

#[test]
#[ignore = "the process that other tests start; without a role it does nothing"]
fn child_process() {
    let code = match std::env::var(ROLE).as_deref() {
        Ok("Worker") => gpulet_worker::serve(device),
        Ok("Server") => server(),
        Ok("Stranger") => stranger(),
        _ => return,
    };
    // An `ExitCode` cannot be converted to a number.
    let known = (0..=2_u8).find(|number| code == ExitCode::from(*number));
    std::process::exit(known.unwrap().into());
}

/// Sends bytes that are not a message, and waits until the socket closes.
fn stranger() -> ExitCode {
    let mut stdin = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    stdin.write_all(&[0xFF; 40]).unwrap();
    while stdin.read(&mut [0; 99]).unwrap() > 0 {}
    ExitCode::SUCCESS
}

/// Starts one worker, prints `ready`, and waits to be killed.
fn server() -> ExitCode {
    let device = support::device(WorkerScope::Gpulet, "", command(), limits());
    let spec = PartitionSpec { lane: 0, first_unit: 0, units: 1 };
    let _partition = device.open(&spec, Losses::new().1).unwrap();
    println!("ready");
    let _closed = std::io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

fn device(hello: &Hello) -> Result<Arc<dyn Device>, DeviceError> {
    match hello.description.as_str() {
        "refuse" => Err(DeviceError("the device is missing".to_owned())),
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

/// Cores whose sessions fail as the first byte of a batch says.
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
        // Tells the test in which process and at which niceness the batch starts.
        if let Some(path) = std::env::var_os("WORKER_TEST_SOCKET") {
            let priority = rustix::process::getpriority_process(None).unwrap();
            let message = format!("{} {priority}", std::process::id());
            let socket = UnixDatagram::unbound().unwrap();
            // The socket fills up if the test does not read it.
            socket.set_nonblocking(true).unwrap();
            let _full = socket.send_to(message.as_bytes(), path);
        }
        let data = batch.inputs.iter().flatten().map(|tensor| &tensor.data).next();
        match data.and_then(|data| data.first()) {
            Some(0xF1) => garbage(),
            Some(0xF2) => std::process::abort(),
            Some(0xF3) => panic!("planted"),
            Some(0xF4) => self.held.extend(data.cloned()),
            Some(0xF5) => self.watch.failed(self.lane, "illegal address"),
            Some(0xF7) => std::thread::sleep(Duration::from_secs(1)),
            Some(0xF6) => return Err(RunError::Input("planted".to_owned())),
            _ => {}
        }
        assert!(self.held.iter().all(|held| held.first() == Some(&0xF4)), "inputs in use were overwritten");
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

/// Tells the test that a model is being loaded, and waits for its permission to go on.
fn wait() {
    let path = std::env::var("WORKER_TEST_SOCKET").unwrap();
    let socket = UnixDatagram::bind(format!("{path}.go")).unwrap();
    socket.send_to(b"loading", path).unwrap();
    socket.recv(&mut [0; 9]).unwrap();
}

/// Sends invalid messages on every socket of the process.
fn garbage() {
    for file in 0..256 {
        #[expect(unsafe_code, reason = "the test cannot reach the sockets of the crate otherwise")]
        // SAFETY: the descriptor is used for one call, which fails if it is not open.
        let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(file) };
        let _not_a_socket = rustix::net::send(file, &[0xFF; 9], rustix::net::SendFlags::NOSIGNAL);
    }
}
