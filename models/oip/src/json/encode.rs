//! [`InferResponse`] to a JSON body, followed by binary data if the client requested it.

use bytes::Bytes;
use serde::Serialize;

use super::print::{self, Elements};
use crate::{Datatype, InferResponse, Parameters, ProtocolError, Tensor, binary};

/// An encoded message: `head`, then every part of `tail`, is the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The JSON text.
    pub head: Bytes,
    /// Binary tensors in order, shared with what they were encoded from.
    pub tail: Vec<Bytes>,
    /// Value for the `Inference-Header-Content-Length` header; `None` if nothing is binary.
    pub json_len: Option<usize>,
}

impl Encoded {
    /// Bytes of the whole body.
    pub fn body_len(&self) -> usize {
        self.tail.iter().fold(self.head.len(), |total, part| total.saturating_add(part.len()))
    }
}

/// Encodes a response. Outputs without a choice of encoding are binary if `binary_default`.
///
/// # Errors
/// [`ProtocolError::Unsupported`] for values that JSON cannot carry (NaN, infinities, strings that are not
/// UTF-8), [`ProtocolError::BadOutput`] if data and shape of an output do not agree.
pub fn encode_infer(response: &InferResponse, binary_default: bool) -> Result<Encoded, ProtocolError> {
    let mut tail = Vec::new();
    let mut estimate = 128_usize;
    let mut outputs = Vec::with_capacity(response.outputs.len());
    for (tensor, parameters) in &response.outputs {
        estimate = estimate.saturating_add(128);
        let (mut data, mut place) = (None, None);
        // The client knows the place of an output in shared memory. Triton's clients refuse `parameters` without a size.
        if parameters.shared_memory.is_none() {
            check_output(tensor)?;
            if parameters.binary.unwrap_or(binary_default) {
                tail.push(tensor.data.clone());
                place = Some(Binary { binary_data_size: tensor.data.len() });
            } else {
                let field = format_args!("output `{}`", tensor.name);
                let advice = "ask for binary data (`\"binary_data\": true`)";
                print::check(tensor.datatype, &tensor.data, field, advice)?;
                estimate = estimate.saturating_add(tensor.data.len().saturating_mul(3));
                data = Some(Elements { datatype: tensor.datatype, data: &tensor.data });
            }
        }
        let (name, shape) = (tensor.name.as_str(), tensor.shape.extents());
        outputs.push(Output { name, datatype: tensor.datatype, shape, data, parameters: place });
    }
    let InferResponse { model_name, model_version, id, parameters, .. } = response;
    let mut head = Vec::with_capacity(estimate);
    serde_json::to_writer(&mut head, &Response { id, model_name, model_version, parameters, outputs })
        .map_err(|error| ProtocolError::BadOutput { name: model_name.clone(), problem: error.to_string() })?;
    let json_len = if tail.is_empty() { None } else { Some(head.len()) };
    Ok(Encoded { head: head.into(), tail, json_len })
}

fn check_output(tensor: &Tensor) -> Result<(), ProtocolError> {
    let field = crate::error::Field::Top("data");
    binary::check(&tensor.data, tensor.datatype, &tensor.shape, field)
        .map_err(|error| ProtocolError::BadOutput { name: tensor.name.clone(), problem: error.to_string() })
}

#[derive(Serialize)]
struct Response<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    model_name: &'a str,
    model_version: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "print::parameters")]
    parameters: &'a Parameters,
    outputs: Vec<Output<'a>>,
}

#[derive(Serialize)]
struct Output<'a> {
    name: &'a str,
    datatype: Datatype,
    shape: &'a [u64],
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Elements<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Binary>,
}

/// Size of an output whose elements follow the JSON text.
#[derive(Serialize)]
struct Binary {
    binary_data_size: usize,
}
