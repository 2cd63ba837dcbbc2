//! Adds sessions of serving versions to lanes and removes them, when gpulets change.

use std::sync::Arc;

use gpulet::LaneHandle;
use models::engine::Session;
use models::{EffectiveConfig, Known, LoadOptions, ModelFiles, ModelName, Version, warm, warm_for};
use router::LanePlan;
use router_core::{LaneClass, LaneId, LaneSpec, LaneUp, ModelLanes, ModelMove, Switch};
use tokio::sync::{Notify, OwnedRwLockWriteGuard};

use super::Catalog;
use super::background::{self, LoadPriority};
use super::load::taken_off;
use super::version::{Loaded, Placed};
use super::warm::Ready;

/// Blocks loading, replacing and unloading of models until dropped.
pub struct ModelsHeld(#[expect(dead_code, reason = "held until dropped")] OwnedRwLockWriteGuard<()>);

/// Loads a version that requests wait for before others.
fn priority(waited_for: bool) -> LoadPriority {
    if waited_for { LoadPriority::Startup } else { LoadPriority::Background }
}

/// A lane without time slices.
fn spec(lane: &LaneHandle) -> LaneSpec {
    LaneSpec::new(LaneId(lane.id()), LaneClass(lane.lane_class()))
}

impl Catalog {
    /// Blocks loads. `None` while one is in progress.
    pub fn hold_models(&self) -> Option<ModelsHeld> {
        Arc::clone(&self.changing).try_write_owned().ok().map(ModelsHeld)
    }

    /// Every version that takes requests, by name and number.
    pub fn all_serving(&self) -> Vec<Arc<Loaded>> {
        self.serving_names().iter().flat_map(|name| self.serving(name)).collect()
    }

    /// Every version that runs on gpulets of a plan, where gpulets move.
    pub fn all_planned(&self) -> Vec<Arc<Loaded>> {
        let mut serving = self.all_serving();
        serving.retain(|loaded| loaded.ensemble.is_none() && !self.runs_at_idle_priority(&loaded.config()));
        serving
    }

    /// Every version that runs on lanes of idle priority.
    pub fn all_at_idle_priority(&self) -> Vec<Arc<Loaded>> {
        let mut serving = self.all_serving();
        serving.retain(|loaded| self.runs_at_idle_priority(&loaded.config()));
        serving
    }

    /// Whether a model with these settings runs on lanes of idle priority, which stay where they are.
    pub(super) fn runs_at_idle_priority(&self, config: &EffectiveConfig) -> bool {
        config.best_effort && !self.environment.idle_lanes.is_empty()
    }

    /// A session of a version for a lane, warmed up for batches of `rows` rows: `kept`, or a new one.
    ///
    /// # Errors
    /// What went wrong, for example that the files are no longer those of the version.
    pub async fn prepare(
        self: &Arc<Self>,
        loaded: &Arc<Loaded>,
        lane: &LaneHandle,
        rows: u32,
        kept: Option<Ready>,
    ) -> Result<Ready, String> {
        // Larger batches were too slow to be measured with the first session.
        let rows = loaded.measured.last().map_or(rows, |&(most, _)| rows.min(most));
        let (kept, verified) = match kept {
            Some(ready) if ready.rows >= rows => return Ok(ready),
            Some(ready) => (Some(ready.session), ready.verified),
            None => (None, false),
        };
        let waited_for = loaded.activation.waiting() > 0;
        let (catalog, loaded, lane) = (Arc::clone(self), Arc::clone(loaded), lane.clone());
        let work = move || {
            let mut session = kept.map_or_else(|| catalog.load_known(&loaded, &lane), Ok)?;
            match &loaded.reference {
                Some(reference) => warm_for(session.as_mut(), &loaded.config(), reference, rows),
                None => warm(session.as_mut(), &loaded.config()),
            }
            .map_err(|error| error.to_string())?;
            Ok(Ready { session, rows, verified })
        };
        self.background.load(priority(waited_for), work).await.map_err(|error| error.to_string())?
    }

    /// Loads a session with the engine and signature of the version's first session.
    fn load_known(&self, loaded: &Loaded, lane: &LaneHandle) -> Result<Box<dyn Session>, String> {
        let known = Some(Known { engine: loaded.engine, signature: loaded.signature.as_ref().clone() });
        let options = LoadOptions { known, share_weights: true, ..self.options_on(&loaded.config(), lane) };
        let prepared = loaded.prepared.as_ref();
        let session = match prepared.and_then(|model| lane.partition().load_prepared(model, &options)) {
            Some(session) => session,
            None => lane.partition().load(&self.files(loaded)?, &options),
        };
        let session = session.map_err(|error| error.to_string())?;
        self.warm.count_loaded();
        Ok(session)
    }

    /// The files that a version was loaded from.
    fn files(&self, loaded: &Loaded) -> Result<ModelFiles, String> {
        let name = ModelName::new(&loaded.name).map_err(|error| error.to_string())?;
        let pbtxt = self.source.config(&name).map_err(|error| error.to_string())?;
        let files = self.source.read(&name, Version(loaded.version), pbtxt.as_ref());
        let files = files.map_err(|error| error.to_string())?;
        if files.hash != loaded.hash {
            return Err(format!("the files of `{name}` were replaced: load it again"));
        }
        Ok(files)
    }

    /// Compares a session's answer to a known input with that of the version's first session, once per session.
    ///
    /// # Errors
    /// The difference.
    pub async fn verify(&self, loaded: &Arc<Loaded>, mut ready: Ready) -> Result<Ready, String> {
        if ready.verified {
            return Ok(ready);
        }
        let waited_for = loaded.activation.waiting() > 0;
        let loaded = Arc::clone(loaded);
        let work = move || {
            if let Some(reference) = &loaded.reference {
                reference.verify(ready.session.as_mut())?;
            }
            Ok(Ready { verified: true, ..ready })
        };
        self.background.load(priority(waited_for), work).await.map_err(|error| error.to_string())?
    }

    /// Installs a session on a lane. The router decides when batches run there.
    ///
    /// # Errors
    /// If the lane has stopped.
    pub fn install(&self, loaded: &Loaded, lane: &LaneHandle, ready: Ready) -> Result<(), String> {
        let Ready { session, rows, verified } = ready;
        lane.install(loaded.id.0, session).map_err(|error| error.to_string())?;
        loaded.change_lanes(|lanes| lanes.push(Placed { lane: lane.clone(), rows, verified }));
        Ok(())
    }

    /// Runs the models of these lanes by priority only. A new version has no time slice in their cycles and would run
    /// only when all others are idle. The next plan assigns time slices again.
    pub(super) async fn suspend_time_slices(&self, lanes: impl Iterator<Item = &LaneHandle>) {
        let up = lanes.map(|lane| LaneUp { spec: spec(lane), after: Vec::new() }).collect();
        let switch = Switch { up, ..Switch::default() };
        if let Err(error) = self.environment.router.switch(LanePlan { new: Vec::new(), switch }).await {
            tracing::warn!(%error, "lanes keep their time slices, and the new version has none");
        }
    }

    /// Removes a session from a lane that no longer runs its batches. None if the lane has none or has failed.
    pub async fn take_off(&self, loaded: &Loaded, lane: &LaneHandle) -> Option<Ready> {
        let Placed { rows, verified, .. } = loaded.change_lanes(|lanes| {
            let at = lanes.iter().position(|placed| placed.lane.id() == lane.id())?;
            Some(lanes.remove(at))
        })?;
        Some(Ready { session: taken_off(loaded.id, lane).await?, rows, verified })
    }

    /// Drops removed sessions in the background.
    pub(super) async fn drop_in_background(&self, sessions: Vec<Box<dyn Session>>) {
        if sessions.is_empty() {
            return;
        }
        let dropped = self.background.run_in_background(move || drop(sessions)).await;
        let released = background::run(models::release_unused_memory).await;
        if let Err(error) = dropped.and(released) {
            tracing::warn!(%error, "sessions dropped, but their memory was not released");
        }
    }

    /// Removes a failed lane: ends its thread and loads no more models there.
    pub fn take_out(&self, lane: u32) {
        let (failed, others) = self.lanes().into_iter().partition::<Vec<_>, _>(|known| known.id() == lane);
        self.lay_out(others);
        for lane in failed {
            // It may have ended already.
            let _ = lane.stop();
        }
        for loaded in self.all_serving() {
            loaded.change_lanes(|lanes| lanes.retain(|placed| placed.lane.id() != lane));
        }
    }

    /// Loads and verifies a session of every version that is configured for a new lane, then lets the router use it.
    ///
    /// # Errors
    /// What went wrong. The lane is stopped.
    pub async fn bring_up(self: &Arc<Self>, lane: LaneHandle) -> Result<(), String> {
        let _held = self.changing.write().await;
        let result = self.fill(&lane).await;
        if result.is_err() {
            self.take_out(lane.id());
            // It may have ended already.
            let _ = lane.stop();
        }
        result
    }

    async fn fill(self: &Arc<Self>, lane: &LaneHandle) -> Result<(), String> {
        let mut lanes = self.lanes();
        lanes.push(lane.clone());
        lanes.sort_by_key(LaneHandle::id);
        let mut models = Vec::new();
        for loaded in self.all_serving().into_iter().filter(|loaded| loaded.ensemble.is_none()) {
            if lane.partition().idle_priority() != self.runs_at_idle_priority(&loaded.config()) {
                continue;
            }
            if !self.lanes_out_of(&lanes, &loaded.config())?.iter().any(|own| own.id() == lane.id()) {
                continue;
            }
            let rows = loaded.signature.max_batch.max(1);
            let kept = self.take_warm(&loaded, lane, rows);
            let ready = self.prepare(&loaded, lane, rows, kept).await?;
            let ready = self.verify(&loaded, ready).await?;
            self.install(&loaded, lane, ready)?;
            let lanes = loaded.lanes().iter().map(|lane| LaneId(lane.id())).collect();
            models.push(ModelMove { model: loaded.id, lanes: ModelLanes::Only(lanes), times: Vec::new() });
        }
        let up = vec![LaneUp { spec: spec(lane), after: Vec::new() }];
        let switch = Switch { up, drain: Vec::new(), models };
        let plan = LanePlan { new: vec![lane.clone()], switch };
        self.environment.router.switch(plan).await.map_err(|error| error.to_string())?;
        self.lay_out(lanes);
        Ok(())
    }

    /// Notified when a request waits for a lane for its model.
    pub fn wanted(&self) -> Arc<Notify> {
        self.environment
            .activation
            .as_ref()
            .map(|activation| Arc::clone(&activation.wanted))
            .unwrap_or_default()
    }

    /// Lanes that take batches, by number.
    pub fn lanes(&self) -> Vec<LaneHandle> {
        self.layout.load().to_vec()
    }

    /// Sets the lanes of gpulets. Those of idle priority stay.
    pub fn lay_out_gpulets(&self, gpulets: Vec<LaneHandle>) {
        self.layout.rcu(|before| {
            let idle = before.iter().filter(|lane| lane.partition().idle_priority());
            let mut lanes: Vec<LaneHandle> = idle.chain(&gpulets).cloned().collect();
            lanes.sort_by_key(LaneHandle::id);
            lanes
        });
    }

    /// Sets the lanes that models are loaded on.
    pub fn lay_out(&self, mut lanes: Vec<LaneHandle>) {
        lanes.sort_by_key(LaneHandle::id);
        self.layout.store(Arc::new(lanes));
    }
}
