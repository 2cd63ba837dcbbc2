//! Explains why there is no plan, and what would make one possible.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::demand::{Unplaced, parts};
use crate::problem::{Device, Problem, Workload};

/// Largest number of additional devices that are tried.
const DEVICES_MORE_MAX: usize = 64;
/// Number of workloads and devices above which additional devices are not tried, because it would take too long.
const TRIALS_SIZE_MAX: usize = 512;

/// What a workload lacks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shortage {
    /// Even a batch of one on the largest share cannot meet the objective.
    Time {
        /// Worst-case latency on the fastest device, with two batches of one, microseconds.
        fastest_us: f64,
        /// The objective, microseconds.
        slo_us: f64,
    },
    /// No device has enough memory for it, even solo.
    Memory {
        /// Bytes of the smallest deployment.
        needed: u64,
        /// Bytes of the largest device.
        has: u64,
    },
    /// There are fewer fault domains than it needs.
    FaultDomains {
        /// Fault domains that it needs.
        needs: u32,
        /// Fault domains that exist.
        has: usize,
    },
    /// The devices are full, as this policy fills them.
    Devices {
        /// Number of devices.
        has: usize,
    },
}

/// The cheapest remedy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Set a longer objective.
    Slo {
        /// Least sufficient objective, microseconds.
        slo_us: f64,
    },
    /// Add a device with more memory.
    Memory {
        /// Least sufficient memory, bytes.
        bytes: u64,
    },
    /// Add fault domains, or request fewer replicas.
    FaultDomains {
        /// Least sufficient number of fault domains.
        needs: u32,
    },
    /// Add devices.
    Devices {
        /// Device type of the cheapest remedy.
        device_type: String,
        /// Number of additional devices.
        more: usize,
    },
    /// None of the tried changes helps.
    Unknown,
}

/// A workload that cannot be placed.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
pub struct Infeasible {
    /// Name of the workload.
    pub workload: String,
    /// What the workload lacks.
    pub shortage: Shortage,
    /// What would make a plan possible.
    pub remedy: Remedy,
}

impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workload `{}`: ", self.workload)?;
        match &self.shortage {
            Shortage::Time { fastest_us, slo_us } => write!(
                f,
                "answered after {fastest_us:.0} us at best (two batches of one on the largest share), its objective is {slo_us:.0} us"
            ),
            Shortage::Memory { needed, has } => {
                write!(f, "needs {needed} bytes, the largest device has {has}")
            }
            Shortage::FaultDomains { needs, has } => {
                write!(f, "must be in {needs} fault domains, the devices are in {has}")
            }
            Shortage::Devices { has } => write!(f, "does not fit on {has} devices"),
        }?;
        match &self.remedy {
            Remedy::Slo { slo_us } => write!(f, "; set its slo to at least {slo_us:.0} us"),
            Remedy::Memory { bytes } => write!(f, "; add a device with at least {bytes} bytes"),
            Remedy::FaultDomains { needs } => write!(f, "; have {needs} fault domains or fewer replicas"),
            Remedy::Devices { device_type, more } => write!(f, "; add {more} of `{device_type}`"),
            Remedy::Unknown => f.write_str("; lower its rate or add devices"),
        }
    }
}

impl Infeasible {
    /// Finds out why the workload cannot be placed. `places` returns whether the policy finds a plan for another
    /// problem.
    pub(super) fn explain(problem: &Problem, unplaced: &Unplaced, places: impl Fn(&Problem) -> bool) -> Self {
        let workload = problem.workloads().iter().find(|workload| workload.name == unplaced.workload);
        let alone = workload.and_then(|workload| lacks_alone(problem, workload));
        let (shortage, remedy) = alone.unwrap_or_else(|| {
            (Shortage::Devices { has: problem.devices().len() }, more_devices(problem, places))
        });
        Self { workload: unplaced.workload.clone(), shortage, remedy }
    }
}

/// Returns what would be missing even if the workload were the only one.
fn lacks_alone(problem: &Problem, workload: &Workload) -> Option<(Shortage, Remedy)> {
    let device_types = || {
        problem
            .devices()
            .iter()
            .filter_map(|device| Some((device, problem.profile(workload, &device.device_type)?)))
    };
    let fastest = device_types()
        .filter_map(|(device, profile)| problem.solo_us(profile, 1, device.device_type.size_most()).ok());
    let fastest_us = 2.0 * fastest.reduce(f64::min)?;
    let slo_us = workload.slo_us;
    if fastest_us > slo_us {
        return Some((Shortage::Time { fastest_us, slo_us }, Remedy::Slo { slo_us: fastest_us }));
    }
    let memory = device_types().map(|(device, profile)| {
        let device_type = &device.device_type;
        let parts = [
            device_type.gpulet_bytes,
            profile.weights_bytes().unwrap_or(0),
            profile.arena_bytes(1).unwrap_or(0),
        ];
        let needed = parts.iter().fold(device_type.base_bytes, |sum, bytes| sum.saturating_add(*bytes));
        (needed, device.memory_bytes)
    });
    let short =
        memory.min_by_key(|(needed, has)| needed.saturating_sub(*has)).filter(|(needed, has)| needed > has);
    if let Some((needed, has)) = short {
        return Some((Shortage::Memory { needed, has }, Remedy::Memory { bytes: needed }));
    }
    let domains: BTreeSet<&str> = device_types().map(|(device, _)| device.fault_domain.as_str()).collect();
    let needs = workload.replicas_min;
    let too_few = u32::try_from(domains.len()).is_ok_and(|has| has < needs);
    too_few.then_some((Shortage::FaultDomains { needs, has: domains.len() }, Remedy::FaultDomains { needs }))
}

/// Returns the number and type of additional devices that make a plan possible at the least cost.
fn more_devices(problem: &Problem, places: impl Fn(&Problem) -> bool) -> Remedy {
    let mut best: Option<(f64, String, usize)> = None;
    let mut device_types: Vec<&Device> = Vec::new();
    for device in problem.devices() {
        if device_types.iter().all(|known| known.device_type.name != device.device_type.name) {
            device_types.push(device);
        }
    }
    let small = parts(problem).len().max(problem.devices().len()) <= TRIALS_SIZE_MAX;
    for pattern in device_types.into_iter().filter(|_| small) {
        let enough = |more: usize| {
            let added = (0..more).map(|at| Device {
                name: format!("{}+{at}", pattern.name).into(),
                device_type: Arc::clone(&pattern.device_type),
                memory_bytes: pattern.memory_bytes,
                fault_domain: format!("{}+{at}", pattern.name),
                cost: pattern.cost,
            });
            let devices = problem.devices().iter().cloned().chain(added).collect();
            problem.on(devices).is_ok_and(|larger| places(&larger))
        };
        let mut high = 1;
        while high <= DEVICES_MORE_MAX && !enough(high) {
            high = high.saturating_mul(2);
        }
        // Devices of this type do not help.
        if high > DEVICES_MORE_MAX {
            continue;
        }
        let mut low = high / 2;
        while high.saturating_sub(low) > 1 {
            let middle = low.midpoint(high);
            if enough(middle) { high = middle } else { low = middle }
        }
        let cost = pattern.cost * f64::from(u32::try_from(high).unwrap_or(u32::MAX));
        if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
            best = Some((cost, pattern.device_type.name.clone(), high));
        }
    }
    best.map_or(Remedy::Unknown, |(_, device_type, more)| Remedy::Devices { device_type, more })
}
