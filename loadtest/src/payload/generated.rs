//! Tensors of the right datatype and shape with values from a seeded generator.

use bytes::{Bytes, BytesMut};
use half::{bf16, f16};
use oip::metadata::{ModelMetadata, TensorMetadata};
use oip::{Datatype, InferRequest, InputTensor, Shape, TensorData};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, RngExt as _, SeedableRng as _};

use super::Payloads;
use crate::error::LoadError;

/// Bytes of one tensor.
const TENSOR_BYTES_MAX: u64 = 64 << 20;
/// Letters of a generated string.
const STRING_BYTES: usize = 8;

/// A request with `rows` rows.
pub(super) fn request(
    payloads: &Payloads,
    metadata: &ModelMetadata,
    rows: u32,
    seed: u64,
) -> Result<InferRequest, LoadError> {
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
    let inputs = metadata.inputs.iter().map(|input| {
        let made = tensor(payloads, metadata, input, rows, &mut generator);
        made.map_err(|problem| LoadError::model(&metadata.name, format!("input `{}`: {problem}", input.name)))
    });
    Ok(InferRequest {
        model_name: metadata.name.clone(),
        model_version: None,
        id: String::new(),
        parameters: Vec::new(),
        inputs: inputs.collect::<Result<_, _>>()?,
        outputs: None,
        binary_output: false,
    })
}

/// End of the problem of a shape with free dimensions besides the batch.
pub(crate) const OPEN: &str = "leaves more than the batch open";

/// Inputs that leave more than the batch open and have no extents.
pub(crate) fn open_inputs<'a>(
    payloads: &'a Payloads,
    metadata: &'a ModelMetadata,
) -> impl Iterator<Item = &'a TensorMetadata> {
    let is_open = |input: &&TensorMetadata| input.shape.iter().skip(1).any(|extent| *extent < 0);
    metadata.inputs.iter().filter(is_open).filter(|input| given(payloads, metadata, input).is_none())
}

/// A shape of the metadata as text.
pub(crate) fn declared(shape: &[i64]) -> String {
    format!("{shape:?}").replace(' ', "")
}

/// The extents that were given for an input.
fn given<'a>(
    payloads: &'a Payloads,
    metadata: &ModelMetadata,
    input: &TensorMetadata,
) -> Option<&'a Vec<u64>> {
    let own = format!("{}/{}", metadata.name, input.name);
    payloads.shapes.get(&own).or_else(|| payloads.shapes.get(&input.name))
}

/// Bytes of its tensors.
pub(super) fn bytes(request: &InferRequest) -> usize {
    let of = |input: &InputTensor| match &input.data {
        TensorData::Inline(data) => data.len(),
        TensorData::Shared(_) => 0,
    };
    request.inputs.iter().map(of).sum()
}

fn tensor(
    payloads: &Payloads,
    metadata: &ModelMetadata,
    input: &TensorMetadata,
    rows: u32,
    generator: &mut Xoshiro256PlusPlus,
) -> Result<InputTensor, String> {
    let datatype: Datatype = input.datatype.parse().map_err(|error| format!("{error}"))?;
    let own = format!("{}/{}", metadata.name, input.name);
    let shape = shape(input, given(payloads, metadata, input), rows)?;
    let range = payloads.ranges.get(&own).or_else(|| payloads.ranges.get(&input.name)).copied();
    let count = shape.element_count().unwrap_or(u64::MAX);
    let each = datatype.size().unwrap_or(4 + STRING_BYTES) as u64;
    if count.saturating_mul(each) > TENSOR_BYTES_MAX {
        return Err(format!("shape {shape} of {datatype} is more than {TENSOR_BYTES_MAX} bytes"));
    }
    let data = data(datatype, count, range, generator)?;
    let name = input.name.clone();
    Ok(InputTensor { name, datatype, shape, data: TensorData::Inline(data), parameters: Vec::new() })
}

