//! A gpulet in a worker process, as the server holds it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::contention::CoLocated;
use crate::limits::Limits;
use crate::process::Process;
use crate::wire::Socket;

/// A gpulet in another process. Dropping it closes it there.
pub(crate) struct Gpulet {
    pub process: Arc<Process>,
    pub socket: Mutex<Socket>,
    pub limits: Limits,
    /// Whether no other gpulet's batches can slow its own.
    pub exclusive: bool,
    /// None where no other gpulet can delay it.
    pub co_located: Option<CoLocated>,
    /// Identifies its watch.
    pub token: u64,
}

impl Drop for Gpulet {
    fn drop(&mut self) {
        self.process.unwatch(self.token);
        let socket = self.socket.get_mut().unwrap_or_else(PoisonError::into_inner);
        close(socket, &self.process, self.limits.close, "gpulet");
    }
}

/// Closes a gpulet or a session in another process and waits until it is closed. A process that does not close it in
/// time is killed, because it would keep the memory forever.
pub(crate) fn close(socket: &mut Socket, process: &Process, limit: Duration, what: &str) {
    if process.is_alive()
        && let Err(error) = socket.close(limit)
    {
        process.failed(error, limit, &format!(" to closing a {what}"));
    }
}
