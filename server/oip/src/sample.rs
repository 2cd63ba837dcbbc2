//! Tensors for property tests.

use bytes::{Bytes, BytesMut};
use half::{bf16, f16};
use proptest::prelude::*;

use crate::{Datatype, Shape, Tensor, binary};

pub(crate) fn datatype() -> impl Strategy<Value = Datatype> {
    prop::sample::select(&Datatype::ALL[..])
}

/// Any tensor of a datatype.
pub(crate) fn tensor(datatype: Datatype) -> impl Strategy<Value = Tensor> {
    (any::<String>(), prop::collection::vec(0_u64..4, 0..4)).prop_flat_map(move |(name, extents)| {
        let shape = Shape::from_extents(&extents);
        let count = usize::try_from(shape.element_count().unwrap()).unwrap();
        elements(datatype, count).prop_map(move |data| Tensor {
            name: name.clone(),
            datatype,
            shape: shape.clone(),
            data,
        })
    })
}

/// A tensor that JSON can carry.
pub(crate) fn finite_tensor(datatype: Datatype) -> impl Strategy<Value = Tensor> {
    tensor(datatype).prop_map(|mut tensor| {
        tensor.data = match tensor.datatype {
            Datatype::Fp16 => finite(&tensor.data, |bytes| f16::from_le_bytes(bytes).is_finite()),
            Datatype::Bf16 => finite(&tensor.data, |bytes| bf16::from_le_bytes(bytes).is_finite()),
            Datatype::Fp32 => finite(&tensor.data, |bytes| f32::from_le_bytes(bytes).is_finite()),
            Datatype::Fp64 => finite(&tensor.data, |bytes| f64::from_le_bytes(bytes).is_finite()),
            Datatype::Bytes => readable(&tensor.data),
            _ => tensor.data,
        };
        tensor
    })
}

fn elements(datatype: Datatype, count: usize) -> BoxedStrategy<Bytes> {
    match datatype.size() {
        None => prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), count)
            .prop_map(|elements| {
                let mut data = BytesMut::new();
                elements.iter().for_each(|element| binary::push_element(&mut data, element).unwrap());
                data.freeze()
            })
            .boxed(),
        Some(size) => prop::collection::vec(any::<u8>(), count * size)
            .prop_map(move |mut data| {
                if datatype == Datatype::Bool {
                    data.iter_mut().for_each(|byte| *byte &= 1);
                }
                data.into()
            })
            .boxed(),
    }
}

fn finite<const N: usize>(data: &[u8], is_finite: impl Fn([u8; N]) -> bool) -> Bytes {
    let chunks = data.as_chunks::<N>().0.iter();
    chunks.flat_map(|&bytes| if is_finite(bytes) { bytes } else { [0; N] }).collect::<Vec<u8>>().into()
}

fn readable(data: &[u8]) -> Bytes {
    let mut readable = BytesMut::new();
    for element in binary::elements(data) {
        binary::push_element(&mut readable, String::from_utf8_lossy(element.unwrap()).as_bytes()).unwrap();
    }
    readable.freeze()
}
