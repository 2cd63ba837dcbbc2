//! Maps lanes to gpulets, and records loaded sessions and busy units.

use std::collections::{BTreeMap, BTreeSet};

use gpulet_core::problem::Device;
use gpulet_core::rollout::{DeviceId, GpuletId};
use lane_plan::LanesInUse;

use crate::error::Breach;

/// A gpulet and its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenGpulet {
    pub gpulet: GpuletId,
    pub device: DeviceId,
    /// Device type, as named in profiles.
    pub kind: String,
    pub first_unit: u32,
    pub units: u32,
    /// Whether the router knows its lane.
    pub is_known: bool,
    /// Whether its lane counts as available.
    pub is_up: bool,
    /// Loaded models, as named in profiles.
    pub sessions: BTreeSet<String>,
}

/// All open gpulets.
#[derive(Clone, Debug)]
pub(crate) struct OpenGpulets {
    /// By lane.
    gpulets: BTreeMap<u32, OpenGpulet>,
    by_gpulet: BTreeMap<GpuletId, u32>,
    /// For each device, the lane whose batch each unit runs.
    working: BTreeMap<DeviceId, Vec<Option<u32>>>,
    lanes_max: u32,
    /// Whether gpulets run on any units of their device, as many as they have.
    any_units: bool,
}

impl OpenGpulets {
    pub fn new(devices: &[Device], any_units: bool) -> Self {
        let lanes_max = lane_plan::lanes_max(devices.iter().map(|device| device.device_type.units), 0);
        let idle = |device: &Device| (device.name.clone(), vec![None; device.device_type.units as usize]);
        let working = devices.iter().map(idle).collect();
        Self { gpulets: BTreeMap::new(), by_gpulet: BTreeMap::new(), working, lanes_max, any_units }
    }

    /// Upper bound on the number of lanes.
    pub fn lanes_max(&self) -> u32 {
        self.lanes_max
    }

    pub fn lane_of(&self, gpulet: GpuletId) -> Option<u32> {
        self.by_gpulet.get(&gpulet).copied()
    }

    pub fn get(&self, lane: u32) -> Option<&OpenGpulet> {
        self.gpulets.get(&lane)
    }

    pub fn get_mut(&mut self, gpulet: GpuletId) -> Option<&mut OpenGpulet> {
        self.gpulets.get_mut(self.by_gpulet.get(&gpulet)?)
    }

    /// Opens a gpulet on the first free lane.
    ///
    /// # Errors
    /// If there is no free lane.
    pub fn open(&mut self, entry: OpenGpulet) -> Result<u32, LanesInUse> {
        let lane = lane_plan::free_lane(self.lanes_max, |lane| self.gpulets.contains_key(&lane))?;
        self.by_gpulet.insert(entry.gpulet, lane);
        self.gpulets.insert(lane, entry);
        Ok(lane)
    }

    pub fn close(&mut self, gpulet: GpuletId) -> Option<(u32, OpenGpulet)> {
        let lane = self.by_gpulet.remove(&gpulet)?;
        Some((lane, self.gpulets.remove(&lane)?))
    }

    /// Devices with an open gpulet.
    pub fn devices(&self) -> BTreeSet<&str> {
        self.gpulets.values().map(|entry| entry.device.as_str()).collect()
    }

    /// Busy lanes of a device, and their gpulets.
    pub fn on<'a>(&'a self, device: &str) -> impl Iterator<Item = (u32, &'a OpenGpulet)> + use<'a> {
        let lanes = self.working.get(device).into_iter().flatten();
        let mut working: Vec<u32> = lanes.copied().flatten().collect();
        working.sort_unstable();
        working.dedup();
        working.into_iter().filter_map(|lane| {
            let entry = invariant::expected!(self.gpulets.get(&lane), "sim.busy_unit_without_gpulet");
            Some((lane, entry?))
        })
    }

    /// Marks the units of a lane as busy. A unit works on one batch at a time, so a batch on a busy unit is a breach.
    pub fn begins(&mut self, lane: u32) -> Result<(), Breach> {
        let Some(entry) = self.gpulets.get(&lane) else {
            return Err(Breach {
                id: "R5",
                detail: format!("a batch was sent to lane {lane}, which has no gpulet"),
            });
        };
        if self.any_units {
            return begins_on_any(&mut self.working, lane, entry);
        }
        for unit in units(&mut self.working, entry) {
            if let Some(other) = unit.replace(lane) {
                let detail = format!(
                    "lane {lane} began on units {} to {} of {} while lane {other} still worked there",
                    entry.first_unit,
                    entry.first_unit + entry.units - 1,
                    entry.device
                );
                return Err(Breach { id: "R10", detail });
            }
        }
        Ok(())
    }

    /// Marks the units of a lane as idle.
    pub fn ends(&mut self, lane: u32) {
        let Some(entry) = self.gpulets.get(&lane) else {
            return invariant::violated!("sim.batch_ended_without_gpulet");
        };
        for unit in self.working.get_mut(&entry.device).into_iter().flatten() {
            if *unit == Some(lane) {
                *unit = None;
            }
        }
    }
}

