//! The client's side: [`InferRequest`] to a `ModelInferRequest`.

use super::parameters::{region, to_proto};
use crate::proto::ModelInferRequest;
use crate::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use crate::{InferRequest, InputTensor, Parameter, RequestedOutput, TensorData};

/// Makes the message. Data goes into `raw_input_contents` and is shared with the request; inputs in shared memory
/// have no entry there. Over gRPC every output comes back binary, whatever the request says.
pub fn encode_request(request: &InferRequest) -> ModelInferRequest {
    let inline = |input: &InputTensor| match &input.data {
        TensorData::Inline(data) => Some(data.clone()),
        TensorData::Shared(_) => None,
    };
    ModelInferRequest {
        model_name: request.model_name.clone(),
        model_version: request.model_version.clone().unwrap_or_default(),
        id: request.id.clone(),
        parameters: to_proto(request.parameters.clone()),
        inputs: request.inputs.iter().map(input).collect(),
        outputs: request.outputs.iter().flatten().map(requested_output).collect(),
        raw_input_contents: request.inputs.iter().filter_map(inline).collect(),
    }
}

fn input(input: &InputTensor) -> InferInputTensor {
    let mut parameters = input.parameters.clone();
    if let TensorData::Shared(target) = &input.data {
        parameters.extend(region(target.clone()));
    }
    InferInputTensor {
        name: input.name.clone(),
        datatype: input.datatype.as_str().to_owned(),
        shape: input.shape.to_wire(),
        parameters: to_proto(parameters),
        contents: None,
    }
}

fn requested_output(output: &RequestedOutput) -> InferRequestedOutputTensor {
    let mut parameters = output.parameters.shared_memory.clone().map(region).unwrap_or_default();
    if let Some(classes) = output.parameters.classification {
        parameters.push(("classification".to_owned(), Parameter::Int(classes.into())));
    }
    InferRequestedOutputTensor { name: output.name.clone(), parameters: to_proto(parameters) }
}
