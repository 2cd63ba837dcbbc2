//! ONNX Runtime's CUDA provider on gpulets.
//!
//! **\[open\]**, for the tests that are ignored without a GPU: that a session stays on its gpulet's SMs; that it returns
//! the same results as on the CPU; that a second session of a model takes less than a tenth of its weights.

#![expect(
    unsafe_code,
    reason = "the engine trusts the stream that it is lent; each use says why it is sound"
)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use gpulet::DeviceError;
use models::engine::Session;
use models::engine::ort::{Cuda, CudaFault, CudaGraph, CudaStream, DeviceBytes, HostBytes, SharedWeights};
use models::{LoadOptions, Loader, ModelFiles};

use crate::driver::{DeviceBuffer, DriverError, Graph, PinnedBuffer};
use crate::ledger::Need;
use crate::maker::{SessionMaker, StreamRef};

/// Whether models may use cuDNN. cuDNN may refuse the stream of a green context, because it compares the stream's context
/// with that of its own handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cudnn {
    /// They use it; a model that cuDNN refuses is loaded without it.
    #[default]
    IfItRuns,
    /// They use it; a model that cuDNN refuses is not loaded.
    Always,
    /// They do not use it: the runtime has its own kernels for some operators.
    Never,
}

/// How models run on GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnnxOptions {
    /// Upper bound on the bytes of one session's arena; none: what the ledger leaves.
    pub arena_bytes_max: Option<u64>,
    /// Whether products of 32-bit floats may be rounded to 10 bits of mantissa (TF32), which is several times faster.
    pub tf32: bool,
    /// Whether convolutions use the channels-last layout.
    pub prefer_nhwc: bool,
    /// Whether models may use cuDNN.
    pub cudnn: Cudnn,
    /// Whether sessions of a model share its weights.
    pub share_weights: bool,
}

impl Default for OnnxOptions {
    /// TF32, as frameworks compute convolutions by default; cuDNN where it works; shared weights.
    fn default() -> Self {
        let cudnn = Cudnn::IfItRuns;
        Self { arena_bytes_max: None, tf32: true, prefer_nhwc: false, cudnn, share_weights: true }
    }
}

/// Makes sessions of ONNX models with the runtime that a [`Loader`] found. One maker serves any number of devices.
pub struct OnnxMaker {
    loader: Arc<Loader>,
    options: OnnxOptions,
    /// Weights by device.
    weights: Mutex<HashMap<i32, Arc<SharedWeights>>>,
}

impl OnnxMaker {
    /// A maker for this loader. If its runtime has no CUDA provider, each load fails with an error that says so.
    pub fn new(loader: Arc<Loader>, options: OnnxOptions) -> Self {
        Self { loader, options, weights: Mutex::default() }
    }

    fn weights_of(&self, device: i32) -> Option<Arc<SharedWeights>> {
        let mut weights = self.weights.lock().unwrap_or_else(PoisonError::into_inner);
        self.options.share_weights.then(|| Arc::clone(weights.entry(device).or_default()))
    }
}

impl SessionMaker for OnnxMaker {
    fn make(
        &self,
        files: &ModelFiles,
        options: &LoadOptions,
        stream: StreamRef,
    ) -> Result<Box<dyn Session>, DeviceError> {
        let load = |cudnn: bool| {
            let accelerator = Cuda {
                memory_limit: self.options.arena_bytes_max,
                tf32: self.options.tf32,
                prefer_nhwc: self.options.prefer_nhwc,
                cudnn,
                weights: self.weights_of(stream.device()),
                stream: lend(stream.clone()),
            };
            let options = LoadOptions { accelerator: Some(accelerator), ..options.clone() };
            self.loader.load(files, &options).map_err(|error| error.to_string())
        };
        with_or_without_cudnn(self.options.cudnn, load).map_err(DeviceError)
    }

    /// Weights are the file and the other files of its folder.
    fn need(&self, files: &ModelFiles, _options: &LoadOptions) -> Need {
        let file = u64::try_from(files.bytes.len()).unwrap_or(u64::MAX);
        let external = files.folder().map_or(0, |folder| bytes_except(folder, "model.onnx"));
        Need { weights: file.saturating_add(external), arena: 0 }
    }
}

/// Loads with or without cuDNN as configured. If cuDNN refuses, the error names the alternatives.
fn with_or_without_cudnn<T>(cudnn: Cudnn, load: impl Fn(bool) -> Result<T, String>) -> Result<T, String> {
    let refusal = match load(cudnn != Cudnn::Never) {
        Err(refusal) if cudnn == Cudnn::IfItRuns && refusal.contains("CUDNN") => refusal,
        loaded => return loaded,
    };
    tracing::warn!("cuDNN does not work on this gpulet, so the model is loaded without it: {refusal}");
    load(false).map_err(|without| {
        format!(
            "{refusal}; without cuDNN: {without}; other values of `devices.gpu_backend` are `cuda-mps`, which needs its \
             daemon, and `cuda-stream`"
        )
    })
}

/// Bytes of the files of a folder except `file`.
fn bytes_except(folder: &Path, file: &str) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let others = entries.filter(|entry| entry.file_name() != file);
    others
        .filter_map(|entry| entry.metadata().ok())
        .filter(|data| data.is_file())
        .map(|data| data.len())
        .sum()
}

