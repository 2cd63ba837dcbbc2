//! Inputs on which the stages are compared with the whole: generated, and recorded.

use std::path::Path;

use anyhow::Context as _;
use bytes::Bytes;
use models::engine::{Batch, Session};
use models::{Dim, SampleInputs, Signature};
use node::files::read_text;
use oip::{Datatype, InputTensor, Limits, Tensor, TensorData};

/// Largest file of recorded requests, and most requests that are read of it.
const DATA_BYTES_MAX: u64 = 1 << 30;
const RECORDED_MAX: usize = 10_000;
/// Bytes of the generated inputs of one batch size.
const GENERATED_BYTES_MAX: usize = 512 << 20;

/// Inputs that show how shapes depend on each other. The first is of one row.
#[derive(Debug)]
pub struct Probes {
    pub batches: Vec<Batch>,
    /// Whether every free dimension of the inputs has several extents.
    pub varied: bool,
}

/// How inputs are generated.
#[derive(Clone, Debug)]
pub struct Generator {
    samples: SampleInputs,
    ranges: Vec<(String, (f64, f64))>,
}

impl Generator {
    /// Finds shapes that a model accepts.
    ///
    /// # Errors
    /// An input that the model does not have, or the reason why it accepts none.
    pub fn new(
        session: &mut dyn Session,
        shapes: &[(String, Vec<u64>)],
        ranges: &[(String, (f64, f64))],
    ) -> anyhow::Result<Self> {
        let names: Vec<String> = session.signature().inputs.iter().map(|spec| spec.name.clone()).collect();
        if let Some((unknown, _)) = ranges.iter().find(|(name, _)| !names.contains(name)) {
            anyhow::bail!("--range: no input `{unknown}`: expected one of {}", names.join(", "));
        }
        let samples = if shapes.is_empty() {
            SampleInputs::of(session).context(
                "the model accepts no generated input: expected a shape for its free dimensions (--shape)",
            )?
        } else {
            SampleInputs::with_shapes(session, shapes)
                .map_err(|reason| anyhow::anyhow!("--shape: {reason}"))?
        };
        Ok(Self { samples, ranges: ranges.to_vec() })
    }

    /// Batches of one and of two rows, and one whose free dimensions are twice as long, if the model takes them.
    ///
    /// # Errors
    /// They would be too large.
    pub fn probes(&self, session: &mut dyn Session) -> anyhow::Result<Probes> {
        let signature = session.signature().clone();
        let mut batches = self.batches(1, 1)?;
        if signature.max_batch > 1 {
            batches.extend(self.batches(2, 1)?);
        }
        let batch_dims = usize::from(signature.max_batch > 0);
        let mut doubled = Vec::new();
        for (name, mut extents) in self.samples.open_shapes() {
            let spec = signature.inputs.iter().find(|spec| spec.name == name);
            let dims = spec.map_or(&[][..], |spec| spec.dims.get(batch_dims..).unwrap_or_default());
            let free = extents.iter_mut().zip(dims).filter(|(_, dim)| **dim == Dim::Free);
            free.for_each(|(extent, _)| *extent = extent.saturating_mul(2));
            doubled.push((name, extents));
        }
        if doubled.is_empty() {
            return Ok(Probes { batches, varied: true });
        }
        let Ok(samples) = SampleInputs::with_shapes(session, &doubled) else {
            return Ok(Probes { batches, varied: false });
        };
        batches.extend(Self { samples, ranges: self.ranges.clone() }.batches(1, 1)?);
        Ok(Probes { batches, varied: true })
    }

