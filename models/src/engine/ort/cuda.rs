//! ONNX Runtime's CUDA provider, on the stream of a gpulet.
//!
//! A session stays on one gpulet: the provider receives the gpulet's stream when the session is created, and enqueues all
//! of its kernels and copies there. Nothing here links CUDA. The provider comes with the runtime's
//! library (`onnxruntime-gpu`), and the owner of the stream lends it as a [`CudaStream`].
//!
//! The inputs of a batch are copied through pinned memory to device tensors of the session. The batch runs with outputs
//! bound to the device, and the outputs are copied back through pinned memory. The provider's own wait at the end of a run
//! is switched off: the session waits for the stream once. Models with strings, and runtimes that refuse the binding, run on host tensors instead, where the
//! runtime copies and waits itself.
//!
//! After a session is made, the runtime says which nodes it gave to which provider. Small arithmetic on shapes belongs
//! on the CPU; a [heavy operator](placement) there is a load error that names it.
//!
//! Weights are shared by the gpulets of a device through [`SharedWeights`].
//!
//! A new session runs [every size](rows) of batch once; a batch of another number of rows is filled up to the next of
//! them, so that no request waits for a kernel to be loaded or for cuDNN to plan a shape.
//!
//! Runs of these sizes are [recorded](recording), because the runtime plans convolutions again whenever the size changes.
//!
//! Seen on an H200: cuDNN accepts a green context's stream, and `Gather` on the GPU does not refuse an index out of range as it
//! does on the CPU.
//!
//! **\[open\]**, to be measured on a GPU:
//! - whether the provider finds its arena when it is asked to shrink it (`gpu:N`). If not, the run is repeated without
//!   shrinking, and the session does not ask again;
//! - whether other operators with indices read beyond a table;
//! - whether runs can be recorded, and what that saves;
//! - that a second session takes less than a tenth of its weights (see [`SharedWeights`] for what is known).

mod binding;
mod fault;
mod placement;
mod recording;
mod rows;
mod session;
mod staging;
mod stream;
mod weights;

use std::fmt;
use std::sync::Arc;

use ::ort::ep::cuda::ConvAlgorithmSearch;
use ::ort::ep::{self, ArbitrarilyConfigurableExecutionProvider, ArenaExtendStrategy};
use ::ort::ep::{ExecutionProvider, ExecutionProviderDispatch};

use super::options::{OrtSettings, Provider};
use super::{failure, one_line};
use crate::EngineFailure;
pub(super) use binding::element_type;
pub(super) use session::{Source, load};
pub(super) use staging::lay_out;
pub use stream::{CudaFault, CudaGraph, CudaStream, DeviceBytes, HostBytes};
pub use weights::SharedWeights;

/// A gpulet of an NVIDIA GPU, as a session needs it. Equal if they are the same stream, used the same way.
#[derive(Clone)]
pub struct Cuda {
    /// Its stream.
    pub stream: Arc<dyn CudaStream>,
    /// Upper bound on the bytes of the session's arena on the device; `None`: no bound. Shared weights are not part of the
    /// arena.
    pub memory_limit: Option<u64>,
    /// Whether products of 32-bit floats may be rounded to 10 bits of mantissa, which is several times as fast.
    pub tf32: bool,
    /// Whether convolutions use the channels-last layout, which suits tensor cores but adds transposes around them.
    pub prefer_nhwc: bool,
    /// Whether cuDNN may be used. Without it the runtime has kernels of its own for some of what cuDNN does, and refuses the
    /// rest; runtimes before 1.28 know no such option and refuse it.
    pub cudnn: bool,
    /// Weights of the device, shared by its sessions; `None`: each session has its own.
    pub weights: Option<Arc<SharedWeights>>,
}

impl PartialEq for Cuda {
    fn eq(&self, other: &Self) -> bool {
        let key = |cuda: &Self| {
            let weights = cuda.weights.as_ref().map(Arc::as_ptr);
            let stream = (cuda.stream.device(), cuda.stream.address());
            (stream, cuda.memory_limit, cuda.tf32, cuda.prefer_nhwc, cuda.cudnn, weights)
        };
        key(self) == key(other)
    }
}

impl Eq for Cuda {}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda")
            .field("device", &self.stream.device())
            .field("stream", &format_args!("{:#x}", self.stream.address()))
            .field("memory_limit", &self.memory_limit)
            .field("tf32", &self.tf32)
            .field("prefer_nhwc", &self.prefer_nhwc)
            .field("cudnn", &self.cudnn)
            .field("shared_weights", &self.weights.is_some())
            .finish()
    }
}

/// The provider's option for recorded runs. Sessions record runs themselves, unless it is 0.
const RECORDS: &str = "enable_cuda_graph";

/// Whether a session may record its runs.
fn records(settings: &OrtSettings) -> bool {
    !settings
        .options_of(Provider::Cuda)
        .any(|(key, value)| key == RECORDS && matches!(value.as_str(), "0" | "false"))
}

/// The provider with its options, once it is certain that the runtime has it and that the stream is one.
#[expect(unsafe_code, reason = "the provider keeps the stream's address")]
fn provider(cuda: &Cuda, settings: &OrtSettings) -> Result<ExecutionProviderDispatch, EngineFailure> {
    let address = cuda.stream.address();
    if address == 0 {
        return Err(failure(
            "the gpulet's stream has address 0: expected a stream of its own, the null stream runs on every SM".to_owned(),
        ));
    }
    match ep::CUDA::is_available() {
        Ok(true) => {}
        Ok(false) => {
            return Err(failure(
                "this ONNX Runtime has no CUDA provider: expected the one of onnxruntime-gpu".to_owned(),
            ));
        }
        Err(error) => return Err(failure(one_line(error.message()))),
    }
    let mut provider = ep::CUDA::default()
        .with_device_id(cuda.stream.device())
        .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
        // The exhaustive search runs every algorithm at a shape's first run, co-located with gpulets that serve.
        .with_conv_algorithm_search(ConvAlgorithmSearch::Heuristic)
        .with_tf32(cuda.tf32)
        .with_prefer_nhwc(cuda.prefer_nhwc);
    if !cuda.cudnn {
        provider = provider.with_arbitrary_config("enable_cudnn", "0");
    }
    if let Some(limit) = cuda.memory_limit {
        provider = provider.with_memory_limit(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    for (key, value) in settings.options_of(Provider::Cuda).filter(|(key, _)| *key != RECORDS) {
        provider = provider.with_arbitrary_config(key, value);
    }
    // SAFETY: implementers of `CudaStream` guarantee the address as long as it exists, and `session::load` keeps
    // it in the session, where it is dropped last.
    let provider = unsafe { provider.with_compute_stream(std::ptr::without_provenance_mut(address)) };
    Ok(provider.build().error_on_failure())
}

#[cfg(test)]
mod tests;