/// The extents that were given or else those of the metadata; the first, if it is free, is the number of rows.
fn shape(input: &TensorMetadata, given: Option<&Vec<u64>>, rows: u32) -> Result<Shape, String> {
    let shape = &input.shape;
    let told = || declared(shape);
    let batched = shape.first() == Some(&-1);
    let mut extents = match given {
        Some(given) => {
            // The shape of a row may leave the batch out.
            let row = batched && given.len().checked_add(1) == Some(shape.len());
            let given: Vec<u64> = row.then_some(1).into_iter().chain(given.iter().copied()).collect();
            let fits = given.len() == shape.len()
                && given.iter().zip(shape).all(|(&given, &declared)| {
                    declared < 0 || u64::try_from(declared).is_ok_and(|declared| declared == given)
                });
            if !fits {
                return Err(format!("--shape {given:?} does not fit the model's {}", told()));
            }
            given
        }
        None => {
            let mut extents = Vec::with_capacity(shape.len());
            for (place, &extent) in shape.iter().enumerate() {
                match u64::try_from(extent) {
                    Ok(extent) => extents.push(extent),
                    Err(_) if place == 0 => extents.push(1),
                    Err(_) => {
                        return Err(format!("its shape {} {OPEN}", told()));
                    }
                }
            }
            extents
        }
    };
    if rows > 1 {
        match extents.first_mut() {
            Some(first) if batched && *first == 1 => *first = u64::from(rows),
            _ => {
                return Err(format!(
                    "its shape {} takes no batch, and the workload asks for {rows} rows",
                    told()
                ));
            }
        }
    }
    Ok(Shape::from_extents(&extents))
}

/// The range of values that any model should bear.
fn usual_range(datatype: Datatype) -> (f64, f64) {
    match datatype {
        Datatype::Uint8 => (0.0, 255.0),
        Datatype::Int8 => (0.0, 127.0),
        _ => (0.0, 1.0),
    }
}

