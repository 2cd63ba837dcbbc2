//! Codes that the stand-in returns (`cuda.h`, `CUresult`).

pub(crate) const SUCCESS: u32 = 0;
pub(crate) const INVALID_VALUE: u32 = 1;
pub(crate) const OUT_OF_MEMORY: u32 = 2;
pub(crate) const NOT_INITIALIZED: u32 = 3;
pub(crate) const NO_DEVICE: u32 = 100;
pub(crate) const INVALID_DEVICE: u32 = 101;
pub(crate) const INVALID_CONTEXT: u32 = 201;
pub(crate) const INVALID_PTX: u32 = 218;
pub(crate) const INVALID_HANDLE: u32 = 400;
pub(crate) const NOT_FOUND: u32 = 500;
pub(crate) const NOT_READY: u32 = 600;
pub(crate) const ILLEGAL_ADDRESS: u32 = 700;
pub(crate) const INVALID_RESOURCE_TYPE: u32 = 914;
pub(crate) const INVALID_RESOURCE_CONFIGURATION: u32 = 915;

/// Sticky codes: after one of these, every call of the process returns it.
pub(crate) const STICKY: &[u32] = &[4, 214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719];

/// Names of codes, each with a terminating zero for C.
pub(crate) const NAMES: &[(u32, &str)] = &[
    (SUCCESS, "CUDA_SUCCESS\0"),
    (INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE\0"),
    (OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY\0"),
    (NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED\0"),
    (4, "CUDA_ERROR_DEINITIALIZED\0"),
    (NO_DEVICE, "CUDA_ERROR_NO_DEVICE\0"),
    (INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE\0"),
    (INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT\0"),
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE\0"),
    (INVALID_PTX, "CUDA_ERROR_INVALID_PTX\0"),
    (INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE\0"),
    (NOT_FOUND, "CUDA_ERROR_NOT_FOUND\0"),
    (NOT_READY, "CUDA_ERROR_NOT_READY\0"),
    (ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS\0"),
    (701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES\0"),
    (719, "CUDA_ERROR_LAUNCH_FAILED\0"),
    (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH\0"),
    (INVALID_RESOURCE_TYPE, "CUDA_ERROR_INVALID_RESOURCE_TYPE\0"),
    (INVALID_RESOURCE_CONFIGURATION, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION\0"),
    (999, "CUDA_ERROR_UNKNOWN\0"),
];
