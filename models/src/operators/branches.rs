//! Conditions (`If`) with one of their branches in their place, so that the operators of the branch have shapes.

use std::collections::{BTreeMap, BTreeSet};

use tract_onnx::pb::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};

use super::subgraphs;
use crate::onnx::{GraphDim, TensorType};

type Types = BTreeMap<String, TensorType>;

/// Largest number of branches that are tried: each has the shapes of the whole model inferred. Later conditions stay as they are.
const TRIALS_MAX: usize = 32;
/// Largest depth of subgraphs; deeper ones are left out.
pub(super) const DEPTH_MAX: usize = 16;

/// Replaces conditions by branches. The value of a condition is not known, so its branch is the one with most operators, of those whose
/// shapes are consistent with the rest of the model and with what was inferred of the condition.
pub(super) fn unfolded(
    mut model: ModelProto,
    mut types: Types,
    infer: impl Fn(&ModelProto) -> Result<Types, String>,
) -> (ModelProto, Types) {
    let mut trials = TRIALS_MAX;
    let mut kept = BTreeSet::new();
    loop {
        let nodes = model.graph.as_ref().map_or(&[][..], |graph| &graph.node);
        let is_open = |node: &NodeProto| node.op_type == "If" && !kept.contains(&node.output);
        let Some((at, node)) = nodes.iter().enumerate().find(|(_, node)| is_open(node)) else { break };
        let mut branches: Vec<&GraphProto> = subgraphs(node).collect();
        branches.sort_by_key(|branch| std::cmp::Reverse(operators(branch, DEPTH_MAX)));
        let found = branches.into_iter().find_map(|branch| {
            trials = trials.checked_sub(1)?;
            let candidate = with_branch(&model, at, node, branch)?;
            let inferred = infer(&candidate).ok()?;
            let agree = |name: &String| agrees(types.get(name), inferred.get(name));
            node.output.iter().all(agree).then_some((candidate, inferred))
        });
        match found {
            Some((candidate, inferred)) => (model, types) = (candidate, inferred),
            None => {
                kept.insert(node.output.clone());
            }
        }
    }
    (model, types)
}

/// Number of operators, without constants.
fn operators(graph: &GraphProto, depth: usize) -> usize {
    let inner = |node: &NodeProto| match depth {
        0 => 0,
        _ => subgraphs(node).map(|graph| operators(graph, depth - 1)).max().unwrap_or(0),
    };
    let counted = graph.node.iter().filter(|node| node.op_type != "Constant");
    counted.map(|node| inner(node).saturating_add(1)).sum()
}

/// Whether a type is one that the condition may have. A type without dimensions may be of a number of dimensions that is not known.
fn agrees(condition: Option<&TensorType>, branch: Option<&TensorType>) -> bool {
    let (Some(condition), Some(branch)) = (condition, branch) else { return true };
    let is_possible = |(one, other): (&GraphDim, &GraphDim)| match (one, other) {
        (GraphDim::Fixed(one), GraphDim::Fixed(other)) => one == other,
        _ => true,
    };
    condition.dims.is_empty()
        || condition.dims.len() == branch.dims.len()
            && condition.dims.iter().zip(&branch.dims).all(is_possible)
}

/// The model with the operators of a branch in the place of a condition.
fn with_branch(model: &ModelProto, at: usize, node: &NodeProto, branch: &GraphProto) -> Option<ModelProto> {
    let prefix = node.output.iter().find(|name| !name.is_empty())?;
    let made = branch.node.iter().flat_map(|node| &node.output);
    let own = made.chain(branch.initializer.iter().map(|tensor| &tensor.name));
    let names: BTreeMap<&str, String> =
        own.filter(|name| !name.is_empty()).map(|name| (name.as_str(), format!("{prefix}/{name}"))).collect();
    let mut inside: Vec<NodeProto> =
        branch.node.iter().map(|node| renamed(node, &names, DEPTH_MAX)).collect();
    for (result, output) in branch.output.iter().zip(&node.output).filter(|(_, output)| !output.is_empty()) {
        inside.push(NodeProto {
            op_type: "Identity".to_owned(),
            input: vec![name_in(&names, &result.name)],
            output: vec![output.clone()],
            ..NodeProto::default()
        });
    }
    let mut candidate = model.clone();
    let graph = candidate.graph.as_mut()?;
    graph.node.splice(at..=at, inside);
    graph.initializer.extend(
        branch
            .initializer
            .iter()
            .map(|tensor| TensorProto { name: name_in(&names, &tensor.name), ..tensor.clone() }),
    );
    Some(candidate)
}

fn name_in(names: &BTreeMap<&str, String>, name: &str) -> String {
    names.get(name).cloned().unwrap_or_else(|| name.to_owned())
}

/// A node, and the nodes of its subgraphs, with other names of tensors.
fn renamed(node: &NodeProto, names: &BTreeMap<&str, String>, depth: usize) -> NodeProto {
    let all = |tensors: &[String]| tensors.iter().map(|name| name_in(names, name)).collect();
    let inside = |graph: &GraphProto| {
        let mut graph = graph.clone();
        if let Some(depth) = depth.checked_sub(1) {
            graph.node = graph.node.iter().map(|node| renamed(node, names, depth)).collect();
            for output in &mut graph.output {
                output.name = name_in(names, &output.name);
            }
        }
        graph
    };
    let attribute = |attribute: &AttributeProto| AttributeProto {
        g: attribute.g.as_ref().map(inside),
        graphs: attribute.graphs.iter().map(inside).collect(),
        ..attribute.clone()
    };
    NodeProto {
        // Names of nodes must be unique, and say nothing here.
        name: String::new(),
        input: all(&node.input),
        output: all(&node.output),
        attribute: node.attribute.iter().map(attribute).collect(),
        ..node.clone()
    }
}
