//! The input of a placement policy: devices, workloads, and what is known about them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::DeviceId;
use crate::interference::Interference;
use crate::plan::Plan;
use crate::profile::{Outside, Profile, Quantile, UNITS_MAX};

/// Largest number of devices.
pub const DEVICES_MAX: usize = 16_384;
/// Largest number of workloads.
pub const WORKLOADS_MAX: usize = 16_384;
/// Largest number of replicas that a workload may request.
pub const REPLICAS_MAX: u32 = 64;
/// Largest rate and cost.
const AMOUNT_MAX: f64 = 1e12;
/// Longest objective, microseconds: one hour.
const SLO_MAX_US: f64 = 3.6e9;

/// Properties that all devices of one type share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceType {
    /// Name that profiles refer to.
    pub name: String,
    /// Number of units of the whole device.
    pub units: u32,
    /// Legal gpulet sizes, in units, ascending.
    pub sizes: Vec<u32>,
    /// Largest number of gpulets at once.
    pub gpulets_max: u32,
    /// Bytes used once per device: context and libraries.
    pub base_bytes: u64,
    /// Bytes used by each gpulet in addition to weights and arenas.
    pub gpulet_bytes: u64,
}

impl DeviceType {
    /// A device that cannot be divided: one unit.
    pub fn undivided(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            units: 1,
            sizes: vec![1],
            gpulets_max: 1,
            base_bytes: 0,
            gpulet_bytes: 0,
        }
    }

    /// Returns the smallest legal size. A problem refuses device types without sizes.
    pub(crate) fn size_least(&self) -> u32 {
        self.sizes.first().copied().unwrap_or_else(Self::without_sizes)
    }

    /// Returns the largest legal size.
    pub(crate) fn size_most(&self) -> u32 {
        self.sizes.last().copied().unwrap_or_else(Self::without_sizes)
    }

    fn without_sizes() -> u32 {
        invariant::violated!("problem.device_type_without_sizes");
        0
    }

    /// Returns the smallest legal size of at least `units`, or `None` if even the largest is smaller.
    pub fn size_for(&self, units: u32) -> Option<u32> {
        self.sizes.get(self.sizes.partition_point(|size| *size < units)).copied()
    }

    /// Returns the largest legal size of at most `units`, or `None` if even the smallest is larger.
    pub fn size_within(&self, units: u32) -> Option<u32> {
        self.sizes.get(..self.sizes.partition_point(|size| *size <= units)).and_then(<[u32]>::last).copied()
    }
}

/// One device.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Name that plans refer to.
    pub name: DeviceId,
    /// Type of the device.
    pub device_type: Arc<DeviceType>,
    /// Bytes available for planning, after the reserve.
    pub memory_bytes: u64,
    /// Fault domain. Devices with the same name fail together.
    pub fault_domain: String,
    /// Cost of using it, in any unit. Planners prefer the cheaper of two sufficient devices.
    pub cost: f64,
}

/// One model with its objective and its load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// Name that plans refer to.
    pub name: String,
    /// Name of its model, as in profiles.
    pub model: String,
    /// Tenant that owns it; empty for none in particular.
    pub tenant: String,
    /// Tenants whose workloads must not share a fault domain with this one.
    pub not_with: Vec<String>,
    /// Objective: microseconds from arrival to response.
    pub slo_us: f64,
    /// Requests per second.
    pub rate: f64,
    /// Factor on the rate to plan for, at least 1.
    pub headroom: f64,
    /// Least number of fault domains that it must be in; 0 allows removing a workload without load.
    pub replicas_min: u32,
    /// Largest batch size, rows.
    pub batch_max: u32,
}

impl Workload {
    /// Returns the requests per second that a plan must serve.
    pub fn wanted(&self) -> f64 {
        self.rate * self.headroom
    }

    /// Returns whether it must be placed.
    pub fn is_needed(&self) -> bool {
        self.rate > 0.0 || self.replicas_min > 0
    }

    /// Returns whether the two must not share a fault domain.
    pub fn excludes(&self, other: &Self) -> bool {
        let refuses = |own: &Self, other: &Self| own.not_with.contains(&other.tenant);
        (refuses(self, other) || refuses(other, self)) && self.name != other.name
    }
}

/// An invalid problem: the field, and what would be valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ProblemError {
    /// Name of the field, such as `workloads.resnet.slo_us`.
    pub field: String,
    /// What is wrong, and what would be valid.
    pub problem: String,
}

