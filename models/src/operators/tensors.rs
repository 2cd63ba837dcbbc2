//! Shapes of the tensors of a graph, and the work of each of its operators.

use std::collections::{BTreeMap, BTreeSet};

use tract_onnx::pb;

use super::branches::DEPTH_MAX;
use super::merged::{Facts, Merged};
use super::{OperatorWork, subgraphs};
use crate::onnx::{self, GraphDim, TensorType};

/// What is known of the tensors of a graph.
pub(super) struct Tensors {
    shapes: BTreeMap<String, Shape>,
    /// Tensors that are the same for every request.
    constants: BTreeSet<String>,
}

#[derive(Clone)]
struct Shape {
    extents: Vec<f64>,
    element_bytes: f64,
}

impl Shape {
    fn elements(&self) -> f64 {
        self.extents.iter().product()
    }

    fn bytes(&self) -> f64 {
        self.elements() * self.element_bytes
    }

    fn extent(&self, axis: usize) -> f64 {
        self.extents.get(axis).copied().unwrap_or(1.0)
    }
}

/// Bytes of an element; 4 for types without a fixed size.
fn element_bytes(element: i32) -> f64 {
    let size = onnx::datatype(element).ok().and_then(|datatype| datatype.size());
    size.map_or(4.0, |bytes| bytes as f64)
}

impl Tensors {
    pub(super) fn new(
        proto: &pb::ModelProto,
        inputs: &BTreeMap<String, Vec<u64>>,
        inferred: BTreeMap<String, TensorType>,
    ) -> Self {
        let extent = |dim: &GraphDim| match dim {
            GraphDim::Fixed(fixed) => *fixed as f64,
            // What depends on values counts as one.
            GraphDim::Symbol(_) | GraphDim::Unnamed => 1.0,
        };
        let mut shapes: BTreeMap<String, Shape> = inferred
            .into_iter()
            .map(|(name, of)| {
                (
                    name,
                    Shape {
                        extents: of.dims.iter().map(extent).collect(),
                        element_bytes: element_bytes(of.element),
                    },
                )
            })
            .collect();
        let mut constants = BTreeSet::new();
        let Some(body) = &proto.graph else { return Self { shapes, constants } };
        for info in &body.input {
            let (Some(row), Some(element)) = (inputs.get(&info.name), onnx::element(info)) else { continue };
            let extents = row.iter().map(|extent| *extent as f64).collect();
            shapes.insert(info.name.clone(), Shape { extents, element_bytes: element_bytes(element) });
        }
        for tensor in &body.initializer {
            let extents = tensor.dims.iter().map(|extent| *extent as f64).collect();
            shapes.insert(
                tensor.name.clone(),
                Shape { extents, element_bytes: element_bytes(tensor.data_type) },
            );
            constants.insert(tensor.name.clone());
        }
        for node in &body.node {
            let mut reads = node.input.iter().filter(|name| !name.is_empty());
            if subgraphs(node).next().is_none() && reads.all(|name| constants.contains(name)) {
                constants.extend(node.output.iter().cloned());
            }
        }
        Self { shapes, constants }
    }

    /// The work of the operators that run for each batch. Engines compute what depends on constants only once, when they load a model, and
    /// leave out what passes a tensor on.
    pub(super) fn operators(&self, proto: &pb::ModelProto) -> Vec<OperatorWork> {
        let mut found = Vec::new();
        let Some(graph) = &proto.graph else { return found };
        let merged = Merged::of(graph, self);
        for (at, node) in graph.node.iter().enumerate() {
            let is_constant = node.output.iter().all(|name| self.constants.contains(name));
            if is_constant || merged.contains(at) || PASS_ON.contains(&node.op_type.as_str()) {
                continue;
            }
            let mut work = self.operator(node);
            work.activation_bytes += self.bytes(merged.reads(at));
            found.push(work);
            subgraphs(node).take(1).for_each(|graph| without_work(graph, &mut found));
        }
        found
    }

    fn bytes(&self, names: &[String]) -> f64 {
        names.iter().filter_map(|name| self.shapes.get(name)).map(Shape::bytes).sum()
    }

