//! Threads that load, measure and drop models while other models serve.

use gpulet::{LaneHandle, allowed_cores, pin_this_thread};
use tokio::sync::{Semaphore, oneshot};

/// Most concurrent loads while models serve. More would take memory and finish no load earlier.
const LOADS_MAX: usize = 4;

/// Whether a load competes with requests for the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadPriority {
    /// The server is not ready before this is done: all cores, normal priority.
    Startup,
    /// Models are serving: lanes take precedence on every core.
    Background,
}

/// Why work on a separate thread has no result.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The system could not start the thread.
    #[error("cannot start a thread: {0}")]
    NotStarted(std::io::Error),
    /// The work panicked, which is the engine's fault.
    #[error("the engine panicked")]
    Panicked,
}

/// Runs each piece of work on a new thread, because a thread at background priority cannot return to normal priority.
pub struct BackgroundLoads {
    /// Cores without a lane; may be empty.
    spare: Vec<usize>,
    loads: Semaphore,
}

impl BackgroundLoads {
    /// Uses cores without a lane, if the process has any.
    pub fn new(lanes: &[LaneHandle]) -> Self {
        let taken = |core: &usize| lanes.iter().any(|lane| lane.cores().contains(core));
        let mut spare = allowed_cores().unwrap_or_default();
        spare.retain(|core| !taken(core));
        Self { spare, loads: Semaphore::new(LOADS_MAX) }
    }

    /// Runs a load once fewer than [`LOADS_MAX`] others run.
    pub async fn load<T: Send + 'static>(
        &self,
        priority: LoadPriority,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ThreadError> {
        match priority {
            LoadPriority::Startup => run(work).await,
            LoadPriority::Background => {
                let _permit = self.loads.acquire().await;
                self.run_in_background(work).await
            }
        }
    }

    /// Runs work at background priority without waiting for loads, such as dropping sessions.
    pub async fn run_in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ThreadError> {
        let spare = self.spare.clone();
        run(move || {
            if let Err(error) = models::enter_background() {
                tracing::debug!(%error, "loading at normal priority");
            }
            if !spare.is_empty()
                && let Err(error) = pin_this_thread(&spare)
            {
                tracing::debug!(%error, "loading on the lanes' cores too");
            }
            work()
        })
        .await
    }
}

/// Runs work on a new thread at normal priority: work during start-up, and short work under locks that batches also
/// need, such as the allocator's. At background priority that work made batches wait for up to 154 ms.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ThreadError> {
    let (done, result) = oneshot::channel();
    let thread = std::thread::Builder::new().name("tessera-load".to_owned());
    // The receiver is dropped when the server is stopping.
    thread.spawn(move || drop(done.send(work()))).map_err(ThreadError::NotStarted)?;
    result.await.map_err(|_| ThreadError::Panicked)
}
