//! A gpulet of this process: loads models when it is told to.

use std::io;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::bounded;
use gpulet::{Partition, pin_this_thread};

use super::refused;
use super::session::{Loading, Served};
use crate::wire::{Load, Loaded, Refused, Socket, WireError};

/// Serves a gpulet until its conversation ends.
pub(super) fn spawn(lane: u32, mut socket: Socket, partition: Arc<dyn Partition>) {
    let serve = move || {
        let ended = loop {
            if let Err(error) = load(lane, &mut socket, &partition) {
                break error;
            }
        };
        if !matches!(ended, WireError::Ended) {
            tracing::error!(lane, error = %ended, "a gpulet is closed");
        }
        // Before the socket, whose end says that it is closed.
        drop(partition);
        drop(socket);
    };
    if let Err(error) = thread::Builder::new().name(format!("gpulet-{lane}")).spawn(serve) {
        tracing::error!(lane, %error, "a gpulet is closed: its thread cannot be started");
    }
}

/// Waits for a model and starts the threads of its session.
fn load(lane: u32, socket: &mut Socket, partition: &Arc<dyn Partition>) -> Result<(), WireError> {
    let (load, mut files) = socket.receive::<Load>(None)?;
    let session_socket = Socket::from(files.due("session's socket")?);
    let file = files.due("model's file")?;
    let mut refusal_socket = session_socket.try_clone()?;
    let loading = Loading { load, file, socket: session_socket, partition: Arc::clone(partition) };
    if let Err(error) = start(lane, loading) {
        let reason = refused(&format!("no thread for its session: {error}"));
        let _gone = refusal_socket.send(&Err::<Loaded, Refused>(reason), &[]);
    }
    Ok(())
}

/// Both threads are started from here, because one that gives way could start none that does not.
fn start(lane: u32, loading: Loading) -> io::Result<()> {
    let (hand_over, handed_over) = bounded::<Served>(1);
    let cores = loading.partition.cores().to_vec();
    thread::Builder::new().name(format!("run-{lane}")).spawn(move || {
        let Ok(served) = handed_over.recv() else { return };
        if !cores.is_empty()
            && let Err(error) = pin_this_thread(&cores)
        {
            tracing::warn!(lane, %error, "a session runs unpinned");
        }
        served.serve();
    })?;
    thread::Builder::new().name(format!("load-{lane}")).spawn(move || {
        if let Err(error) = models::give_way() {
            tracing::warn!(lane, %error, "a model is loaded without giving way");
        }
        if let Some(session) = loading.load() {
            session.serve_what_gives_way(&hand_over);
        }
    })?;
    Ok(())
}
