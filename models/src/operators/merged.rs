//! Operators that engines merge into another one: they are computed in its pass over the elements, and have no pass of their own.
//!
//! The rules are those of ONNX Runtime's optimisations for CPUs. A merged operator is the only consumer of the result before it.

use std::collections::{BTreeMap, BTreeSet};

use tract_onnx::pb::{GraphProto, NodeProto};

use super::subgraphs;

/// Functions of single elements that convolutions and products compute as they write their results.
const ACTIVATIONS: [&str; 6] = ["Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "Clip"];
/// Those that only products compute.
const ACTIVATIONS_OF_PRODUCTS: [&str; 5] = ["Elu", "Selu", "Celu", "Softplus", "ThresholdedRelu"];
/// Operators that keep the layout of convolutions, in blocks of channels, if their inputs have it.
const KEEP_BLOCKS: [&str; 8] = [
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "BatchNormalization",
    "Concat",
    "Add",
    "Sum",
];
/// Dimensions of the results of convolutions of images: only these have a layout in blocks of channels.
const IMAGE: usize = 4;

/// What is known of the tensors of a graph.
pub(super) trait Facts {
    /// Extents of a tensor.
    fn extents(&self, tensor: &str) -> Option<&[f64]>;
    /// Whether it is the same for every request.
    fn is_constant(&self, tensor: &str) -> bool;
}

/// The merged operators of a graph.
#[derive(Debug, Default)]
pub(super) struct Merged {
    /// Indices of merged nodes.
    nodes: BTreeSet<usize>,
    /// Tensors that a node reads in addition to its own inputs, because of a sum that was merged into it.
    reads: BTreeMap<usize, Vec<String>>,
}

/// How far the chain of operators behind a node has come.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Only factors and addends of channels so far, which become part of the weights.
    Linear,
    /// The result of another operator was added.
    Summed,
}

struct Graph<'a, F> {
    nodes: &'a [NodeProto],
    facts: &'a F,
    /// How often a tensor is read, outputs of the model and subgraphs included.
    uses: BTreeMap<&'a str, usize>,
    /// A node that reads a tensor.
    readers: BTreeMap<&'a str, usize>,
    makers: BTreeMap<&'a str, usize>,
    /// Tensors in blocks of channels.
    blocked: BTreeSet<&'a str>,
}

impl Merged {
    pub(super) fn of(graph: &GraphProto, facts: &impl Facts) -> Self {
        let graph = Graph::new(graph, facts);
        let mut merged = Self::default();
        for (at, node) in graph.nodes.iter().enumerate() {
            if !merged.nodes.contains(&at) {
                merged.follow(&graph, at);
            }
            if node.op_type == "LayerNormalization" {
                merged.precede(&graph, at);
            }
        }
        merged
    }

    /// Whether a node is computed in the pass of another one.
    pub(super) fn contains(&self, node: usize) -> bool {
        self.nodes.contains(&node)
    }

    /// Tensors that a node reads for others that were merged into it.
    pub(super) fn reads(&self, node: usize) -> &[String] {
        self.reads.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Merges what follows a node.
    fn follow<F: Facts>(&mut self, graph: &Graph<'_, F>, host: usize) {
        let (mut last, mut stage) = (host, Some(Stage::Linear));
        while let Some(now) = stage {
            let Some(next) = graph.only_reader(last).filter(|next| !self.nodes.contains(next)) else {
                return;
            };
            let Some((after, read)) = graph.merges(host, last, next, now) else { return };
            self.nodes.insert(next);
            self.reads.entry(host).or_default().extend(read);
            (last, stage) = (next, after);
        }
    }

    /// Merges the sum in front of a normalisation of layers, and a bias that is added in front of it.
    fn precede<F: Facts>(&mut self, graph: &Graph<'_, F>, host: usize) {
        let Some(sum) = graph.maker(host, 0).filter(|sum| !self.nodes.contains(sum)) else { return };
        let [one, other] = graph.inputs(sum) else { return };
        let is_tensor = |name: &str| !graph.facts.is_constant(name);
        if !(graph.is(sum, "Add") && graph.has_same_extents(one, other) && is_tensor(one) && is_tensor(other))
        {
            return;
        }
        self.nodes.insert(sum);
        self.reads.entry(host).or_default().push(other.clone());
        let bias = (0..2).filter_map(|at| graph.maker(sum, at)).find(|bias| {
            graph.is(*bias, "Add") && graph.inputs(*bias).iter().any(|name| graph.facts.is_constant(name))
        });
        self.nodes.extend(bias);
    }
}

impl<'a, F: Facts> Graph<'a, F> {
    fn new(graph: &'a GraphProto, facts: &'a F) -> Self {
        let mut found = Self {
            nodes: &graph.node,
            facts,
            uses: BTreeMap::new(),
            readers: BTreeMap::new(),
            makers: BTreeMap::new(),
            blocked: BTreeSet::new(),
        };
        let mut open = vec![graph];
        while let Some(graph) = open.pop() {
            let outputs = graph.output.iter().map(|output| &output.name);
            for name in graph.node.iter().flat_map(|node| &node.input).chain(outputs) {
                *found.uses.entry(name).or_default() += 1;
            }
            open.extend(graph.node.iter().flat_map(subgraphs));
        }
        for (at, node) in found.nodes.iter().enumerate() {
            found.readers.extend(node.input.iter().map(|name| (name.as_str(), at)));
            found.makers.extend(node.output.iter().map(|name| (name.as_str(), at)));
            let mut tensors = node.input.iter().filter(|name| !facts.is_constant(name));
            let is_kept =
                KEEP_BLOCKS.contains(&node.op_type.as_str()) || ACTIVATIONS.contains(&node.op_type.as_str());
            if found.is_convolution_of_images(at)
                || is_kept && tensors.all(|name| found.blocked.contains(name.as_str()))
            {
                found.blocked.extend(node.output.iter().map(String::as_str));
            }
        }
        found
    }

