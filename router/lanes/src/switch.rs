//! From a table of gpulets to the router's switch.

use std::collections::BTreeMap;

use gpulet_core::rollout::{self, Active, DeviceId, GpuletId};
use router_core::{
    ConfigError, Cycle, CycleSlot, LaneClass, LaneClassTimes, LaneId, LaneSpec, LaneUp, ModelLanes,
    ModelMove, ProfilePoint, Switch,
};

use crate::quota::{QuotaError, quota};
use crate::times::{nanos, points};
use crate::{LaneClasses, Version};

/// Why a table of gpulets is not a table of lanes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    /// A gpulet that takes batches or stops taking them has no lane.
    #[error("gpulet {0} has no lane")]
    NoLane(GpuletId),
    /// The router cannot run the time slices of a gpulet.
    #[error(transparent)]
    Cycle(#[from] ConfigError),
    /// The router cannot keep the time quota of a gpulet.
    #[error(transparent)]
    Quota(#[from] QuotaError),
}

/// The lanes of a table of gpulets: which take batches, which stop, and where every version runs. `lane` gives the lane
/// of a gpulet.
///
/// # Errors
/// [`Untranslatable`], with the gpulet or the time slice. Gpulets that others wait for may have no lane any more: they
/// hold no batch.
pub fn lanes_of(
    table: &rollout::Switch,
    lane: impl Fn(GpuletId) -> Option<LaneId>,
    versions: &[Version<'_>],
    classes: &mut LaneClasses,
) -> Result<Switch, Untranslatable> {
    let known = |gpulet: GpuletId| lane(gpulet).ok_or(Untranslatable::NoLane(gpulet));
    let mut shares: BTreeMap<GpuletId, (LaneClass, &DeviceId, u32)> = BTreeMap::new();
    let mut up = Vec::with_capacity(table.active.len());
    for active in &table.active {
        let gpulet = &active.gpulet;
        let class = classes.of(&gpulet.device, gpulet.units);
        shares.insert(active.id, (class, &gpulet.device, gpulet.units));
        let (cycle, quota) = (cycle(active, versions)?, quota(active, &table.active, versions, classes)?);
        let spec = LaneSpec { cycle, quota, ..LaneSpec::new(known(active.id)?, class) };
        up.push(LaneUp { spec, after: active.after.iter().filter_map(|gpulet| lane(*gpulet)).collect() });
    }
    let drain = table.draining.iter().map(|gpulet| known(*gpulet)).collect::<Result<_, _>>()?;
    let mut models = Vec::with_capacity(versions.len());
    for version in versions {
        let routes = table.routes.iter().filter(|route| route.workload == version.model.name);
        let gpulets: Vec<GpuletId> = routes.flat_map(|route| &route.slots).map(|slot| slot.gpulet).collect();
        let on: BTreeMap<LaneClass, (&str, u32)> = gpulets
            .iter()
            .filter_map(|gpulet| shares.get(gpulet))
            .map(|(class, device, units)| (*class, (classes.device_type(device), *units)))
            .collect();
        models.push(ModelMove {
            model: version.id,
            lanes: ModelLanes::Only(gpulets.into_iter().map(known).collect::<Result<_, _>>()?),
            times: times(version, on),
        });
    }
    Ok(Switch { up, drain, models })
}

fn times(version: &Version<'_>, on: BTreeMap<LaneClass, (&str, u32)>) -> Vec<LaneClassTimes> {
    let Some(row_bytes) = version.row_bytes else { return Vec::new() };
    let of = |(lane_class, (device_type, units)): (LaneClass, (&str, u32))| {
        let point = |(rows, time)| ProfilePoint { rows, row_bytes, time };
        let profile = points(version.model, device_type, units).into_iter().map(point).collect();
        LaneClassTimes { lane_class, profile }
    };
    on.into_iter().map(of).filter(|times| !times.profile.is_empty()).collect()
}

/// The time slices of a gpulet's models. `None` if there is one model, or if none was planned with a rate: then the
/// most urgent batch runs next.
fn cycle(active: &Active, versions: &[Version<'_>]) -> Result<Option<Cycle>, ConfigError> {
    let slots = &active.gpulet.slots;
    if slots.len() < 2 || !slots.iter().any(|slot| slot.rate > 0.0) {
        return Ok(None);
    }
    let slices = slots.iter().flat_map(|slot| {
        let of_slot = versions.iter().filter(|version| version.model.name == slot.workload);
        let (rows, budget) = (slot.batch.max(1), nanos(slot.budget_us));
        of_slot.map(move |version| CycleSlot { model: version.id, rows, budget })
    });
    let slices: Vec<CycleSlot> = slices.collect();
    // A plan may be older than the last unload: a gpulet whose models have all left has no time slices.
    if slices.is_empty() { Ok(None) } else { Cycle::new(slices).map(Some) }
}
