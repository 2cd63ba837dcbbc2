//! Classifies errors of the runtime: which part failed, and whether the client caused it.
//!
//! The runtime reports what CUDA's libraries say as text (`CUDA failure 700: an illegal memory access was encountered ;
//! GPU=0 ; hostname=... ; expr=...`), under one code of its own for all of it.

use ::ort::Error;

use super::super::{NAME, whose_mistake};
use crate::Signature;
use crate::engine::RunError;
use crate::engine::guard::one_line;

/// Which part failed, from the smallest to the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// The batch: it needed more than there was. A smaller batch or a larger gpulet may work.
    Batch,
    /// The gpulet: a library rejects its stream, or a handle that it made for that stream.
    Gpulet,
    /// The machine: it has no usable device or driver.
    Machine,
    /// The device, for this process.
    Device,
}

/// Phrases of CUDA's libraries and of the runtime's arenas. The numbers change between versions (77 was an illegal
/// access before CUDA 10.1, 700 is since), the words do not.
const PHRASES: &[(&str, Fault)] = &[
    ("illegal memory access", Fault::Device),
    ("misaligned address", Fault::Device),
    ("illegal instruction", Fault::Device),
    ("invalid program counter", Fault::Device),
    ("hardware stack error", Fault::Device),
    ("operation not supported on global/shared address space", Fault::Device),
    ("device-side assert", Fault::Device),
    ("unspecified launch failure", Fault::Device),
    ("launch timed out", Fault::Device),
    ("uncorrectable ECC", Fault::Device),
    ("uncorrectable NVLink", Fault::Device),
    ("context is destroyed", Fault::Device),
    ("MPS client", Fault::Device),
    ("cudaErrorIllegalAddress", Fault::Device),
    ("cudaErrorLaunchFailure", Fault::Device),
    ("cudaErrorAssert", Fault::Device),
    ("no CUDA-capable device", Fault::Machine),
    ("invalid device ordinal", Fault::Machine),
    ("driver version is insufficient", Fault::Machine),
    ("busy or unavailable", Fault::Machine),
    ("system has unsupported display driver", Fault::Machine),
    ("Failed to load library ", Fault::Machine),
    ("cannot open shared object file", Fault::Machine),
    ("Failed to allocate memory for requested buffer", Fault::Batch),
    ("Available memory of", Fault::Batch),
    ("out of memory", Fault::Batch),
    ("too many resources requested for launch", Fault::Batch),
    ("too many blocks in cooperative launch", Fault::Batch),
    ("CURAND failure", Fault::Gpulet),
    ("CUFFT failure", Fault::Gpulet),
];

/// Codes of the CUDA runtime after which no call of this process succeeds, except those that phrases cover.
const STICKY: &[u32] = &[4, 214, 220, 226, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 999];

/// Where the message of a library begins, after the runtime's own stack frames.
const BEGINNINGS: &[&str] = &[
    "CUDA failure ",
    "CUBLAS failure ",
    "CUDNN failure ",
    "CUDNN_FE failure ",
    "CUFFT failure ",
    "CURAND failure ",
    "Failed to load library ",
];

/// The fault that a message describes, the worst if there are several. `None`: it is not about a device.
pub(super) fn of(message: &str) -> Option<Fault> {
    let phrase = PHRASES.iter().filter(|(phrase, _)| message.contains(phrase)).map(|(_, fault)| *fault);
    let number = message.split("CUDA failure ").skip(1).map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        match digits.parse::<u32>() {
            Ok(2 | 701 | 720) => Fault::Batch,
            Ok(3 | 35 | 46 | 100 | 101 | 802..=804) => Fault::Machine,
            Ok(number) if STICKY.contains(&number) => Fault::Device,
            _ => Fault::Gpulet,
        }
    });
    // As in `CUBLAS_STATUS_ALLOC_FAILED` and `CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED`.
    let status = message.split("_STATUS_").skip(1).map(|rest| {
        let word: String = rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
        if word.contains("ALLOC") { Fault::Batch } else { Fault::Gpulet }
    });
    phrase.chain(number).chain(status).max()
}

