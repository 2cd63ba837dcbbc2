//! Devices that are lost: no gpulet can be opened on them and none of theirs is sound. They leave the plans, and are
//! tried again after a pause that doubles.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::id::DeviceId;
use crate::time::Micros;

/// Pause before a lost device is tried for the first time.
const FIRST_PAUSE: Micros = Micros::from_secs(10);
/// Longest pause between two attempts: a device that comes back is used again within this time.
const LONGEST_PAUSE: Micros = Micros::from_secs(300);
/// Largest number of characters that are kept of a reason.
const REASON_CHARS_MAX: usize = 600;

/// A device that plans do without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostDevice {
    /// Its name.
    pub device: DeviceId,
    /// Why no gpulet could be opened on it.
    pub reason: String,
    /// When it was last found to be lost: microseconds on the caller's clock.
    pub at_us: Micros,
    /// When plans use it again, to see whether it is back.
    pub retry_us: Micros,
}

/// A device since its loss until a gpulet serves on it.
#[derive(Clone, Debug, PartialEq)]
struct Loss {
    /// None while it is tried.
    lost: Option<LostDevice>,
    pause: Micros,
}

/// Devices that were lost and on which no gpulet served since.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LostDevices(BTreeMap<DeviceId, Loss>);

impl LostDevices {
    /// Takes a device out of the plans.
    pub(super) fn lose(&mut self, now: Micros, device: &DeviceId, reason: &str) -> LostDevice {
        let doubled = |loss: &Loss| Micros(loss.pause.0.saturating_mul(2)).min(LONGEST_PAUSE);
        let pause = self.0.get(device).map_or(FIRST_PAUSE, doubled);
        let reason = reason.chars().take(REASON_CHARS_MAX).collect();
        let lost = LostDevice { device: device.clone(), reason, at_us: now, retry_us: now.after(pause) };
        self.0.insert(device.clone(), Loss { lost: Some(lost.clone()), pause });
        lost
    }

    /// Takes the devices whose pause is over into the plans again. Returns whether there are any.
    pub(super) fn try_due(&mut self, now: Micros) -> bool {
        let due = |loss: &&mut Loss| loss.lost.as_ref().is_some_and(|lost| lost.retry_us <= now);
        let due = self.0.values_mut().filter(due);
        due.map(|loss| loss.lost = None).count() > 0
    }

    /// A gpulet serves on a device. Returns whether the device had been lost and is back.
    pub(super) fn serves(&mut self, device: &DeviceId) -> bool {
        !self.contain(device) && self.0.remove(device).is_some()
    }

    pub(super) fn contain(&self, device: &DeviceId) -> bool {
        self.0.get(device).is_some_and(|loss| loss.lost.is_some())
    }

    /// Devices that plans do without, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LostDevice> {
        self.0.values().filter_map(|loss| loss.lost.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_longest_and_are_short_again_once_a_gpulet_serves() {
        let (mut devices, name) = (LostDevices::default(), DeviceId::from("gpu0"));
        let mut now = Micros::from_secs(1);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let lost = devices.lose(now, &name, "no such device");
            pauses.push(lost.retry_us.since(now).0 / 1_000_000);
            assert!(devices.contain(&name) && !devices.try_due(Micros(lost.retry_us.0 - 1)));
            assert!(devices.try_due(lost.retry_us) && !devices.contain(&name));
            assert!(!devices.try_due(lost.retry_us), "only once");
            now = lost.retry_us;
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
        assert!(devices.serves(&name) && !devices.serves(&name));
        assert_eq!(devices.lose(now, &name, "again").retry_us, now.after(FIRST_PAUSE));
        assert!(!devices.serves(&name), "it is not tried yet");
    }
}
