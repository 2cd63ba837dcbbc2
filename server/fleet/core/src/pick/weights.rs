//! Chooses nodes by the rates of the plan, for requests that no view helps with: smooth weighted round robin.

use std::collections::BTreeMap;

use super::NodeNumber;

#[derive(Clone, Copy, Debug, Default)]
struct Copy {
    /// Planned rows a second.
    rate: f64,
    credit: f64,
    /// Whether the node takes requests of the model, if it said so.
    is_there: Option<bool>,
}

impl Copy {
    fn is_candidate(&self) -> bool {
        self.is_there.unwrap_or(self.rate > 0.0)
    }
}

/// The nodes that have one model, or are planned to have it.
#[derive(Clone, Debug, Default)]
pub(super) struct Weights(BTreeMap<NodeNumber, Copy>);

impl Weights {
    /// The plan sends that many rows a second of the model to a node.
    pub(super) fn planned(&mut self, node: NodeNumber, rate: f64) {
        let rate = if rate.is_finite() { rate.max(0.0) } else { 0.0 };
        self.change(node, |copy| copy.rate = rate);
    }

    /// A node said whether it takes requests of the model. What is planned for it stays.
    pub(super) fn seen(&mut self, node: NodeNumber, is_there: bool) {
        self.change(node, |copy| copy.is_there = Some(is_there));
    }

    fn change(&mut self, node: NodeNumber, change: impl FnOnce(&mut Copy)) {
        let copy = self.0.entry(node).or_default();
        change(copy);
        if copy.rate <= 0.0 && copy.is_there != Some(true) {
            self.0.remove(&node);
        }
    }

    /// The next nodes, best first, each as often as its rate says; without rates, all equally often.
    pub(super) fn next(&mut self, takes: impl Fn(NodeNumber) -> bool, most: usize) -> Vec<NodeNumber> {
        let takes = |(node, copy): (&NodeNumber, &Copy)| copy.is_candidate() && takes(*node);
        let planned = self.0.iter().any(|(node, copy)| copy.rate > 0.0 && takes((node, copy)));
        let mut total = 0.0;
        let mut ranked: Vec<(NodeNumber, f64)> = Vec::new();
        for (node, copy) in &mut self.0 {
            let weight = if planned { copy.rate } else { 1.0 };
            if weight > 0.0 && takes((node, copy)) {
                copy.credit += weight;
                total += weight;
                ranked.push((*node, copy.credit));
            }
        }
        ranked.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        if let Some(first) = ranked.first().and_then(|(node, _)| self.0.get_mut(node)) {
            first.credit -= total;
        }
        ranked.into_iter().take(most).map(|(node, _)| node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn firsts(weights: &mut Weights, count: usize) -> Vec<u32> {
        (0..count).filter_map(|_| weights.next(|_| true, 1).first().map(|node| node.0)).collect()
    }

    #[test]
    fn nodes_come_as_often_as_their_rates_say() {
        let mut weights = Weights::default();
        weights.planned(NodeNumber(0), 30.0);
        weights.planned(NodeNumber(1), 10.0);
        weights.seen(NodeNumber(2), true);
        let firsts = firsts(&mut weights, 8);
        assert_eq!(firsts.iter().filter(|node| **node == 0).count(), 6, "{firsts:?}");
        assert_eq!(firsts.iter().filter(|node| **node == 1).count(), 2, "{firsts:?}");
    }

    #[test]
    fn without_rates_all_come_equally_often_and_lost_ones_never() {
        let mut weights = Weights::default();
        (0..3).for_each(|node| weights.seen(NodeNumber(node), true));
        assert_eq!(firsts(&mut weights, 6), [0, 1, 2, 0, 1, 2]);
        let nodes = weights.next(|node| node.0 != 1, 3);
        assert_eq!(nodes.len(), 2);
        assert!(!nodes.contains(&NodeNumber(1)));
        assert!(weights.next(|_| false, 3).is_empty());
    }
}
