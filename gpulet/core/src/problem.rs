//! What is wanted, and of which devices: the question that a placement policy answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::interference::Interference;
use crate::plan::Plan;
use crate::profile::{Outside, Profile, Quantile, UNITS_MAX};

/// Devices at most.
pub const DEVICES_MAX: usize = 16_384;
/// Workloads at most.
pub const WORKLOADS_MAX: usize = 16_384;
/// Replicas that a workload may ask for at most.
pub const REPLICAS_MAX: u32 = 64;
/// Rates and costs at most.
const AMOUNT_MAX: f64 = 1e12;
/// The loosest objective: an hour.
const SLO_MAX_US: f64 = 3.6e9;

/// What all devices of one kind have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceType {
    /// Name, as profiles call it.
    pub name: String,
    /// Units of the whole device, the smallest shares that it can give.
    pub units: u32,
    /// Sizes of gpulet that the device allows, in units, ascending.
    pub sizes: Vec<u32>,
    /// Gpulets that may exist at once.
    pub gpulets_max: u32,
    /// Bytes taken once a device: context and libraries.
    pub base_bytes: u64,
    /// Bytes taken by each gpulet beside weights and arenas.
    pub gpulet_bytes: u64,
}

impl DeviceType {
    /// The smallest legal size of at least so many units; none if even the largest is smaller.
    pub fn size_for(&self, units: u32) -> Option<u32> {
        self.sizes.get(self.sizes.partition_point(|size| *size < units)).copied()
    }

    /// The largest legal size of at most so many units; none if even the smallest is larger.
    pub fn size_within(&self, units: u32) -> Option<u32> {
        self.sizes.get(..self.sizes.partition_point(|size| *size <= units)).and_then(<[u32]>::last).copied()
    }
}

/// One device.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Name, as plans call it.
    pub name: String,
    /// What it can do.
    pub device_type: Arc<DeviceType>,
    /// Bytes that may be planned with, a reserve already taken off.
    pub memory_bytes: u64,
    /// What fails together with it: devices with the same name share a fate.
    pub fault_domain: String,
    /// What using it costs, in any unit; planners prefer the cheaper of two that would do.
    pub cost: f64,
}

/// One model with its promise and its load.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Name, as plans call it.
    pub name: String,
    /// Model, as profiles call it.
    pub model: String,
    /// Whose it is; empty for nobody's in particular.
    pub tenant: String,
    /// Tenants whose workloads must not share a fault domain with it.
    pub not_with: Vec<String>,
    /// Microseconds from arrival to answer.
    pub slo_us: f64,
    /// Requests a second.
    pub rate: f64,
    /// Rate to plan for over the rate that is; at least 1.
    pub headroom: f64,
    /// Fault domains that it must be in at least; 0 lets a workload without load go.
    pub replicas_min: u32,
    /// Rows a batch at most.
    pub batch_max: u32,
}

impl Workload {
    /// Requests a second that a plan must serve.
    pub fn wanted(&self) -> f64 {
        self.rate * self.headroom
    }

    /// Whether it has to be placed at all.
    pub fn is_needed(&self) -> bool {
        self.rate > 0.0 || self.replicas_min > 0
    }

    /// Whether the two must not share a fault domain.
    pub fn excludes(&self, other: &Self) -> bool {
        let refuses = |own: &Self, other: &Self| own.not_with.contains(&other.tenant);
        (refuses(self, other) || refuses(other, self)) && self.name != other.name
    }
}

/// A problem that makes no sense: the field, and what would.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ProblemError {
    /// The field, like `workloads.resnet.slo_us`.
    pub field: String,
    /// What was wrong and what would be right.
    pub problem: String,
}

/// Devices, workloads, and what is known about them. Only sound ones exist.
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
    /// Puts a problem together: latencies at the 99th percentile, no plan in force.
    ///
    /// # Errors
    /// [`ProblemError`] where a name is used twice, a number is out of range, two profiles speak of the same model
    /// and device type, a profile lacks what the interference model needs, or no device knows a workload's model.
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
                let problem = format!("device_type `{}` is described in two ways", device.device_type.name);
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

    /// Plans for lanes that run whenever they have something: no gpulet may own its units for a part of the time only. Says
    /// nothing to a policy that plans nothing else ([`crate::placement::Policy::plans_time_windows`]).
    #[must_use]
    pub fn without_time_windows(mut self) -> Self {
        self.windows = false;
        self
    }

    /// Plans against a plan that is in force; policies that can will move little.
    #[must_use]
    pub fn from_current(mut self, plan: Plan) -> Self {
        self.current = Some(plan);
        self
    }

    /// The same question about fewer, more or other devices.
    ///
    /// # Errors
    /// As [`Problem::new`].
    pub fn on(&self, devices: Vec<Device>) -> Result<Self, ProblemError> {
        let profiles = self.profiles.values().flat_map(BTreeMap::values).cloned().collect();
        let next = Self::new(devices, self.workloads.clone(), profiles, self.interference.clone())?;
        Ok(Self { quantile: self.quantile, windows: self.windows, current: self.current.clone(), ..next })
    }

    /// The same question with another rate of one workload.
    ///
    /// # Errors
    /// As [`Problem::new`]; also where there is no such workload.
    pub fn with_rate(mut self, workload: &str, rate: f64) -> Result<Self, ProblemError> {
        let found = self.workloads.iter_mut().find(|known| known.name == workload);
        let Some(found) = found else {
            return fault(format!("workloads.{workload}"), "expected the name of a workload");
        };
        found.rate = rate;
        check_workload(found)?;
        Ok(self)
    }

    /// The devices, in the order in which planners take them where nothing else decides.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The workloads.
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// The model of interference.
    pub fn interference(&self) -> &Interference {
        &self.interference
    }

    /// Whether gpulets may own their units for a part of the time only.
    pub fn allows_time_windows(&self) -> bool {
        self.windows
    }

    /// The plan in force.
    pub fn current(&self) -> Option<&Plan> {
        self.current.as_ref()
    }

    /// What is known of the workload's model on that device type.
    pub fn profile(&self, workload: &Workload, device_type: &DeviceType) -> Option<&Profile> {
        self.profiles.get(&workload.model)?.get(&device_type.name)
    }

    /// Microseconds of a batch alone on so many units, at the quantile that is planned with.
    ///
    /// # Errors
    /// [`Outside`] where the profile has no answer.
    pub fn solo_us(&self, profile: &Profile, batch: u32, units: u32) -> Result<f64, Outside> {
        profile.latency_us(self.quantile, batch, units)
    }
}

#[cfg(test)]
mod tests;
