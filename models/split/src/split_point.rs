//! Positions at which a graph can be split, and the tensors that cross them.

use std::collections::BTreeMap;

use crate::Graph;

/// Largest number of stages.
pub const STAGES_MAX: usize = 16;

/// A position between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitPoint {
    /// Number of nodes before it, of those that run for each request: from 1 to one less than [`Graph::steps`].
    pub position: usize,
    /// What the nodes after it read from before it: tensors that nodes make, and inputs. In the order in which they are made.
    pub crossing: Vec<String>,
}

impl Graph {
    /// All positions that at most `crossing_max` tensors cross, in order.
    pub fn split_points(&self, crossing_max: usize) -> Vec<SplitPoint> {
        let mut points = Vec::new();
        self.sweep(|position, crossing| {
            if !crossing.is_empty() && crossing.len() <= crossing_max {
                let crossing = crossing.values().map(|name| (*name).to_owned()).collect();
                points.push(SplitPoint { position, crossing });
            }
        });
        points
    }

    /// The smallest number of crossing tensors with which there are at least `points` positions. `None`: the graph has too few
    /// nodes.
    pub fn crossing_needed(&self, points: usize) -> Option<usize> {
        let mut counts = Vec::new();
        self.sweep(|_, crossing| counts.push(crossing.len()));
        counts.retain(|count| *count > 0);
        counts.sort_unstable();
        counts.get(points.checked_sub(1)?).copied()
    }

    /// The positions that the fewest tensors cross.
    pub fn narrowest(&self) -> Option<SplitPoint> {
        let fewest = self.crossing_needed(1)?;
        self.split_points(fewest).into_iter().next()
    }

    /// Goes through all positions, with the tensors that cross each, by when they were made.
    fn sweep<'a>(&'a self, mut visit: impl FnMut(usize, &BTreeMap<(usize, usize), &'a str>)) {
        // Tensors that start to cross before a position, and those that no longer do.
        let mut begin: BTreeMap<usize, Vec<(usize, &str)>> = BTreeMap::new();
        let mut end: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for (number, (name, tensor)) in self.moving.iter().enumerate() {
            // It crosses all positions between the step that makes it and the last one that reads it.
            let Some(last) = tensor.last_read.filter(|last| *last >= tensor.made) else { continue };
            begin.entry(tensor.made).or_default().push((number, name));
            end.entry(last.saturating_add(1)).or_default().push((tensor.made, number));
        }
        let mut crossing = BTreeMap::new();
        for position in 0..self.steps.len() {
            for key in end.remove(&position).unwrap_or_default() {
                crossing.remove(&key);
            }
            for (number, name) in begin.remove(&position).unwrap_or_default() {
                crossing.insert((position, number), name);
            }
            if position > 0 {
                visit(position, &crossing);
            }
        }
    }
}
