//! The operators of an ONNX model with the work of one row: what batch times are predicted from.
//!
//! Shapes are those that an engine infers, with the extents of one row at the inputs. Nothing runs.

use std::collections::{BTreeMap, BTreeSet};

use tract_onnx::pb;
use tract_onnx::pb::tensor_shape_proto::Dimension;
use tract_onnx::pb::tensor_shape_proto::dimension::Value as DimValue;

use crate::onnx::{self, GraphDim, TensorType};
use crate::sample::EXTENTS;
use crate::split::infer_types;
use crate::{Format, Loader, ModelFiles};

/// One operator that runs for each batch.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorWork {
    /// Name of the operator in ONNX, such as `Conv`.
    pub operator: String,
    /// Whether it is a convolution in which every output channel reads one input channel.
    pub is_depthwise: bool,
    /// Multiply-accumulate operations for one row.
    pub macs: f64,
    /// Bytes of constants that it reads.
    pub weight_bytes: f64,
    /// Bytes of other tensors that it reads and writes for one row.
    pub activation_bytes: f64,
    /// Elements of its outputs for one row.
    pub width: f64,
}

/// The operators of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operators {
    /// In the order of the file. Operators of subgraphs follow those that have them, without work: their shapes are not inferred.
    pub all: Vec<OperatorWork>,
    /// Extents of one row by input, for every input with free dimensions other than the batch.
    pub rows: BTreeMap<String, Vec<u64>>,
}

/// The operators of a model. `rows` has extents of one row by input, for inputs with free dimensions other than the batch; without them,
/// the first extents are used with which the graph is consistent. `is_batched` says whether the first dimension of inputs is the batch.
///
/// # Errors
/// The model is not an ONNX model, or no engine infers its shapes.
pub fn operators(
    loader: &Loader,
    files: &ModelFiles,
    rows: &BTreeMap<String, Vec<u64>>,
    is_batched: bool,
) -> Result<Operators, String> {
    if files.format != Format::Onnx {
        return Err(format!(
            "a {} model does not say its operators: expected an ONNX model",
            files.format.as_str()
        ));
    }
    let graph = onnx::Graph::decode(files).map_err(|error| error.to_string())?;
    onnx::check_external_data(files, &graph.proto).map_err(|error| error.to_string())?;
    let inputs = graph.inputs().map_err(|error| error.to_string())?;
    let skipped = usize::from(is_batched);
    let is_open = |input: &&onnx::GraphTensor| {
        input.dims.iter().skip(skipped).any(|dim| !matches!(dim, GraphDim::Fixed(_)))
    };
    let has_choice = inputs.iter().filter(is_open).any(|input| !rows.contains_key(&input.name));
    let mut reason = String::new();
    for extent in EXTENTS.into_iter().take(if has_choice { EXTENTS.len() } else { 1 }) {
        let shaped = |input: &onnx::GraphTensor| row_of(input, rows.get(&input.name), is_batched, extent);
        let shapes: BTreeMap<String, Vec<u64>> =
            inputs.iter().map(|input| (input.name.clone(), shaped(input))).collect();
        match infer_types(loader, files, &probe(&graph, &shapes)) {
            Ok(types) => {
                let open = inputs.iter().filter(is_open);
                let rows =
                    open.map(|input| (input.name.clone(), shaped(input).into_iter().skip(skipped).collect()));
                let all = Tensors::new(&graph.proto, &shapes, types).operators(&graph.proto);
                return Ok(Operators { all, rows: rows.collect() });
            }
            Err(error) => reason = error,
        }
    }
    Err(reason)
}

/// Extents of an input for one row. The first dimension of a row that was given may be the batch or not.
fn row_of(input: &onnx::GraphTensor, row: Option<&Vec<u64>>, is_batched: bool, extent: u64) -> Vec<u64> {
    let missing = row.map_or(0, |row| input.dims.len().saturating_sub(row.len()));
    let dims = input.dims.iter().enumerate();
    dims.map(|(axis, dim)| match (dim, row) {
        (GraphDim::Fixed(fixed), _) => *fixed,
        (_, Some(row)) => axis.checked_sub(missing).and_then(|axis| row.get(axis)).copied().unwrap_or(1),
        (_, None) if axis == 0 && is_batched => 1,
        (_, None) => extent,
    })
    .collect()
}

/// The model with these inputs, in which every tensor is an output.
fn probe(graph: &onnx::Graph, shaped: &BTreeMap<String, Vec<u64>>) -> pb::ModelProto {
    let mut proto = graph.proto.clone();
    if let Some(body) = &mut proto.graph {
        for info in &mut body.input {
            let (Some(row), Some(element)) = (shaped.get(&info.name), onnx::element(info)) else { continue };
            let dim = |extent: &u64| {
                let value = i64::try_from(*extent).ok().map(DimValue::DimValue);
                Dimension { value, ..Dimension::default() }
            };
            *info = TensorType::value_info(&info.name, element, row.iter().map(dim).collect());
        }
        body.value_info.clear();
        let made = body.node.iter().flat_map(|node| &node.output).filter(|name| !name.is_empty());
        body.output =
            made.map(|name| pb::ValueInfoProto { name: name.clone(), ..Default::default() }).collect();
    }
    proto
}

