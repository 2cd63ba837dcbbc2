//! An [`InferResponse`] to a `ModelInferResponse`.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::parameters::{region, to_proto};
use crate::InferResponse;
use crate::proto::ModelInferResponse;
use crate::proto::model_infer_response::InferOutputTensor;

/// Makes the message; data is moved into `raw_output_contents`.
///
/// There is one raw entry for every output: clients find an output's data by its position, so one that went to
/// shared memory leaves an empty entry.
pub fn encode_infer(response: InferResponse) -> ModelInferResponse {
    let mut outputs = Vec::with_capacity(response.outputs.len());
    let mut raw = Vec::with_capacity(response.outputs.len());
    for (tensor, parameters) in response.outputs {
        let (data, parameters) = match parameters.shared_memory {
            Some(target) => (Bytes::new(), to_proto(region(target))),
            None => (tensor.data, BTreeMap::new()),
        };
        outputs.push(InferOutputTensor {
            name: tensor.name,
            datatype: tensor.datatype.as_str().to_owned(),
            shape: tensor.shape.to_wire(),
            parameters,
            contents: None,
        });
        raw.push(data);
    }
    ModelInferResponse {
        model_name: response.model_name,
        model_version: response.model_version,
        id: response.id,
        parameters: to_proto(response.parameters),
        outputs,
        raw_output_contents: raw,
    }
}
