//! Pads requests of unlike lengths to a common length, so that they share a batch.
//!
//! Lengths are rounded up to a bucket. The added elements have a value of their own for each input, 0 in masks, and outputs
//! that follow the length are shortened again. Whether a model ignores the added elements is a property of its graph. It is
//! proved on samples when the model is loaded: [`Padding::prove`].

mod proof;

use bytes::{Bytes, BytesMut};
use half::{bf16, f16};
use oip::{Datatype, Shape, Tensor};
use zerocopy::IntoBytes;

use crate::{Dim, PaddingSettings, Signature};

/// Inputs that are masks without being named: 1 for elements of the request, 0 for added ones.
const USUAL_MASK: &str = "attention_mask";

/// How the requests of one model are padded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Lengths to pad to, rising.
    buckets: Vec<u64>,
    /// For each input of the signature: the dimension that is the length, and an added element.
    inputs: Vec<Option<PaddedInput>>,
    /// For each output of the signature: the dimension that follows the length.
    outputs: Vec<Option<usize>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PaddedInput {
    dim: usize,
    element: Vec<u8>,
    is_mask: bool,
    /// A request may leave it out. Then it was not part of the proof.
    optional: bool,
}

/// A request that was padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padded {
    length: u64,
    bucket: u64,
}

impl Padding {
    /// Lengths to pad to, rising.
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// The padding of a signature before any proof. Knows no output.
    fn of(signature: &Signature, settings: &PaddingSettings, buckets: Vec<u64>) -> Result<Self, String> {
        if signature.max_batch == 0 {
            return Err("the model is not batched: expected a batch dimension".to_owned());
        }
        let names = || signature.inputs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>();
        let named = settings.mask.iter().flatten().chain(settings.values.keys());
        if let Some(unknown) = named.into_iter().find(|name| !names().contains(&name.as_str())) {
            return Err(format!("`{unknown}` is not an input: expected one of {}", names().join(", ")));
        }
        let usual = [USUAL_MASK.to_owned()];
        let masks = settings.mask.as_deref().unwrap_or(&usual);
        let inputs = signature.inputs.iter().map(|spec| {
            let free = spec.dims.iter().enumerate().skip(1).filter(|(_, dim)| **dim == Dim::Free);
            let free: Vec<usize> = free.map(|(index, _)| index).collect();
            let dim = match free.as_slice() {
                [] => return Ok(None),
                [dim] => *dim,
                _ => {
                    let count = free.len();
                    return Err(format!(
                        "input `{}` has {count} free dimensions: expected 1, the length",
                        spec.name
                    ));
                }
            };
            let is_mask = masks.contains(&spec.name);
            let value = settings.values.get(&spec.name).copied().unwrap_or(0);
            if is_mask && value != 0 {
                return Err(format!("input `{}` is a mask, which is padded with 0: got {value}", spec.name));
            }
            let element = element(spec.datatype, value).ok_or_else(|| {
                format!("input `{}` is {}: expected one that can be {value}", spec.name, spec.datatype)
            })?;
            Ok(Some(PaddedInput { dim, element, is_mask, optional: spec.optional }))
        });
        let inputs: Vec<_> = inputs.collect::<Result<_, String>>()?;
        if !inputs.iter().flatten().any(|input| !input.optional) {
            return Err("no input has a free dimension: requests have one length already".to_owned());
        }
        let without_length = |name: &&String| {
            let index = signature.inputs.iter().position(|spec| spec.name == **name);
            index.and_then(|index| inputs.get(index)).is_none_or(Option::is_none)
        };
        if let Some(name) = settings.values.keys().find(without_length) {
            return Err(format!("input `{name}` has no free dimension: expected no value for it"));
        }
        Ok(Self { buckets, inputs, outputs: Vec::new() })
    }

    /// Pads the inputs of a request to the next bucket. `None`: they stay as they are, because their length is a bucket or
    /// longer than the largest, or because their lengths differ.
    pub fn pad(&self, inputs: &mut [Option<Tensor>]) -> Option<Padded> {
        let length = self.length(inputs)?;
        let bucket = *self.buckets.iter().find(|bucket| **bucket >= length)?;
        if bucket == length {
            return None;
        }
        self.pad_to(inputs, bucket)?;
        Some(Padded { length, bucket })
    }

    /// The length of a request, if all of its inputs agree.
    fn length(&self, inputs: &[Option<Tensor>]) -> Option<u64> {
        let mut common = None;
        for (padded, tensor) in self.inputs.iter().zip(inputs) {
            match (padded, tensor) {
                (Some(padded), Some(tensor)) if !padded.optional => {
                    let extent = *tensor.shape.extents().get(padded.dim)?;
                    if common.is_some_and(|common| common != extent) {
                        return None;
                    }
                    common = Some(extent);
                }
                (Some(_), Some(_)) => return None,
                (None, _) | (_, None) => {}
            }
        }
        common.filter(|length| *length > 0)
    }

    fn pad_to(&self, inputs: &mut [Option<Tensor>], bucket: u64) -> Option<()> {
        let longer = self.inputs.iter().zip(&*inputs).map(|(padded, tensor)| match (padded, tensor) {
            (Some(padded), Some(tensor)) => lengthen(tensor, padded, bucket).map(Some),
            (_, tensor) => Some(tensor.clone()),
        });
        let longer: Vec<_> = longer.collect::<Option<_>>()?;
        inputs.iter_mut().zip(longer).for_each(|(input, longer)| *input = longer);
        Some(())
    }

