//! Devices that several models share over time.

use gpulet_core::placement::{Policy, Temporal};
use gpulet_core::plan::Plan;
use gpulet_core::problem::{Device, Workload};

use super::Proposal;
use super::peaks::Peak;
use crate::question::Question;

/// What is left of the devices of each group, as numbers of devices.
#[derive(Debug)]
pub(super) struct Left(Vec<f64>);

impl Left {
    pub(super) fn of(question: &Question) -> Self {
        Self(question.groups().iter().map(|group| group.devices.len() as f64).collect())
    }

    /// Fills devices to `utilisation` with `wanted` requests a second, those of the first peak first. `None` if they do not suffice.
    pub(super) fn fill(&mut self, peaks: &[Peak], wanted: f64, utilisation: f64) -> Option<Vec<(Peak, f64)>> {
        let (mut rest, mut parts) = (wanted, Vec::new());
        for peak in peaks {
            let free = self.0.get_mut(peak.group)?;
            let here = rest.min(*free * utilisation * peak.rate);
            *free -= here / (utilisation * peak.rate);
            parts.push((*peak, here));
            rest -= here;
            if rest <= 1e-9 * wanted {
                return Some(parts);
            }
        }
        None
    }
}

/// Places variants on devices of the groups that were chosen for them, with batches of several models one after the other. `parts`:
/// variants with requests a second.
pub(super) fn place(question: &Question, parts: &[(Peak, f64)], headroom: f64) -> Option<Proposal> {
    let mut gpulets = Vec::new();
    let mut all: Vec<Workload> = Vec::new();
    for (at, group) in question.groups().iter().enumerate() {
        let mut workloads = Vec::new();
        for (peak, rate) in parts.iter().filter(|(peak, _)| peak.group == at) {
            let entry = question.entries().get(peak.entry)?;
            workloads.push(Workload { rate: *rate, headroom, ..entry.clone() });
        }
        if workloads.is_empty() {
            continue;
        }
        let is_own = |device: &&Device| group.devices.contains(&device.name);
        let devices = question.problem().devices().iter().filter(is_own).cloned().collect();
        let problem = question.problem().on(devices).ok()?.with_workloads(workloads.clone()).ok()?;
        gpulets.extend(Policy::Temporal(Temporal).find(&problem)?.gpulets);
        for workload in workloads {
            match all.iter_mut().find(|known| known.name == workload.name) {
                Some(known) => known.rate += workload.rate,
                None => all.push(Workload { headroom: 1.0, ..workload }),
            }
        }
    }
    let problem = question.problem().clone().with_workloads(all).ok()?;
    Some(Proposal { problem, plan: Plan::new(gpulets) })
}
