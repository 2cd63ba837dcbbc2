//! The other end: the process that has the device.
//!
//! The first thread waits for gpulets to be opened, each gpulet has one that waits for models to be loaded, and each
//! session has one that waits for batches, on the gpulet's cores. A session is loaded, and runs what gives way to
//! others, on one more thread, which gives way itself, and is handed over with the first batch that does not.
//!
//! The process ends when its conversation does, for then nobody is there any more.

mod gpulet;
mod session;

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use ::gpulet::{Device, DeviceError, PartitionSpec, PartitionWatch};
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};

use crate::wire::{Dying, Hello, Open, Opened, PROTOCOL, Ready, Refused, Socket, WireDevice, WireError};

/// Characters that are sent of a reason.
const REASON_CHARS_MAX: usize = 4000;

/// The `main` of a worker: runs gpulets of the device that `devices` makes, for the process that started this one,
/// until that one needs them no longer or is gone.
///
/// The conversation is on the standard input, so a program that is started by hand ends with a word of why.
pub fn serve(devices: impl FnOnce(&Hello) -> Result<Arc<dyn Device>, DeviceError>) -> ExitCode {
    models::give_back_large_blocks();
    let begun = io::stdin().as_fd().try_clone_to_owned().map_err(WireError::from).and_then(|stdin| {
        // Where this cannot be had, the end of the conversation says the same.
        let _refused = set_parent_process_death_signal(Some(Signal::KILL));
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
            let refused: Result<Ready, Refused> = Err(refused(&reason));
            let _gone = control.send(&refused, &[]);
            return ExitCode::FAILURE;
        }
    };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let ready = Ready { protocol: PROTOCOL, version, device: WireDevice::from(device.info()) };
    if control.send(&Ok::<Ready, Refused>(ready), &[]).is_err() {
        return ExitCode::SUCCESS;
    }
    match open_gpulets(control, device.as_ref()) {
        WireError::Ended => ExitCode::SUCCESS,
        error => {
            tracing::error!(%error, "the server says what makes no sense");
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
            "the server is version {version} and speaks protocol {protocol}: expected {PROTOCOL}"
        )));
    }
    devices(hello)
}

/// Opens gpulets until the conversation ends; says how it did.
fn open_gpulets(mut control: Socket, device: &dyn Device) -> WireError {
    let last_words = match control.try_clone() {
        Ok(control) => Arc::new(LastWords(Mutex::new(control))),
        Err(error) => return error.into(),
    };
    loop {
        let (open, socket) = match control.receive::<Open>(None) {
            Ok((open, mut files)) => match files.due("gpulet's socket") {
                Ok(socket) => (open, Socket::from(socket)),
                Err(error) => return error,
            },
            Err(error) => return error,
        };
        open_gpulet(&open, socket, device, Arc::clone(&last_words));
    }
}

fn open_gpulet(open: &Open, mut socket: Socket, device: &dyn Device, watch: Arc<LastWords>) {
    let Open { lane, first_unit, units } = *open;
    let opened = device.open(&PartitionSpec { lane, first_unit, units }, watch);
    let answer = match &opened {
        Ok(partition) => Ok(Opened { cores: partition.cores().to_vec() }),
        Err(DeviceError(reason)) => Err(refused(reason)),
    };
    // A gpulet that nobody waits for any more is closed again, here or by its thread.
    if socket.send(&answer, &[]).is_ok()
        && let Ok(partition) = opened
    {
        gpulet::spawn(lane, socket, partition);
    }
}

fn refused(reason: &str) -> Refused {
    Refused(bounded(reason))
}

fn bounded(reason: &str) -> String {
    reason.chars().take(REASON_CHARS_MAX).collect()
}

/// Tells the server why this process ends, and ends it: what has lost one gpulet can promise nothing of another.
struct LastWords(Mutex<Socket>);

impl PartitionWatch for LastWords {
    fn lost(&self, lane: u32, reason: &str) {
        let dying = Dying(format!("gpulet of lane {lane}: {}", bounded(reason)));
        let mut control = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _gone = control.send(&dying, &[]);
        // At once: handlers of an ordinary exit call drivers that may never return after a fault.
        if kill_process(getpid(), Signal::KILL).is_err() {
            std::process::abort();
        }
    }
}
