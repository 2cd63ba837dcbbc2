//! Which lanes take the same time for the same batch.

use std::collections::{BTreeMap, BTreeSet};

use gpulet_core::id::DeviceId;
use router_core::LaneClass;

/// Lane classes: one for each size of gpulet on each device type. Class 0 stays free, because routers use it for lanes
/// of unknown speed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneClasses {
    /// Device type by device name.
    devices: BTreeMap<DeviceId, String>,
    /// By device type and units.
    numbers: BTreeMap<(String, u32), u32>,
    /// Devices whose gpulets run on any of the device's units.
    any_units: BTreeSet<DeviceId>,
}

impl LaneClasses {
    /// Takes the name and the type of each device.
    pub fn new<'a>(devices: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let devices = devices.into_iter().map(|(name, device_type)| (name.into(), device_type.to_owned()));
        Self { devices: devices.collect(), numbers: BTreeMap::new(), any_units: BTreeSet::new() }
    }

    /// Names the devices of which gpulets have a number of units, but no certain ones. Gpulets that share units in time
    /// then run at once as long as their numbers fit.
    #[must_use]
    pub fn on_any_units<'a>(mut self, devices: impl IntoIterator<Item = &'a str>) -> Self {
        self.any_units.extend(devices.into_iter().map(DeviceId::from));
        self
    }

    pub(crate) fn is_on_any_units(&self, device: &DeviceId) -> bool {
        self.any_units.contains(device)
    }

    /// The number of a device among all.
    pub(crate) fn number_of(&self, device: &DeviceId) -> u32 {
        let position = self.devices.keys().position(|known| known == device);
        position.and_then(|position| u32::try_from(position).ok()).unwrap_or(u32::MAX)
    }

    /// The class of a gpulet with this many units of a device. The same size on the same device type always has the
    /// same class.
    pub fn of(&mut self, device: &DeviceId, units: u32) -> LaneClass {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX).saturating_add(1);
        let device_type = self.device_type(device).to_owned();
        LaneClass(*self.numbers.entry((device_type, units)).or_insert(next))
    }

    /// An unknown device is a type of its own.
    pub(crate) fn device_type<'a>(&'a self, device: &'a DeviceId) -> &'a str {
        self.devices.get(device).map_or(device.as_str(), String::as_str)
    }
}
