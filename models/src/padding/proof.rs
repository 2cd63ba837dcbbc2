//! Whether a model ignores padding: runs samples padded and unpadded and compares the answers.

use std::time::Duration;

use oip::{Datatype, Shape, Tensor};

use super::{PaddedInput, Padding};
use crate::batching::difference;
use crate::engine::{Batch, Session};
use crate::stopwatch::Stopwatch;
use crate::{Dim, ModelName, PaddingSettings, sample};

/// Buckets of models whose settings name none, as far as the model runs with them.
const DERIVED: [u64; 13] = [8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];

/// CPU time after which no further bucket is derived. A run that has started is finished.
const BUDGET: Duration = Duration::from_secs(3);

/// Pairs of lengths to find out with which outputs follow the length. The first pair that runs is used.
const PAIRS: [(u64, u64); 4] = [(5, 7), (6, 10), (12, 20), (40, 56)];

impl Padding {
    /// Proves on samples that the answers to padded requests are those to unpadded ones, within the tolerance of the
    /// settings: for every bucket, two requests of unlike length are run together, padded, and each alone, unpadded.
    ///
    /// # Errors
    /// What makes padding impossible or changes the answers, and by how much.
    pub fn prove(
        model: &ModelName,
        session: &mut dyn Session,
        settings: &PaddingSettings,
    ) -> Result<Self, String> {
        let wanted = settings.buckets.clone().unwrap_or_else(|| DERIVED.to_vec());
        let mut padding = Self::of(session.signature(), settings, wanted.clone())?;
        padding.outputs = padding.following_outputs(session)?;
        let time = Stopwatch::start();
        let (mut proved, mut shorter) = (Vec::new(), 0);
        for bucket in wanted {
            if settings.buckets.is_none() && !proved.is_empty() && time.elapsed() > BUDGET {
                tracing::info!(%model, bucket, "longer buckets are not derived: proving them takes too long");
                break;
            }
            match padding.prove_bucket(session, shorter, bucket, settings.tolerance()) {
                Ok(()) => proved.push(bucket),
                // The model takes no tensors of this length.
                Err(Unproved::Fails(_)) if settings.buckets.is_none() && !proved.is_empty() => break,
                Err(Unproved::Fails(reason) | Unproved::Differs(reason)) => return Err(reason),
            }
            shorter = bucket;
        }
        padding.buckets = proved;
        Ok(padding)
    }

    /// For each output, the dimension that follows the length of the inputs.
    fn following_outputs(&self, session: &mut dyn Session) -> Result<Vec<Option<usize>>, String> {
        let mut failed = String::new();
        for (one, other) in PAIRS {
            let answers = [one, other].map(|length| self.alone(session, length, 0));
            match answers {
                [Ok(first), Ok(second)] => {
                    let outputs = first.iter().zip(&second);
                    return outputs.map(|(first, second)| following(first, second, one, other)).collect();
                }
                [Err(reason), _] | [_, Err(reason)] => failed = reason,
            }
        }
        Err(format!("cannot be checked: no sample input runs ({failed})"))
    }

    fn prove_bucket(
        &self,
        session: &mut dyn Session,
        shorter: u64,
        bucket: u64,
        tolerance: f64,
    ) -> Result<(), Unproved> {
        // Alternately the shortest and a middle length of the bucket; both get the most padding that occurs there.
        let lengths = [shorter + 1, (shorter + 1).midpoint(bucket)].map(|length| length.min(bucket));
        let mut rows = Vec::with_capacity(lengths.len());
        let mut alone = Vec::with_capacity(lengths.len());
        for (row, length) in (0..).zip(lengths) {
            alone.push(self.alone(session, length, row).map_err(Unproved::Fails)?);
            let mut batch = self.sample(session, length, row).ok_or_else(Unproved::too_large)?;
            self.pad_to(&mut batch.inputs, bucket).ok_or_else(Unproved::too_large)?;
            rows.push(batch);
        }
        let together = session.run(&sample::join(&rows)).map_err(|error| {
            Unproved::Fails(format!("bucket {bucket}: the model does not run at this length: {error}"))
        })?;
        for (row, (alone, length)) in alone.iter().zip(lengths).enumerate() {
            for ((output, alone), dim) in together.iter().zip(alone).zip(&self.outputs) {
                let own = row_of(output, row, rows.len())
                    .and_then(|own| match dim {
                        Some(dim) => super::shorten(&own, *dim, super::Padded { length, bucket }),
                        None => Some(own),
                    })
                    .filter(|own| own.shape == alone.shape && own.data.len() == alone.data.len());
                let own = own.ok_or_else(|| {
                    let shape = &output.shape;
                    Unproved::Differs(format!("output `{}` of padded rows has shape {shape}", output.name))
                })?;
                let difference = difference(&alone.data, &own.data, own.datatype);
                if difference > tolerance {
                    return Err(Unproved::Differs(format!(
                        "output `{}` of a request of length {length} differs by {:.2} % of its largest value when it is \
                         padded to {bucket}: expected at most {:.2} %",
                        output.name,
                        difference * 100.0,
                        tolerance * 100.0
                    )));
                }
            }
        }
        Ok(())
    }

