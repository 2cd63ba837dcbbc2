//! The binary tensor extension: elements as they lie in memory, little-endian, row-major.
//!
//! `BYTES` elements are a 4-byte little-endian length and that many bytes each.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::Field;
use crate::{Datatype, InferRequest, InputTensor, Limits, ProtocolError, Shape, TensorData};

/// The only input of a model, for requests that consist of its bytes alone.
#[derive(Clone, Copy, Debug)]
pub struct RawInput<'a> {
    /// Name in the model's signature.
    pub name: &'a str,
    /// Element type in the model's signature.
    pub datatype: Datatype,
    /// Extents in the model's signature, -1 where free. The batch dimension must be 1: such a request is one row.
    pub dims: &'a [i64],
}

/// Decodes a request without a JSON header (`Inference-Header-Content-Length: 0`).
///
/// The body is the input's elements; one free extent is deduced from its length. A `BYTES` input must hold one
/// element, and the body is that element without a length before it (Triton, "Raw Binary Request").
///
/// # Errors
/// If the body is over the limits, or if no shape fits its length.
pub fn decode_raw(
    model_name: &str,
    model_version: Option<&str>,
    input: RawInput<'_>,
    body: &Bytes,
    limits: &Limits,
) -> Result<InferRequest, ProtocolError> {
    check_body(body, limits)?;
    let shape = raw_shape(input, body)?;
    let data = if input.datatype == Datatype::Bytes {
        let mut prefixed = BytesMut::with_capacity(body.len().saturating_add(4));
        push_element(&mut prefixed, body)?;
        prefixed.freeze()
    } else {
        body.clone()
    };
    check(&data, input.datatype, &shape, Field::Top("request body"))?;
    Ok(InferRequest {
        model_name: model_name.to_owned(),
        model_version: model_version.map(str::to_owned),
        id: String::new(),
        parameters: Vec::new(),
        inputs: vec![InputTensor {
            name: input.name.to_owned(),
            datatype: input.datatype,
            shape,
            data: TensorData::Inline(data),
            parameters: Vec::new(),
        }],
        outputs: None,
        binary_output: false,
    })
}

pub(crate) fn check_body(body: &[u8], limits: &Limits) -> Result<(), ProtocolError> {
    if body.len() > limits.body_bytes {
        return Err(ProtocolError::BodyTooLarge { bytes: body.len(), limit: limits.body_bytes });
    }
    Ok(())
}

fn raw_shape(input: RawInput<'_>, body: &[u8]) -> Result<Shape, ProtocolError> {
    let unsupported =
        |problem: String| ProtocolError::Unsupported { field: "request body".to_owned(), problem };
    let mut dims = input.dims.to_vec();
    let known: i64 =
        dims.iter().filter(|&&dim| dim >= 0).fold(1, |product, &dim| product.saturating_mul(dim));
    let mut free = dims.iter_mut().filter(|dim| **dim < 0);
    let Some(size) = input.datatype.size() else {
        free.for_each(|dim| *dim = 1);
        if known != 1 {
            let problem =
                format!("raw data for input `{}`, which takes more than one string: send JSON", input.name);
            return Err(unsupported(problem));
        }
        return shape_of(&dims);
    };
    if let Some(dim) = free.next() {
        if free.next().is_some() {
            let problem = format!(
                "raw data for input `{}`, whose shape has several free extents: send JSON",
                input.name
            );
            return Err(unsupported(problem));
        }
        let stride = usize::try_from(known).unwrap_or(usize::MAX).saturating_mul(size).max(1);
        *dim = i64::try_from(body.len().div_ceil(stride)).unwrap_or(i64::MAX);
    }
    shape_of(&dims)
}

fn shape_of(dims: &[i64]) -> Result<Shape, ProtocolError> {
    Shape::from_wire(dims).map_err(|source| ProtocolError::Shape { field: "request body".to_owned(), source })
}

/// Checks that `data` is what `datatype` and `shape` call for.
pub(crate) fn check(
    data: &[u8],
    datatype: Datatype,
    shape: &Shape,
    field: Field<'_>,
) -> Result<(), ProtocolError> {
    let expected = element_count(shape);
    match datatype.size() {
        Some(size) => {
            let expected = expected.saturating_mul(size as u64);
            if data.len() as u64 != expected {
                return Err(ProtocolError::ByteSize {
                    field: field.to_string(),
                    bytes: data.len() as u64,
                    expected,
                    datatype,
                    shape: shape.clone(),
                });
            }
            if datatype == Datatype::Bool { check_bools(data, field) } else { Ok(()) }
        }
        None => check_strings(data, expected, shape, field),
    }
}

/// Elements of a shape. Shapes whose count overflows do not leave the decoder.
pub(crate) fn element_count(shape: &Shape) -> u64 {
    shape.element_count().unwrap_or(u64::MAX)
}

