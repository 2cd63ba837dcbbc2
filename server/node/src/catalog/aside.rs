//! Work on models aside from those that serve: loading, measuring and dropping them.

use gpulet::{LaneHandle, allowed_cores, pin_this_thread};
use tokio::sync::{Semaphore, oneshot};

/// Loads that go on at once beside traffic; more only take memory, and no load ends sooner for them.
const LOADS_MAX: usize = 4;

/// Whether anybody waits for anything else meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// The server is not ready before this is done: all cores, at ordinary priority.
    BeforeServing,
    /// Others are being served: they come first, on every core.
    BesideTraffic,
}

/// The thread of a piece of work could not be started, or panicked.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// What the system said.
    #[error("cannot start a thread: {0}")]
    NotStarted(std::io::Error),
    /// The work panicked.
    #[error("the engine panicked")]
    Panicked,
}

/// Runs work on threads of its own, which end with it: one that has given way cannot take that back.
pub struct Aside {
    /// Cores that no lane is bound to; empty when there are none.
    spare: Vec<usize>,
    loads: Semaphore,
}

impl Aside {
    /// Keeps off the cores of these lanes if the process has others.
    pub fn new(lanes: &[LaneHandle]) -> Self {
        let taken = |core: &usize| lanes.iter().any(|lane| lane.cores().contains(core));
        let mut spare = allowed_cores().unwrap_or_default();
        spare.retain(|core| !taken(core));
        Self { spare, loads: Semaphore::new(LOADS_MAX) }
    }

    /// Loads, when it is its turn.
    pub async fn load<T: Send + 'static>(
        &self,
        haste: Haste,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Lost> {
        match haste {
            Haste::BeforeServing => run(work).await,
            Haste::BesideTraffic => {
                let _turn = self.loads.acquire().await;
                self.tidy(work).await
            }
        }
    }

    /// Work that never waits for a load: dropping what models held.
    pub async fn tidy<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Lost> {
        let spare = self.spare.clone();
        run(move || {
            if let Err(error) = models::give_way() {
                tracing::debug!(%error, "loading at ordinary priority");
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

/// Runs work on a thread of its own at ordinary priority: what nobody is disturbed by, and milliseconds of what others
/// wait for, such as the allocator's locks. Holding those while it gave way made batches wait up to 154 ms.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Lost> {
    let (done, result) = oneshot::channel();
    let thread = std::thread::Builder::new().name("tessera-load".to_owned());
    // Nobody waits for the result when the server is stopping.
    thread.spawn(move || drop(done.send(work()))).map_err(Lost::NotStarted)?;
    result.await.map_err(|_| Lost::Panicked)
}