    fn operator(&self, node: &pb::NodeProto) -> OperatorWork {
        let shape = |name: &String| self.shapes.get(name);
        let bytes = |is_constant: bool| -> f64 {
            let reads = node.input.iter().filter(|name| self.constants.contains(*name) == is_constant);
            reads.filter_map(shape).map(Shape::bytes).sum()
        };
        let made: f64 = node.output.iter().filter_map(shape).map(Shape::bytes).sum();
        // Convolutions are computed image by image.
        let passes = match self.kernel(node) {
            Some(_) => self.input(node, 0).map_or(1.0, |images| images.extent(0)),
            None => 1.0,
        };
        let is_view = VIEWS.contains(&node.op_type.as_str());
        OperatorWork {
            operator: node.op_type.clone(),
            is_depthwise: self.is_depthwise(node),
            macs: self.macs(node).unwrap_or(0.0),
            weight_bytes: if is_view { 0.0 } else { passes * bytes(true) },
            activation_bytes: if is_view { 0.0 } else { bytes(false) + made },
            width: node.output.iter().filter_map(shape).map(Shape::elements).sum(),
        }
    }

    fn input(&self, node: &pb::NodeProto, at: usize) -> Option<&Shape> {
        self.shapes.get(node.input.get(at)?)
    }

    /// The weights of a convolution.
    fn kernel(&self, node: &pb::NodeProto) -> Option<&Shape> {
        match node.op_type.as_str() {
            "Conv" | "ConvInteger" | "FusedConv" | "ConvTranspose" => self.input(node, 1),
            "QLinearConv" => self.input(node, 3),
            _ => None,
        }
    }

    fn is_depthwise(&self, node: &pb::NodeProto) -> bool {
        let groups =
            node.attribute.iter().find(|attribute| attribute.name == "group").map_or(1, |group| group.i);
        groups > 1 && self.kernel(node).is_some_and(|kernel| kernel.extent(1) <= 1.0)
    }

    /// Multiply-accumulate operations; `None` if the operator has none, or if its shapes are not known.
    fn macs(&self, node: &pb::NodeProto) -> Option<f64> {
        let made = self.shapes.get(node.output.first()?)?;
        if let Some(kernel) = self.kernel(node) {
            let each = kernel.elements() / kernel.extent(0).max(1.0);
            // A transposed convolution spreads each element of its input, a convolution gathers each of its output.
            let is_transposed = node.op_type == "ConvTranspose";
            return Some(
                each * if is_transposed { self.input(node, 0)?.elements() } else { made.elements() },
            );
        }
        match node.op_type.as_str() {
            "MatMul"
            | "MatMulInteger"
            | "QLinearMatMul"
            | "FusedMatMul"
            | "DynamicQuantizeMatMul"
            | "MatMulNBits" => Some(made.elements() * self.input(node, 0)?.extents.last()?),
            "Gemm" | "FusedGemm" | "QGemm" => {
                let is_transposed =
                    node.attribute.iter().any(|attribute| attribute.name == "transA" && attribute.i != 0);
                Some(made.elements() * self.input(node, 0)?.extent(usize::from(!is_transposed)))
            }
            "LSTM" | "GRU" | "RNN" => {
                let steps = self.input(node, 0)?;
                let weights = self.input(node, 1)?.elements() + self.input(node, 2)?.elements();
                Some(steps.extent(0) * steps.extent(1) * weights)
            }
            _ => None,
        }
    }
}

impl Facts for Tensors {
    fn extents(&self, tensor: &str) -> Option<&[f64]> {
        self.shapes.get(tensor).map(|shape| shape.extents.as_slice())
    }

    fn is_constant(&self, tensor: &str) -> bool {
        self.constants.contains(tensor)
    }
}

/// Operators that give what they get.
const PASS_ON: [&str; 2] = ["Identity", "Dropout"];

/// Operators that change shapes only, without touching elements.
const VIEWS: [&str; 6] = ["Reshape", "Squeeze", "Unsqueeze", "Flatten", "Shape", "Size"];

fn without_work(graph: &pb::GraphProto, found: &mut Vec<OperatorWork>) {
    let mut open: Vec<(&pb::GraphProto, usize)> = vec![(graph, 1)];
    while let Some((graph, depth)) = open.pop() {
        for node in &graph.node {
            found.push(OperatorWork {
                operator: node.op_type.clone(),
                is_depthwise: false,
                macs: 0.0,
                weight_bytes: 0.0,
                activation_bytes: 0.0,
                width: 1.0,
            });
            if depth < DEPTH_MAX {
                open.extend(subgraphs(node).take(1).map(|inner| (inner, depth + 1)));
            }
        }
    }
}
