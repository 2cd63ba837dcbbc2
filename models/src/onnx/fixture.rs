//! Small ONNX files, made where a test needs them.

use prost::Message;
use tract_onnx::pb;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::Dimension;
use tract_onnx::pb::tensor_shape_proto::dimension::Value as DimValue;
use tract_onnx::pb::type_proto::Value as TypeValue;

use crate::{Format, ModelFiles, ModelName, Version};

/// A graph under construction.
#[derive(Clone, Default)]
pub(crate) struct Builder {
    graph: pb::GraphProto,
}

/// A dimension: negative is free and unnamed, a name is a symbol.
#[derive(Clone, Copy)]
pub(crate) enum D {
    N(i64),
    S(&'static str),
}

impl Builder {
    pub(crate) fn input(mut self, name: &str, element: DataType, dims: &[D]) -> Self {
        self.graph.input.push(info(name, element, dims));
        self
    }

    pub(crate) fn output(mut self, name: &str, element: DataType, dims: &[D]) -> Self {
        self.graph.output.push(info(name, element, dims));
        self
    }

    pub(crate) fn node(mut self, operator: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        self.graph.node.push(pb::NodeProto {
            op_type: operator.to_owned(),
            name: format!("{operator}_{}", self.graph.node.len()),
            input: inputs.iter().map(ToString::to_string).collect(),
            output: outputs.iter().map(ToString::to_string).collect(),
            ..Default::default()
        });
        self
    }

    /// Gives the last node a whole-number attribute.
    pub(crate) fn attribute(mut self, name: &str, value: i64) -> Self {
        let attribute = pb::AttributeProto {
            name: name.to_owned(),
            i: value,
            r#type: pb::attribute_proto::AttributeType::Int as i32,
            ..Default::default()
        };
        self.graph.node.last_mut().unwrap().attribute.push(attribute);
        self
    }

    /// Gives a node an attribute of whole numbers.
    pub(crate) fn ints(mut self, name: &str, node: usize, values: &[i64]) -> Self {
        let attribute = pb::AttributeProto {
            name: name.to_owned(),
            ints: values.to_vec(),
            r#type: pb::attribute_proto::AttributeType::Ints as i32,
            ..Default::default()
        };
        self.graph.node[node].attribute.push(attribute);
        self
    }

    pub(crate) fn without_output(mut self, name: &str) -> Self {
        self.graph.output.retain(|output| output.name != name);
        self
    }

    /// Gives the last node a graph.
    pub(crate) fn subgraph(mut self, name: &str, inner: Self) -> Self {
        let attribute = pb::AttributeProto {
            name: name.to_owned(),
            g: Some(inner.graph),
            r#type: pb::attribute_proto::AttributeType::Graph as i32,
            ..Default::default()
        };
        self.graph.node.last_mut().unwrap().attribute.push(attribute);
        self
    }

    pub(crate) fn floats(mut self, name: &str, dims: &[i64], values: &[f32]) -> Self {
        self.graph.initializer.push(pb::TensorProto {
            name: name.to_owned(),
            dims: dims.to_vec(),
            data_type: DataType::Float as i32,
            raw_data: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            ..Default::default()
        });
        self
    }

    pub(crate) fn whole(mut self, name: &str, values: &[i64]) -> Self {
        self.graph.initializer.push(pb::TensorProto {
            name: name.to_owned(),
            dims: vec![values.len() as i64],
            data_type: DataType::Int64 as i32,
            int64_data: values.to_vec(),
            ..Default::default()
        });
        self
    }

    /// Moves the data of an initializer to `location`.
    pub(crate) fn external(mut self, name: &str, location: &str) -> (Self, Vec<u8>) {
        let tensor = self.graph.initializer.iter_mut().find(|t| t.name == name).unwrap();
        let data = std::mem::take(&mut tensor.raw_data);
        let entry = |key: &str, value: String| pb::StringStringEntryProto { key: key.to_owned(), value };
        tensor.external_data =
            vec![entry("location", location.to_owned()), entry("length", data.len().to_string())];
        tensor.data_location = Some(pb::tensor_proto::DataLocation::External as i32);
        (self, data)
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut graph = self.graph;
        graph.name = "made".to_owned();
        pb::ModelProto {
            ir_version: 8,
            opset_import: vec![pb::OperatorSetIdProto { domain: String::new(), version: 17 }],
            graph: Some(graph),
            ..Default::default()
        }
        .encode_to_vec()
    }

    pub(crate) fn files(self) -> ModelFiles {
        ModelFiles::from_bytes(ModelName::new("made").unwrap(), Version(1), Format::Onnx, self.bytes())
    }
}

/// `y = x w` with `x` f32[batch,3], `w` f32[3,2]; the batch free or fixed.
pub(crate) fn matmul(batch: D) -> Builder {
    Builder::default()
        .input("x", DataType::Float, &[batch, D::N(3)])
        .output("y", DataType::Float, &[batch, D::N(2)])
        .floats("w", &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        .node("MatMul", &["x", "w"], &["y"])
}

fn info(name: &str, element: DataType, dims: &[D]) -> pb::ValueInfoProto {
    let dims = dims.iter().map(|dim| Dimension {
        value: match dim {
            D::N(extent) if *extent < 0 => None,
            D::N(extent) => Some(DimValue::DimValue(*extent)),
            D::S(name) => Some(DimValue::DimParam((*name).to_owned())),
        },
        ..Default::default()
    });
    let shape = Some(pb::TensorShapeProto { dim: dims.collect() });
    let value = Some(TypeValue::TensorType(pb::type_proto::Tensor { elem_type: element as i32, shape }));
    pb::ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(pb::TypeProto { value, ..Default::default() }),
        ..Default::default()
    }
}
