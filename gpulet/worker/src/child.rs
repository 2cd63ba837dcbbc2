//! The worker process, which owns the device.
//!
//! The main thread opens gpulets, one thread per gpulet loads models, and one thread per session runs batches on the
//! gpulet's cores. A second thread per session, at background priority, loads the model and runs background batches.
//! It hands the session over when the first foreground batch arrives.
//!
//! The process ends when its control socket closes, because the server has then closed it or died.

mod gpulet;
mod session;

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use ::gpulet::{Device, DeviceError, PartitionSpec, PartitionWatch};
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};

use crate::wire::{Dying, Hello, Open, Opened, PROTOCOL, Ready, Refused, Socket, WireError, bounded};

/// The `main` of a worker: runs gpulets of the device that `devices` makes, until the server closes the control socket
/// or dies.
///
/// The control socket is the standard input. A program that was started manually prints the reason and exits with 2.
pub fn serve(devices: impl FnOnce(&Hello) -> Result<Arc<dyn Device>, DeviceError>) -> ExitCode {
    models::give_back_large_blocks();
    let begun = io::stdin().as_fd().try_clone_to_owned().map_err(WireError::from).and_then(|stdin| {
        // Without the death signal, the closed control socket still ends this process.
        let _unsupported = set_parent_process_death_signal(Some(Signal::KILL));
        let mut control = Socket::from(stdin);
        let (hello, _) = control.receive::<Hello>(None)?;
        Ok((control, hello))
    });
    let (mut control, hello) = match begun {
        Ok(begun) => begun,
        Err(WireError::Ended) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("a worker is started by a server, which talks to it on its standard input: {error}");
            return ExitCode::from(2);
        }
    };
    let device = match greet(&hello, devices) {
        Ok(device) => device,
        Err(DeviceError(reason)) => {
            control.answer(&Err::<Ready, _>(Refused::new(&reason)));
            return ExitCode::FAILURE;
        }
    };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let ready = Ready { protocol: PROTOCOL, version, units: device.info().units };
    if control.send(&Ok::<Ready, Refused>(ready), &[]).is_err() {
        return ExitCode::SUCCESS;
    }
    match open_gpulets(control, device.as_ref()) {
        WireError::Ended => ExitCode::SUCCESS,
        error => {
            tracing::error!(%error, "the server sent an invalid message");
            ExitCode::FAILURE
        }
    }
}

fn greet(
    hello: &Hello,
    devices: impl FnOnce(&Hello) -> Result<Arc<dyn Device>, DeviceError>,
) -> Result<Arc<dyn Device>, DeviceError> {
    let (protocol, version) = (hello.protocol, &hello.version);
    if protocol != PROTOCOL {
        return Err(DeviceError(format!(
            "the server is version {version}: expected protocol {PROTOCOL}, got {protocol}"
        )));
    }
    devices(hello)
}

/// Opens gpulets until the control socket fails. Returns why it failed.
fn open_gpulets(mut control: Socket, device: &dyn Device) -> WireError {
    let watch = match control.try_clone() {
        Ok(control) => Arc::new(DyingMessage(Mutex::new(control))),
        Err(error) => return error.into(),
    };
    loop {
        let (open, socket) = match control.receive::<Open>(None) {
            Ok((open, mut files)) => match files.required("gpulet's socket") {
                Ok(socket) => (open, Socket::from(socket)),
                Err(error) => return error,
            },
            Err(error) => return error,
        };
        open_gpulet(&open, socket, device, Arc::clone(&watch));
    }
}

fn open_gpulet(open: &Open, mut socket: Socket, device: &dyn Device, watch: Arc<DyingMessage>) {
    let Open { lane, first_unit, units, idle_priority } = *open;
    let spec = PartitionSpec { lane, first_unit, units };
    let opened = match idle_priority {
        false => device.open(&spec, watch),
        true => device.open_at_idle_priority(&spec, watch),
    };
    let answer = match &opened {
        Ok(partition) => Ok(Opened { cores: partition.cores().to_vec() }),
        Err(DeviceError(reason)) => Err(Refused::new(reason)),
    };
    // The gpulet is closed here if the server no longer waits for it, otherwise by its thread.
    if socket.send(&answer, &[]).is_ok()
        && let Ok(partition) = opened
    {
        gpulet::spawn(lane, socket, partition);
    }
}

/// Tells the server why this process ends, and ends it: after a failed gpulet, no other gpulet of the process can be
/// trusted.
struct DyingMessage(Mutex<Socket>);

impl PartitionWatch for DyingMessage {
    fn failed(&self, lane: u32, reason: &str) {
        let dying = Dying(format!("gpulet of lane {lane}: {}", bounded(reason)));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).answer(&dying);
        // SIGKILL, because exit handlers call drivers that may never return after a fault.
        if kill_process(getpid(), Signal::KILL).is_err() {
            std::process::abort();
        }
    }
}
