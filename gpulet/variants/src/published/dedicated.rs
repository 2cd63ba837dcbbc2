//! Whole devices, each with one variant.

use gpulet_core::plan::{Gpulet, Plan, Slot};
use gpulet_core::problem::Workload;

use super::Proposal;
use super::peaks::Peak;
use crate::question::Question;

/// Devices that are taken one after the other.
#[derive(Debug)]
pub(super) struct Devices<'a> {
    question: &'a Question,
    /// Devices of each group that are taken.
    taken: Vec<usize>,
    /// The variant of each taken device, with the requests a second that it gets.
    gpulets: Vec<(Peak, f64)>,
}

impl<'a> Devices<'a> {
    pub(super) fn of(question: &'a Question) -> Self {
        Self { question, taken: vec![0; question.groups().len()], gpulets: Vec::new() }
    }

    /// Whether a device of this group is left.
    pub(super) fn has(&self, group: usize) -> bool {
        let has = self.question.groups().get(group).map_or(0, |group| group.devices.len());
        self.taken.get(group).is_some_and(|taken| *taken < has)
    }

    /// Takes a device for a variant.
    pub(super) fn take(&mut self, peak: Peak) {
        if let Some(taken) = self.taken.get_mut(peak.group) {
            *taken += 1;
        }
        self.gpulets.push((peak, 0.0));
    }

    /// Sends the requests of a demand, a second, to the devices taken since `first` in proportion to their rates.
    pub(super) fn send(&mut self, first: usize, wanted: f64) {
        let own = self.gpulets.get_mut(first..).unwrap_or_default();
        let all: f64 = own.iter().map(|(peak, _)| peak.rate).sum();
        for (peak, rate) in own {
            *rate = wanted * peak.rate / all;
        }
    }

    /// Sets what each device gets.
    pub(super) fn set(&mut self, rates: impl Fn(&Peak) -> f64) {
        for (peak, rate) in &mut self.gpulets {
            *rate = rates(peak);
        }
    }

    /// Number of devices.
    pub(super) fn len(&self) -> usize {
        self.gpulets.len()
    }

    /// The plan.
    pub(super) fn proposal(self) -> Option<Proposal> {
        let mut next = vec![0_usize; self.question.groups().len()];
        let mut gpulets = Vec::new();
        let mut workloads: Vec<Workload> = Vec::new();
        for (peak, rate) in &self.gpulets {
            let group = self.question.groups().get(peak.group)?;
            let at = next.get_mut(peak.group)?;
            let device = group.devices.get(*at)?.clone();
            *at += 1;
            let entry = self.question.entries().get(peak.entry)?;
            let units = *group.device_type.sizes.last()?;
            let slot = Slot {
                workload: entry.name.clone(),
                batch: peak.batch,
                budget_us: peak.batch_us,
                rate: *rate,
            };
            gpulets.push(Gpulet {
                device,
                first_unit: 0,
                units,
                window: None,
                duty_us: None,
                slots: vec![slot],
            });
            match workloads.iter_mut().find(|workload| workload.name == entry.name) {
                Some(workload) => workload.rate += rate,
                None => workloads.push(Workload { rate: *rate, headroom: 1.0, ..entry.clone() }),
            }
        }
        let problem = self.question.problem().clone().with_workloads(workloads).ok()?;
        Some(Proposal { problem, plan: Plan::new(gpulets) })
    }
}
