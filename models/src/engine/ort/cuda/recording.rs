//! Recorded runs (CUDA graphs). The kernels of a model are enqueued once and recorded; from then on, one call enqueues all of
//! them.
//!
//! This is worth it twice. Enqueuing the kernels of ResNet-50 one by one takes longer than a GPU needs for a small batch.
//! And from version 1.20 on, ONNX Runtime forgets cuDNN's plan of a convolution when a batch has another shape than the
//! last one, and plans again: 0.04 to 1.3 s for each change of size, measured on an H200. A recorded run
//! contains the planned kernels.
//!
//! The runtime itself can record too (`enable_cuda_graph`), but one thread must then load and run a session, and
//! calls of other threads fail while it records. Here only calls of the recording thread are restricted.
//!
//! A recording uses fixed memory: its own inputs and outputs, and memory of the session's arena. One run of a
//! session is in flight at a time, so runs of different sizes may use the same memory. The arena must not shrink.
//!
//! Not every model can be recorded: one that waits for the device, or computes on the host, is refused while it is recorded.
//! What was recorded must give the same answers to two batches as the runs before it.

use ::ort::session::{RunOptions, Session as OrtInner};
use ::ort::value::DynTensor;
use oip::Tensor;

use super::binding::{Binding, Left, Refused};
use super::fault;
use super::stream::{CudaGraph, CudaStream};
use crate::engine::Batch;
use crate::{Signature, batching};

/// A recorded run of batches of one shape. Drop it before the session, and only when no work is in flight.
pub(super) struct Recorded {
    pub(super) graph: Box<dyn CudaGraph>,
    pub(super) inputs: Vec<DynTensor>,
    pub(super) outputs: Vec<Left>,
}

impl Recorded {
    /// Whether these are tensors of the recorded shapes.
    pub(super) fn fits(&self, tensors: &[&Tensor]) -> bool {
        let same = |(input, tensor): (&DynTensor, &&Tensor)| **input.shape() == *tensor.shape.to_wire();
        self.inputs.len() == tensors.len() && self.inputs.iter().zip(tensors).all(same)
    }
}

/// Two batches of the same shapes with different values, and the answers of plain runs to them.
pub(super) struct Known<'a> {
    pub(super) batches: [&'a Batch; 2],
    pub(super) answers: [Vec<Tensor>; 2],
}

/// Records the run of batches of the shapes of the known ones, which must have run last.
///
/// # Errors
/// Why runs of these shapes stay plain.
pub(super) fn record(
    binding: &mut Binding,
    (session, options): (&mut OrtInner, &RunOptions),
    stream: &dyn CudaStream,
    signature: &Signature,
    known: &Known<'_>,
) -> Result<(), String> {
    binding.record(session, stream, signature, options).map_err(|refused| why(&refused))?;
    let mut check = || {
        for (batch, answer) in known.batches.iter().zip(&known.answers) {
            let given = binding.run(session, stream, batch, signature, options);
            let given = given.map_err(|refused| why(&refused))?;
            if !agree(&given, answer) {
                return Err("a recorded run gives other answers".to_owned());
            }
        }
        Ok(())
    };
    let checked = check();
    if checked.is_err() {
        // The newest is last: a run puts the recording that it used there.
        binding.recorded.pop();
    }
    checked
}

/// Whether two answers to the same batch agree.
pub(super) fn agree(given: &[Tensor], wanted: &[Tensor]) -> bool {
    let agrees = |(one, other): (&Tensor, &Tensor)| {
        one.shape == other.shape
            && batching::difference(&other.data, &one.data, other.datatype) <= batching::ROW_TOLERANCE
    };
    given.len() == wanted.len() && given.iter().zip(wanted).all(agrees)
}

fn why(refused: &Refused) -> String {
    match refused {
        Refused::Input(reason) => reason.clone(),
        Refused::Binding(error) | Refused::Run(error) => fault::in_short(error.message()),
        Refused::Fault(fault) => fault.to_string(),
    }
}