/// Lends an engine the stream of a gpulet, which stays open while the result exists.
pub fn lend(stream: StreamRef) -> Arc<dyn CudaStream> {
    Arc::new(Lent(stream))
}

/// The stream of a gpulet, as the engine takes it.
struct Lent(StreamRef);

/// Work that a lent stream recorded. Fields drop in this order.
struct Recorded {
    graph: Graph,
    stream: StreamRef,
}

impl CudaGraph for Recorded {
    unsafe fn launch(&self) -> Result<(), CudaFault> {
        // SAFETY: this stream recorded it; the rest is as the caller ensures.
        unsafe { self.graph.launch(self.stream.stream()) }.map_err(fault)
    }
}

fn fault(error: DriverError) -> CudaFault {
    CudaFault { message: error.to_string(), sticky: error.is_sticky() }
}

impl HostBytes for PinnedBuffer {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }
}

// SAFETY: the driver allocated this many bytes there, and only dropping the buffer frees them.
unsafe impl DeviceBytes for DeviceBuffer {
    fn address(&self) -> usize {
        // Device addresses are those of a 64-bit process.
        usize::try_from(self.address()).unwrap_or_default()
    }

    fn length(&self) -> usize {
        self.len()
    }
}

// SAFETY: a `StreamRef` keeps its gpulet open, and with it the stream, which belongs to the device's primary context.
// `finish` returns `Ok` only when the driver says that all work on the stream has finished; after an error, the work on
// the stream has failed and accesses no memory any more.
unsafe impl CudaStream for Lent {
    fn device(&self) -> i32 {
        self.0.device()
    }

    fn address(&self) -> usize {
        self.0.address()
    }

    fn host_bytes(&self, length: usize) -> Result<Box<dyn HostBytes>, CudaFault> {
        Ok(Box::new(PinnedBuffer::allocate(self.0.stream().primary(), length).map_err(fault)?))
    }

    fn device_bytes(&self, length: usize) -> Result<Box<dyn DeviceBytes>, CudaFault> {
        Ok(Box::new(DeviceBuffer::allocate(self.0.stream().primary(), length).map_err(fault)?))
    }

    unsafe fn copy_in(&self, from: &[u8], to: usize) -> Result<(), CudaFault> {
        // SAFETY: as the caller ensures.
        unsafe { self.0.stream().queue_copy_in(from, to as u64) }.map_err(fault)
    }

    unsafe fn copy_out(&self, from: usize, to: &mut [u8]) -> Result<(), CudaFault> {
        // SAFETY: as the caller ensures.
        unsafe { self.0.stream().queue_copy_out(from as u64, to) }.map_err(fault)
    }

    fn record(&self, enqueue: &mut dyn FnMut()) -> Result<Box<dyn CudaGraph>, CudaFault> {
        let graph = Graph::capture(self.0.stream(), enqueue);
        let graph =
            graph.map_err(|error| CudaFault { message: error.to_string(), sticky: error.is_sticky() })?;
        Ok(Box::new(Recorded { graph, stream: self.0.clone() }))
    }

    fn wait(&self) -> Result<(), CudaFault> {
        self.0.stream().finish().map_err(fault)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const MISMATCH: &str = "CUDNN failure 3007: CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH (running Conv node)";

    /// Loads with these results with and without cuDNN. Returns the result and what was tried.
    fn tried(
        cudnn: Cudnn,
        with: Result<u32, &str>,
        without: Result<u32, &str>,
    ) -> (Result<u32, String>, Vec<bool>) {
        let tried = RefCell::new(Vec::new());
        let loaded = with_or_without_cudnn(cudnn, |cudnn| {
            tried.borrow_mut().push(cudnn);
            if cudnn { with.map_err(str::to_owned) } else { without.map_err(str::to_owned) }
        });
        (loaded, tried.into_inner())
    }

    #[test]
    fn a_model_that_cudnn_refuses_is_loaded_without_it() {
        assert_eq!(tried(Cudnn::IfItRuns, Ok(1), Ok(2)), (Ok(1), vec![true]));
        assert_eq!(tried(Cudnn::IfItRuns, Err(MISMATCH), Ok(2)), (Ok(2), vec![true, false]));
        assert_eq!(tried(Cudnn::Always, Err(MISMATCH), Ok(2)), (Err(MISMATCH.to_owned()), vec![true]));
        assert_eq!(tried(Cudnn::Never, Ok(1), Ok(2)), (Ok(2), vec![false]));
        let other = "CUDA failure 2: out of memory";
        assert_eq!(tried(Cudnn::IfItRuns, Err(other), Ok(2)), (Err(other.to_owned()), vec![true]));
    }

    #[test]
    fn the_error_names_the_alternatives() {
        let (loaded, _) = tried(Cudnn::IfItRuns, Err(MISMATCH), Err("NOT_IMPLEMENTED: Conv"));
        let error = loaded.unwrap_err();
        assert!(
            error.starts_with(MISMATCH) && error.contains("; without cuDNN: NOT_IMPLEMENTED: Conv"),
            "{error}"
        );
        assert!(error.contains("`cuda-mps`") && error.ends_with("`cuda-stream`"), "{error}");
    }
}
