//! Whether a model may be batched.
//!
//! Shapes that allow a batch do not prove that batching is correct. A free first dimension may be a sequence, a graph
//! may have a 1 baked into a reshape, and a model may mix its rows. Therefore two different rows are also run together
//! and alone, and their answers compared.

use std::sync::Arc;

use oip::Datatype;

use crate::engine::ort::PreparedModel;
use crate::engine::{Batch, Interrupt, RunError, Session};
use crate::onnx::{GraphDim, GraphTensor};
use crate::{LoadError, LoadOptions, ModelFiles, Signature, sample};

/// Largest batch of a model that can be batched and whose configuration does not say.
pub const DEFAULT_MAX_BATCH: u32 = 64;

/// Largest difference between a row's answers alone and in a batch, as a share of the largest value of that
/// output. Engines use other kernels for other batches, and a softmax at the end of a deep model amplifies
/// their rounding to up to 0.3 % (measured: magika on ONNX Runtime); rows that mix go far beyond 1 %.
pub(crate) const ROW_TOLERANCE: f64 = 1e-2;

/// The largest batch that these shapes and options allow. Fails if the options require a larger one.
pub(crate) fn max_batch(
    model: &str,
    inputs: &[GraphTensor],
    outputs: &[GraphTensor],
    options: &LoadOptions,
) -> Result<u32, LoadError> {
    let obstacle = obstacle(inputs, outputs);
    match (options.max_batch, obstacle) {
        (Some(0), _) => Ok(0),
        (Some(wanted), None) => Ok(wanted),
        (None, None) => Ok(DEFAULT_MAX_BATCH),
        (None, Some(_)) if !options.free_batch => Ok(0),
        (Some(_) | None, Some(reason)) => Err(LoadError::Batch { model: model.to_owned(), reason }),
    }
}

/// A synthetic model allows what its description says.
pub(crate) fn check_request(files: &ModelFiles, wanted: u32, allowed: u32) -> Result<(), LoadError> {
    if wanted > 0 && allowed == 0 {
        return Err(LoadError::Batch {
            model: files.name.to_string(),
            reason: "model.toml gives it no batch dimension: expected max_batch 0".to_owned(),
        });
    }
    Ok(())
}

/// Describes the tensor that prevents batching along dimension 0.
fn obstacle(inputs: &[GraphTensor], outputs: &[GraphTensor]) -> Option<String> {
    if inputs.is_empty() {
        return Some("it has no inputs".to_owned());
    }
    let tagged = || inputs.iter().map(|t| ("input", t)).chain(outputs.iter().map(|t| ("output", t)));
    for (kind, tensor) in tagged() {
        let reason = match tensor.dims.first() {
            None => "is a scalar".to_owned(),
            Some(GraphDim::Fixed(1)) => {
                "fixes its first dimension at 1 (`free_batch = true` can free it)".to_owned()
            }
            Some(GraphDim::Fixed(extent)) => {
                format!("has a first dimension fixed at {extent}, which is not a batch")
            }
            Some(GraphDim::Symbol(_) | GraphDim::Unnamed) => continue,
        };
        return Some(format!("{kind} `{}` {reason}; expected max_batch 0", tensor.name));
    }
    let symbols: Vec<&str> = inputs.iter().filter_map(|tensor| batch_symbol(tensor)).collect();
    if let Some(other) = symbols.iter().find(|symbol| Some(*symbol) != symbols.first()) {
        let first = symbols.first().copied().unwrap_or_default();
        return Some(format!(
            "inputs have different first dimensions, `{first}` and `{other}`; expected max_batch 0"
        ));
    }
    for (kind, tensor) in tagged() {
        let again =
            tensor.dims.iter().skip(1).position(
                |dim| matches!(dim, GraphDim::Symbol(symbol) if symbols.contains(&symbol.as_str())),
            );
        if let Some(index) = again {
            let index = index + 1;
            return Some(format!(
                "{kind} `{}` has the batch as dimension {index}; expected max_batch 0",
                tensor.name
            ));
        }
    }
    None
}

fn batch_symbol(tensor: &GraphTensor) -> Option<&str> {
    match tensor.dims.first() {
        Some(GraphDim::Symbol(symbol)) => Some(symbol),
        _ => None,
    }
}

