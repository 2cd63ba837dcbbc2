//! The JSON of messages.

use std::collections::BTreeMap;

use oip::{Datatype, Parameter, Parameters, Shape, Tensor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::{ModelErrorCode, Response, RunError};
use super::packets::{Layout, PacketError, Received};

/// Datatype, shape, offset and length of a tensor.
pub(super) type Placed = (&'static str, Vec<u64>, usize, usize);

/// Number, id, correlation id, requested outputs, flags, timeout, parameters and inputs of a request.
pub(super) type WireRequest<'a> =
    (u64, &'a str, Value, Option<&'a [String]>, u32, u64, BTreeMap<&'a str, Value>, Vec<Option<Placed>>);

#[derive(Serialize)]
pub(super) struct Run<'a> {
    pub op: &'static str,
    pub requests: Vec<WireRequest<'a>>,
}

#[derive(Serialize)]
pub(super) struct Start<'a> {
    pub op: &'static str,
    pub version: String,
    /// Name of the main file without `.py`.
    pub file: &'a str,
    /// The model's folder.
    pub folder: String,
    pub config: &'a Value,
    pub auto_complete: bool,
    pub instance: String,
    pub arguments: BTreeMap<&'static str, String>,
}

/// The answer to a command that is not `run`.
#[derive(Deserialize)]
pub(super) struct Started {
    pub error: Option<String>,
    pub config: Option<Value>,
}

/// Name, datatype, shape, offset and length.
type Output = (String, String, Vec<u64>, usize, usize);

#[derive(Deserialize)]
pub(super) struct WireResponse {
    outputs: Option<Vec<Output>>,
    parameters: Option<BTreeMap<String, Value>>,
    error: Option<String>,
    code: Option<i64>,
}

/// What the process says on the socket for commands while a batch runs: the results, or a question.
#[derive(Deserialize)]
pub(super) struct Ran {
    pub ask: Option<Question>,
    pub results: Option<Vec<WireResponse>>,
    pub error: Option<String>,
}

/// A question to the server, or a message on the socket for events.
#[derive(Deserialize, Default)]
pub(super) struct Question {
    pub op: String,
    pub request: Option<u64>,
    #[serde(default)]
    pub last: bool,
    pub response: Option<WireResponse>,
    pub call: Option<u64>,
    pub model: Option<String>,
    pub version: Option<String>,
    pub id: Option<String>,
    pub outputs: Option<Vec<String>>,
    pub inputs: Option<Vec<Output>>,
    pub flags: Option<u32>,
    pub timeout: Option<u64>,
    pub correlation: Option<Value>,
    pub parameters: Option<BTreeMap<String, Value>>,
    pub level: Option<u8>,
    pub message: Option<String>,
    pub name: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    pub kind: Option<u8>,
    pub value: Option<f64>,
}

/// A tensor's place in the message that is written.
pub(super) fn placed(tensor: &Tensor, layout: &mut Layout) -> Placed {
    let at = layout.place(&tensor.data);
    (tensor.datatype.as_str(), tensor.shape.extents().to_vec(), at, tensor.data.len())
}

/// A parameter as JSON.
pub(super) fn to_json(parameter: &Parameter) -> Value {
    match parameter {
        Parameter::Bool(value) => Value::from(*value),
        Parameter::Int(value) => Value::from(*value),
        Parameter::Double(value) => Value::from(*value),
        Parameter::String(value) => Value::from(value.as_str()),
    }
}

/// Parameters of a message; values that are no parameters are an error.
pub(super) fn parameters(values: BTreeMap<String, Value>) -> Result<Parameters, PacketError> {
    let each = values.into_iter().map(|(name, value)| {
        let parameter = match value {
            Value::Bool(value) => Parameter::Bool(value),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => Parameter::Int(whole),
                (None, Some(value)) => Parameter::Double(value),
                (None, None) => return Err(invalid(format!("parameter `{name}` is out of range"))),
            },
            Value::String(value) => Parameter::String(value),
            _ => return Err(invalid(format!("parameter `{name}`: expected a number, string or boolean"))),
        };
        Ok((name, parameter))
    });
    each.collect()
}

/// Tensors of a message, checked: the length fits datatype and shape, strings are well formed.
pub(super) fn tensors<T>(outputs: Vec<Output>, from: &Received<T>) -> Result<Vec<Tensor>, PacketError> {
    let tensor = |(name, datatype, shape, at, length): Output| {
        let refuse = |reason: &str| invalid(format!("tensor `{name}`: {reason}"));
        let datatype: Datatype = datatype.parse().map_err(|_| refuse("its datatype is unknown"))?;
        let shape = Shape::from_extents(&shape);
        let data = from.tensor(at, length)?;
        let count = shape.element_count().ok_or_else(|| refuse("its shape is too large"))?;
        let fits = match datatype.size() {
            Some(size) if datatype != Datatype::Bytes => {
                count.checked_mul(size as u64) == Some(data.len() as u64)
            }
            _ => strings(&data) == Some(count),
        };
        if !fits {
            return Err(refuse("its data does not fit its shape"));
        }
        Ok(Tensor { name, datatype, shape, data })
    };
    outputs.into_iter().map(tensor).collect()
}

/// Number of strings in a tensor's data; `None` if it is not well formed.
fn strings(mut data: &[u8]) -> Option<u64> {
    let mut count = 0;
    while !data.is_empty() {
        let (prefix, rest) = data.split_first_chunk::<4>()?;
        data = rest.get(usize::try_from(u32::from_le_bytes(*prefix)).ok()?..)?;
        count += 1;
    }
    Some(count)
}

/// A response of the model, or its error.
pub(super) fn response<T>(
    wire: WireResponse,
    from: &Received<T>,
) -> Result<Result<Response, RunError>, PacketError> {
    if let Some(message) = wire.error {
        return Ok(Err(RunError::Model { code: code(wire.code.unwrap_or(1)), message }));
    }
    let parameters = parameters(wire.parameters.unwrap_or_default())?;
    Ok(Ok(Response { outputs: tensors(wire.outputs.unwrap_or_default(), from)?, parameters }))
}

fn code(number: i64) -> ModelErrorCode {
    match number {
        0 => ModelErrorCode::Unknown,
        2 => ModelErrorCode::NotFound,
        3 => ModelErrorCode::InvalidArgument,
        4 => ModelErrorCode::Unavailable,
        5 => ModelErrorCode::Unsupported,
        6 => ModelErrorCode::AlreadyExists,
        7 => ModelErrorCode::Cancelled,
        _ => ModelErrorCode::Internal,
    }
}

/// Triton's number of a code.
pub(super) fn number(code: ModelErrorCode) -> u8 {
    match code {
        ModelErrorCode::Unknown => 0,
        ModelErrorCode::Internal => 1,
        ModelErrorCode::NotFound => 2,
        ModelErrorCode::InvalidArgument => 3,
        ModelErrorCode::Unavailable => 4,
        ModelErrorCode::Unsupported => 5,
        ModelErrorCode::AlreadyExists => 6,
        ModelErrorCode::Cancelled => 7,
    }
}

fn invalid(reason: String) -> PacketError {
    PacketError::Invalid(reason)
}
