//! A decoded file as a graph that can be split.

use std::collections::BTreeSet;

use model_split::{Description, Node};
use tract_onnx::pb;

/// Operators that give other values each time.
const RANDOM: [&str; 7] = [
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
    "Dropout",
];

/// Operator sets whose operators are known to have no state.
const STATELESS_DOMAINS: [&str; 4] = ["", "ai.onnx", "ai.onnx.ml", "com.microsoft"];

/// ONNX's number for an attribute that is one type. The decoder does not keep it.
const TYPE_ATTRIBUTE: i32 = 13;

/// Finds what a stage would lose: the part of the file, and what would be right.
pub(super) fn check(proto: &pb::ModelProto, body: &pb::GraphProto) -> Result<(), (String, String)> {
    if let Some(function) = proto.functions.first() {
        let name = function.name.as_deref().unwrap_or_default();
        return Err((
            format!("function `{name}`"),
            "functions of a model are not split: expected a file without them, as \
             `onnx.inliner.inline_local_functions` makes it"
                .to_owned(),
        ));
    }
    if !proto.training_info.is_empty() {
        let reason = "a model for training is not split: expected one for inference".to_owned();
        return Err(("training_info".to_owned(), reason));
    }
    let has_lists = body.node.iter().any(makes_lists);
    body.node
        .iter()
        .enumerate()
        .try_for_each(|(index, node)| check_node(node, &label(index, node), has_lists))
}

/// Whether a node, or one in its subgraphs, makes sequences or optional values. Types of these are not kept.
fn makes_lists(node: &pb::NodeProto) -> bool {
    let operator = node.op_type.as_str();
    operator.starts_with("Sequence")
        || operator.starts_with("Optional")
        || operator == "SplitToSequence"
        || subgraphs(node).any(|graph| graph.node.iter().any(makes_lists))
}

fn check_node(node: &pb::NodeProto, name: &str, has_lists: bool) -> Result<(), (String, String)> {
    for attribute in &node.attribute {
        if attribute.r#type == TYPE_ATTRIBUTE {
            let reason = format!("attribute `{}` is a type, which a stage would lose", attribute.name);
            return Err((format!("node `{name}`"), format!("{reason}: expected tensors only")));
        }
        for graph in attribute.g.iter().chain(&attribute.graphs) {
            let mut ends = graph.input.iter().chain(&graph.output);
            let untyped =
                |info: &&pb::ValueInfoProto| info.r#type.as_ref().is_some_and(|of| of.value.is_none());
            let other = ends.find(|info| has_lists && untyped(info));
            if let Some(info) = other {
                let reason =
                    format!("`{}` of its subgraph is not a tensor: expected tensors only", info.name);
                return Err((format!("node `{name}`"), reason));
            }
            graph.node.iter().try_for_each(|inner| check_node(inner, name, has_lists))?;
        }
    }
    Ok(())
}

/// The graph. Captured tensors of subgraphs count as read by the node that has the subgraph.
pub(super) fn describe(body: &pb::GraphProto, inputs: Vec<String>, outputs: Vec<String>) -> Description {
    let nodes = body.node.iter().enumerate().map(|(index, node)| {
        let mut reads = node.input.clone();
        let mut captured = BTreeSet::new();
        subgraphs(node).for_each(|graph| capture(graph, &BTreeSet::new(), &mut captured));
        reads.extend(captured);
        Node {
            name: label(index, node),
            reads,
            writes: node.output.clone(),
            repeatable: is_repeatable(node),
            shape_only: is_shape_only(node),
        }
    });
    Description { nodes: nodes.collect(), inputs, outputs, constants: constants(body) }
}

/// Names of constants in the file, dense and sparse.
fn constants(body: &pb::GraphProto) -> Vec<String> {
    let dense = body.initializer.iter().map(|tensor| tensor.name.clone());
    dense.chain(body.sparse_initializer.iter().filter_map(sparse_name)).collect()
}

/// The name of a sparse constant is that of its values.
pub(super) fn sparse_name(tensor: &pb::SparseTensorProto) -> Option<String> {
    tensor.values.as_ref().map(|values| values.name.clone())
}

fn label(index: usize, node: &pb::NodeProto) -> String {
    let name = if node.name.is_empty() { node.output.first() } else { Some(&node.name) };
    match name.filter(|name| !name.is_empty()) {
        Some(name) => format!("{name} ({})", node.op_type),
        None => format!("{} number {index}", node.op_type),
    }
}

/// Subgraphs of a node, as `If` and `Loop` have them.
fn subgraphs(node: &pb::NodeProto) -> impl Iterator<Item = &pb::GraphProto> {
    node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
}

fn is_repeatable(node: &pb::NodeProto) -> bool {
    STATELESS_DOMAINS.contains(&node.domain.as_str())
        && !RANDOM.contains(&node.op_type.as_str())
        && subgraphs(node).all(|graph| graph.node.iter().all(is_repeatable))
}

fn is_shape_only(node: &pb::NodeProto) -> bool {
    matches!(node.domain.as_str(), "" | "ai.onnx") && matches!(node.op_type.as_str(), "Shape" | "Size")
}

/// Finds names that a subgraph uses and does not define, directly or in subgraphs of its nodes.
fn capture(graph: &pb::GraphProto, around: &BTreeSet<String>, captured: &mut BTreeSet<String>) {
    let mut own = around.clone();
    own.extend(graph.input.iter().map(|info| info.name.clone()));
    own.extend(constants(graph));
    for node in &graph.node {
        captured.extend(node.input.iter().filter(|name| !name.is_empty() && !own.contains(*name)).cloned());
        subgraphs(node).for_each(|inner| capture(inner, &own, captured));
        own.extend(node.output.iter().cloned());
    }
    captured.extend(graph.output.iter().map(|info| info.name.clone()).filter(|name| !own.contains(name)));
}
