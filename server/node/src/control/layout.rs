//! Gpulets on devices: carries out the steps of a rollout with lanes and sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpulet::{CoreSet, LaneHandle};
use gpulet_core::control::Model;
use gpulet_core::rollout::{GpuletId, Step, Switch};
use lane_plan::Version;
use router::{LanePlan, RouterHandle};
use router_core::{LaneId, ModelId};

use super::terms;
use crate::catalog::{Catalog, Loaded, Ready, row_bytes};
use crate::devices::{Devices, Share};
use crate::supervisor::Failures;

/// Lanes of this process by gpulet.
pub struct Layout {
    catalog: Arc<Catalog>,
    router: RouterHandle,
    devices: Arc<Devices>,
    failures: Failures,
    lanes_max: u32,
    lanes: Mutex<Lanes>,
}

/// Held during a step of a gpulet. A step that exceeds its time limit is not cancelled; later steps wait for it.
type StepLock = Arc<tokio::sync::Mutex<()>>;

#[derive(Default)]
struct Lanes {
    step_locks: BTreeMap<GpuletId, StepLock>,
    by_gpulet: BTreeMap<GpuletId, LaneHandle>,
    /// Lanes that the server started with and that no gpulet uses yet.
    unclaimed: Vec<(Share, LaneHandle)>,
    /// The table in force, and the versions that it was made for.
    in_force: Option<(Switch, Vec<ModelId>)>,
    /// Sessions that are loaded but not verified, by gpulet and model number.
    staged: BTreeMap<(GpuletId, u32), Staged>,
    /// Bytes that no gpulet uses, by device.
    free: BTreeMap<String, u64>,
}

struct Staged {
    loaded: Arc<Loaded>,
    ready: Ready,
}