/// Devices, workloads, profiles and a model of interference. Every value is valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    devices: Vec<Device>,
    workloads: Vec<Workload>,
    profiles: BTreeMap<String, BTreeMap<String, Profile>>,
    interference: Interference,
    quantile: Quantile,
    /// Whether gpulets may own their units for a part of the time only.
    windows: bool,
    current: Option<Plan>,
}

fn fault<T>(field: String, problem: impl Into<String>) -> Result<T, ProblemError> {
    Err(ProblemError { field, problem: problem.into() })
}

fn check_device(device: &Device) -> Result<(), ProblemError> {
    let device_type = &device.device_type;
    let field = |name: &str| format!("devices.{}.{name}", device.name);
    if !(1..=UNITS_MAX).contains(&device_type.units) {
        return fault(
            field("device_type.units"),
            format!("expected 1 to {UNITS_MAX}, got {}", device_type.units),
        );
    }
    let legal = device_type.sizes.first().is_some_and(|size| *size > 0)
        && device_type.sizes.windows(2).all(|pair| pair.first() < pair.last())
        && device_type.sizes.last().is_some_and(|size| *size <= device_type.units);
    if !legal {
        return fault(
            field("device_type.sizes"),
            format!("expected ascending sizes from 1 to {} units", device_type.units),
        );
    }
    if device_type.gpulets_max == 0 {
        return fault(field("device_type.gpulets_max"), "expected at least 1, got 0");
    }
    if !(device.cost >= 0.0 && device.cost <= AMOUNT_MAX) {
        return fault(field("cost"), format!("expected 0 to {AMOUNT_MAX}, got {}", device.cost));
    }
    Ok(())
}

fn check_workload(workload: &Workload) -> Result<(), ProblemError> {
    let field = |name: &str| format!("workloads.{}.{name}", workload.name);
    if !(workload.slo_us > 0.0 && workload.slo_us <= SLO_MAX_US) {
        let problem =
            format!("expected above 0 and at most {SLO_MAX_US} microseconds, got {}", workload.slo_us);
        return fault(field("slo_us"), problem);
    }
    if !(workload.rate >= 0.0 && workload.rate <= AMOUNT_MAX) {
        return fault(field("rate"), format!("expected 0 to {AMOUNT_MAX} a second, got {}", workload.rate));
    }
    if !(workload.headroom >= 1.0 && workload.headroom <= 1e3) {
        return fault(field("headroom"), format!("expected 1 to 1000, got {}", workload.headroom));
    }
    if workload.replicas_min > REPLICAS_MAX {
        let problem = format!("expected at most {REPLICAS_MAX}, got {}", workload.replicas_min);
        return fault(field("replicas_min"), problem);
    }
    if workload.batch_max == 0 {
        return fault(field("batch_max"), "expected at least 1, got 0");
    }
    Ok(())
}

fn distinct<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), ProblemError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || !seen.insert(name) {
            return fault(format!("{what}.{name}"), "expected names that are not empty and differ");
        }
    }
    Ok(())
}

impl Problem {
    /// Creates a problem that plans with latencies at the 99th percentile and has no plan in force.
    ///
    /// # Errors
    /// [`ProblemError`] if a name is used twice, a number is out of range, two profiles describe the same model and
    /// device type, a profile lacks what the interference model needs, or no device has a profile of a workload's
    /// model.
    pub fn new(
        devices: Vec<Device>,
        workloads: Vec<Workload>,
        profiles: Vec<Profile>,
        interference: Interference,
    ) -> Result<Self, ProblemError> {
        if devices.len() > DEVICES_MAX || workloads.len() > WORKLOADS_MAX {
            let problem = format!("expected at most {DEVICES_MAX} devices and {WORKLOADS_MAX} workloads");
            return fault("devices".to_owned(), problem);
        }
        distinct("devices", devices.iter().map(|device| device.name.as_str()))?;
        distinct("workloads", workloads.iter().map(|workload| workload.name.as_str()))?;
        devices.iter().try_for_each(check_device)?;
        workloads.iter().try_for_each(check_workload)?;
        let mut device_types: BTreeMap<&str, &DeviceType> = BTreeMap::new();
        for device in &devices {
            let known = device_types.entry(&device.device_type.name).or_insert(&device.device_type);
            if **known != *device.device_type {
                let problem =
                    format!("expected one description of device type `{}`, got two", device.device_type.name);
                return fault(format!("devices.{}.device_type", device.name), problem);
            }
        }
        let mut table: BTreeMap<String, BTreeMap<String, Profile>> = BTreeMap::new();
        for profile in profiles {
            let field = format!("profiles.{}.{}", profile.model(), profile.device());
            if let Some(device_type) = device_types
                .get(profile.device())
                .filter(|device_type| device_type.units != profile.units_total())
            {
                let problem = format!(
                    "expected {} units like the device, got {}",
                    device_type.units,
                    profile.units_total()
                );
                return fault(field, problem);
            }
            if let Some(lacking) = interference.lacks(&profile) {
                return fault(field, format!("interference model `{}` needs {lacking}", interference.name()));
            }
            let devices = table.entry(profile.model().to_owned()).or_default();
            if devices.insert(profile.device().to_owned(), profile).is_some() {
                return fault(field, "expected one profile of a model on a device type, got two");
            }
        }
        for workload in &workloads {
            let known = table.get(&workload.model);
            if !devices.is_empty()
                && !device_types
                    .keys()
                    .any(|device_type| known.is_some_and(|known| known.contains_key(*device_type)))
            {
                let problem = format!(
                    "no profile of `{}` on any of the devices, run `tessera profile`",
                    workload.model
                );
                return fault(format!("workloads.{}.model", workload.name), problem);
            }
        }
        Ok(Self {
            devices,
            workloads,
            profiles: table,
            interference,
            quantile: Quantile::default(),
            windows: true,
            current: None,
        })
    }

