//! The changes that lead from one plan to another.

use std::collections::BTreeSet;

use super::{Gpulet, Plan};
use crate::id::DeviceId;

/// A gpulet that keeps its place but changes what it runs, or how.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The gpulet in the old plan.
    pub before: Gpulet,
    /// The gpulet in the new plan.
    pub after: Gpulet,
}

/// Gpulets of two plans, matched by device, units and window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// Gpulets with the same place and the same slots.
    pub kept: Vec<Gpulet>,
    /// Gpulets with the same place and other slots, batches, budgets or rates.
    pub changed: Vec<Change>,
    /// Gpulets that only the new plan has.
    pub new: Vec<Gpulet>,
    /// Gpulets that only the old plan has.
    pub removed: Vec<Gpulet>,
    /// Workloads that a device must load: (device, workload).
    pub loads: Vec<(DeviceId, String)>,
    /// Workloads that a device may unload: (device, workload).
    pub unloads: Vec<(DeviceId, String)>,
}

impl Difference {
    /// Compares two plans.
    pub fn between(before: &Plan, after: &Plan) -> Self {
        let mut difference = Self::default();
        let same_place = |left: &Gpulet, right: &Gpulet| {
            left.device == right.device
                && (left.first_unit, left.units) == (right.first_unit, right.units)
                && left.window == right.window
        };
        let mut old: Vec<&Gpulet> = before.gpulets.iter().collect();
        for gpulet in &after.gpulets {
            let Some(at) = old.iter().position(|old| same_place(old, gpulet)) else {
                difference.new.push(gpulet.clone());
                continue;
            };
            let before = old.remove(at);
            if before == gpulet {
                difference.kept.push(gpulet.clone());
            } else {
                difference.changed.push(Change { before: before.clone(), after: gpulet.clone() });
            }
        }
        difference.removed = old.into_iter().cloned().collect();
        let (had, has) = (placed(before), placed(after));
        difference.loads = has.difference(&had).cloned().collect();
        difference.unloads = had.difference(&has).cloned().collect();
        difference
    }

    /// Returns whether the plans have no difference.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.new.is_empty() && self.removed.is_empty()
    }
}

fn placed(plan: &Plan) -> BTreeSet<(DeviceId, String)> {
    let of = |gpulet: &Gpulet| -> Vec<(DeviceId, String)> {
        gpulet.slots.iter().map(|slot| (gpulet.device.clone(), slot.workload.clone())).collect()
    };
    plan.gpulets.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Slot;

    fn gpulet(device: &str, first_unit: u32, workload: &str, batch: u32) -> Gpulet {
        let slot = Slot { workload: workload.to_owned(), batch, budget_us: 10.0, rate: 1.0 };
        Gpulet { device: device.into(), first_unit, units: 4, window: None, duty_us: None, slots: vec![slot] }
    }

    #[test]
    fn distinguishes_kept_changed_new_and_removed() {
        let before = Plan::new(vec![gpulet("a", 0, "x", 1), gpulet("a", 4, "y", 1), gpulet("b", 0, "z", 1)]);
        let after = Plan::new(vec![gpulet("c", 0, "z", 1), gpulet("a", 4, "y", 2), gpulet("a", 0, "x", 1)]);
        let difference = Difference::between(&before, &after);
        assert_eq!(difference.kept, [gpulet("a", 0, "x", 1)]);
        assert_eq!(
            difference.changed,
            [Change { before: gpulet("a", 4, "y", 1), after: gpulet("a", 4, "y", 2) }]
        );
        assert_eq!(
            (&difference.new[..], &difference.removed[..]),
            (&[gpulet("c", 0, "z", 1)][..], &[gpulet("b", 0, "z", 1)][..])
        );
        assert_eq!(difference.loads, [("c".into(), "z".to_owned())]);
        assert_eq!(difference.unloads, [("b".into(), "z".to_owned())]);
        assert!(!difference.is_empty() && Difference::between(&after, &after).is_empty());
    }

    #[test]
    fn a_plan_round_trips_through_json() {
        let plan = Plan::new(vec![gpulet("a", 4, "y", 1), gpulet("a", 0, "x", 1)]);
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        assert!(serde_json::from_str::<Plan>("{\"gpulets\":[],\"more\":1}").is_err());
        assert_eq!(plan.devices(), ["a"]);
        assert_eq!(plan.slots_of("x").count(), 1);
    }
}
