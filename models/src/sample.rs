//! Sample inputs, for warming models up, measuring them, and checking that batches do not change answers.

use std::collections::BTreeMap;

use bytes::Bytes;
use half::{bf16, f16};
use oip::{Datatype, Shape, Tensor};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::engine::{Batch, Session};
use crate::{Dim, Signature, TensorSpec};

/// Extents to try for free dimensions other than the batch, until the graph accepts one: common multiples for images
/// first, then small ones.
pub(crate) const EXTENTS: [u64; 8] = [32, 48, 64, 1, 8, 16, 128, 224];

/// Bound on the bytes of one sample input: a graph may declare any extents.
const INPUT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// One row of inputs; `None` when an input would be too large. Rows with different numbers have different
/// values: floats between -0.5 and 0.5, whole numbers 0 or 1, which most graphs accept as an index or a mask, and empty
/// strings.
pub(crate) fn row(signature: &Signature, extent: u64, row: u64) -> Option<Batch> {
    let batched = signature.max_batch > 0;
    let inputs = signature.inputs.iter().map(|spec| match spec.optional {
        true => Some(None),
        false => tensor(spec, batched, extent, row).map(Some),
    });
    Some(Batch { inputs: inputs.collect::<Option<_>>()?, rows: 1 })
}

/// The answer to row 0 with the first extent for free dimensions that the graph accepts, and that extent.
pub(crate) fn first_that_runs(session: &mut dyn Session) -> Option<(u64, Vec<Tensor>)> {
    try_extents(session).ok()
}

/// As [`first_that_runs`].
///
/// # Errors
/// Why the last one does not run.
pub(crate) fn try_extents(session: &mut dyn Session) -> Result<(u64, Vec<Tensor>), String> {
    if !session.takes_samples() {
        return Err("the model takes no samples".to_owned());
    }
    let signature = session.signature().clone();
    let all = if signature.has_fixed_inputs() { &[1][..] } else { &EXTENTS };
    let mut reason = "its inputs are too large".to_owned();
    for &extent in all {
        let Some(batch) = row(&signature, extent, 0) else { continue };
        match session.run(&batch) {
            Ok(outputs) => return Ok((extent, outputs)),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason)
}

/// One batch of several batches of the same shapes.
pub(crate) fn join(rows: &[Batch]) -> Batch {
    let total: u32 = rows.iter().map(|batch| batch.rows).sum();
    let width = rows.first().map_or(0, |batch| batch.inputs.len());
    let inputs = (0..width).map(|index| {
        let parts: Vec<&Tensor> = rows.iter().filter_map(|batch| batch.inputs.get(index)?.as_ref()).collect();
        let first = parts.first()?;
        let data: Vec<u8> = parts.iter().flat_map(|part| part.data.iter().copied()).collect();
        // Without a batch dimension the first extent is not a number of rows.
        let shape =
            if rows.len() == 1 { first.shape.clone() } else { first.shape.with_outermost(u64::from(total)) };
        Some(Tensor { name: first.name.clone(), datatype: first.datatype, shape, data: data.into() })
    });
    Batch { inputs: inputs.collect(), rows: total }
}

/// Shapes of one row of inputs.
pub(crate) fn shapes(signature: &Signature, extent: u64) -> Vec<Vec<u64>> {
    signature.inputs.iter().map(|spec| shape(spec, signature.max_batch > 0, extent)).collect()
}

/// Extents of a row by input, for every input that `own` leaves open in more than the batch.
pub(crate) fn open_shapes(own: &Signature, shaped: &Signature, extent: u64) -> BTreeMap<String, Vec<u64>> {
    let batch_dims = usize::from(own.max_batch > 0);
    let is_open =
        |spec: &TensorSpec| !spec.optional && spec.dims.iter().skip(batch_dims).any(|dim| *dim == Dim::Free);
    let named = own.inputs.iter().zip(shapes(shaped, extent)).filter(|(spec, _)| is_open(spec));
    named.map(|(spec, shape)| (spec.name.clone(), shape.into_iter().skip(batch_dims).collect())).collect()
}

fn shape(spec: &TensorSpec, batched: bool, extent: u64) -> Vec<u64> {
    let dims = spec.dims.iter().enumerate();
    dims.map(|(index, dim)| match dim {
        Dim::Fixed(fixed) => *fixed,
        Dim::Free if index == 0 && batched => 1,
        Dim::Free => extent,
    })
    .collect()
}

fn tensor(spec: &TensorSpec, batched: bool, extent: u64, row: u64) -> Option<Tensor> {
    let shape = Shape::from_extents(&shape(spec, batched, extent));
    let data = elements(spec.datatype, &shape, row)?;
    Some(Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data })
}