    /// Shortens the outputs of a padded request to its own length.
    ///
    /// # Errors
    /// Names an output that does not have the length that it had when the model was loaded.
    pub fn restore(&self, padded: Padded, outputs: Vec<Tensor>) -> Result<Vec<Tensor>, String> {
        let outputs = outputs.into_iter().zip(&self.outputs).map(|(output, dim)| match dim {
            None => Ok(output),
            Some(dim) => shorten(&output, *dim, padded).ok_or_else(|| {
                format!(
                    "output `{}`: expected length {} in shape {}",
                    output.name, padded.bucket, output.shape
                )
            }),
        });
        outputs.collect()
    }
}

/// The tensor with `padded.element` after the elements of each run along its dimension.
fn lengthen(tensor: &Tensor, padded: &PaddedInput, bucket: u64) -> Option<Tensor> {
    let (outer, length, inner) = parts(tensor, padded.dim)?;
    let bucket_length = usize::try_from(bucket).ok()?;
    let added = bucket_length.checked_sub(length)?.checked_mul(inner)?;
    let own = length.checked_mul(inner)?;
    let mut data = BytesMut::with_capacity(own.checked_add(added)?.checked_mul(outer)?);
    let padding = padded.element.repeat(added / padded.element.len().max(1));
    for run in tensor.data.chunks_exact(own.max(1)) {
        data.extend_from_slice(run);
        data.extend_from_slice(&padding);
    }
    with_extent(tensor, padded.dim, bucket, data.freeze())
}

/// The first elements of each run along a dimension.
fn shorten(tensor: &Tensor, dim: usize, padded: Padded) -> Option<Tensor> {
    let (outer, length, inner) = parts(tensor, dim)?;
    if u64::try_from(length).ok()? != padded.bucket {
        return None;
    }
    let (whole, own) = (length.checked_mul(inner)?, usize::try_from(padded.length).ok()?.checked_mul(inner)?);
    let data = if outer == 1 {
        tensor.data.get(..own)?;
        tensor.data.slice(..own)
    } else {
        let mut data = BytesMut::with_capacity(own.checked_mul(outer)?);
        for run in tensor.data.chunks_exact(whole.max(1)) {
            data.extend_from_slice(run.get(..own)?);
        }
        data.freeze()
    };
    with_extent(tensor, dim, padded.length, data)
}

/// Runs before a dimension, its extent, and the bytes of everything after it. `None` for elements without a fixed size.
fn parts(tensor: &Tensor, dim: usize) -> Option<(usize, usize, usize)> {
    let width = tensor.datatype.size().filter(|_| tensor.datatype != Datatype::Bytes)?;
    let extents = tensor.shape.extents();
    let product = |extents: &[u64]| {
        extents
            .iter()
            .try_fold(1_usize, |product, extent| product.checked_mul(usize::try_from(*extent).ok()?))
    };
    let length = usize::try_from(*extents.get(dim)?).ok()?;
    Some((product(extents.get(..dim)?)?, length, product(extents.get(dim + 1..)?)?.checked_mul(width)?))
}

fn with_extent(tensor: &Tensor, dim: usize, extent: u64, data: Bytes) -> Option<Tensor> {
    let mut extents = tensor.shape.extents().to_vec();
    *extents.get_mut(dim)? = extent;
    Some(Tensor { shape: Shape::from_extents(&extents), data, ..tensor.clone() })
}

/// A whole number as an element; `None` where the type does not have it.
fn element(datatype: Datatype, value: i64) -> Option<Vec<u8>> {
    // Numbers that a float holds exactly are enough for padding.
    let float = i16::try_from(value).ok().map(f32::from);
    Some(match datatype {
        Datatype::Bool => {
            u8::from(value == 1).as_bytes().iter().copied().filter(|_| (0..=1).contains(&value)).collect()
        }
        Datatype::Uint8 => u8::try_from(value).ok()?.as_bytes().to_vec(),
        Datatype::Uint16 => u16::try_from(value).ok()?.as_bytes().to_vec(),
        Datatype::Uint32 => u32::try_from(value).ok()?.as_bytes().to_vec(),
        Datatype::Uint64 => u64::try_from(value).ok()?.as_bytes().to_vec(),
        Datatype::Int8 => i8::try_from(value).ok()?.as_bytes().to_vec(),
        Datatype::Int16 => i16::try_from(value).ok()?.as_bytes().to_vec(),
        Datatype::Int32 => i32::try_from(value).ok()?.as_bytes().to_vec(),
        Datatype::Int64 => value.as_bytes().to_vec(),
        Datatype::Fp16 => f16::from_f32(float?).as_bytes().to_vec(),
        Datatype::Bf16 => bf16::from_f32(float?).as_bytes().to_vec(),
        Datatype::Fp32 => float?.as_bytes().to_vec(),
        Datatype::Fp64 => f64::from(float?).as_bytes().to_vec(),
        Datatype::Bytes => return None,
    })
    .filter(|element: &Vec<u8>| !element.is_empty())
}

#[cfg(test)]
mod tests;