    fn is(&self, node: usize, operator: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| node.op_type == operator)
    }

    fn inputs(&self, node: usize) -> &'a [String] {
        self.nodes.get(node).map_or(&[], |node| node.input.as_slice())
    }

    /// The result of a node that has only one.
    fn output(&self, node: usize) -> Option<&'a str> {
        let mut outputs = self.nodes.get(node)?.output.iter().filter(|name| !name.is_empty());
        let first = outputs.next()?.as_str();
        outputs.next().is_none().then_some(first)
    }

    fn only_reader(&self, node: usize) -> Option<usize> {
        let output = self.output(node)?;
        let is_single = self.uses.get(output) == Some(&1);
        self.readers.get(output).copied().filter(|_| is_single)
    }

    /// The node that makes an input, if nothing else reads it.
    fn maker(&self, node: usize, at: usize) -> Option<usize> {
        let input = self.inputs(node).get(at)?.as_str();
        let is_single = self.uses.get(input) == Some(&1);
        self.makers.get(input).copied().filter(|_| is_single)
    }

    fn rank(&self, tensor: &str) -> Option<usize> {
        self.facts.extents(tensor).map(<[f64]>::len)
    }

    fn has_same_extents(&self, one: &str, other: &str) -> bool {
        self.facts.extents(one).is_some_and(|extents| self.facts.extents(other) == Some(extents))
    }

    fn is_convolution_of_images(&self, node: usize) -> bool {
        self.is(node, "Conv") && self.output(node).and_then(|name| self.rank(name)) == Some(IMAGE)
    }

    /// Whether all inputs of a node are constants, without those that are listed.
    fn is_constant_but(&self, node: usize, but: &str) -> bool {
        self.inputs(node).iter().all(|name| name == but || name.is_empty() || self.facts.is_constant(name))
    }

    /// Whether a node adds or multiplies a value for each channel, or for all.
    fn scales_channels(&self, node: usize, tensor: &str) -> bool {
        let rank = self.rank(tensor).unwrap_or(0);
        let is_of_channels = |extents: &[f64]| {
            let after = extents.len().checked_sub(rank.saturating_sub(1));
            after.is_some_and(|channel| {
                extents.iter().enumerate().all(|(axis, extent)| axis == channel || *extent <= 1.0)
            })
        };
        let mut others = self.inputs(node).iter().filter(|name| *name != tensor);
        self.is_constant_but(node, tensor)
            && others.all(|name| self.facts.extents(name).is_some_and(is_of_channels))
    }

    /// If a node merges the one that reads its result: how the chain may go on, and a tensor that is read in addition.
    fn merges(
        &self,
        host: usize,
        last: usize,
        next: usize,
        stage: Stage,
    ) -> Option<(Option<Stage>, Option<String>)> {
        let (operator, tensor) = (self.nodes.get(next)?.op_type.as_str(), self.output(last)?);
        let is_first = host == last;
        let is_normalised = operator == "BatchNormalization" && self.is_constant_but(next, tensor);
        let is_activated = ACTIVATIONS.contains(&operator) && self.is_constant_but(next, tensor);
        let (goes_on, ends) = (Some((Some(Stage::Linear), None)), Some((None, None)));
        match self.nodes.get(host)?.op_type.as_str() {
            "Conv" if is_activated => ends,
            "Conv" if stage == Stage::Linear && is_normalised => goes_on,
            "Conv" if stage == Stage::Linear && matches!(operator, "Mul" | "Add") => {
                if self.scales_channels(next, tensor) { goes_on } else { self.sums(next, tensor) }
            }
            "Conv" if stage == Stage::Linear && operator == "Sum" => self.sums(next, tensor),
            "BatchNormalization" if is_activated && self.blocked.contains(tensor) => ends,
            "ConvTranspose" if is_first && is_normalised => ends,
            "MatMul" if is_first && is_normalised => ends,
            "MatMul" if is_first && operator == "Add" && self.rank(tensor) == Some(2) => {
                if self.is_constant_but(next, tensor) { goes_on } else { None }
            }
            "MatMul" if is_first => None,
            "Gemm" | "MatMul" if is_activated || ACTIVATIONS_OF_PRODUCTS.contains(&operator) => ends,
            // x * sigmoid(x)
            "Sigmoid" if is_first && operator == "Mul" => {
                let own = self.inputs(host).first()?;
                if self.inputs(next).contains(own) { ends } else { None }
            }
            _ => None,
        }
    }

    /// A sum with the result of another operator, in blocks of channels as well.
    fn sums(&self, node: usize, tensor: &str) -> Option<(Option<Stage>, Option<String>)> {
        let [one, other] = self.inputs(node) else { return None };
        let other = if one == tensor { other } else { one };
        let is_sum = self.is(node, "Add") || self.is(node, "Sum");
        let is_alike = self.has_same_extents(tensor, other);
        (is_sum && is_alike && self.blocked.contains(tensor) && self.blocked.contains(other.as_str()))
            .then(|| (Some(Stage::Summed), Some(other.clone())))
    }
}