fn check_bools(data: &[u8], field: Field<'_>) -> Result<(), ProtocolError> {
    match data.iter().position(|&byte| byte > 1) {
        None => Ok(()),
        Some(index) => Err(ProtocolError::Element {
            field: field.to_string(),
            index: index as u64,
            found: format!("byte {}", data.get(index).copied().unwrap_or_default()),
            expected: "0 or 1 for BOOL".to_owned(),
        }),
    }
}

fn check_strings(data: &[u8], expected: u64, shape: &Shape, field: Field<'_>) -> Result<(), ProtocolError> {
    let mut count = 0_u64;
    for element in elements(data) {
        if let Err(Truncated { remaining }) = element {
            return Err(ProtocolError::Element {
                field: field.to_string(),
                index: count,
                found: format!("cut off after {remaining} bytes"),
                expected: "a 4-byte little-endian length and that many bytes".to_owned(),
            });
        }
        count = count.saturating_add(1);
    }
    if count != expected {
        return Err(ProtocolError::ElementCount {
            field: field.to_string(),
            count,
            expected,
            shape: shape.clone(),
        });
    }
    Ok(())
}

/// A `BYTES` element that is longer than what is left of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the last element is cut off: {remaining} bytes are left for its length and content")]
pub struct Truncated {
    /// Bytes left where the element starts.
    pub remaining: usize,
}

/// The elements of `BYTES` data, in order; ends after the first one that is cut off.
pub fn elements(data: &[u8]) -> Elements<'_> {
    Elements { rest: data }
}

/// Iterator of [`elements`].
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], Truncated>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let split = self.rest.split_first_chunk::<4>().and_then(|(length, tail)| {
            tail.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
        });
        let Some((element, rest)) = split else {
            let remaining = self.rest.len();
            self.rest = &[];
            return Some(Err(Truncated { remaining }));
        };
        self.rest = rest;
        Some(Ok(element))
    }
}

/// Appends one `BYTES` element.
///
/// # Errors
/// If the element is 4 GiB or longer.
pub fn push_element(data: &mut impl BufMut, element: &[u8]) -> Result<(), ProtocolError> {
    let length = u32::try_from(element.len()).map_err(|_| ProtocolError::Unsupported {
        field: "data".to_owned(),
        problem: format!("a string of {} bytes: expected less than 4 GiB", element.len()),
    })?;
    data.put_u32_le(length);
    data.put_slice(element);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(datatype: Datatype, dims: &[i64], body: &'static [u8]) -> Result<InferRequest, String> {
        let input = RawInput { name: "x", datatype, dims };
        decode_raw("m", None, input, &Bytes::from_static(body), &Limits::default())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn raw_bodies_find_their_shape() {
        let request = raw(Datatype::Fp32, &[1, -1, 2], &[0; 24]).unwrap();
        assert_eq!(request.inputs[0].shape, Shape::from_extents(&[1, 3, 2]));
        let request = raw(Datatype::Bytes, &[1, -1], b"abc").unwrap();
        assert_eq!(request.inputs[0].data, TensorData::Inline(Bytes::from_static(b"\x03\0\0\0abc")));
        assert_eq!(request.inputs[0].shape, Shape::from_extents(&[1, 1]));
    }

    #[test]
    fn raw_bodies_that_fit_no_shape_are_refused() {
        let refused = |datatype, dims: &[i64], body| raw(datatype, dims, body).unwrap_err();
        assert_eq!(
            refused(Datatype::Fp32, &[2, 2], &[0; 12]),
            "request body: 12 bytes: expected 16 for FP32 of shape [2,2]"
        );
        assert_eq!(
            refused(Datatype::Fp32, &[-1, 2], &[0; 12]),
            "request body: 12 bytes: expected 16 for FP32 of shape [2,2]"
        );
        assert_eq!(
            refused(Datatype::Fp32, &[-1, 0], &[0; 12]),
            "request body: 12 bytes: expected 0 for FP32 of shape [12,0]"
        );
        assert_eq!(
            refused(Datatype::Int8, &[-1, -1], &[0; 12]),
            "request body: raw data for input `x`, whose shape has several free extents: send JSON"
        );
        assert_eq!(
            refused(Datatype::Bytes, &[2], b"ab"),
            "request body: raw data for input `x`, which takes more than one string: send JSON"
        );
    }

    #[test]
    fn truncated_strings_are_found() {
        let whole: Vec<_> = elements(b"\x01\0\0\0a\0\0\0\0").collect();
        assert_eq!(whole, [Ok(&b"a"[..]), Ok(&b""[..])]);
        let truncated: Vec<_> = elements(b"\x05\0\0\0abc").collect();
        assert_eq!(truncated, [Err(Truncated { remaining: 7 })]);
        assert_eq!(elements(b"\xff\xff\xff").count(), 1);
    }
}