/// Sample elements of a tensor; `None` when there would be too many.
pub(crate) fn elements(datatype: Datatype, shape: &Shape, row: u64) -> Option<Bytes> {
    let width = datatype.size().unwrap_or(size_of::<u32>());
    let count = usize::try_from(shape.element_count()?).ok()?;
    if count.checked_mul(width)? > INPUT_BYTES_MAX {
        return None;
    }

    // A stride without a common divisor with usual widths, so that adjacent elements and rows all differ.
    let float =
        |index: usize| ((index as u64).wrapping_mul(37).wrapping_add(row * 101) % 211) as f32 / 211.0 - 0.5;
    let whole = |index: usize| row == 0 || index.is_multiple_of(3);
    Some(match datatype {
        Datatype::Fp32 => fill(count, float),
        Datatype::Fp64 => fill(count, |index| f64::from(float(index))),
        Datatype::Fp16 => fill(count, |index| f16::from_f32(float(index))),
        Datatype::Bf16 => fill(count, |index| bf16::from_f32(float(index))),
        Datatype::Bool | Datatype::Uint8 | Datatype::Int8 => fill(count, |index| u8::from(whole(index))),
        Datatype::Uint16 | Datatype::Int16 => fill(count, |index| u16::from(whole(index))),
        Datatype::Uint32 | Datatype::Int32 => fill(count, |index| u32::from(whole(index))),
        Datatype::Uint64 | Datatype::Int64 => fill(count, |index| u64::from(whole(index))),
        Datatype::Bytes => fill(count, |_| 0_u32),
    })
}

fn fill<T: IntoBytes + Immutable>(count: usize, value: impl Fn(usize) -> T) -> Bytes {
    let elements: Vec<T> = (0..count).map(value).collect();
    Bytes::copy_from_slice(elements.as_slice().as_bytes())
}

/// The elements as numbers; `None` for types that are not numbers.
pub(crate) fn numbers(data: &[u8], datatype: Datatype) -> Option<Vec<f64>> {
    match datatype {
        Datatype::Fp32 => read::<f32>(data, f64::from),
        Datatype::Fp64 => read::<f64>(data, |value| value),
        Datatype::Fp16 => read::<f16>(data, f64::from),
        Datatype::Bf16 => read::<bf16>(data, f64::from),
        Datatype::Uint8 => read::<u8>(data, f64::from),
        Datatype::Int8 => read::<i8>(data, f64::from),
        Datatype::Uint16 => read::<u16>(data, f64::from),
        Datatype::Int16 => read::<i16>(data, f64::from),
        Datatype::Uint32 => read::<u32>(data, f64::from),
        Datatype::Int32 => read::<i32>(data, f64::from),
        Datatype::Uint64 => read::<u64>(data, |value| value as f64),
        Datatype::Int64 => read::<i64>(data, |value| value as f64),
        Datatype::Bool | Datatype::Bytes => None,
    }
}

fn read<T: FromBytes>(data: &[u8], number: impl Fn(T) -> f64) -> Option<Vec<f64>> {
    data.chunks_exact(size_of::<T>()).map(|chunk| T::read_from_bytes(chunk).ok().map(&number)).collect()
}

/// Inputs that a model accepts, found by trying, for measurements outside of a server.
#[derive(Clone, Debug)]
pub struct SampleInputs {
    /// That of the session.
    own: Signature,
    /// The same with the shapes that are asked for.
    signature: Signature,
    extent: u64,
}

impl SampleInputs {
    /// Tries sample rows on a session, with several extents for its free dimensions. `None`: it accepts none of them.
    pub fn of(session: &mut dyn Session) -> Option<Self> {
        let (extent, _) = first_that_runs(session)?;
        let own = session.signature().clone();
        Some(Self { signature: own.clone(), own, extent })
    }

    /// Rows whose inputs have given shapes: extents by name of the input, with or without the batch. Other free dimensions
    /// get extents that the session accepts.
    ///
    /// # Errors
    /// A shape that the model does not have, or the session's reason not to run it.
    pub fn with_shapes(session: &mut dyn Session, shapes: &[(String, Vec<u64>)]) -> Result<Self, String> {
        let mut signature = session.signature().clone();
        let batch_dims = usize::from(signature.max_batch > 0);
        for (name, extents) in shapes {
            let names: Vec<&str> = signature.inputs.iter().map(|spec| spec.name.as_str()).collect();
            let unknown = format!("no input `{name}`: expected one of {}", names.join(", "));
            let spec = signature.inputs.iter_mut().find(|spec| spec.name == *name).ok_or(unknown)?;
            let own = match (batch_dims, extents.split_first()) {
                (1, Some((1, row))) if extents.len() == spec.dims.len() => row,
                _ => extents.as_slice(),
            };
            let dims = spec.dims.get_mut(batch_dims..).unwrap_or_default();
            let fits = dims.len() == own.len()
                && dims
                    .iter()
                    .zip(own)
                    .all(|(dim, extent)| matches!(dim, Dim::Free) || *dim == Dim::Fixed(*extent));
            if !fits {
                let expected: Vec<i64> = dims.iter().map(|dim| dim.to_wire()).collect();
                return Err(format!("input `{name}`: shape {extents:?}: expected {expected:?} for a row"));
            }
            dims.iter_mut().zip(own).for_each(|(dim, extent)| *dim = Dim::Fixed(*extent));
        }
        let all = if signature.has_fixed_inputs() { &[1][..] } else { &EXTENTS };
        let mut failed = "its inputs are too large".to_owned();
        for &extent in all {
            let Some(batch) = row(&signature, extent, 0) else { continue };
            match session.run(&batch) {
                Ok(_) => return Ok(Self { own: session.signature().clone(), signature, extent }),
                Err(error) => failed = error.to_string(),
            }
        }
        Err(failed)
    }

