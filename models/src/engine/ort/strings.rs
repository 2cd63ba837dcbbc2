//! BYTES elements between the protocol and ONNX Runtime.
//!
//! The wrapper crate takes only UTF-8 without zero bytes. The C interface stores each element as bytes of a given
//! length (`GetResizedStringTensorElementBuffer`, since 1.15), which is what the protocol means by BYTES.

#![expect(
    unsafe_code,
    reason = "calls of the C interface that the wrapper crate lacks; each says why it is sound"
)]

use std::ptr;

use ::ort::memory::Allocator;
use ::ort::value::{DynTensor, DynValue, TensorElementType};
use ::ort::{AsPointer, Error, api};
use bytes::{Bytes, BytesMut};
use oip::{Tensor, binary};

/// Copies the elements into a tensor of the runtime; the error is the client's.
pub(super) fn to_ort(tensor: &Tensor) -> Result<DynTensor, String> {
    let elements =
        binary::elements(&tensor.data).collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    if tensor.shape.element_count() != Some(elements.len() as u64) {
        return Err(format!("{} BYTES elements for shape {}", elements.len(), tensor.shape));
    }
    fill(tensor, &elements).map_err(|error| error.to_string())
}

fn fill(tensor: &Tensor, elements: &[&[u8]]) -> Result<DynTensor, Error> {
    let mut value = DynTensor::new(&Allocator::default(), TensorElementType::String, tensor.shape.to_wire())?;
    for (index, element) in elements.iter().enumerate() {
        let mut buffer = ptr::null_mut();
        // SAFETY: the value is alive, and the runtime checks the index against its shape.
        let status = unsafe {
            (api().GetResizedStringTensorElementBuffer)(
                value.ptr_mut(),
                index,
                element.len(),
                &raw mut buffer,
            )
        };
        // SAFETY: the status comes from the call just made.
        unsafe { Error::result_from_status(status) }?;
        // SAFETY: the call succeeded, so the buffer has the length of the element, and only `value` refers to it.
        unsafe { element.as_ptr().copy_to_nonoverlapping(buffer.cast(), element.len()) };
    }
    Ok(value)
}

/// Copies the elements of an output.
pub(super) fn from_ort(value: &DynValue, count: usize) -> Result<Bytes, String> {
    let (content, offsets) = read(value, count).map_err(|error| error.to_string())?;
    let mut encoded = BytesMut::with_capacity(content.len().saturating_add(count.saturating_mul(4)));
    let ends = offsets.iter().skip(1).copied().chain([content.len()]);
    for (start, end) in offsets.iter().copied().zip(ends) {
        let element =
            content.get(start..end).ok_or("the runtime gave string offsets outside their content")?;
        binary::push_element(&mut encoded, element).map_err(|error| error.to_string())?;
    }
    Ok(encoded.freeze())
}

/// All elements one after the other, and where each starts.
fn read(value: &DynValue, count: usize) -> Result<(Vec<u8>, Vec<usize>), Error> {
    let mut length = 0;
    // SAFETY: the value is alive, and the runtime checks that it holds strings.
    let status = unsafe { (api().GetStringTensorDataLength)(value.ptr(), &raw mut length) };
    // SAFETY: the status comes from the call just made.
    unsafe { Error::result_from_status(status) }?;
    let (mut content, mut offsets) = (vec![0_u8; length], vec![0_usize; count]);
    // SAFETY: both buffers have the lengths that are passed, which the runtime checks against the value.
    let status = unsafe {
        (api().GetStringTensorContent)(
            value.ptr(),
            content.as_mut_ptr().cast(),
            content.len(),
            offsets.as_mut_ptr(),
            offsets.len(),
        )
    };
    // SAFETY: the status comes from the call just made.
    unsafe { Error::result_from_status(status) }?;
    Ok((content, offsets))
}