    /// Batches of `rows` rows, one for each seed.
    ///
    /// # Errors
    /// They would be too large.
    pub fn batches(&self, rows: u32, seeds: u32) -> anyhow::Result<Vec<Batch>> {
        let count = usize::try_from(seeds)?;
        let made = self.samples.batches(rows, count, GENERATED_BYTES_MAX);
        let mut made = made.with_context(|| {
            format!("--batches: inputs of {rows} rows are larger than {GENERATED_BYTES_MAX} bytes: expected fewer rows")
        })?;
        for (seed, batch) in (1_u64..).zip(&mut made) {
            for (place, tensor) in (1_u64..).zip(batch.inputs.iter_mut().flatten()) {
                let range =
                    self.ranges.iter().find(|(name, _)| *name == tensor.name).map(|(_, range)| *range);
                // Each tensor has a sequence of its own.
                refill(tensor, seed.wrapping_mul(1 << 32).wrapping_add(place), range);
            }
        }
        Ok(made)
    }
}

/// Gives a tensor other values of its type. Types without plain numbers keep theirs.
fn refill(tensor: &mut Tensor, seed: u64, range: Option<(f64, f64)>) {
    let mut random = Sequence(seed);
    let mut float = || {
        let (low, high) = range.unwrap_or((-0.5, 0.5));
        low + random.unit() * (high - low)
    };
    let width = tensor.datatype.size().unwrap_or(1).max(1);
    let count = tensor.data.len() / width;
    let bytes: Vec<u8> = match tensor.datatype {
        Datatype::Fp32 => (0..count).flat_map(|_| (float() as f32).to_le_bytes()).collect(),
        Datatype::Fp64 => (0..count).flat_map(|_| float().to_le_bytes()).collect(),
        Datatype::Fp16 | Datatype::Bf16 | Datatype::Bytes => return,
        Datatype::Bool
        | Datatype::Uint8
        | Datatype::Int8
        | Datatype::Uint16
        | Datatype::Int16
        | Datatype::Uint32
        | Datatype::Int32
        | Datatype::Uint64
        | Datatype::Int64 => {
            let range = range.filter(|_| tensor.datatype != Datatype::Bool);
            let whole = |index: usize| match range {
                // The first is 1, so that a mask is never all zeros.
                None => i64::from(index.is_multiple_of(3) || random.unit() < 0.5),
                Some((low, high)) => {
                    (low.ceil() + (random.unit() * ((high.floor() - low.ceil()).max(0.0) + 1.0)).floor())
                        as i64
                }
            };
            let words = (0..count).map(whole).map(i64::to_le_bytes);
            words.collect::<Vec<_>>().iter().flat_map(|word| word.iter().copied().take(width)).collect()
        }
    };
    tensor.data = Bytes::from(bytes);
}

/// Numbers that look random: `splitmix64`.
struct Sequence(u64);

impl Sequence {
    /// A number from 0 to below 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Reads recorded requests.
///
/// # Errors
/// With the file, the line and what would be right.
pub fn recorded(path: &Path, signature: &Signature) -> anyhow::Result<Vec<Batch>> {
    let text = read_text(path, DATA_BYTES_MAX).context("--data")?;
    let mut batches = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        anyhow::ensure!(
            batches.len() < RECORDED_MAX,
            "--data: {}:{number}: expected at most {RECORDED_MAX} requests",
            path.display()
        );
        let batch = request(line, signature);
        batches.push(batch.with_context(|| format!("--data: {}:{number}", path.display()))?);
    }
    anyhow::ensure!(!batches.is_empty(), "--data: {}: expected a request a line, found none", path.display());
    Ok(batches)
}

