//! Which workload gets which share of which device, and when. Placement policies return a plan, and the router
//! executes it.

mod difference;

use serde::{Deserialize, Serialize};

use crate::id::DeviceId;

pub use self::difference::{Change, Difference};

/// A time quota: in every period, a gpulet is guaranteed its units for a while, and may use them for longer if others
/// leave them idle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Period after which it recurs, microseconds.
    pub period_us: f64,
    /// Start of the guaranteed time within the period, microseconds.
    pub offset_us: f64,
    /// Guaranteed time, microseconds.
    pub length_us: f64,
    /// Most time in a period, microseconds. `None`: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_us: Option<f64>,
}

/// What a gpulet runs for one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// Name of the workload.
    pub workload: String,
    /// Largest batch size, rows.
    pub batch: u32,
    /// Microseconds that its batch may take under contention.
    pub budget_us: f64,
    /// Requests per second that are sent here.
    pub rate: f64,
}

/// A share of a device, in space and in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpulet {
    /// Name of the device.
    pub device: DeviceId,
    /// First of its units.
    pub first_unit: u32,
    /// Number of its units.
    pub units: u32,
    /// Time in which it owns them; `None` means always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Microseconds in which every slot runs once; `None` if one slot runs batch after batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duty_us: Option<f64>,
    /// Workloads that it runs, in this order.
    pub slots: Vec<Slot>,
}

/// Gpulets of all devices, ordered by device, first unit and time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The gpulets.
    pub gpulets: Vec<Gpulet>,
}

impl Plan {
    /// Creates a plan with its gpulets in order.
    pub fn new(mut gpulets: Vec<Gpulet>) -> Self {
        let offset = |gpulet: &Gpulet| gpulet.window.map_or(0.0, |window| window.offset_us);
        gpulets.sort_by(|left, right| {
            let place = |gpulet: &Gpulet| (gpulet.first_unit, gpulet.units);
            let order = left.device.cmp(&right.device).then_with(|| place(left).cmp(&place(right)));
            order.then_with(|| offset(left).total_cmp(&offset(right)))
        });
        Self { gpulets }
    }

    /// Returns the devices that run something, in order.
    pub fn devices(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.gpulets.iter().map(|gpulet| gpulet.device.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The plan with other names of its workloads: `model` gives the model that runs a workload, and its largest batch. Slots of a
    /// gpulet that then have the same name become one slot, with the rows, the time and the rate of all of them.
    #[must_use]
    pub fn by_model<'a>(&self, model: impl Fn(&str) -> Option<(&'a str, u32)>) -> Self {
        let mut plan = self.clone();
        for gpulet in &mut plan.gpulets {
            let before = gpulet.slots.len();
            let mut slots: Vec<Slot> = Vec::with_capacity(before);
            for slot in std::mem::take(&mut gpulet.slots) {
                let Some((name, batch_max)) = model(&slot.workload) else {
                    slots.push(slot);
                    continue;
                };
                match slots.iter_mut().find(|known| known.workload == name) {
                    Some(known) => {
                        known.batch = known.batch.saturating_add(slot.batch).min(batch_max.max(1));
                        known.budget_us += slot.budget_us;
                        known.rate += slot.rate;
                    }
                    None => slots.push(Slot { workload: name.to_owned(), ..slot }),
                }
            }
            if slots.len() == 1 && before > 1 {
                gpulet.duty_us = None;
            }
            gpulet.slots = slots;
        }
        plan
    }

    /// Returns the slots of a workload with their gpulets.
    pub fn slots_of<'a>(&'a self, workload: &'a str) -> impl Iterator<Item = (&'a Gpulet, &'a Slot)> {
        self.gpulets
            .iter()
            .flat_map(|gpulet| gpulet.slots.iter().map(move |slot| (gpulet, slot)))
            .filter(move |(_, slot)| slot.workload == workload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(workload: &str, batch: u32) -> Slot {
        Slot { workload: workload.to_owned(), batch, budget_us: 1e3, rate: 10.0 }
    }

    #[test]
    fn workloads_that_the_same_model_runs_share_a_slot() {
        let gpulet = Gpulet {
            device: "toy-0".into(),
            first_unit: 0,
            units: 2,
            window: None,
            duty_us: Some(3e3),
            slots: vec![slot("cameras.det", 6), slot("rec", 4), slot("photos.det", 4)],
        };
        let model = |name: &str| name.ends_with("det").then_some(("det", 8));
        let found = Plan::new(vec![gpulet.clone()]).by_model(model);
        let expected = Slot { budget_us: 2e3, rate: 20.0, ..slot("det", 8) };
        assert_eq!(found.gpulets[0].slots, [expected.clone(), slot("rec", 4)]);
        assert_eq!(found.gpulets[0].duty_us, Some(3e3));
        let lone = Gpulet { slots: vec![slot("cameras.det", 6), slot("det", 4)], ..gpulet };
        let found = Plan::new(vec![lone]).by_model(model);
        assert_eq!((found.gpulets[0].slots.as_slice(), found.gpulets[0].duty_us), (&[expected][..], None));
    }
}