fn data(
    datatype: Datatype,
    count: u64,
    range: Option<(f64, f64)>,
    generator: &mut Xoshiro256PlusPlus,
) -> Result<Bytes, String> {
    let (low, high) = range.unwrap_or_else(|| usual_range(datatype));
    let mut data = BytesMut::new();
    for _ in 0..count {
        let share: f64 = generator.random();
        let real = low + (high - low) * share;
        // Every whole number of the range as likely as any other.
        let whole = || (low + ((high - low + 1.0) * share).floor()).min(high);
        match datatype {
            Datatype::Bool => data.extend_from_slice(&[u8::from(real >= 0.5)]),
            Datatype::Uint8 => data.extend_from_slice(&(whole() as u8).to_le_bytes()),
            Datatype::Uint16 => data.extend_from_slice(&(whole() as u16).to_le_bytes()),
            Datatype::Uint32 => data.extend_from_slice(&(whole() as u32).to_le_bytes()),
            Datatype::Uint64 => data.extend_from_slice(&(whole() as u64).to_le_bytes()),
            Datatype::Int8 => data.extend_from_slice(&(whole() as i8).to_le_bytes()),
            Datatype::Int16 => data.extend_from_slice(&(whole() as i16).to_le_bytes()),
            Datatype::Int32 => data.extend_from_slice(&(whole() as i32).to_le_bytes()),
            Datatype::Int64 => data.extend_from_slice(&(whole() as i64).to_le_bytes()),
            Datatype::Fp16 => data.extend_from_slice(&f16::from_f64(real).to_le_bytes()),
            Datatype::Bf16 => data.extend_from_slice(&bf16::from_f64(real).to_le_bytes()),
            Datatype::Fp32 => data.extend_from_slice(&(real as f32).to_le_bytes()),
            Datatype::Fp64 => data.extend_from_slice(&real.to_le_bytes()),
            Datatype::Bytes => {
                let letters = generator.next_u64().to_le_bytes().map(|byte| b'a' + byte % 26);
                oip::binary::push_element(&mut data, &letters).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(data.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(inputs: &[(&str, &str, &[i64])]) -> ModelMetadata {
        let inputs = inputs.iter().map(|&(name, datatype, shape)| TensorMetadata {
            name: name.into(),
            datatype: datatype.into(),
            shape: shape.to_vec(),
        });
        ModelMetadata {
            name: "m".into(),
            versions: Vec::new(),
            platform: String::new(),
            inputs: inputs.collect(),
            outputs: Vec::new(),
        }
    }

    #[test]
    fn inputs_without_a_size_are_found() {
        let inputs: [(&str, &str, &[i64]); 3] =
            [("ids", "INT64", &[-1, -1]), ("known", "FP32", &[-1, 3]), ("image", "FP32", &[-1, 3, -1, -1])];
        let (metadata, none) = (metadata(&inputs), Payloads::default());
        let names = |payloads: &Payloads| -> Vec<String> {
            open_inputs(payloads, &metadata).map(|input| input.name.clone()).collect()
        };
        assert_eq!(names(&none), ["ids", "image"]);
        let given = Payloads { shapes: [("m/ids".to_owned(), vec![1, 9])].into(), ..none };
        assert_eq!(names(&given), ["image"]);
    }

    fn shape_of(payloads: &Payloads, shape: &[i64], rows: u32) -> Result<Vec<u64>, String> {
        let made = request(payloads, &metadata(&[("x", "FP32", shape)]), rows, 0);
        made.map(|request| request.inputs[0].shape.extents().to_vec()).map_err(|error| error.to_string())
    }

    fn given(extents: &[u64]) -> Payloads {
        Payloads { shapes: [("x".to_owned(), extents.to_vec())].into(), ..Payloads::default() }
    }

    #[test]
    fn the_first_free_extent_is_the_batch() {
        let none = Payloads::default();
        assert_eq!(shape_of(&none, &[-1, 3], 4), Ok(vec![4, 3]));
        assert_eq!(shape_of(&none, &[2, 3], 1), Ok(vec![2, 3]));
        assert_eq!(shape_of(&given(&[1, 128]), &[-1, -1], 2), Ok(vec![2, 128]));
        assert_eq!(shape_of(&given(&[128]), &[-1, -1], 2), Ok(vec![2, 128]), "a row without the batch");
        assert_eq!(shape_of(&given(&[16000]), &[-1], 1), Ok(vec![16000]));
        let own = Payloads { shapes: [("m/x".to_owned(), vec![1, 9])].into(), ..given(&[1, 128]) };
        assert_eq!(shape_of(&own, &[-1, -1], 1), Ok(vec![1, 9]));
    }

    #[test]
    fn what_does_not_fit_is_told_with_the_remedy() {
        let said = |payloads: &Payloads, shape: &[i64], rows| shape_of(payloads, shape, rows).unwrap_err();
        let none = Payloads::default();
        let open = said(&none, &[-1, -1], 1);
        assert_eq!(open, "model `m`: input `x`: its shape [-1,-1] leaves more than the batch open");
        assert!(said(&none, &[2, 3], 2).ends_with("takes no batch, and the workload asks for 2 rows"));
        assert!(said(&given(&[1, 4]), &[-1, 3], 1).contains("does not fit the model's [-1,3]"));
        assert!(said(&none, &[-1, 1 << 40], 1).contains("more than 67108864 bytes"));
        let unknown = request(&none, &metadata(&[("x", "FP31", &[1])]), 1, 0).unwrap_err();
        assert!(unknown.to_string().contains("unknown datatype `FP31`"), "{unknown}");
    }

    #[test]
    fn values_lie_in_their_range_and_come_from_the_seed() {
        let payloads = Payloads { ranges: [("ids".to_owned(), (5.0, 7.0))].into(), ..Payloads::default() };
        let metadata =
            metadata(&[("ids", "INT64", &[-1, 300]), ("mask", "BOOL", &[-1, 9]), ("text", "BYTES", &[-1])]);
        let made = request(&payloads, &metadata, 1, 7).unwrap();
        let TensorData::Inline(data) = &made.inputs[0].data else { panic!("expected data") };
        let ids: Vec<i64> = data.as_chunks::<8>().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect();
        for id in 5..=7 {
            let count = ids.iter().filter(|&&other| other == id).count();
            assert!((70..=130).contains(&count), "{id} occurs {count} times of 300");
        }
        assert_eq!(made, request(&payloads, &metadata, 1, 7).unwrap());
        assert_ne!(made, request(&payloads, &metadata, 1, 8).unwrap());
        let encoded = oip::json::encode_request(&made, true).unwrap();
        let body = [&encoded.head[..], &encoded.tail.concat()].concat().into();
        let limits = oip::Limits::default();
        let read = oip::json::decode_infer("m", None, &body, encoded.json_len, &limits).unwrap();
        assert_eq!(read.inputs.len(), 3);
    }
}