/// What is known of the tensors of a graph.
struct Tensors {
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
    fn new(
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

    fn operators(&self, proto: &pb::ModelProto) -> Vec<OperatorWork> {
        let mut found = Vec::new();
        let nodes = proto.graph.iter().flat_map(|body| &body.node);
        // Engines compute what depends on constants only once, when they load a model.
        for node in nodes.filter(|node| !node.output.iter().all(|name| self.constants.contains(name))) {
            found.push(self.operator(node));
            subgraphs(node).take(1).for_each(|graph| without_work(graph, &mut found));
        }
        found
    }

    fn operator(&self, node: &pb::NodeProto) -> OperatorWork {
        let shape = |name: &String| self.shapes.get(name);
        let bytes = |is_constant: bool| -> f64 {
            let reads = node.input.iter().filter(|name| self.constants.contains(*name) == is_constant);
            reads.filter_map(shape).map(Shape::bytes).sum()
        };
        let made: f64 = node.output.iter().filter_map(shape).map(Shape::bytes).sum();
        let is_view = VIEWS.contains(&node.op_type.as_str());
        OperatorWork {
            operator: node.op_type.clone(),
            is_depthwise: self.is_depthwise(node),
            macs: self.macs(node).unwrap_or(0.0),
            weight_bytes: if is_view { 0.0 } else { bytes(true) },
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

/// Operators that change shapes only, without touching elements.
const VIEWS: [&str; 8] =
    ["Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size", "Dropout"];

fn subgraphs(node: &pb::NodeProto) -> impl Iterator<Item = &pb::GraphProto> {
    node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
}

/// Largest depth of subgraphs; deeper ones are left out.
const DEPTH_MAX: usize = 16;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::fixture::{Builder, D, matmul};
    use tract_onnx::pb::tensor_proto::DataType;

    fn found(files: &ModelFiles, rows: &[(&str, &[u64])]) -> Vec<OperatorWork> {
        let rows = rows.iter().map(|(name, row)| ((*name).to_owned(), row.to_vec())).collect();
        operators(&Loader::without_ort(), files, &rows, true).unwrap().all
    }

    #[test]
    fn a_product_of_matrices_has_the_work_of_one_row() {
        for batch in [D::S("n"), D::N(-1), D::N(1)] {
            let [product] = found(&matmul(batch).files(), &[]).try_into().unwrap();
            assert_eq!((product.operator.as_str(), product.macs, product.width), ("MatMul", 6.0, 2.0));
            assert_eq!((product.weight_bytes, product.activation_bytes), (24.0, 20.0));
        }
    }

    fn convolution(channels: i64, groups: i64) -> Builder {
        let of_group = channels / groups;
        let weights = vec![0.5; usize::try_from(channels * of_group * 9).unwrap()];
        Builder::default()
            .input("x", DataType::Float, &[D::S("n"), D::N(channels), D::S("h"), D::S("w")])
            .output("y", DataType::Float, &[D::S("n"), D::N(channels), D::S("h2"), D::S("w2")])
            .floats("k", &[channels, of_group, 3, 3], &weights)
            .node("Conv", &["x", "k"], &["c"])
            .attribute("group", groups)
            .node("Relu", &["c"], &["y"])
    }

    #[test]
    fn convolutions_have_the_work_of_the_shapes_that_are_given() {
        let found_all = found(&convolution(4, 1).files(), &[("x", &[4, 10, 12])]);
        let [dense, relu] = found_all.as_slice() else { panic!("{found_all:?}") };
        let made = 4.0 * 8.0 * 10.0;
        assert_eq!((dense.macs, dense.width, dense.is_depthwise), (made * 36.0, made, false));
        assert_eq!((dense.weight_bytes, dense.activation_bytes), (4.0 * 144.0, 4.0 * (480.0 + made)));
        assert_eq!((relu.macs, relu.activation_bytes), (0.0, 8.0 * made));
        let single = found(&convolution(4, 4).files(), &[("x", &[1, 4, 10, 12])]);
        assert_eq!((single[0].macs, single[0].is_depthwise), (made * 9.0, true));
        let usual =
            operators(&Loader::without_ort(), &convolution(4, 1).files(), &BTreeMap::new(), true).unwrap();
        assert_eq!(usual.all[0].width, 4.0 * 30.0 * 30.0, "free extents are 32");
        assert_eq!(usual.rows, BTreeMap::from([("x".to_owned(), vec![4, 32, 32])]));
    }

    #[test]
    fn what_depends_on_constants_only_does_not_count() {
        let files = matmul(D::S("n"))
            .floats("b", &[2], &[1.0, 2.0])
            .node("Neg", &["b"], &["negative"])
            .node("Add", &["y", "negative"], &["z"])
            .output("z", DataType::Float, &[D::S("n"), D::N(2)])
            .files();
        let names: Vec<String> = found(&files, &[]).into_iter().map(|found| found.operator).collect();
        assert_eq!(names, ["MatMul", "Add"]);
    }

    #[test]
    fn other_formats_do_not_say_their_operators() {
        let mut files = matmul(D::S("n")).files();
        files.format = Format::Synthetic;
        let refusal = operators(&Loader::without_ort(), &files, &BTreeMap::new(), true).unwrap_err();
        assert!(refusal.contains("does not say its operators: expected an ONNX model"), "{refusal}");
    }
}
