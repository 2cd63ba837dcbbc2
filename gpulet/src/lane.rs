//! The thread of a lane: takes batches in order, runs them on the lane's sessions, and reports the results.
//!
//! A caller may run a batch on its own thread instead while the lane is idle ([`LaneHandle::run_here`]). For a batch of
//! some microseconds, handing it to another thread and back takes longer than running it.
//!
//! Hot path: nothing here logs per batch. The lock of what runs now is held for nanoseconds. The lock of the sessions is
//! held while a batch runs, and no caller waits for it.

mod batch;
mod running;
mod short_batches;
mod sink;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use models::engine::{RunError, Session};
use models::enter_idle_priority;
use tracing::warn;

use crate::cores::pin_this_thread;
use crate::device::Partition;
use running::Running;
use worker::Worker;

pub use batch::{BatchError, BatchOutcome, LaneBatch, LaneReport};
pub use sink::LaneSink;

/// Configuration of a lane.
#[derive(Clone)]
pub struct LaneConfig {
    /// Number of the lane; part of its thread's name.
    pub id: u32,
    /// Gpulet of the lane; the thread is pinned to its cores.
    pub partition: Arc<dyn Partition>,
    /// Capacity of the command queue.
    pub mailbox: usize,
    /// Lane class: lanes with the same number are equally fast. 0 if unknown.
    pub lane_class: u32,
    /// The longest batch that a caller may run on its own thread: see [`LaneHandle::run_here`]. Zero for none.
    pub run_here_max: Duration,
}

/// The thread could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the thread of lane {lane}: {cause}")]
pub struct LaneError {
    /// Number of the lane.
    pub lane: u32,
    /// Error of the operating system.
    pub cause: std::io::Error,
}

/// The lane accepts no command: its thread has ended, or its mailbox is full although its depth should suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lane's thread has ended or its mailbox is full")]
pub struct LaneFailed;

/// Receives the removed session, if the lane held one.
type Removed = Box<dyn FnOnce(Option<Box<dyn Session>>) + Send>;

enum Command {
    Run(LaneBatch),
    Install(u32, Box<dyn Session>),
    Remove(u32, Removed),
    Stop,
}

/// Handle of a lane's thread. The thread ends when its last handle is dropped.
#[derive(Clone)]
pub struct LaneHandle {
    id: u32,
    lane_class: u32,
    partition: Arc<dyn Partition>,
    commands: Sender<Command>,
    running: Arc<Running>,
    worker: Arc<Mutex<Worker>>,
}

impl LaneHandle {
    /// Number of the lane.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Lane class, see [`LaneConfig::lane_class`].
    pub fn lane_class(&self) -> u32 {
        self.lane_class
    }

    /// Cores to which the thread is pinned.
    pub fn cores(&self) -> &[usize] {
        self.partition.cores()
    }

    /// Gpulet of the lane.
    pub fn partition(&self) -> &Arc<dyn Partition> {
        &self.partition
    }

    /// Hands over a batch without waiting.
    pub fn run(&self, batch: LaneBatch) -> Result<(), LaneFailed> {
        self.commands.try_send(Command::Run(batch)).map_err(|_| LaneFailed)
    }

    /// Runs a batch on the calling thread, which reports it to the sink. All earlier batches must have been reported. Gives
    /// the batch back if the lane is not idle, if the session must run on the lane's thread, or if a batch of as many bytes
    /// is not known to take at most [`LaneConfig::run_here_max`].
    pub fn run_here(&self, batch: LaneBatch) -> Result<(), LaneBatch> {
        let mut worker = match self.worker.try_lock() {
            Ok(worker) if self.commands.is_empty() => worker,
            Ok(_) | Err(_) => return Err(batch),
        };
        let Some(sink) = worker.open_to(&batch) else { return Err(batch) };
        let report = worker.run(batch);
        drop(worker);
        sink.report(report);
        Ok(())
    }

    /// Ends a batch early, or before it begins, if its session allows that. A batch that has ended stays as it is.
    pub fn preempt(&self, token: u64) {
        self.running.preempt(token);
    }

    /// Installs a session; later batches of `model` run on it. Waits while the mailbox is full.
    pub fn install(&self, model: u32, session: Box<dyn Session>) -> Result<(), LaneFailed> {
        self.commands.send(Command::Install(model, session)).map_err(|_| LaneFailed)
    }

