//! Bounds on an encoded request message before it is decoded.
//!
//! Two bytes on the wire can decode to an empty message of more than 100 bytes in memory, so a body within its limit
//! could still take gigabytes. This module counts list entries first, reading only keys and lengths.

use bytes::Bytes;
use prost::Message as _;

use crate::proto::ModelInferRequest;
use crate::{Limits, ProtocolError, Shape};

/// Decodes a `ModelInferRequest`; `raw_input_contents` share `message`.
///
/// # Errors
/// If the bytes are not such a message, or if decoding them would take memory beyond the limits.
pub fn decode_message(message: Bytes, limits: &Limits) -> Result<ModelInferRequest, ProtocolError> {
    if message.len() > limits.body_bytes {
        return Err(ProtocolError::BodyTooLarge { bytes: message.len(), limit: limits.body_bytes });
    }
    check_request(&message, limits)?;
    ModelInferRequest::decode(message).map_err(|error| broken(&error.to_string()))
}

fn broken(problem: &str) -> ProtocolError {
    ProtocolError::Value {
        field: "request body".to_owned(),
        found: problem.to_owned(),
        expected: "an encoded inference.ModelInferRequest".to_owned(),
    }
}

fn check_request(message: &[u8], limits: &Limits) -> Result<(), ProtocolError> {
    let tensors = limits.tensors.min(Limits::TENSORS_MAX);
    let parameters = limits.parameters.min(Limits::PARAMETERS_MAX);
    let mut counts = [
        Count { list: "parameters", count: 0, limit: parameters },
        Count { list: "inputs", count: 0, limit: tensors },
        Count { list: "outputs", count: 0, limit: tensors },
        Count { list: "raw_input_contents", count: 0, limit: tensors },
    ];
    let mut bytes_left = limits.tensor_bytes as u64;
    let [of_parameters, of_inputs, of_outputs, of_raw] = &mut counts;
    for field in (Fields { rest: message }) {
        match field? {
            (4, _) => of_parameters.add(1)?,
            (5, Value::Bytes(input)) => {
                of_inputs.add(1)?;
                check_input(input, parameters, limits, &mut bytes_left)?;
            }
            (6, Value::Bytes(output)) => {
                of_outputs.add(1)?;
                check_output(output, parameters)?;
            }
            (7, _) => of_raw.add(1)?,
            _ => {}
        }
    }
    Ok(())
}

struct Count {
    list: &'static str,
    count: usize,
    limit: usize,
}

impl Count {
    fn add(&mut self, entries: usize) -> Result<(), ProtocolError> {
        self.count = self.count.saturating_add(entries);
        if self.count > self.limit {
            return Err(ProtocolError::Value {
                field: self.list.to_owned(),
                found: format!("more than {} entries", self.limit),
                expected: "fewer".to_owned(),
            });
        }
        Ok(())
    }
}

fn check_input(
    input: &[u8],
    parameters: usize,
    limits: &Limits,
    bytes_left: &mut u64,
) -> Result<(), ProtocolError> {
    let mut of_parameters = Count { list: "inputs.parameters", count: 0, limit: parameters };
    let mut of_dims = Count { list: "inputs.shape", count: 0, limit: Shape::MAX_RANK };
    for field in (Fields { rest: input }) {
        match field? {
            (3, value) => of_dims.add(value.varints())?,
            (4, _) => of_parameters.add(1)?,
            (5, Value::Bytes(contents)) => check_contents(contents, limits, bytes_left)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_output(output: &[u8], parameters: usize) -> Result<(), ProtocolError> {
    let mut of_parameters = Count { list: "outputs.parameters", count: 0, limit: parameters };
    for field in (Fields { rest: output }) {
        if let (2, _) = field? {
            of_parameters.add(1)?;
        }
    }
    Ok(())
}

/// Counts what the typed lists will take in memory.
fn check_contents(contents: &[u8], limits: &Limits, bytes_left: &mut u64) -> Result<(), ProtocolError> {
    for field in (Fields { rest: contents }) {
        let (tag, value) = field?;
        let element = match tag {
            1 => size_of::<bool>(),
            2 | 4 => size_of::<u32>(),
            3 | 5 => size_of::<u64>(),
            8 => size_of::<Bytes>(),
            // Floating-point numbers take as much on the wire as in memory.
            _ => continue,
        };
        let count = if tag == 8 { 1 } else { value.varints() };
        *bytes_left = bytes_left.checked_sub(count.saturating_mul(element) as u64).ok_or_else(|| {
            ProtocolError::TensorTooLarge {
                field: "inputs.contents".to_owned(),
                bytes: (limits.tensor_bytes as u64).saturating_add(1),
                limit: limits.tensor_bytes,
            }
        })?;
    }
    Ok(())
}

/// A value as the wire type says.
#[derive(Clone, Copy)]
enum Value<'a> {
    Number,
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// Numbers in a repeated field of varints, packed or not: each ends in a byte below 0x80.
    fn varints(self) -> usize {
        match self {
            Self::Number => 1,
            Self::Bytes(packed) => packed.iter().filter(|&&byte| byte < 0x80).count(),
        }
    }
}

/// The fields of one message, in order; ends after the first error.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => self.varint().map(|_| Value::Number)?,
            1 => self.take(8).map(|_| Value::Number)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Number)?,
            // Groups, which no message here has.
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), ProtocolError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.rest = &[];
        }
        Some(field.ok_or_else(|| broken("a field that is cut off or of no known wire type")))
    }
}
