//! Calls of other models of the server by a model.

use std::time::Instant;

use oip::{InferRequest, InputTensor, OutputParameters, Parameter, Parameters, RequestedOutput, TensorData};
use serde_json::{Map, Value, json};

use super::super::{Colocated, ModelErrorCode, Response, RunError};
use super::host::{CallError, HostSlot};
use super::packets::{Layout, PacketError, Received};
use super::wire::{self, Question};

/// Runs the called model. `answer` gets the responses as JSON and their tensors.
///
/// A call that comes while `execute` runs takes place on the caller's own lane if the lane has a session of the model: the
/// lane is busy with the caller, and a request that waited for it would wait for ever. Other calls are requests like those
/// of clients.
pub(super) fn start(
    host: &HostSlot,
    question: Received<Question>,
    colocated: Option<&mut dyn Colocated>,
    answer: impl FnOnce(Value, Layout) + Send + 'static,
) {
    let respond = move |responses: Vec<Result<Response, CallError>>| {
        let mut layout = Layout::default();
        let encoded = responses.into_iter().map(|response| match response {
            Ok(response) => encode(&response, &mut layout),
            Err((code, message)) => error(code, &message),
        });
        let responses: Vec<Value> = encoded.collect();
        answer(json!({"responses": responses}), layout);
    };
    let refuse = |message: String| vec![Err((ModelErrorCode::Internal, message))];
    let request = match request(question) {
        Ok(request) => request,
        Err(error) => return respond(refuse(error.to_string())),
    };
    let Some(host) = host.get() else {
        let message = format!("model `{}` cannot be called here: no server runs", request.model_name);
        return respond(refuse(message));
    };
    if let Some(colocated) = colocated {
        match host.check(request.clone()) {
            Ok(call) if !call.queued => {
                let begun = Instant::now();
                if let Some(result) = colocated.run(call.model, &call.member) {
                    (call.record)(begun.elapsed(), result.as_ref().err());
                    return respond(vec![ran(result, &request)]);
                }
            }
            Ok(_) => {}
            Err(error) => return respond(vec![Err(error)]),
        }
    }
    host.call(request, Box::new(respond));
}

/// The requested outputs of a run, or its error.
fn ran(result: Result<Response, RunError>, request: &InferRequest) -> Result<Response, CallError> {
    let mut response = result.map_err(|error| match error {
        RunError::Model { code, message } => (code, message),
        RunError::Input(message) => (ModelErrorCode::InvalidArgument, message),
        RunError::Engine(message) | RunError::DeviceFailed(message) => (ModelErrorCode::Internal, message),
    })?;
    if let Some(asked) = &request.outputs {
        response.outputs.retain(|output| asked.iter().any(|asked| asked.name == output.name));
    }
    Ok(response)
}

fn error(code: ModelErrorCode, message: &str) -> Value {
    json!({"error": message, "code": wire::number(code)})
}

fn encode(response: &Response, layout: &mut Layout) -> Value {
    let output = |tensor: &oip::Tensor| {
        let (datatype, shape, at, length) = wire::placed(tensor, layout);
        json!([tensor.name, datatype, shape, at, length])
    };
    let outputs: Vec<Value> = response.outputs.iter().map(output).collect();
    let parameters: Map<String, Value> =
        response.parameters.iter().map(|(name, value)| (name.clone(), wire::to_json(value))).collect();
    json!({"outputs": outputs, "parameters": parameters})
}

fn request(mut question: Received<Question>) -> Result<InferRequest, PacketError> {
    let mut head = std::mem::take(&mut question.head);
    let inputs = wire::tensors(head.inputs.take().unwrap_or_default(), &question)?;
    let mut parameters: Parameters = wire::parameters(head.parameters.unwrap_or_default())?;
    if let Some(timeout) = head.timeout.filter(|timeout| *timeout > 0) {
        parameters.push(("timeout".to_owned(), Parameter::Int(i64::try_from(timeout).unwrap_or(i64::MAX))));
    }
    match head.correlation {
        Some(Value::Number(number)) if number.as_i64().is_some_and(|number| number != 0) => {
            parameters.push(("sequence_id".to_owned(), Parameter::Int(number.as_i64().unwrap_or_default())));
        }
        Some(Value::String(text)) if !text.is_empty() => {
            parameters.push(("sequence_id".to_owned(), Parameter::String(text)));
        }
        _ => {}
    }
    for (flag, name) in [(1, "sequence_start"), (2, "sequence_end")] {
        if head.flags.unwrap_or(0) & flag != 0 {
            parameters.push((name.to_owned(), Parameter::Bool(true)));
        }
    }
    let input = |tensor: oip::Tensor| InputTensor {
        name: tensor.name,
        datatype: tensor.datatype,
        shape: tensor.shape,
        data: TensorData::Inline(tensor.data),
        parameters: Parameters::new(),
    };
    let output = |name: String| RequestedOutput { name, parameters: OutputParameters::default() };
    let outputs = head.outputs.filter(|outputs| !outputs.is_empty());
    Ok(InferRequest {
        model_name: head.model.unwrap_or_default(),
        model_version: head.version.filter(|version| !version.is_empty()),
        id: head.id.unwrap_or_default(),
        parameters,
        inputs: inputs.into_iter().map(input).collect(),
        outputs: outputs.map(|outputs| outputs.into_iter().map(output).collect()),
        binary_output: true,
    })
}
