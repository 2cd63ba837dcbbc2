//! What the loss of one spot device does.

use gpulet_core::id::DeviceId;
use gpulet_core::placement::Policy;
use gpulet_core::problem::Device;
use serde::Serialize;

use crate::question::{Demand, Question};
use crate::search::{Found, plan};

/// The loss of one spot device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WithoutDevice {
    /// The device of its type that carries most.
    pub device: DeviceId,
    /// Share of the requests that the other devices cannot serve until it is replaced, by demand; those with more than none.
    pub unserved: Vec<(String, f64)>,
    /// Cost of a plan without it. `None` if the other devices do not suffice.
    pub cost: Option<f64>,
}

/// What the loss of a device of each spot group does: of the one that serves most requests.
pub fn without_each(question: &Question, policy: &Policy, found: &Found) -> Vec<WithoutDevice> {
    let load = |device: &DeviceId| -> f64 {
        let own = found.plan.gpulets.iter().filter(|gpulet| gpulet.device == *device);
        own.flat_map(|gpulet| &gpulet.slots).map(|slot| slot.rate).sum()
    };
    let mut all = Vec::new();
    for group in question.groups().iter().filter(|group| group.lost > 0.0) {
        let used = group.devices.iter().filter(|device| load(device) > 0.0);
        let Some(device) = used.max_by(|left, right| load(left).total_cmp(&load(right))) else { continue };
        let rest: Vec<Device> =
            question.problem().devices().iter().filter(|known| known.name != *device).cloned().collect();
        let again = question.on(rest).ok().and_then(|question| plan(&question, policy));
        all.push(WithoutDevice {
            device: device.clone(),
            unserved: unserved(question, found, device),
            cost: again.map(|again| again.validation.cost),
        });
    }
    all
}

fn unserved(question: &Question, found: &Found, device: &DeviceId) -> Vec<(String, f64)> {
    let of = |demand: &Demand| {
        let own = |name: &str| {
            let mut entries = demand.entries.iter().filter_map(|(entry, _)| question.entries().get(*entry));
            entries.any(|entry| entry.name == name)
        };
        let slots = found.validation.slots.iter().filter(|slot| own(&slot.workload));
        let left: f64 = slots.filter(|slot| slot.device != *device).map(|slot| slot.capacity).sum();
        let share = if demand.rate > 0.0 { (1.0 - left / demand.rate).max(0.0) } else { 0.0 };
        (share > 0.0).then(|| (demand.name.clone(), share))
    };
    question.demands().iter().filter_map(of).collect()
}