    /// Extents of a row by input, for every input that the session leaves open in more than the batch.
    pub fn open_shapes(&self) -> BTreeMap<String, Vec<u64>> {
        open_shapes(&self.own, &self.signature, self.extent)
    }

    /// At most `count` batches of `rows` rows, as many as fit into `bytes_max` bytes together. Floats differ from batch
    /// to batch; no tensor of numbers is all zeros. `None`: not one batch fits.
    ///
    /// A model without batch dimension has batches of one row.
    pub fn batches(&self, rows: u32, count: usize, bytes_max: usize) -> Option<Vec<Batch>> {
        let one = row(&self.signature, self.extent, 0)?;
        let row_bytes: usize = one.inputs.iter().flatten().map(|tensor| tensor.data.len()).sum();
        let batch_bytes = row_bytes.checked_mul(usize::try_from(rows).ok()?)?;
        if batch_bytes > bytes_max {
            return None;
        }
        let fitting = bytes_max.checked_div(batch_bytes).unwrap_or(1);
        let count = u64::try_from(count.min(fitting).max(1)).ok()?;
        let batch = |number: u64| {
            let first = number.saturating_mul(u64::from(rows));
            let rows = (first..first.saturating_add(u64::from(rows)))
                .map(|number| row(&self.signature, self.extent, number));
            Some(join(&rows.collect::<Option<Vec<_>>>()?))
        };
        (0..count).map(batch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::fixture::{D, matmul};
    use crate::{LoadOptions, Loader};

    fn session(batch: D) -> Box<dyn Session> {
        Loader::without_ort().load(&matmul(batch).files(), &LoadOptions::default()).unwrap()
    }

    #[test]
    fn batches_run_and_differ() {
        let mut session = session(D::S("batch"));
        let samples = SampleInputs::of(session.as_mut()).unwrap();
        assert_eq!(samples.open_shapes(), BTreeMap::new());
        let batches = samples.batches(4, 3, 1 << 20).unwrap();
        assert_eq!(batches.len(), 3);
        let data = |batch: &Batch| batch.inputs[0].as_ref().unwrap().data.clone();
        for (number, batch) in batches.iter().enumerate() {
            assert_eq!(batch.rows, 4);
            assert!(data(batch).iter().any(|byte| *byte != 0));
            assert!(batches[..number].iter().all(|other| data(other) != data(batch)));
            session.run(batch).unwrap();
        }
    }

    #[test]
    fn rows_have_the_shapes_that_were_asked_for() {
        let graph = crate::onnx::fixture::Builder::default()
            .input("x", tract_onnx::pb::tensor_proto::DataType::Float, &[D::S("n"), D::N(2), D::S("w")])
            .output("y", tract_onnx::pb::tensor_proto::DataType::Float, &[D::S("n"), D::N(2), D::S("w")])
            .node("Neg", &["x"], &["y"]);
        let mut session = Loader::without_ort().load(&graph.files(), &LoadOptions::default()).unwrap();
        let mut shaped = |name: &str, extents: &[u64]| {
            SampleInputs::with_shapes(session.as_mut(), &[(name.to_owned(), extents.to_vec())])
        };
        for extents in [&[2, 7][..], &[1, 2, 7]] {
            let samples = shaped("x", extents).unwrap();
            let batches = samples.batches(3, 1, 1 << 20).unwrap();
            assert_eq!(batches[0].inputs[0].as_ref().unwrap().shape.extents(), [3, 2, 7]);
            assert_eq!(samples.open_shapes(), BTreeMap::from([("x".to_owned(), vec![2, 7])]));
        }
        for (name, extents, said) in [
            ("z", &[2, 7][..], "no input `z`: expected one of x"),
            ("x", &[3, 7], "input `x`: shape [3, 7]: expected [2, -1] for a row"),
            ("x", &[4, 2, 7], "input `x`: shape [4, 2, 7]: expected [2, -1] for a row"),
        ] {
            assert_eq!(shaped(name, extents).unwrap_err(), said);
        }
    }

    #[test]
    fn as_many_are_made_as_fit() {
        let mut session = session(D::S("batch"));
        let samples = SampleInputs::of(session.as_mut()).unwrap();
        let bytes = samples.batches(2, 1, 1 << 20).unwrap()[0].inputs[0].as_ref().unwrap().data.len();
        assert_eq!(samples.batches(2, 9, 3 * bytes).unwrap().len(), 3);
        assert!(samples.batches(2, 9, bytes - 1).is_none());
        assert!(samples.batches(u32::MAX, 1, 1 << 20).is_none());
    }
}