impl Layout {
    /// Creates the layout. `lanes` are the initial gpulets of the devices, in the same order.
    pub fn new(
        catalog: Arc<Catalog>,
        devices: Arc<Devices>,
        failures: Failures,
        lanes: Vec<LaneHandle>,
    ) -> Self {
        let router = catalog.router().clone();
        let started = devices.start().iter().cloned().zip(lanes);
        let unclaimed = started.filter(|(share, _)| !share.idle_priority).collect();
        let lanes = Mutex::new(Lanes { unclaimed, ..Lanes::default() });
        let lanes_max = devices.lanes_max(true);
        Self { catalog, router, devices, failures, lanes_max, lanes }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lane_of(&self, gpulet: GpuletId) -> Result<LaneHandle, String> {
        let lane = self.lanes().by_gpulet.get(&gpulet).cloned();
        lane.ok_or_else(|| format!("gpulet {gpulet} has no lane"))
    }

    /// Number of the gpulet's lane.
    pub fn lane_number(&self, gpulet: GpuletId) -> Option<u32> {
        self.lanes().by_gpulet.get(&gpulet).map(LaneHandle::id)
    }

    /// Carries out one step.
    ///
    /// # Errors
    /// Says why the step failed. A failed step leaves nothing behind.
    pub async fn carry_out(&self, step: &Step) -> Result<(), String> {
        let lock = Arc::clone(self.lanes().step_locks.entry(step.gpulet()).or_default());
        let _guard = lock.lock().await;
        match step {
            Step::Open { gpulet, device, first_unit, units } => self.open(
                *gpulet,
                &Share {
                    device: device.clone(),
                    first_unit: *first_unit,
                    units: *units,
                    idle_priority: false,
                },
            ),
            Step::Prepare { gpulet, model, batch } => self.prepare(*gpulet, model, *batch).await,
            Step::Verify { gpulet, model, .. } => self.verify(*gpulet, model).await,
            // A session accepts batches of any size, and releases the memory of larger batches by itself.
            Step::Shrink { .. } => Ok(()),
            Step::CloseSession { gpulet, model } => {
                self.close_session(*gpulet, model).await;
                Ok(())
            }
            Step::Close { gpulet } => {
                self.close(*gpulet).await;
                Ok(())
            }
        }
    }

    fn open(&self, gpulet: GpuletId, share: &Share) -> Result<(), String> {
        let mut lanes = self.lanes();
        if let Some(at) = lanes.unclaimed.iter().position(|(own, _)| own == share) {
            let (_, lane) = lanes.unclaimed.swap_remove(at);
            lanes.by_gpulet.insert(gpulet, lane);
            return Ok(());
        }
        let known = lanes.by_gpulet.values().chain(lanes.unclaimed.iter().map(|(_, lane)| lane));
        let idle = self.devices.idle_lanes().into_values();
        let taken: BTreeSet<u32> = known.map(LaneHandle::id).chain(idle).collect();
        let id = lane_plan::free_lane(self.lanes_max, |id| taken.contains(&id))
            .map_err(|error| error.to_string())?;
        let lane = self.devices.open(id, share, self.router.lane_sink(), self.failures.watch());
        let lane = lane.map_err(|error| error.to_string())?;
        lanes.by_gpulet.insert(gpulet, lane);
        Ok(())
    }

    /// Loads every serving version of the model that has no session on the gpulet, for batches of `rows`.
    async fn prepare(&self, gpulet: GpuletId, model: &str, rows: u32) -> Result<(), String> {
        let lane = self.lane_of(gpulet)?;
        let versions = self.catalog.serving(model);
        if versions.is_empty() {
            return Err(format!("model `{model}` is not loaded"));
        }
        let mut prepared = Vec::with_capacity(versions.len());
        for loaded in versions {
            if !loaded.widen(lane.id(), rows) && !self.widen_staged(gpulet, &loaded, rows) {
                let kept = self.catalog.take_warm(&loaded, &lane, rows);
                self.free_memory_for(&lane).await;
                let ready = self.catalog.prepare(&loaded, &lane, rows, kept).await?;
                prepared.push(Staged { loaded, ready });
            }
        }
        let mut lanes = self.lanes();
        lanes.staged.extend(prepared.into_iter().map(|staged| ((gpulet, staged.loaded.id.0), staged)));
        Ok(())
    }

    /// Widens a session that is loaded but not verified. Returns whether there is one.
    fn widen_staged(&self, gpulet: GpuletId, loaded: &Loaded, rows: u32) -> bool {
        let mut lanes = self.lanes();
        let staged = lanes.staged.get_mut(&(gpulet, loaded.id.0));
        staged.map(|staged| staged.ready.rows = staged.ready.rows.max(rows)).is_some()
    }

    /// Verifies prepared sessions against the known output, and installs them on the lane.
    async fn verify(&self, gpulet: GpuletId, model: &str) -> Result<(), String> {
        let lane = self.lane_of(gpulet)?;
        for Staged { loaded, ready } in self.unstaged(gpulet, model) {
            let ready = self.catalog.verify(&loaded, ready).await?;
            self.catalog.install(&loaded, &lane, ready)?;
        }
        Ok(())
    }

    fn unstaged(&self, gpulet: GpuletId, model: &str) -> Vec<Staged> {
        let mut lanes = self.lanes();
        let theirs = |(key, staged): (&(GpuletId, u32), &Staged)| {
            (key.0 == gpulet && staged.loaded.name == model).then_some(*key)
        };
        let keys: Vec<(GpuletId, u32)> = lanes.staged.iter().filter_map(theirs).collect();
        keys.iter().filter_map(|key| lanes.staged.remove(key)).collect()
    }

    async fn close_session(&self, gpulet: GpuletId, model: &str) {
        let staged = self.unstaged(gpulet, model);
        let Ok(lane) = self.lane_of(gpulet) else { return };
        for Staged { loaded, ready } in staged {
            self.keep(&loaded, &lane, ready).await;
        }
        for loaded in self.catalog.serving(model) {
            if let Some(ready) = self.catalog.take_off(&loaded, &lane).await {
                self.keep(&loaded, &lane, ready).await;
            }
        }
    }

    /// Moves a session to the warm pool, which is limited to free memory.
    async fn keep(&self, loaded: &Loaded, lane: &LaneHandle, ready: Ready) {
        let bytes = terms::session_bytes(&self.devices, loaded, ready.rows);
        self.catalog.keep_warm(loaded, lane, ready, bytes).await;
        self.free_memory_for(lane).await;
    }

    /// Shrinks the warm pool of the lane's device to the free memory.
    async fn free_memory_for(&self, lane: &LaneHandle) {
        let Some(core_set) = lane.partition().core_set() else { return };
        let free = self.lanes().free.get(&core_set.device).copied();
        if let Some(free) = free {
            self.catalog.fit_warm(&core_set.device, free).await;
        }
    }

    /// Records how many bytes of the gpulet's device are free for warm sessions. A step that ends late uses the latest
    /// value.
    pub fn leave_free(&self, gpulet: GpuletId, free_bytes: impl Fn(&str) -> Option<u64>) {
        let core_set = self.lane_of(gpulet).ok().and_then(|lane| lane.partition().core_set());
        let Some(CoreSet { device, .. }) = core_set else { return };
        if let Some(free) = free_bytes(&device) {
            self.lanes().free.insert(device, free);
        }
    }

    async fn close(&self, gpulet: GpuletId) {
        self.lanes().step_locks.remove(&gpulet);
        let Some(lane) = self.lanes().by_gpulet.remove(&gpulet) else { return };
        // The router does not know a lane that was never in force, and a failed lane has already stopped.
        let _ = self.router.lane_down(LaneId(lane.id())).await;
        let _ = lane.stop();
    }

    /// Returns once a gpulet that a switch drains is idle.
    pub async fn wait_until_idle(&self, gpulet: GpuletId) {
        let lane = self.lane_number(gpulet);
        if let Some(lane) = lane {
            // This returns for a failed lane too: it holds no batch.
            self.router.lane_idle(LaneId(lane)).await;
        }
    }

    /// Puts a table in force: lanes, their cycles, and which models run where.
    ///
    /// # Errors
    /// Says why the table is not in force.
    pub async fn switch(&self, switch: &Switch) -> Result<(), String> {
        // The router no longer knows failed lanes. They need no draining.
        let snapshot = self.router.snapshot().await.ok_or("the router has ended")?;
        let known: BTreeSet<u32> = snapshot.lanes.iter().map(|lane| lane.lane.0).collect();
        let mut switch_of_lanes = self.lane_plan(switch)?;
        switch_of_lanes.drain.retain(|lane| known.contains(&lane.0));
        let active =
            switch.active.iter().map(|gpulet| self.lane_of(gpulet.id)).collect::<Result<Vec<_>, _>>()?;
        let new: Vec<LaneHandle> =
            active.iter().filter(|lane| !known.contains(&lane.id())).cloned().collect();
        let plan = LanePlan { new, switch: switch_of_lanes };
        let serving = self.catalog.all_planned();
        // Before the router refuses their requests for want of a lane: those then wait for one instead.
        let leaving: Vec<&Arc<Loaded>> = serving
            .iter()
            .filter(|loaded| loaded.activation.is_active() && !has_route(switch, loaded))
            .collect();
        leaving.iter().for_each(|loaded| loaded.activation.set_active(false));
        if let Err(error) = self.router.switch(plan).await {
            leaving.iter().for_each(|loaded| loaded.activation.set_active(true));
            return Err(error.to_string());
        }
        let ids = serving.iter().map(|loaded| loaded.id).collect();
        let first = self.lanes().in_force.replace((switch.clone(), ids)).is_none();
        for loaded in serving.iter().filter(|loaded| has_route(switch, loaded)) {
            loaded.activation.set_active(true);
        }
        // Sessions that were loaded before the first plan belong to no gpulet, so no step closes them.
        for loaded in serving.iter().filter(|loaded| first && !loaded.activation.is_active()) {
            for lane in loaded.lanes() {
                if let Some(ready) = self.catalog.take_off(loaded, &lane).await {
                    self.keep(loaded, &lane, ready).await;
                }
            }
        }
        self.catalog.lay_out_gpulets(active);
        Ok(())
    }

    /// Whether the table in force has routes for versions that it was not made for. They get no time slices. A model
    /// without a route serves on the lanes that it was loaded on, until the next plan.
    pub fn is_stale(&self) -> bool {
        let lanes = self.lanes();
        let Some((switch, known)) = &lanes.in_force else { return false };
        let serving = self.catalog.all_planned();
        serving.iter().any(|loaded| !known.contains(&loaded.id) && has_route(switch, loaded))
    }

    /// Puts the table in force again, for the versions that serve now. The caller must prevent loads, unloads and
    /// rollouts.
    ///
    /// # Errors
    /// Says why the table is not in force. The previous one then stays in force.
    pub async fn refresh(&self) -> Result<(), String> {
        let Some((mut switch, _)) = self.lanes().in_force.clone() else { return Ok(()) };
        switch.draining.clear();
        switch.active.iter_mut().for_each(|active| active.after.clear());
        self.switch(&switch).await
    }

    fn lane_plan(&self, switch: &Switch) -> Result<router_core::Switch, String> {
        let lane = |gpulet: GpuletId| self.lane_of(gpulet).ok().map(|lane| LaneId(lane.id()));
        let serving = self.catalog.all_planned();
        let models: Vec<Model> = serving
            .iter()
            .map(|loaded| terms::model(loaded, terms::known_of(&self.devices, loaded), &[]))
            .collect();
        let versions = serving.iter().zip(&models);
        let versions: Vec<Version<'_>> = versions
            .map(|(loaded, model)| Version { id: loaded.id, model, row_bytes: row_bytes(&loaded.signature) })
            .collect();
        lane_plan::lanes_of(switch, lane, &versions, &mut self.devices.classes())
            .map_err(|error| error.to_string())
    }
}

fn has_route(switch: &Switch, loaded: &Loaded) -> bool {
    switch.routes.iter().any(|route| route.workload == loaded.name)
}
