//! Who gets which share of which device, when: the answer of a placement policy, and what the router runs.

mod difference;

use serde::{Deserialize, Serialize};

pub use self::difference::{Change, Difference};

/// A recurring stretch of time that a gpulet owns its units for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Microseconds after which it recurs.
    pub period_us: f64,
    /// Microseconds from the start of a period to its own.
    pub offset_us: f64,
    /// Microseconds that it lasts; a batch that would end after it is not started.
    pub length_us: f64,
}

/// What a gpulet runs for one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// Name of the workload.
    pub workload: String,
    /// Rows a batch at most.
    pub batch: u32,
    /// Microseconds that its batch may take, neighbours included.
    pub budget_us: f64,
    /// Requests a second that are sent here.
    pub rate: f64,
}

/// A share of a device, in space and in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpulet {
    /// Name of the device.
    pub device: String,
    /// Its first unit.
    pub first_unit: u32,
    /// How many units it has.
    pub units: u32,
    /// When it owns them; always, if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Microseconds in which every slot gets its turn once; none where one slot runs batch after batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duty_us: Option<f64>,
    /// What it runs, in turn.
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
    /// Puts gpulets in order.
    pub fn new(mut gpulets: Vec<Gpulet>) -> Self {
        let offset = |gpulet: &Gpulet| gpulet.window.map_or(0.0, |window| window.offset_us);
        gpulets.sort_by(|left, right| {
            let place = |gpulet: &Gpulet| (gpulet.first_unit, gpulet.units);
            let order = left.device.cmp(&right.device).then_with(|| place(left).cmp(&place(right)));
            order.then_with(|| offset(left).total_cmp(&offset(right)))
        });
        Self { gpulets }
    }

    /// Devices that run something, in order.
    pub fn devices(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.gpulets.iter().map(|gpulet| gpulet.device.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Slots of a workload with their gpulets.
    pub fn slots_of<'a>(&'a self, workload: &'a str) -> impl Iterator<Item = (&'a Gpulet, &'a Slot)> {
        self.gpulets
            .iter()
            .flat_map(|gpulet| gpulet.slots.iter().map(move |slot| (gpulet, slot)))
            .filter(move |(_, slot)| slot.workload == workload)
    }
}
