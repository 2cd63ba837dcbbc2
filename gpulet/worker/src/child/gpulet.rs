//! A gpulet in the worker process: loads models on request.

use std::io;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::bounded;
use gpulet::{Partition, pin_this_thread};

use super::session::{Foreground, Loading};
use crate::wire::{Load, Loaded, Refused, Socket, WireError};

/// Serves a gpulet until its socket closes.
pub(super) fn spawn(lane: u32, mut socket: Socket, partition: Arc<dyn Partition>) {
    let serve = move || {
        let ended = loop {
            if let Err(error) = load(lane, &mut socket, &partition) {
                break error;
            }
        };
        if !matches!(ended, WireError::Ended) {
            tracing::error!(lane, error = %ended, "gpulet closed");
        }
        // Before the socket: the server takes its end as "the gpulet is closed".
        drop(partition);
        drop(socket);
    };
    if let Err(error) = thread::Builder::new().name(format!("gpulet-{lane}")).spawn(serve) {
        tracing::error!(lane, %error, "gpulet closed: its thread did not start");
    }
}

/// Waits for a load request and starts the threads of its session.
fn load(lane: u32, socket: &mut Socket, partition: &Arc<dyn Partition>) -> Result<(), WireError> {
    let (load, mut files) = socket.receive::<Load>(None)?;
    let session_socket = Socket::from(files.required("session's socket")?);
    let file = files.required("model's file")?;
    let mut refusal_socket = session_socket.try_clone()?;
    let loading = Loading { load, file, socket: session_socket, partition: Arc::clone(partition) };
    if let Err(error) = start(lane, loading) {
        let refused = Refused::new(&format!("no thread for its session: {error}"));
        refusal_socket.answer(&Err::<Loaded, _>(refused));
    }
    Ok(())
}

/// Starts both threads from here: a thread at background priority could not start one at normal priority.
fn start(lane: u32, loading: Loading) -> io::Result<()> {
    let (hand_over, handed_over) = bounded::<Foreground>(1);
    let (cores, idle_priority) = (loading.partition.cores().to_vec(), loading.partition.idle_priority());
    thread::Builder::new().name(format!("run-{lane}")).spawn(move || {
        // The session ended before its first foreground batch.
        let Ok(session) = handed_over.recv() else { return };
        if !cores.is_empty()
            && let Err(error) = pin_this_thread(&cores)
        {
            tracing::warn!(lane, %error, "a session runs unpinned");
        }
        if idle_priority && let Err(error) = models::enter_idle_priority() {
            tracing::warn!(lane, %error, "a session runs at ordinary priority, next to the others of its cores");
        }
        session.serve();
    })?;
    thread::Builder::new().name(format!("load-{lane}")).spawn(move || {
        if let Err(error) = models::enter_background() {
            tracing::warn!(lane, %error, "a model is loaded at normal priority");
        }
        if let Some(session) = loading.load() {
            session.serve_background(&hand_over);
        }
    })?;
    Ok(())
}
