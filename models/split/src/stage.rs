//! What each stage of a graph consists of.

use std::collections::BTreeSet;

use crate::graph::given;
use crate::{Graph, SplitError};

/// A part of a graph that runs as a model of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// Its nodes, by index in [`Description::nodes`](crate::Description::nodes), rising. A node that depends on constants and shapes of
    /// inputs only is in every stage that needs it, any other in one stage.
    pub nodes: Vec<usize>,
    /// Tensors that it gets: inputs of the graph, and outputs of earlier stages.
    pub inputs: Vec<String>,
    /// Tensors that it gives: to later stages, and as outputs of the graph.
    pub outputs: Vec<String>,
    /// Constants that its nodes read or that it gives.
    pub constants: Vec<String>,
}

impl Graph {
    /// The stages between these positions: one more than there are positions.
    ///
    /// An output of the graph is given by the stage that makes it. An input that no node reads goes to the first stage, and an output
    /// that is constant comes from the last one.
    ///
    /// # Errors
    /// Positions that do not rise or lie outside of the graph, and stages without inputs or outputs.
    pub fn stages(&self, positions: &[usize]) -> Result<Vec<Stage>, SplitError> {
        let last = self.steps.len().saturating_sub(1);
        let mut from = 0;
        let mut stages = Vec::with_capacity(positions.len().saturating_add(1));
        for &to in positions {
            if to <= from || to > last {
                return Err(SplitError::Position { position: to, last });
            }
            stages.push(self.between(from, to));
            from = to;
        }
        stages.push(self.between(from, self.steps.len()));
        for (index, stage) in stages.iter().enumerate() {
            let parts = [("inputs", stage.inputs.is_empty()), ("outputs", stage.outputs.is_empty())];
            if let Some((what, _)) = parts.into_iter().find(|(_, is_empty)| *is_empty) {
                return Err(SplitError::EmptyStage { stage: index.saturating_add(1), what });
            }
        }
        Ok(stages)
    }

    /// The part of the graph that makes these tensors from the graph's inputs. Tensors that nothing makes are left out.
    pub fn part_making(&self, tensors: &[String]) -> Stage {
        let outputs: Vec<String> =
            tensors.iter().filter(|name| self.makers.contains_key(*name)).cloned().collect();
        let (nodes, constants) = self.sources(&outputs, |_| true);
        Stage { nodes, inputs: self.description.inputs.clone(), outputs, constants }
    }

    fn between(&self, from: usize, to: usize) -> Stage {
        let own: BTreeSet<usize> = self.steps.get(from..to).unwrap_or_default().iter().copied().collect();
        let is_last = to == self.steps.len();
        let is_own =
            |name: &str| self.moving.get(name).is_some_and(|tensor| tensor.made > from && tensor.made <= to);
        let reads = own.iter().filter_map(|&index| self.description.nodes.get(index));
        let own_reads: BTreeSet<&str> = reads.flat_map(|node| given(&node.reads)).collect();
        let mut passed: Vec<(usize, &String)> = self
            .moving
            .iter()
            .filter(|(name, tensor)| is_own(name) && tensor.last_read.is_some_and(|read| read >= to))
            .map(|(name, tensor)| (tensor.made, name))
            .collect();
        passed.sort_unstable();
        let mut outputs: Vec<String> = passed.into_iter().map(|(_, name)| name.clone()).collect();
        for name in &self.description.outputs {
            let is_given = is_own(name) || (is_last && !self.moving.contains_key(name));
            if is_given && !outputs.contains(name) {
                outputs.push(name.clone());
            }
        }
        let roots: Vec<String> =
            own_reads.iter().map(|name| (*name).to_owned()).chain(outputs.iter().cloned()).collect();
        let (mut nodes, constants) = self.sources(&roots, |node| self.copied.contains_key(&node));
        nodes.extend(&own);
        nodes.sort_unstable();
        nodes.dedup();
        let all = nodes.iter().filter_map(|&index| self.description.nodes.get(index));
        let read: BTreeSet<&str> = all.flat_map(|node| given(&node.reads)).collect();
        let unread = |name: &str| {
            from == 0
                && self.moving.get(name).is_some_and(|tensor| tensor.made == 0 && tensor.last_read.is_none())
        };
        let mut inputs: Vec<(usize, &String)> = self
            .moving
            .iter()
            .filter(|(name, tensor)| tensor.made <= from && (read.contains(name.as_str()) || unread(name)))
            .map(|(name, tensor)| (tensor.made, name))
            .collect();
        inputs.sort_by_key(|(made, name)| {
            (*made, self.description.inputs.iter().position(|input| input == *name))
        });
        Stage {
            nodes,
            inputs: inputs.into_iter().map(|(_, name)| name.clone()).collect(),
            outputs,
            constants,
        }
    }

    /// Nodes that make some tensors, as far as `may` allows, and the constants that they and the tensors are.
    fn sources(&self, roots: &[String], may: impl Fn(usize) -> bool) -> (Vec<usize>, Vec<String>) {
        let mut nodes = BTreeSet::new();
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let mut open: Vec<&str> = given(roots).collect();
        while let Some(name) = open.pop() {
            if !names.insert(name) {
                continue;
            }
            let maker = self.makers.get(name).copied().filter(|maker| may(*maker));
            let Some(node) = maker.and_then(|index| self.description.nodes.get(index)) else { continue };
            nodes.extend(maker);
            open.extend(given(&node.reads));
        }
        let constants = self.description.constants.iter().filter(|name| names.contains(name.as_str()));
        (nodes.into_iter().collect(), constants.cloned().collect())
    }
}
