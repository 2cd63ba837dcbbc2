//! Tensors and requests for property tests.

use bytes::{Bytes, BytesMut};
use half::{bf16, f16};
use proptest::prelude::*;

use crate::{
    Datatype, InferRequest, InferResponse, InputTensor, OutputParameters, Parameter, Parameters,
    RequestedOutput, Shape, SharedMemoryRef, Tensor, TensorData, binary,
};

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

/// Any request whose inputs JSON can carry.
pub(crate) fn request() -> impl Strategy<Value = InferRequest> {
    let input =
        (datatype().prop_flat_map(finite_tensor), prop::option::weighted(0.2, region()), parameters());
    let output = (prop::option::of(any::<bool>()), prop::option::of(1_u32..9), prop::option::of(region()));
    (
        any::<String>(),
        prop::option::of("[1-9]"),
        parameters(),
        prop::collection::vec(input, 0..4),
        prop::collection::vec(output, 0..3),
        any::<bool>(),
    )
        .prop_map(|(id, model_version, parameters, inputs, outputs, binary_output)| InferRequest {
            model_name: "m".to_owned(),
            model_version,
            id,
            parameters,
            inputs: inputs.into_iter().enumerate().map(|(index, input)| nth_input(index, input)).collect(),
            outputs: Some(outputs)
                .filter(|outputs| !outputs.is_empty())
                .map(|outputs| outputs.into_iter().enumerate().map(nth_output).collect()),
            binary_output,
        })
}

type SampledInput = (Tensor, Option<SharedMemoryRef>, Parameters);

fn nth_input(index: usize, (tensor, shared, parameters): SampledInput) -> InputTensor {
    InputTensor {
        name: format!("{} {index}", tensor.name),
        datatype: tensor.datatype,
        shape: tensor.shape,
        data: shared.map_or(TensorData::Inline(tensor.data), TensorData::Shared),
        parameters,
    }
}

type SampledOutput = (Option<bool>, Option<u32>, Option<SharedMemoryRef>);

fn nth_output((index, output): (usize, SampledOutput)) -> RequestedOutput {
    let (binary, classification, shared_memory) = output;
    RequestedOutput {
        name: format!("output {index}"),
        parameters: OutputParameters { binary, classification, shared_memory },
    }
}

/// Any answer whose outputs JSON can carry.
pub(crate) fn response() -> impl Strategy<Value = InferResponse> {
    let output = (datatype().prop_flat_map(finite_tensor), prop::option::weighted(0.2, region()));
    (any::<String>(), "[0-9]*", parameters(), prop::collection::vec((output, any::<bool>()), 0..4)).prop_map(
        |(id, model_version, parameters, outputs)| InferResponse {
            model_name: "m".to_owned(),
            model_version,
            id,
            parameters,
            outputs: outputs
                .into_iter()
                .enumerate()
                .map(|(index, ((mut tensor, shared_memory), binary))| {
                    tensor.name = format!("{} {index}", tensor.name);
                    if shared_memory.is_some() {
                        tensor.data = Bytes::new();
                    }
                    let binary = Some(binary).filter(|_| shared_memory.is_none());
                    (tensor, OutputParameters { binary, classification: None, shared_memory })
                })
                .collect(),
        },
    )
}

fn region() -> impl Strategy<Value = SharedMemoryRef> {
    let size = 0_u64..(1 << 40);
    ("[a-z]{1,9}", size.clone(), size).prop_map(|(region, offset, byte_size)| SharedMemoryRef {
        region,
        offset,
        byte_size,
    })
}

/// Parameters in the order of their names, which is how protobuf maps keep them.
fn parameters() -> impl Strategy<Value = Parameters> {
    let value = prop_oneof![
        any::<bool>().prop_map(Parameter::Bool),
        any::<i64>().prop_map(Parameter::Int),
        // Sixty-fourths are the same in decimal and in binary.
        any::<i32>().prop_map(|value| Parameter::Double(f64::from(value) / 64.0)),
        any::<String>().prop_map(Parameter::String),
    ];
    prop::collection::btree_map("[x-z]{1,3}", value, 0..3).prop_map(|map| map.into_iter().collect())
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