fn request(line: &str, signature: &Signature) -> anyhow::Result<Batch> {
    let body = Bytes::copy_from_slice(line.as_bytes());
    let request = oip::json::decode_infer("", None, &body, None, &Limits::default())?;
    if let Some(unknown) =
        request.inputs.iter().find(|input| !signature.inputs.iter().any(|spec| spec.name == input.name))
    {
        let names: Vec<&str> = signature.inputs.iter().map(|spec| spec.name.as_str()).collect();
        anyhow::bail!("no input `{}`: expected one of {}", unknown.name, names.join(", "));
    }
    let inputs = signature.inputs.iter().map(|spec| {
        let given = request.inputs.iter().find(|input| input.name == spec.name);
        let InputTensor { name, datatype, shape, data, .. } =
            given.cloned().with_context(|| format!("input `{}` is missing", spec.name))?;
        anyhow::ensure!(
            datatype == spec.datatype,
            "input `{name}` has type {}: expected {}",
            datatype.as_str(),
            spec.datatype.as_str()
        );
        let TensorData::Inline(data) = data else {
            anyhow::bail!("input `{name}` is in shared memory: expected its values");
        };
        Ok(Some(Tensor { name, datatype, shape, data }))
    });
    let inputs = inputs.collect::<anyhow::Result<Vec<_>>>()?;
    let rows = inputs.iter().flatten().next().and_then(|tensor| tensor.shape.extents().first().copied());
    let rows = if signature.max_batch > 0 { u32::try_from(rows.unwrap_or(1))? } else { 1 };
    anyhow::ensure!(
        signature.max_batch == 0 || (1..=signature.max_batch).contains(&rows),
        "{rows} rows: expected 1 to {}",
        signature.max_batch
    );
    Ok(Batch { inputs, rows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use oip::Shape;

    fn tensor(datatype: Datatype, count: u64) -> Tensor {
        let width = datatype.size().unwrap();
        let data = vec![0; width * count as usize].into();
        Tensor { name: "x".to_owned(), datatype, shape: Shape::from_extents(&[count]), data }
    }

    #[test]
    fn values_depend_on_the_seed_and_keep_their_range() {
        let filled = |seed: u64, range| {
            let mut one = tensor(Datatype::Int32, 1_000);
            refill(&mut one, seed, range);
            let values = one.data.chunks_exact(4).map(|word| i32::from_le_bytes(word.try_into().unwrap()));
            values.collect::<Vec<_>>()
        };
        assert_eq!(filled(1, None), filled(1, None));
        assert_ne!(filled(1, None), filled(2, None));
        assert!(filled(1, None)[0] == 1 && filled(1, None).iter().all(|value| (0..=1).contains(value)));
        let wide = filled(3, Some((-2.5, 7.0)));
        assert_eq!(
            (wide.iter().min(), wide.iter().max()),
            (Some(&-2), Some(&7)),
            "both ends, rounded inwards"
        );
        let mut floats = tensor(Datatype::Fp32, 1_000);
        refill(&mut floats, 1, None);
        let values = floats.data.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap()));
        assert!(
            values.clone().all(|value| (-0.5..0.5).contains(&value))
                && values.clone().any(|value| value > 0.4)
        );
        let mut wide = tensor(Datatype::Uint8, 1_000);
        refill(&mut wide, 1, Some((0.0, 255.0)));
        assert!(wide.data.len() == 1_000 && wide.data.iter().any(|byte| *byte > 200));
    }

    #[test]
    fn a_recorded_request_that_does_not_fit_says_what_would() {
        let spec = |name: &str| models::TensorSpec {
            name: name.to_owned(),
            datatype: Datatype::Fp32,
            dims: vec![Dim::Free, Dim::Fixed(2)],
            optional: false,
        };
        let signature = Signature { inputs: vec![spec("x")], outputs: vec![spec("y")], max_batch: 4 };
        let line = |name: &str, datatype: &str, rows: usize| {
            let data = vec!["1"; rows * 2].join(",");
            format!(
                r#"{{"inputs": [{{"name": "{name}", "datatype": "{datatype}", "shape": [{rows}, 2], "data": [{data}]}}]}}"#
            )
        };
        assert_eq!(request(&line("x", "FP32", 3), &signature).unwrap().rows, 3);
        for (text, says) in [
            (line("z", "FP32", 1), "no input `z`: expected one of x"),
            (line("x", "INT32", 1), "input `x` has type INT32: expected FP32"),
            (line("x", "FP32", 5), "5 rows: expected 1 to 4"),
            (r#"{"inputs": []}"#.to_owned(), "input `x` is missing"),
        ] {
            assert_eq!(request(&text, &signature).unwrap_err().to_string(), says);
        }
    }
}