/// Marks idle units as busy, as many as a gpulet has.
fn begins_on_any(
    working: &mut BTreeMap<DeviceId, Vec<Option<u32>>>,
    lane: u32,
    entry: &OpenGpulet,
) -> Result<(), Breach> {
    let all = working.get_mut(&entry.device).into_iter().flatten();
    let idle: Vec<&mut Option<u32>> = all.filter(|unit| unit.is_none()).collect();
    let (has, needs) = (idle.len(), entry.units as usize);
    if has < needs {
        let detail = format!("lane {lane} began on {needs} units of {} while {has} were idle", entry.device);
        return Err(Breach { id: "R10", detail });
    }
    idle.into_iter().take(needs).for_each(|unit| *unit = Some(lane));
    Ok(())
}

fn units<'a>(
    working: &'a mut BTreeMap<DeviceId, Vec<Option<u32>>>,
    entry: &OpenGpulet,
) -> impl Iterator<Item = &'a mut Option<u32>> + use<'a> {
    let all = working.get_mut(&entry.device).into_iter().flatten();
    all.skip(entry.first_unit as usize).take(entry.units as usize)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gpulet_core::id::Epoch;
    use gpulet_core::problem::DeviceType;

    use super::*;

    fn device() -> Device {
        let kind = DeviceType {
            name: "toy".to_owned(),
            units: 4,
            sizes: vec![1, 2, 4],
            gpulets_max: 4,
            base_bytes: 0,
            gpulet_bytes: 0,
        };
        Device {
            name: "toy-0".into(),
            device_type: Arc::new(kind),
            memory_bytes: 1,
            fault_domain: "toy-0".to_owned(),
            cost: 1.0,
        }
    }

    fn open_gpulet(number: u64, first_unit: u32, units: u32) -> OpenGpulet {
        OpenGpulet {
            gpulet: GpuletId { epoch: Epoch::default(), number },
            device: "toy-0".into(),
            kind: "toy".to_owned(),
            first_unit,
            units,
            is_known: false,
            is_up: false,
            sessions: BTreeSet::new(),
        }
    }

    #[test]
    fn a_unit_never_works_on_two_batches() {
        let mut lanes = OpenGpulets::new(&[device()], false);
        let (left, right, all) = (
            lanes.open(open_gpulet(1, 0, 2)),
            lanes.open(open_gpulet(2, 2, 2)),
            lanes.open(open_gpulet(3, 0, 4)),
        );
        assert_eq!((left, right, all), (Ok(0), Ok(1), Ok(2)));
        lanes.begins(0).unwrap();
        lanes.begins(1).unwrap();
        lanes.ends(0);
        let breach = lanes.begins(2).unwrap_err();
        assert_eq!(breach.id, "R10");
        assert_eq!(breach.detail, "lane 2 began on units 0 to 3 of toy-0 while lane 1 still worked there");
        assert_eq!(lanes.begins(7).unwrap_err().id, "R5", "no gpulet");
    }

    #[test]
    fn gpulets_on_any_units_run_at_once_while_their_numbers_fit() {
        let mut lanes = OpenGpulets::new(&[device()], true);
        for number in 1..=3 {
            lanes.open(open_gpulet(number, 0, 2)).unwrap();
        }
        lanes.begins(0).unwrap();
        lanes.begins(1).unwrap();
        let breach = lanes.begins(2).unwrap_err();
        assert_eq!(breach.detail, "lane 2 began on 2 units of toy-0 while 0 were idle");
        lanes.ends(0);
        lanes.begins(2).unwrap();
    }

    #[test]
    fn as_many_gpulets_can_be_open_as_on_a_server_and_their_lanes_are_used_again() {
        let mut lanes = OpenGpulets::new(&[device()], false);
        for number in 0..16 {
            assert!(lanes.open(open_gpulet(number, 0, 1)).is_ok());
        }
        assert!(lanes.open(open_gpulet(16, 0, 1)).is_err());
        assert_eq!(lanes.close(GpuletId { epoch: Epoch::default(), number: 3 }).unwrap().0, 3);
        assert_eq!(lanes.open(open_gpulet(17, 0, 1)), Ok(3));
        assert_eq!(lanes.devices(), BTreeSet::from(["toy-0"]));
    }
}