    /// Removes a session after all earlier batches, and passes it to `removed` on the lane's thread. Dropping a session
    /// takes milliseconds and blocks the lane, so `removed` should send it to another thread.
    pub fn remove(
        &self,
        model: u32,
        removed: impl FnOnce(Option<Box<dyn Session>>) + Send + 'static,
    ) -> Result<(), LaneFailed> {
        self.commands.send(Command::Remove(model, Box::new(removed))).map_err(|_| LaneFailed)
    }

    /// Ends the thread after all earlier batches.
    pub fn stop(&self) -> Result<(), LaneFailed> {
        self.commands.send(Command::Stop).map_err(|_| LaneFailed)
    }
}

/// Starts a lane's thread, pinned to its cores, with the priority of its gpulet. A failure of either is logged and not fatal.
pub fn spawn_lane(config: LaneConfig, sink: Arc<dyn LaneSink>) -> Result<LaneHandle, LaneError> {
    let (commands, inbox) = bounded(config.mailbox.max(1));
    let LaneConfig { id, lane_class, .. } = config;
    let running = Arc::<Running>::default();
    let partition = Arc::clone(&config.partition);
    // A caller has ordinary priority.
    let run_here_max = if partition.idle_priority() { Duration::ZERO } else { config.run_here_max };
    let worker = Worker::new(id, Arc::clone(&sink), Arc::clone(&running), run_here_max);
    let worker = Arc::new(Mutex::new(worker));
    let own = LaneThread(Arc::clone(&worker));
    let handle = LaneHandle { id, lane_class, partition, commands, running, worker };
    let lane = config.id;
    thread::Builder::new()
        .name(format!("lane-{lane}"))
        .spawn(move || {
            let cores = config.partition.cores();
            if !cores.is_empty()
                && let Err(error) = pin_this_thread(cores)
            {
                warn!(lane, %error, "lane runs unpinned");
            }
            if config.partition.idle_priority()
                && let Err(error) = enter_idle_priority()
            {
                warn!(lane, %error, "lane runs at ordinary priority, next to the others of its cores");
            }
            let watch = Watch { lane, sink: Arc::clone(&sink), inbox, asked: false };
            own.serve(watch, &*sink);
        })
        .map_err(|cause| LaneError { lane, cause })?;
    Ok(handle)
}

/// Notifies the sink when the thread panics, and returns the batches that were not started: they can run elsewhere.
struct Watch {
    lane: u32,
    sink: Arc<dyn LaneSink>,
    inbox: Receiver<Command>,
    asked: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.asked {
            return;
        }
        for command in self.inbox.try_iter() {
            let Command::Run(LaneBatch { token, members, .. }) = command else { continue };
            let lost = RunError::DeviceFailed("the lane's thread panicked".to_owned());
            let outcome = BatchOutcome::Failed(BatchError::Run(lost), members);
            let (ended, compute) = (Instant::now(), Duration::ZERO);
            self.sink.report(LaneReport { lane: self.lane, token, ended, compute, outcome });
        }
        self.sink.failed(self.lane);
    }
}

/// The lane's own thread. Sessions and the sink are dropped with it, not with the last handle.
struct LaneThread(Arc<Mutex<Worker>>);

impl LaneThread {
    /// Runs commands until `Stop`. `watch` is dropped before the sessions: the sink is notified first, because dropping
    /// sessions takes time.
    fn serve(self, mut watch: Watch, sink: &dyn LaneSink) {
        while let Ok(command) = watch.inbox.recv() {
            match command {
                Command::Run(batch) => {
                    let report = self.worker().run(batch);
                    sink.report(report);
                }
                Command::Install(model, session) => {
                    let replaced = self.worker().install(model, session);
                    drop(replaced);
                }
                Command::Remove(model, removed) => {
                    let session = self.worker().remove(model);
                    removed(session);
                }
                Command::Stop => break,
            }
        }
        watch.asked = true;
    }

    fn worker(&self) -> MutexGuard<'_, Worker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LaneThread {
    fn drop(&mut self) {
        // Not dropped under the lock, because dropping sessions takes time.
        let held = self.worker().end();
        drop(held);
    }
}