/// A message without host names and without the stack frames of the runtime, which would fill the size limit.
pub(super) fn in_short(message: &str) -> String {
    let Some(at) = BEGINNINGS.iter().filter_map(|word| message.find(word)).min() else {
        return one_line(message);
    };
    let said = message.get(at..).unwrap_or_default();
    let end = said.find(" ; GPU=").or_else(|| said.find('\n')).unwrap_or(said.len());
    let node = message.get(..at).and_then(|before| {
        let (_, rest) = before.split_once("while running ")?;
        let (node, _) = rest.split_once(" Status Message:")?;
        Some(node)
    });
    let said = said.get(..end).unwrap_or(said);
    match node {
        Some(node) => one_line(&format!("{said} (running {node})")),
        None => one_line(said),
    }
}

/// The error of a failed run on a device.
pub(in super::super) fn run_error(model: &str, signature: &Signature, error: &Error) -> RunError {
    let Some(fault) = of(error.message()) else { return whose_mistake(model, signature, error) };
    let said = in_short(error.message());
    let message = |what: &str| format!("model `{model}`: engine `{NAME}`: {what}{said}");
    match fault {
        Fault::Batch => RunError::Engine(message("out of memory or launch resources on the device: ")),
        Fault::Gpulet => RunError::Engine(message("the gpulet cannot run it: ")),
        Fault::Machine => RunError::Engine(message("the device cannot be used: ")),
        Fault::Device => RunError::DeviceFailed(message("the device is lost: ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As users of the runtime reported them, frames and all.
    const SAID: &[(&str, Option<Fault>, &str)] = &[
        (
            "Non-zero status code returned while running Gemm node. Name:'Gemm_568' Status Message: CUBLAS failure 13: \
             CUBLAS_STATUS_EXECUTION_FAILED ; GPU=0 ; hostname=LED-PC ; file=onnxruntime/core/providers/cuda/math/gemm.cc \
             ; line=121 ; expr=cublasGemmHelper( GetCublasHandle(ctx), CUBLAS_OP_N);",
            Some(Fault::Gpulet),
            "CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED (running Gemm node. Name:'Gemm_568')",
        ),
        (
            "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:121 std::conditional_t<THRW, void, \
             onnxruntime::common::Status> onnxruntime::CudaCall(ERRTYPE, const char*, const char*, ERRTYPE, const char*, \
             const char*, int) [with ERRTYPE = cudaError; bool THRW = true] CUDA failure 700: an illegal memory access \
             was encountered ; GPU=0 ; hostname=10cb601a4a05 ; file=cuda_execution_provider.cc ; line=448 ; \
             expr=cudaStreamSynchronize(static_cast<cudaStream_t>(stream_));",
            Some(Fault::Device),
            "CUDA failure 700: an illegal memory access was encountered",
        ),
        (
            "CUDA failure 77: an illegal memory access was encountered ; GPU=0 ; hostname=C246-WU4 ; \
             expr=cudaEventDestroy(read_event_);",
            Some(Fault::Device),
            "CUDA failure 77: an illegal memory access was encountered",
        ),
        (
            "CUDA failure 719: unspecified launch failure ; GPU=0 ; hostname=h ; expr=cudaGetLastError();",
            Some(Fault::Device),
            "CUDA failure 719: unspecified launch failure",
        ),
        (
            "CUDA failure 999: unknown error ; GPU=192915439 ; expr=cudaSetDevice(info_.device_id); ",
            Some(Fault::Device),
            "CUDA failure 999: unknown error",
        ),
        (
            "CUDA failure 101: invalid device ordinal ; GPU=0 ; hostname=4dbec2b03d4e ; \
             expr=cudaSetDevice(info_.device_id);",
            Some(Fault::Machine),
            "CUDA failure 101: invalid device ordinal",
        ),
        (
            "CUDA failure 100: no CUDA-capable device is detected ; GPU=-1 ; hostname=h ; expr=cudaSetDevice(0);",
            Some(Fault::Machine),
            "CUDA failure 100: no CUDA-capable device is detected",
        ),
        (
            "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version ; GPU=0 ; hostname=h",
            Some(Fault::Machine),
            "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version",
        ),
        (
            "Non-zero status code returned while running Einsum node. Name:'e' Status Message: Einsum op: Transpose \
             failed: CUDA failure 1: invalid argument ; GPU=1 ; hostname=3eee3adbcb74 ; expr=cudaMemcpyAsync(...)",
            Some(Fault::Gpulet),
            "CUDA failure 1: invalid argument (running Einsum node. Name:'e')",
        ),
        (
            "CUDA failure 2: out of memory ; GPU=0 ; hostname=h ; expr=cudaMalloc((void**)&p, size);",
            Some(Fault::Batch),
            "CUDA failure 2: out of memory",
        ),
        (
            "Exception during initialization: cuda_call.cc:114 CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; \
             hostname=egg ; expr=cublasCreate(&cublas_handle_);",
            Some(Fault::Batch),
            "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED",
        ),
        (
            "CUDNN failure 1: CUDNN_STATUS_NOT_INITIALIZED ; GPU=0 ; hostname=h ; file=cuda_stream_handle.cc ; line=52 ; \
             expr=cudnnCreate(&cudnn_handle_); ",
            Some(Fault::Gpulet),
            "CUDNN failure 1: CUDNN_STATUS_NOT_INITIALIZED",
        ),
        (
            "CUDNN failure 3: CUDNN_STATUS_BAD_PARAM ; GPU=0 ; hostname=WIN10-DEV ; expr=cudnnSetTensorNdDescriptor()",
            Some(Fault::Gpulet),
            "CUDNN failure 3: CUDNN_STATUS_BAD_PARAM",
        ),
        (
            "Non-zero status code returned while running Conv node. Name:'Conv_3' Status Message: bfc_arena.cc:376 void* \
             onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Failed to allocate memory \
             for requested buffer of size 643840",
            Some(Fault::Batch),
            "Non-zero status code returned while running Conv node. Name:'Conv_3' Status Message: bfc_arena.cc:376 void* \
             onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Failed to allocate memory \
             for requested buffer of size 643840",
        ),
        (
            "/onnxruntime_src/onnxruntime/core/session/provider_bridge_ort.cc:2043 onnxruntime::Provider& \
             onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library \
             /opt/ort/libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: cannot open shared object file: No \
             such file or directory\n",
            Some(Fault::Machine),
            "Failed to load library /opt/ort/libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: cannot open \
             shared object file: No such file or directory",
        ),
        (
            "Got invalid dimensions for input: x for the following indices index: 1 Got: 4 Expected: 3",
            None,
            "Got invalid dimensions for input: x for the following indices index: 1 Got: 4 Expected: 3",
        ),
    ];

    #[test]
    fn messages_say_how_much_is_broken() {
        for (message, fault, short) in SAID {
            assert_eq!(of(message), *fault, "{message}");
            assert_eq!(in_short(message), *short);
        }
    }

    #[test]
    fn of_several_failures_the_worst_counts() {
        let chain = "CUDNN failure 4000: CUDNN_STATUS_INTERNAL_ERROR ; GPU=0 ; expr=a; CUDA failure 700: an illegal \
                     memory access was encountered ; GPU=0";
        assert_eq!(of(chain), Some(Fault::Device));
    }

    #[test]
    fn a_run_on_a_broken_device_is_lost_and_one_without_memory_is_not() {
        let signature = Signature { inputs: Vec::new(), outputs: Vec::new(), max_batch: 1 };
        // Making an error of the runtime's needs the runtime.
        if crate::loader::tests::loader().ort.is_err() {
            return;
        }
        let said = |message: &str| run_error("m", &signature, &Error::new(message));
        let RunError::DeviceFailed(lost) = said("CUDA failure 716: misaligned address ; GPU=0 ; hostname=h")
        else {
            panic!("expected a lost device")
        };
        assert_eq!(lost, "model `m`: engine `ort`: the device is lost: CUDA failure 716: misaligned address");
        let RunError::Engine(memory) = said("CUDA failure 2: out of memory ; GPU=0 ; hostname=h") else {
            panic!("expected a failed batch")
        };
        assert!(
            memory.contains("out of memory or launch resources on the device: CUDA failure 2"),
            "{memory}"
        );
        assert!(matches!(said("anything else"), RunError::Engine(said) if !said.contains("device")));
    }
}
