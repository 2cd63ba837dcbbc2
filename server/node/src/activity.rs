//! What the server did lately, for people who watch it: a look each second, and an hour of memory.

mod counts;
mod lanes;
mod track;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use router_core::{Nanos, Snapshot};
use serde::Serialize;
use tokio::sync::watch;

pub use counts::{Ended, PERIOD_SECONDS, Recent};
pub use view::{ActivityView, ModelActivity};

use crate::catalog::{Catalog, Loaded};
use crate::node::Node;
use crate::reason::{Reason, Refusal};
use crate::supervisor::LaneRow;
use lanes::LaneUse;
use track::Track;

/// Seconds that the timeline has.
const TIMELINE: usize = 3_600;

/// One second of the timeline.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Second {
    /// When it ended, in seconds since 1970.
    pub at: u64,
    /// Requests that ended in it.
    #[serde(flatten)]
    pub ended: Ended,
    /// Requests that wait.
    pub queued: u64,
}

/// What one version did in the last hour.
#[derive(Clone, Debug)]
pub struct ModelHour {
    /// Name of the model.
    pub name: String,
    /// Its version.
    pub version: u64,
    /// Requests that ended, by [`PERIOD_SECONDS`], oldest first.
    pub periods: Vec<u64>,
    /// Part of them that was answered in time. `None` if none ended.
    pub attainment: Option<f64>,
}

/// The memory.
pub struct Activity {
    state: Mutex<State>,
    /// Number of looks so far.
    looks: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    tracks: BTreeMap<(String, u64), Track>,
    timeline: VecDeque<Second>,
    lanes: LaneUse,
    tenants: Vec<TenantTrack>,
    last: Option<Instant>,
    /// What the last look saw.
    seen: Option<Seen>,
}

struct Seen {
    snapshot: Snapshot,
    models: Vec<Arc<Loaded>>,
    lanes: Vec<LaneRow>,
    /// The view as JSON, made when it is asked for.
    json: Option<Bytes>,
}

/// Lane time of a tenant.
#[derive(Clone, Copy, Debug, Default)]
struct TenantTrack {
    used: Nanos,
    per_second: f64,
}

impl Default for Activity {
    fn default() -> Self {
        Self { state: Mutex::default(), looks: watch::Sender::new(0) }
    }
}

impl Activity {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the server. To be called each second.
    pub async fn look(&self, node: &Node) {
        let catalog = node.catalog();
        let Some(snapshot) = catalog.router().snapshot().await else { return };
        let lanes = node.supervisor().view().await.unwrap_or_default();
        let models: Vec<Arc<Loaded>> = catalog.all_serving();
        {
            let mut state = self.state();
            let now = Instant::now();
            let second =
                state.last.map_or(Duration::from_secs(1), |last| now.saturating_duration_since(last));
            state.last = Some(now);
            state.sample(&models, &snapshot, catalog, second);
            state.lanes.sample(&models, second);
            state.lanes.keep(|lane| lanes.iter().any(|row| row.lane == lane));
            state.seen = Some(Seen { snapshot, models, lanes, json: None });
        }
        self.looks.send_modify(|looks| *looks += 1);
    }

    /// What the last look saw, an [`ActivityView`] as JSON. It is made once a look, however many ask.
    ///
    /// # Errors
    /// Before the first look, and if the view cannot be written.
    pub fn json(&self, node: &Node) -> Result<Bytes, Refusal> {
        let mut state = self.state();
        let missing = || Refusal::new(Reason::ModelNotReady, "the server is starting: ask again in a second");
        let seen = state.seen.as_ref().ok_or_else(missing)?;
        if let Some(json) = &seen.json {
            return Ok(json.clone());
        }
        let view = view::of(&state, seen, node);
        let failed = |error: serde_json::Error| Refusal::new(Reason::Internal, format!("activity: {error}"));
        let json = Bytes::from(serde_json::to_vec(&view).map_err(failed)?);
        if let Some(seen) = &mut state.seen {
            seen.json = Some(json.clone());
        }
        Ok(json)
    }

    /// The last hour, oldest first.
    pub fn timeline(&self) -> Vec<Second> {
        self.state().timeline.iter().copied().collect()
    }

    /// What each version did in the last hour. Versions that were unloaded are not among them.
    pub fn hours(&self) -> Vec<ModelHour> {
        let hour = |((name, version), track): (&(String, u64), &Track)| ModelHour {
            name: name.clone(),
            version: *version,
            periods: track.recent.periods().map(Ended::all).collect(),
            attainment: track.recent.last_minutes(60).attainment(),
        };
        self.state().tracks.iter().map(hour).collect()
    }

    /// Tells of each look.
    pub fn looks(&self) -> watch::Receiver<u64> {
        self.looks.subscribe()
    }
}

impl State {
    fn sample(&mut self, models: &[Arc<Loaded>], snapshot: &Snapshot, catalog: &Catalog, second: Duration) {
        let mut all = Ended::default();
        for loaded in models {
            let key = (loaded.name.clone(), loaded.version);
            let track = self.tracks.entry(key).or_insert_with(|| Track::new(loaded));
            all = all.and(track.sample(loaded));
        }
        self.tracks.retain(|(name, version), _| {
            models.iter().any(|loaded| loaded.name == *name && loaded.version == *version)
        });
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.timeline.len() >= TIMELINE {
            self.timeline.pop_front();
        }
        let queued = snapshot.models.iter().map(|model| model.queued).sum();
        self.timeline.push_back(Second { at: since_epoch.as_secs(), ended: all, queued });
        let tenants = if catalog.tenants().numbers().len() > 1 { snapshot.tenants.as_slice() } else { &[] };
        self.tenants.resize(tenants.len(), TenantTrack::default());
        for (track, now) in self.tenants.iter_mut().zip(tenants) {
            let used = Duration::from(now.lane_time.since(track.used)).as_secs_f64()
                / second.as_secs_f64().max(1e-3);
            track.per_second = 0.9 * track.per_second + 0.1 * used;
            track.used = now.lane_time;
        }
    }
}

#[cfg(test)]
mod tests;
