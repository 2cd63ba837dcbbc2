//! A model with large weights.

use models::{Format, ModelFiles, ModelName, Version};
use prost::Message;
use tract_onnx::pb;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension::Value as Extent};

const FLOAT: i32 = pb::tensor_proto::DataType::Float as i32;

/// Two dense layers of `width` times `width` floats each, whose weights the runtime packs. Takes any number of rows.
pub fn layers(width: usize) -> ModelFiles {
    let info = |name: &str| {
        let dims = [Extent::DimParam("batch".into()), Extent::DimValue(width as i64)];
        let dim = dims.map(|value| Dimension { value: Some(value), ..Default::default() }).to_vec();
        let tensor = pb::type_proto::Tensor { elem_type: FLOAT, shape: Some(pb::TensorShapeProto { dim }) };
        let value = Some(pb::type_proto::Value::TensorType(tensor));
        let r#type = Some(pb::TypeProto { value, ..Default::default() });
        pb::ValueInfoProto { name: name.into(), r#type, ..Default::default() }
    };
    let weights = |name: &str, prime: usize| pb::TensorProto {
        name: name.into(),
        dims: vec![width as i64; 2],
        data_type: FLOAT,
        raw_data: (0..width * width)
            .flat_map(|index| ((index % prime) as f32 / prime as f32 - 0.5).to_le_bytes())
            .collect(),
        ..Default::default()
    };
    let node = |operator: &str, inputs: &[&str], output: &str| pb::NodeProto {
        op_type: operator.into(),
        name: output.into(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: vec![output.into()],
        ..Default::default()
    };
    let graph = pb::GraphProto {
        name: "dense".into(),
        input: vec![info("x")],
        output: vec![info("y")],
        initializer: vec![weights("v", 97), weights("w", 89)],
        node: vec![
            node("MatMul", &["x", "v"], "hidden"),
            node("Relu", &["hidden"], "rectified"),
            node("MatMul", &["rectified", "w"], "y"),
        ],
        ..Default::default()
    };
    let model = pb::ModelProto {
        ir_version: 8,
        opset_import: vec![pb::OperatorSetIdProto { version: 17, ..Default::default() }],
        graph: Some(graph),
        ..Default::default()
    };
    ModelFiles::from_bytes(ModelName::new("dense").unwrap(), Version(1), Format::Onnx, model.encode_to_vec())
}