    /// Plans with another percentile of the measured times.
    #[must_use]
    pub fn at_quantile(mut self, quantile: Quantile) -> Self {
        self.quantile = quantile;
        self
    }

    /// Disallows time windows: every gpulet owns its units at all times. Has no effect on a policy that always plans
    /// windows ([`crate::placement::Policy::plans_time_windows`]).
    #[must_use]
    pub fn without_time_windows(mut self) -> Self {
        self.windows = false;
        self
    }

    /// Plans against the plan in force. Policies that support it move little.
    #[must_use]
    pub fn from_current(mut self, plan: Plan) -> Self {
        self.current = Some(plan);
        self
    }

    /// Returns the same problem with other devices.
    ///
    /// # Errors
    /// As [`Problem::new`].
    pub fn on(&self, devices: Vec<Device>) -> Result<Self, ProblemError> {
        let profiles = self.profiles.values().flat_map(BTreeMap::values).cloned().collect();
        let next = Self::new(devices, self.workloads.clone(), profiles, self.interference.clone())?;
        Ok(Self { quantile: self.quantile, windows: self.windows, current: self.current.clone(), ..next })
    }

    /// Returns the same problem as if all predicted cells were measured as they are expected.
    #[must_use]
    pub fn without_doubt(mut self) -> Self {
        for profiles in self.profiles.values_mut() {
            for profile in profiles.values_mut() {
                *profile = profile.clone().without_doubt();
            }
        }
        self
    }

    /// Returns the same problem with other workloads.
    ///
    /// # Errors
    /// As [`Problem::new`].
    pub fn with_workloads(self, workloads: Vec<Workload>) -> Result<Self, ProblemError> {
        let profiles = self.profiles.into_values().flat_map(BTreeMap::into_values).collect();
        let next = Self::new(self.devices, workloads, profiles, self.interference)?;
        Ok(Self { quantile: self.quantile, windows: self.windows, current: self.current, ..next })
    }

    /// Returns the same problem with another rate of one workload.
    ///
    /// # Errors
    /// As [`Problem::new`], and if the workload does not exist.
    pub fn with_rate(mut self, workload: &str, rate: f64) -> Result<Self, ProblemError> {
        let found = self.workloads.iter_mut().find(|known| known.name == workload);
        let Some(found) = found else {
            return fault(format!("workloads.{workload}"), "expected the name of a workload");
        };
        found.rate = rate;
        check_workload(found)?;
        Ok(self)
    }

    /// Returns the devices, in the order in which planners use them where nothing else decides.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Returns the workloads.
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// Returns the model of interference.
    pub fn interference(&self) -> &Interference {
        &self.interference
    }

    /// Returns whether gpulets may own their units for a part of the time only.
    pub fn allows_time_windows(&self) -> bool {
        self.windows
    }

    /// Returns the plan in force.
    pub fn current(&self) -> Option<&Plan> {
        self.current.as_ref()
    }

    /// Returns the profile of the workload's model on that device type.
    pub fn profile(&self, workload: &Workload, device_type: &DeviceType) -> Option<&Profile> {
        self.profiles.get(&workload.model)?.get(&device_type.name)
    }

    /// Returns the microseconds of a solo batch on `units` units, at the quantile of the problem.
    ///
    /// # Errors
    /// [`Outside`] if the batch or the units are outside the profile.
    pub fn solo_us(&self, profile: &Profile, batch: u32, units: u32) -> Result<f64, Outside> {
        profile.latency_us(self.quantile, batch, units)
    }
}

#[cfg(test)]
mod tests;
