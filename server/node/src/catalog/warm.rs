//! The warm pool: sessions that outlive their gpulets, for the next plans.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gpulet::{CoreSet, LaneHandle};
use gpulet_core::warm_pool::{WarmPool, WarmSession};
use models::engine::Session;
use router_core::ModelId;
use serde::Serialize;

use super::Catalog;
use super::version::Loaded;

/// A session that no lane runs.
pub struct Ready {
    /// The session.
    pub session: Box<dyn Session>,
    /// Rows of the largest batch that it was prepared for.
    pub rows: u32,
    /// Whether its answer matched the reference.
    pub verified: bool,
}

/// Sessions by version and core set, with counts.
pub(super) struct WarmSessions(Mutex<Counted>);

struct Counted {
    pool: WarmPool<(ModelId, CoreSet), Ready>,
    taken: u64,
    loaded: u64,
}

impl WarmSessions {
    /// A pool of at most `most` sessions.
    pub fn new(most: usize) -> Self {
        Self(Mutex::new(Counted { pool: WarmPool::new(most), taken: 0, loaded: 0 }))
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a session that was loaded because the pool had none.
    pub fn count_loaded(&self) {
        self.lock().loaded += 1;
    }
}

/// Sessions in the warm pool, and where the sessions of gpulets came from since the server started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WarmPoolCounts {
    /// Number of sessions in the pool.
    pub sessions: usize,
    /// Their bytes, according to the profiles.
    pub bytes: u64,
    /// Sessions taken from the pool instead of being loaded.
    pub taken: u64,
    /// Sessions that were loaded.
    pub loaded: u64,
}

impl Catalog {
    /// Takes a session of a version that can run on a lane.
    pub fn take_warm(&self, loaded: &Loaded, lane: &LaneHandle, rows: u32) -> Option<Ready> {
        let core_set = lane.partition().core_set()?;
        let mut kept = self.warm.lock();
        let warm = kept.pool.take(&(loaded.id, core_set), rows)?;
        kept.taken += 1;
        Some(warm.session)
    }

    /// Puts a session of `bytes` bytes from a lane into the pool. Drops it where sessions cannot leave their gpulet.
    pub async fn keep_warm(&self, loaded: &Loaded, lane: &LaneHandle, ready: Ready, bytes: u64) {
        let dropped = match lane.partition().core_set() {
            Some(core_set) => {
                let (device, key, rows) =
                    (core_set.device.as_str().into(), (loaded.id, core_set), ready.rows);
                self.warm.lock().pool.insert(WarmSession { device, key, rows, bytes, session: ready })
            }
            None => vec![ready],
        };
        self.drop_in_background(dropped.into_iter().map(|ready| ready.session).collect()).await;
    }

    /// Shrinks the pool of a device to at most `bytes` bytes.
    pub async fn fit_warm(&self, device: &str, bytes: u64) {
        let dropped = self.warm.lock().pool.shrink_to(device, bytes);
        self.drop_in_background(dropped.into_iter().map(|ready| ready.session).collect()).await;
    }

    /// Drops the pool's sessions of a version.
    pub(super) async fn forget_warm(&self, id: ModelId) {
        let dropped = self.warm.lock().pool.remove_where(|(of, _)| *of == id);
        self.drop_in_background(dropped.into_iter().map(|ready| ready.session).collect()).await;
    }

    /// Counts of the pool.
    pub fn warm_pool_counts(&self) -> WarmPoolCounts {
        let Counted { pool, taken, loaded } = &*self.warm.lock();
        WarmPoolCounts { sessions: pool.len(), bytes: pool.all_bytes(), taken: *taken, loaded: *loaded }
    }
}
