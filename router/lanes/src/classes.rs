//! Which lanes take the same time for the same batch.

use std::collections::BTreeMap;

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
}

impl LaneClasses {
    /// Takes the name and the type of each device.
    pub fn new<'a>(devices: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let devices = devices.into_iter().map(|(name, device_type)| (name.into(), device_type.to_owned()));
        Self { devices: devices.collect(), numbers: BTreeMap::new() }
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
