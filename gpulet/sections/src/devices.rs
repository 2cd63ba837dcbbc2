//! `[devices.NAME]`: a group of identical devices.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gpulet_core::problem::{Device, DeviceType};
use gpulet_core::profile::{Profile, UNITS_MAX};
use serde::Deserialize;
use units::{Fault, Size, TimeSpan, nearest};

use crate::InterferenceSection;

/// Default for `gpulets_max`: the limit of NVIDIA MPS.
const GPULETS_MAX: u32 = 48;

/// Default for `replace`: two minutes, about what a new machine takes until it serves.
pub const REPLACE: TimeSpan = TimeSpan(Duration::from_secs(120));

/// `[devices.NAME]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSection {
    /// Device type, as in profiles; the section's name if unset.
    pub kind: Option<String>,
    /// Number of devices; 1 if unset.
    pub count: Option<u32>,
    /// Number of units of a device; from the profiles if unset.
    pub units: Option<u32>,
    /// Allowed sizes of a gpulet in units, ascending; all sizes if unset.
    pub sizes: Option<Vec<u32>>,
    /// Maximum number of gpulets on one device.
    pub gpulets_max: Option<u32>,
    /// Memory available to plans.
    pub memory: Size,
    /// Memory that each device takes once.
    #[serde(default)]
    pub base_memory: Size,
    /// Memory that each gpulet takes in addition to weights and arenas.
    #[serde(default)]
    pub gpulet_memory: Size,
    /// Name of the domain in which all these devices fail together; one domain for each device if unset.
    pub fault_domain: Option<String>,
    /// Cost of one device per hour, in any currency; 1 if unset.
    pub cost: Option<f64>,
    /// How often each device is lost per hour, if its owner may reclaim it (a spot device).
    pub loss_per_hour: Option<f64>,
    /// Time until a lost device is replaced; [`REPLACE`] if unset.
    pub replace: Option<TimeSpan>,
    /// What batches do to each other on these devices; nothing if unset.
    pub interference: Option<InterferenceSection>,
}

impl DeviceSection {
    /// Names of the devices: the section's name for a single device, else with a number.
    pub fn names(&self, name: &str) -> impl Iterator<Item = String> {
        let count = self.count.unwrap_or(1);
        let width = count.saturating_sub(1).to_string().len();
        (0..count).map(move |at| if count == 1 { name.to_owned() } else { format!("{name}-{at:0width$}") })
    }

    /// The devices of the section `devices.NAME`.
    ///
    /// # Errors
    /// Names the invalid key and the expected value, without file and line.
    pub fn devices(&self, name: &str, profiles: &[Profile]) -> Result<Vec<Device>, Fault> {
        let fault = |key: &str, problem: String| Err(Fault::apart(format!("devices.{name}.{key}"), problem));
        let kind = self.kind.as_deref().unwrap_or(name);
        let profiled = profiles.iter().find(|profile| profile.device() == kind);
        let Some(units) = self.units.or(profiled.map(Profile::units_total)) else {
            let known = known_words(kind, profiles.iter().map(Profile::device));
            return fault("kind", format!("no profile of a device `{kind}`{known}"));
        };
        if !(1..=UNITS_MAX).contains(&units) {
            return fault("units", format!("expected 1 to {UNITS_MAX}, got {units}"));
        }
        let sizes = self.sizes.clone().unwrap_or_else(|| (1..=units).collect());
        let ascending = sizes.is_sorted_by(|left, right| left < right);
        if !ascending || sizes.first().is_none_or(|least| *least == 0) || sizes.last() > Some(&units) {
            return fault("sizes", format!("expected ascending numbers from 1 to {units}, got {sizes:?}"));
        }
        let gpulets_max = self.gpulets_max.unwrap_or(GPULETS_MAX);
        if gpulets_max == 0 {
            return fault("gpulets_max", "expected at least 1, got 0".to_owned());
        }
        let device_type = Arc::new(DeviceType {
            name: kind.to_owned(),
            units,
            sizes,
            gpulets_max,
            base_bytes: self.base_memory.0,
            gpulet_bytes: self.gpulet_memory.0,
        });
        let device = |name: String| Device {
            device_type: Arc::clone(&device_type),
            memory_bytes: self.memory.0,
            fault_domain: self.fault_domain.clone().unwrap_or_else(|| name.clone()),
            cost: self.cost.unwrap_or(1.0),
            name: name.into(),
        };
        Ok(self.names(name).map(device).collect())
    }
}

/// What follows the message that no profile has this name: the nearest known name, or all of them.
pub fn known_words<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect::<BTreeSet<_>>().into_iter().collect();
    match nearest(word, &known) {
        Some(near) => format!(", did you mean `{near}`?"),
        None if known.is_empty() => ": the profile files are empty, run `tessera profile`".to_owned(),
        None => format!(": expected one of {}, or run `tessera profile`", known.join(", ")),
    }
}
