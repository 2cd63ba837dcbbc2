//! A table of gpulets as a table of lanes: what a router is told when it comes in force.
//!
//! This crate knows no router, and routers know no gpulets. Both the server and the simulator turn one into the other by
//! this translation, each with its own numbers of lanes and models.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Model;
use crate::profile::{Profile, Quantile};
use crate::rollout::{Active, GpuletId, Switch};

/// A gpulet has no lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("gpulet {0} has no lane")]
pub struct NoLane(pub GpuletId);

/// A turn in a lane's cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneTurn<M> {
    /// Whose.
    pub model: M,
    /// Rows of its batches at most, at least 1.
    pub rows: u32,
    /// Nanoseconds of lane time, at least 1.
    pub budget_ns: u64,
}

/// Numbers for shares of devices that are alike: those of as many units of the same kind of device. From 1 on, for
/// routers keep 0 for lanes of which nothing is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneKinds {
    /// Kind of each device, by its name.
    devices: BTreeMap<String, String>,
    /// By kind of device and units.
    numbers: BTreeMap<(String, u32), u32>,
}

impl LaneKinds {
    /// Of devices with these names, each with its kind.
    pub fn new<'a>(devices: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let devices = devices.into_iter().map(|(name, kind)| (name.to_owned(), kind.to_owned()));
        Self { devices: devices.collect(), numbers: BTreeMap::new() }
    }

    /// The number of so many units of a device.
    pub fn of(&mut self, device: &str, units: u32) -> u32 {
        self.number(device, units).0
    }

    /// That, and the kind of the device; a device that there is not is a kind of its own.
    fn number(&mut self, device: &str, units: u32) -> (u32, String) {
        let kind = self.devices.get(device).map_or(device, String::as_str).to_owned();
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX).saturating_add(1);
        (*self.numbers.entry((kind.clone(), units)).or_insert(next), kind)
    }
}

/// How long a model's batches should take on lanes of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneTimes {
    /// Which kind.
    pub kind: u32,
    /// Rows and median nanoseconds, at powers of two and the largest batch as far as they are known; ascending.
    pub points: Vec<(u32, u64)>,
}

/// A model that takes requests.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a, M> {
    /// Its number in the router.
    pub number: M,
    /// What is known of it. Several versions of one workload each have a turn where that has one.
    pub model: &'a Model,
}

/// Where a model runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneModel<L, M> {
    /// Which.
    pub model: M,
    /// Its lanes, none where it has no place.
    pub lanes: Vec<L>,
    /// Batch times on the kinds of lanes that these are.
    pub times: Vec<LaneTimes>,
}

/// A lane that takes batches from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneUp<L, M> {
    /// Which.
    pub lane: L,
    /// What it is like: lanes of one kind take equally long for the same batch.
    pub kind: u32,
    /// How its models take turns; empty where the most urgent goes first.
    pub cycle: Vec<LaneTurn<M>>,
    /// Lanes at rest that share units with it: it is given nothing while one of them holds a batch.
    pub after: Vec<L>,
}

/// Lanes that come, lanes that go, and where models run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneTable<L, M> {
    /// Every lane that takes batches from now on.
    pub up: Vec<LaneUp<L, M>>,
    /// Lanes that are given nothing more.
    pub rest: Vec<L>,
    /// Where every model runs from now on.
    pub models: Vec<LaneModel<L, M>>,
}

impl<L: Copy, M: Copy> LaneTable<L, M> {
    /// Of a table of gpulets. `lane` gives the lane that is a gpulet, and `versions` every model that takes requests.
    ///
    /// # Errors
    /// [`NoLane`] where a gpulet that is active or goes to rest has none. Those that others come after may be gone: they
    /// hold nothing then.
    pub fn of(
        switch: &Switch,
        lane: impl Fn(GpuletId) -> Option<L>,
        versions: &[Version<'_, M>],
        kinds: &mut LaneKinds,
    ) -> Result<Self, NoLane> {
        let known = |gpulet: GpuletId| lane(gpulet).ok_or(NoLane(gpulet));
        let shares: BTreeMap<GpuletId, (u32, String, u32)> = switch
            .active
            .iter()
            .map(|active| {
                let (kind, device) = kinds.number(&active.gpulet.device, active.gpulet.units);
                (active.id, (kind, device, active.gpulet.units))
            })
            .collect();
        let mut models = Vec::with_capacity(versions.len());
        for version in versions {
            let route = switch.routes.iter().find(|route| route.workload == version.model.name);
            let gpulets: Vec<GpuletId> =
                route.iter().flat_map(|route| &route.slots).map(|slot| slot.gpulet).collect();
            let mut on: Vec<&(u32, String, u32)> =
                gpulets.iter().filter_map(|gpulet| shares.get(gpulet)).collect();
            on.sort_unstable();
            on.dedup();
            let times = on.into_iter().filter_map(|(kind, device, units)| {
                let points = points(version.model, device, *units);
                (!points.is_empty()).then_some(LaneTimes { kind: *kind, points })
            });
            let lanes = gpulets.iter().map(|gpulet| known(*gpulet)).collect::<Result<_, _>>()?;
            models.push(LaneModel { model: version.number, lanes, times: times.collect() });
        }
        let mut up = Vec::with_capacity(switch.active.len());
        for active in &switch.active {
            let after = active.after.iter().filter_map(|gpulet| lane(*gpulet)).collect();
            let kind = shares.get(&active.id).map_or(0, |(kind, ..)| *kind);
            up.push(LaneUp { lane: known(active.id)?, kind, cycle: turns(active, versions), after });
        }
        let rest = switch.rest.iter().map(|gpulet| known(*gpulet)).collect::<Result<_, _>>()?;
        Ok(Self { up, rest, models })
    }
}

/// Median times of a model's batches on a share of a kind of device.
fn points(model: &Model, device: &str, units: u32) -> Vec<(u32, u64)> {
    let profiles = model.profiles.as_deref().unwrap_or_default();
    let Some(profile) = profiles.iter().find(|profile| profile.device() == device) else { return Vec::new() };
    let largest = model.batch_max.min(profile.batches().1);
    let sizes = (0..u32::BITS).map(|log| 1 << log).take_while(|rows| *rows < largest).chain([largest]);
    sizes.filter_map(|rows| Some((rows, median_ns(profile, rows, units)?))).collect()
}

/// Median nanoseconds of a batch, at least 1; none where nothing is known.
fn median_ns(profile: &Profile, rows: u32, units: u32) -> Option<u64> {
    let micros = profile.latency_us(Quantile::P50, rows, units).ok()?;
    Some(nanos(micros))
}

/// Microseconds as whole nanoseconds, at least 1.
fn nanos(micros: f64) -> u64 {
    let time = Duration::try_from_secs_f64(micros / 1e6).unwrap_or(Duration::MAX);
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// The turns of the models of a gpulet; none where there is but one, or none of them was planned with a rate.
fn turns<M: Copy>(active: &Active, versions: &[Version<'_, M>]) -> Vec<LaneTurn<M>> {
    let slots = &active.gpulet.slots;
    if slots.len() < 2 || !slots.iter().any(|slot| slot.rate > 0.0) {
        return Vec::new();
    }
    let mut turns = Vec::new();
    for slot in slots {
        let (rows, budget_ns) = (slot.batch.max(1), nanos(slot.budget_us));
        for version in versions.iter().filter(|version| version.model.name == slot.workload) {
            turns.push(LaneTurn { model: version.number, rows, budget_ns });
        }
    }
    turns
}