/// Runs two rows together and alone. When the answers differ, the model is not batched, or refused if its settings ask
/// for a batch.
pub(crate) fn verify(
    files: &ModelFiles,
    mut session: Box<dyn Session>,
    options: &LoadOptions,
) -> Result<Box<dyn Session>, LoadError> {
    let from_graph = matches!(files.format, crate::Format::Onnx);
    if session.signature().max_batch < 2 || !from_graph {
        return Ok(session);
    }
    let Err(doubt) = rows_are_independent(session.as_mut()) else { return Ok(session) };
    let model = &files.name;
    if options.free_batch || options.max_batch.is_some() {
        let (Doubt::Unchecked(reason) | Doubt::Differs(reason)) = doubt;
        return Err(LoadError::Batch { model: model.to_string(), reason });
    }
    match doubt {
        Doubt::Unchecked(reason) => {
            tracing::info!(%model, reason, "not batched: whether a batch changes its answers is unknown");
        }
        Doubt::Differs(reason) => {
            tracing::warn!(%model, reason, "not batched: a batch would change its answers");
        }
    }
    let mut signature = session.signature().clone();
    signature.max_batch = 0;
    Ok(Box::new(Unbatched { session, signature }))
}

/// A session whose model must not be batched.
struct Unbatched {
    session: Box<dyn Session>,
    signature: Signature,
}

impl Session for Unbatched {
    fn run(&mut self, batch: &Batch) -> Result<Vec<oip::Tensor>, RunError> {
        self.session.run(batch)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn engine(&self) -> &'static str {
        self.session.engine()
    }

    fn settles_each_size(&self) -> bool {
        self.session.settles_each_size()
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        self.session.interrupt()
    }

    fn runs_on_any_thread(&self) -> bool {
        self.session.runs_on_any_thread()
    }

    fn prepared(&self) -> Option<PreparedModel> {
        self.session.prepared()
    }

    fn trim(&mut self) {
        self.session.trim();
    }
}

/// Why a model is not batched.
enum Doubt {
    /// The samples do not run.
    Unchecked(String),
    /// The answers to the samples differ.
    Differs(String),
}

fn rows_are_independent(session: &mut dyn Session) -> Result<(), Doubt> {
    let signature = session.signature().clone();
    let (extent, first) = sample::try_extents(session).map_err(|reason| {
        Doubt::Unchecked(format!("batches cannot be checked: no sample input runs: {reason}"))
    })?;
    let rows = [0, 1].map(|row| sample::row(&signature, extent, row));
    let [Some(row), Some(other)] = rows else {
        return Err(Doubt::Unchecked("its inputs are too large to be checked".to_owned()));
    };
    let alone = [first, run(session, &other).map_err(Doubt::Unchecked)?];
    let both = sample::join(&[row, other]);
    let together =
        run(session, &both).map_err(|reason| Doubt::Unchecked(format!("two rows do not run: {reason}")))?;
    same_rows(&signature, &alone, &together).map_err(Doubt::Differs)
}

/// Whether the answer to a batch of two rows is that to each of them.
pub(crate) fn same_rows(
    signature: &Signature,
    alone: &[Vec<oip::Tensor>; 2],
    together: &[oip::Tensor],
) -> Result<(), String> {
    for (index, spec) in signature.outputs.iter().enumerate() {
        let (Some(both), [Some(first), Some(second)]) = (
            together.get(index),
            [0, 1].map(|row: usize| alone.get(row).and_then(|outputs| outputs.get(index))),
        ) else {
            return Err(format!("output `{}` is missing", spec.name));
        };
        if both.shape.extents().first() != Some(&2) {
            return Err(format!(
                "output `{}` of two rows has shape {}: expected 2 rows",
                spec.name, both.shape
            ));
        }
        let mut separate = first.data.to_vec();
        separate.extend_from_slice(&second.data);
        if separate.len() != both.data.len() {
            return Err(format!("output `{}` of two rows is not as long as those of each row", spec.name));
        }
        let difference = difference(&separate, &both.data, spec.datatype);
        if difference > ROW_TOLERANCE {
            return Err(format!(
                "output `{}` of a row differs by {:.2} % of its largest value when another row is in the batch",
                spec.name,
                difference * 100.0
            ));
        }
    }
    Ok(())
}

fn run(session: &mut dyn Session, batch: &Batch) -> Result<Vec<oip::Tensor>, String> {
    session.run(batch).map_err(|error| error.to_string())
}

/// Largest difference between two runs of numbers as a share of the largest number; 0 or 1 for other types.
pub(crate) fn difference(left: &[u8], right: &[u8], datatype: Datatype) -> f64 {
    let (Some(left_values), Some(right_values)) =
        (sample::numbers(left, datatype), sample::numbers(right, datatype))
    else {
        return if left == right { 0.0 } else { 1.0 };
    };
    let largest = left_values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let scale = if largest > 0.0 { largest } else { 1.0 };
    left_values
        .iter()
        .zip(&right_values)
        .filter(|(a, b)| !(a.is_nan() && b.is_nan()))
        .map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() / scale })
        .fold(0.0, |worst: f64, value| if value.is_nan() { f64::INFINITY } else { worst.max(value) })
}

#[cfg(test)]
mod tests;
