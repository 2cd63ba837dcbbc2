//! Sessions of ONNX Runtime's CUDA provider on gpulets.
//!
//! **\[open\]**, by the tests that are ignored without a GPU: that a session stays on its gpulet's SMs; that it answers
//! as one on the CPU; that a second session of a model takes less than a tenth of its weights.

#![expect(unsafe_code, reason = "the engine is vouched for the stream; each use says why it is sound")]

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use gpulet::DeviceError;
use models::engine::Session;
use models::engine::ort::{Cuda, CudaFault, CudaStream, DeviceBytes, HostBytes, SharedWeights};
use models::{LoadOptions, Loader, ModelFiles};

use crate::driver::{DeviceBuffer, DriverError, PinnedBuffer};
use crate::ledger::Need;
use crate::maker::{SessionMaker, StreamRef};

/// Whether models may use cuDNN. It may refuse a green context's stream, for it compares the stream's context with
/// that of its own handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cudnn {
    /// They use it, and one that it refuses is loaded without it.
    #[default]
    IfItRuns,
    /// They use it, and one that it refuses is not loaded.
    Always,
    /// They do not: the runtime has kernels of its own for some of what it does.
    Never,
}

/// How models run on GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnnxOptions {
    /// Bytes of the device that one session's arena may have; `None`: what the device's books leave.
    pub arena_bytes_max: Option<u64>,
    /// Whether products of 32-bit floats may be rounded to 10 bits of mantissa, which is several times as fast.
    pub tf32: bool,
    /// Whether convolutions are laid out with channels last.
    pub prefer_nhwc: bool,
    /// Whether models may use cuDNN.
    pub cudnn: Cudnn,
    /// Whether sessions of a model share its weights.
    pub share_weights: bool,
}

impl Default for OnnxOptions {
    /// TF32, as the exporting frameworks compute convolutions; cuDNN if it runs; shared weights.
    fn default() -> Self {
        let cudnn = Cudnn::IfItRuns;
        Self { arena_bytes_max: None, tf32: true, prefer_nhwc: false, cudnn, share_weights: true }
    }
}

/// Makes sessions of ONNX models with the runtime that a [`Loader`] found. One serves any number of devices.
pub struct OnnxMaker {
    loader: Arc<Loader>,
    options: OnnxOptions,
    /// Weights by device.
    weights: Mutex<HashMap<i32, Arc<SharedWeights>>>,
}

impl OnnxMaker {
    /// A maker whose loader should have a runtime with the CUDA provider; each load says so if it has not.
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

    /// Weights are the file and what lies beside it.
    fn need(&self, files: &ModelFiles, _options: &LoadOptions) -> Need {
        let file = u64::try_from(files.bytes.len()).unwrap_or(u64::MAX);
        let beside = files.folder().map_or(0, |folder| bytes_beside(folder, "model.onnx"));
        Need { weights: file.saturating_add(beside), arena: 0 }
    }
}

/// Loads as it may be loaded; a refusal by cuDNN names what is left to try.
fn with_or_without_cudnn<T>(cudnn: Cudnn, load: impl Fn(bool) -> Result<T, String>) -> Result<T, String> {
    let refusal = match load(cudnn != Cudnn::Never) {
        Err(refusal) if cudnn == Cudnn::IfItRuns && refusal.contains("CUDNN") => refusal,
        loaded => return loaded,
    };
    tracing::warn!("cuDNN does not run on this gpulet, so the model is loaded without it: {refusal}");
    load(false).map_err(|without| {
        format!(
            "{refusal}; nor without cuDNN: {without}; `devices.gpu_backend` can be `cuda-mps`, where its daemon runs, or \
             `cuda-stream`"
        )
    })
}

/// Bytes of the files of a folder but one.
fn bytes_beside(folder: &Path, file: &str) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let others = entries.filter(|entry| entry.file_name() != file);
    others
        .filter_map(|entry| entry.metadata().ok())
        .filter(|data| data.is_file())
        .map(|data| data.len())
        .sum()
}

/// Lends an engine the stream of a gpulet, which stays open as long as what this gives exists.
pub fn lend(stream: StreamRef) -> Arc<dyn CudaStream> {
    Arc::new(Lent(stream))
}

/// A gpulet's stream, as the engine takes it.
struct Lent(StreamRef);

struct Pinned(PinnedBuffer);

struct OnDevice(DeviceBuffer);

fn fault(error: DriverError) -> CudaFault {
    CudaFault { message: error.to_string(), sticky: error.is_sticky() }
}

impl HostBytes for Pinned {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

// SAFETY: the driver allocated so many bytes there, which only dropping the buffer frees.
unsafe impl DeviceBytes for OnDevice {
    fn address(&self) -> usize {
        // Device addresses are those of a 64-bit process.
        usize::try_from(self.0.address()).unwrap_or_default()
    }

    fn length(&self) -> usize {
        self.0.len()
    }
}

// SAFETY: a `StreamRef` keeps its gpulet, and with it the stream, which belongs to the device's primary context.
// `settle` gives `Ok` only when the driver says that all work on the stream is over; where it gives an error, what the
// stream was to do has failed and touches nothing any more.
unsafe impl CudaStream for Lent {
    fn device(&self) -> i32 {
        self.0.device()
    }

    fn address(&self) -> usize {
        self.0.address()
    }

    fn host_bytes(&self, length: usize) -> Result<Box<dyn HostBytes>, CudaFault> {
        let buffer = PinnedBuffer::allocate(self.0.stream().primary(), length).map_err(fault)?;
        Ok(Box::new(Pinned(buffer)))
    }

    fn device_bytes(&self, length: usize) -> Result<Box<dyn DeviceBytes>, CudaFault> {
        let buffer = DeviceBuffer::allocate(self.0.stream().primary(), length).map_err(fault)?;
        Ok(Box::new(OnDevice(buffer)))
    }

    unsafe fn copy_in(&self, from: &[u8], to: usize) -> Result<(), CudaFault> {
        // SAFETY: as the caller vouches.
        unsafe { self.0.stream().queue_copy_in(from, to as u64) }.map_err(fault)
    }

    unsafe fn copy_out(&self, from: usize, to: &mut [u8]) -> Result<(), CudaFault> {
        // SAFETY: as the caller vouches.
        unsafe { self.0.stream().queue_copy_out(from as u64, to) }.map_err(fault)
    }

    fn wait(&self) -> Result<(), CudaFault> {
        self.0.stream().settle().map_err(fault)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const MISMATCH: &str = "CUDNN failure 3007: CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH (running Conv node)";

    /// Loads where cuDNN refuses, and without it where `without` says; what was tried.
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
    fn what_is_left_to_try_is_named() {
        let (loaded, _) = tried(Cudnn::IfItRuns, Err(MISMATCH), Err("NOT_IMPLEMENTED: Conv"));
        let said = loaded.unwrap_err();
        assert!(
            said.starts_with(MISMATCH) && said.contains("nor without cuDNN: NOT_IMPLEMENTED: Conv"),
            "{said}"
        );
        assert!(said.contains("`cuda-mps`") && said.ends_with("`cuda-stream`"), "{said}");
    }
}