    fn alone(&self, session: &mut dyn Session, length: u64, row: u64) -> Result<Vec<Tensor>, String> {
        let batch = self.sample(session, length, row).ok_or("a sample input is too large")?;
        session.run(&batch).map_err(|error| format!("length {length}: {error}"))
    }

    /// One row of some length. Masks are 1; whole numbers differ from the value of padding.
    fn sample(&self, session: &dyn Session, length: u64, row: u64) -> Option<Batch> {
        let signature = session.signature();
        let inputs = signature.inputs.iter().zip(&self.inputs).map(|(spec, padded)| {
            if spec.optional {
                return Some(None);
            }
            let extents = spec.dims.iter().enumerate().map(|(index, dim)| match dim {
                Dim::Fixed(fixed) => *fixed,
                Dim::Free if index == 0 => 1,
                Dim::Free => length,
            });
            let shape = Shape::from_extents(&extents.collect::<Vec<_>>());
            let data = match padded {
                Some(PaddedInput { is_mask: true, .. }) => {
                    let one = super::element(spec.datatype, 1)?;
                    one.repeat(usize::try_from(shape.element_count()?).ok()?).into()
                }
                Some(PaddedInput { element, .. }) if *element == super::element(spec.datatype, 1)? => {
                    // A model that finds padding by its value would take samples of that value for padding.
                    let two = super::element(spec.datatype, 2)?;
                    let values = sample::elements(spec.datatype, &shape, row)?;
                    let change =
                        |chunk: &[u8]| if chunk == element.as_slice() { two.clone() } else { chunk.to_vec() };
                    values.chunks_exact(two.len()).flat_map(change).collect::<Vec<u8>>().into()
                }
                Some(_) | None => sample::elements(spec.datatype, &shape, row)?,
            };
            Some(Some(Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data }))
        });
        Some(Batch { inputs: inputs.collect::<Option<_>>()?, rows: 1 })
    }

    /// Batches of `rows` rows at a length that is a bucket, for measurements. `None`: too large.
    pub(crate) fn batch(&self, session: &dyn Session, bucket: u64, rows: u32) -> Option<Batch> {
        let rows = (0..u64::from(rows)).map(|row| self.sample(session, bucket, row));
        Some(sample::join(&rows.collect::<Option<Vec<_>>>()?))
    }
}

/// Why a bucket is not proved.
enum Unproved {
    /// The model does not run.
    Fails(String),
    /// The model gives other answers.
    Differs(String),
}

impl Unproved {
    fn too_large() -> Self {
        Self::Fails("a sample input is too large".to_owned())
    }
}

/// The dimension that is `one` in the first answer and `other` in the second.
fn following(first: &Tensor, second: &Tensor, one: u64, other: u64) -> Result<Option<usize>, String> {
    let refuse = |reason: &str| Err(format!("output `{}` {reason}", first.name));
    if first.shape.extents().len() != second.shape.extents().len() {
        return refuse("has a number of dimensions that depends on the length");
    }
    let pairs = first.shape.extents().iter().zip(second.shape.extents()).enumerate();
    let changed: Vec<_> = pairs.filter(|(_, (a, b))| a != b).collect();
    match changed.as_slice() {
        [] => Ok(None),
        [(dim, (a, b))] if (**a, **b) == (one, other) => {
            if first.datatype == Datatype::Bytes {
                refuse("has strings along the length")
            } else {
                Ok(Some(*dim))
            }
        }
        [_] => refuse("has a dimension that depends on the length in another way than being equal to it"),
        _ => refuse("has several dimensions that depend on the length"),
    }
}

/// One row of an output of several.
fn row_of(output: &Tensor, row: usize, rows: usize) -> Option<Tensor> {
    if output.shape.extents().first() != Some(&u64::try_from(rows).ok()?) {
        return None;
    }
    if output.datatype == Datatype::Bytes {
        return None;
    }
    let bytes = output.data.len().checked_div(rows)?;
    let begin = bytes.checked_mul(row)?;
    output.data.get(begin..begin.checked_add(bytes)?)?;
    let data = output.data.slice(begin..begin + bytes);
    Some(Tensor { shape: output.shape.with_outermost(1), data, ..output.clone() })
}
