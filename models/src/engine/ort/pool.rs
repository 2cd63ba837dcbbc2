//! Threads that help a session to run one batch.
//!
//! A thread inherits priority and cores from the one that starts it, and the thread that loads a model runs at
//! [background priority](crate::enter_background). So a thread of ordinary priority starts the helpers, which then take the priority
//! of their lane.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use ::ort::environment::ThreadManager;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::{LoadOptions, enter_idle_priority};

type Work = Box<dyn FnOnce() + Send>;
type Started = std::io::Result<JoinHandle<()>>;

/// Starts threads at the priority that this process began with. Lives as long as its handles.
#[derive(Clone, Debug)]
pub(super) struct Nursery(Sender<(Work, Sender<Started>)>);

impl Nursery {
    /// Call on a thread of ordinary priority.
    pub fn new() -> std::io::Result<Self> {
        let (births, asked) = channel::<(Work, Sender<Started>)>();
        thread::Builder::new().name("ort-nursery".to_owned()).spawn(move || {
            for (work, reply) in asked {
                let started = thread::Builder::new().name("ort-pool".to_owned()).spawn(work);
                // The caller waits for this.
                let _ = reply.send(started);
            }
        })?;
        Ok(Self(births))
    }

    fn start(&self, work: Work) -> Started {
        let (reply, started) = channel();
        let ended = || std::io::Error::other("the thread that starts helpers has ended");
        self.0.send((work, reply)).map_err(|_| ended())?;
        started.recv().map_err(|_| ended())?
    }
}

/// Does some work on a thread with the priority and the cores of a lane.
///
/// # Errors
/// Why the thread did not do it.
pub(super) fn as_on_lane<T: Send + 'static>(
    nursery: &Nursery,
    options: &LoadOptions,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (give, done) = channel();
    let (cores, idle_priority) = (options.cores.clone(), options.idle_priority);
    let confined = move || {
        if let Err(error) = stay_on(&cores) {
            tracing::warn!(?cores, %error, "threads of an execution provider run unpinned");
        }
        take_priority(idle_priority);
        // The caller waits for this.
        let _ = give.send(work());
    };
    let thread = nursery.start(Box::new(confined)).map_err(|error| error.to_string())?;
    let result = done.recv();
    let joined = thread.join();
    result
        .ok()
        .filter(|_| joined.is_ok())
        .ok_or_else(|| "the thread that loads the model panicked".to_owned())
}

/// The helpers of one session.
pub(super) struct Pool {
    nursery: Nursery,
    /// One for each helper; empty: wherever the kernel likes.
    cores: Vec<usize>,
    idle_priority: bool,
    started: AtomicUsize,
}

impl Pool {
    /// Helpers for a session whose own thread has the first of these cores.
    pub fn new(nursery: Nursery, cores: &[usize], idle_priority: bool) -> Self {
        let cores = cores.iter().skip(1).copied().collect();
        Self { nursery, cores, idle_priority, started: AtomicUsize::new(0) }
    }
}

impl ThreadManager for Pool {
    type Thread = JoinHandle<()>;

    fn create(&self, work: impl FnOnce() + Send + 'static) -> ::ort::Result<Self::Thread> {
        let idle_priority = self.idle_priority;
        let core = self.cores.get(self.started.fetch_add(1, Ordering::Relaxed)).copied();
        let pinned = move || {
            if let Some(core) = core
                && let Err(error) = stay_on(&[core])
            {
                tracing::warn!(core, %error, "a helper of a session runs unpinned");
            }
            take_priority(idle_priority);
            work();
        };
        self.nursery.start(Box::new(pinned)).map_err(|error| ::ort::Error::new(error.to_string()))
    }

    fn join(thread: Self::Thread) -> ::ort::Result<()> {
        thread.join().map_err(|_| ::ort::Error::new("a helper of a session panicked"))
    }
}

fn take_priority(idle: bool) {
    if idle && let Err(error) = enter_idle_priority() {
        tracing::warn!(%error, "a helper of a session runs at ordinary priority");
    }
}

/// Keeps the calling thread on these cores from now on; anywhere if the list is empty.
fn stay_on(cores: &[usize]) -> std::io::Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut mask = CpuSet::new();
    for &core in cores {
        if core >= CpuSet::MAX_CPU {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        mask.set(core);
    }
    Ok(sched_setaffinity(None, &mask)?)
}
