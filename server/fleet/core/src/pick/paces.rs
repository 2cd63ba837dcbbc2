//! How long batches take on each node, relative to what nodes say.
//!
//! What nodes say is cautious: it is meant for promises. A lane gets its next batch shortly before the last one ends, so the mean time
//! counts here. Too long an estimate leaves the lane idle, too short a one makes batches smaller.

use std::collections::BTreeMap;
use std::time::Duration;

use super::NodeNumber;

/// Weight of the latest batch in the mean.
const WEIGHT: f64 = 1.0 / 16.0;
/// Limits of a single measurement: longer ones are those of a node that was busy with something else.
const RANGE: (f64, f64) = (0.25, 4.0);

/// Measured times of batches, relative to what was expected.
#[derive(Clone, Debug, Default)]
pub(super) struct Paces {
    nodes: BTreeMap<(NodeNumber, u32), f64>,
    /// By model: the mean of all nodes, for nodes that have not run it.
    models: BTreeMap<u32, f64>,
}

impl Paces {
    /// Factor for the expected time of a batch of a model on a node.
    pub(super) fn of(&self, node: NodeNumber, model: u32) -> f64 {
        let measured = self.nodes.get(&(node, model)).or_else(|| self.models.get(&model));
        measured.copied().unwrap_or(1.0)
    }

    /// A batch took this time.
    pub(super) fn learn(&mut self, (node, model): (NodeNumber, u32), took: Duration, expected: Duration) {
        if expected.is_zero() {
            return;
        }
        let pace = took.div_duration_f64(expected).clamp(RANGE.0, RANGE.1);
        let towards = |mean: &mut f64| *mean += (pace - *mean) * WEIGHT;
        let before = self.of(node, model);
        towards(self.nodes.entry((node, model)).or_insert(before));
        towards(self.models.entry(model).or_insert(1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_own_pace_and_new_ones_begin_with_the_mean() {
        let mut paces = Paces::default();
        let (fast, slow, new) = (NodeNumber(0), NodeNumber(1), NodeNumber(2));
        assert_eq!(paces.of(new, 0), 1.0);
        let expected = Duration::from_millis(10);
        for _ in 0..200 {
            paces.learn((fast, 0), Duration::from_millis(8), expected);
            paces.learn((slow, 0), Duration::from_millis(16), expected);
        }
        assert!((paces.of(fast, 0) - 0.8).abs() < 0.01);
        assert!((paces.of(slow, 0) - 1.6).abs() < 0.01);
        assert!((1.1..1.3).contains(&paces.of(new, 0)));
        assert_eq!(paces.of(fast, 1), 1.0, "another model");
        // A node that stands still for a moment does not count as slow for long.
        paces.learn((fast, 0), Duration::from_secs(60), expected);
        assert!(paces.of(fast, 0) < 1.1);
    }
}
