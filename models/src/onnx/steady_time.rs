//! Whether a graph takes as long for one request as for any other of its shape.

use bytes::Bytes;

use super::Graph;
use crate::{ModelFiles, Signature};

/// The largest file that is decoded again to find out. Models that take microseconds have few weights.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Operators whose work depends on the shapes of their inputs alone.
const STEADY: &[&str] = &[
    "Abs",
    "Add",
    "And",
    "ArgMax",
    "ArgMin",
    "AveragePool",
    "BatchNormalization",
    "Cast",
    "Ceil",
    "Clip",
    "Concat",
    "Constant",
    "Conv",
    "DequantizeLinear",
    "Div",
    "Dropout",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Flatten",
    "Floor",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "InstanceNormalization",
    "LayerNormalization",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "LogSoftmax",
    "MatMul",
    "Max",
    "MaxPool",
    "Mean",
    "Min",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "QuantizeLinear",
    "Reciprocal",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceSum",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Softmax",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Tanh",
    "Transpose",
    "Where",
    "Xor",
];
/// The domain of ONNX's own operators: its two names.
const STANDARD: &[&str] = &["", "ai.onnx"];

/// Whether batches of as many bytes always take about as long, whatever values a client sends: the model is small, its inputs
/// have fixed extents, and each operator is known to do the same work for all values. Of other models it is not known.
pub(crate) fn has_steady_time(
    files: &ModelFiles,
    bytes: &Bytes,
    graph: Option<&Graph>,
    signature: &Signature,
) -> bool {
    if bytes.len() > FILE_BYTES_MAX || !signature.has_fixed_inputs() {
        return false;
    }
    match graph {
        Some(graph) => is_steady(graph),
        None => Graph::decode(files).is_ok_and(|graph| is_steady(&graph)),
    }
}

fn is_steady(graph: &Graph) -> bool {
    let Some(body) = &graph.proto.graph else { return false };
    let steady = |node: &tract_onnx::pb::NodeProto| {
        STANDARD.contains(&node.domain.as_str()) && STEADY.contains(&node.op_type.as_str())
    };
    graph.proto.functions.is_empty() && body.node.iter().all(steady)
}

#[cfg(test)]
mod tests {
    use tract_onnx::pb::tensor_proto::DataType::Float;

    use super::*;
    use crate::onnx::fixture::{Builder, D};
    use crate::{Dim, TensorSpec};

    /// Whether a model of one operator, from x to y, has a steady time; with its graph and without.
    fn steady(operator: &str, dims: Vec<Dim>) -> bool {
        let row = [D::S("N"), D::N(4)];
        let built = Builder::default().input("x", Float, &row).node(operator, &["x"], &["y"]);
        let files = built.output("y", Float, &row).files();
        let graph = Graph::decode(&files).unwrap();
        let tensor = |name: &str| TensorSpec {
            name: name.to_owned(),
            datatype: oip::Datatype::Fp32,
            dims: dims.clone(),
            optional: false,
        };
        let signature = Signature { inputs: vec![tensor("x")], outputs: vec![tensor("y")], max_batch: 8 };
        let found = has_steady_time(&files, &files.bytes, Some(&graph), &signature);
        assert_eq!(found, has_steady_time(&files, &files.bytes, None, &signature));
        found
    }

    #[test]
    fn no_value_makes_a_plain_model_of_fixed_extents_slower() {
        assert!(steady("Relu", vec![Dim::Free, Dim::Fixed(4)]));
    }

    #[test]
    fn loops_work_that_values_decide_unknown_operators_and_free_extents_may() {
        for operator in ["Loop", "Scan", "If", "Expand", "Range", "RoiAlign", "Resize", "Unknown"] {
            assert!(!steady(operator, vec![Dim::Free, Dim::Fixed(4)]), "{operator}");
        }
        assert!(!steady("Relu", vec![Dim::Free, Dim::Free]));
    }
}
