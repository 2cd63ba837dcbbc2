//! cudarc's types, its handle of the library, and the table of the calls that we make.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::mem::MaybeUninit;

use cudarc::driver::sys as cuda;
use libloading::Library;

pub(super) use cuda::{
    CUcontext, CUdevResourceDesc, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec,
    CUgraphNode, CUgreenCtx, CUmodule, CUstream,
};

/// A `CUresult` as a number: a newer driver may return codes that no enum has.
pub(super) type Code = u32;

/// The library; none if there is no driver. It is never unloaded.
pub(super) fn library() -> Option<&'static Library> {
    // SAFETY: loading runs the library's initialisers. It is the system's driver, which every program that uses a
    // GPU loads under these names.
    unsafe { cuda::is_culib_present().then(|| cuda::culib()) }
}

/// Declares a table of calls: field, symbol and argument types. The constants make the compiler compare the
/// arguments with cudarc's bindings.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident { $($symbol:ident($($kind:ty),* $(,)?);)* }) => {
        $(#[$doc])*
        #[expect(non_snake_case, reason = "the driver's names")]
        pub(super) struct $table {
            $(pub(super) $symbol: unsafe extern "C" fn($($kind),*) -> Code,)*
        }

        $(const _: unsafe fn($($kind),*) -> cuda::CUresult = cuda::$symbol;)*

        impl $table {
            /// Resolves every symbol. The error lists those that are missing.
            #[expect(non_snake_case, reason = "the driver's names")]
            pub(super) fn resolve(library: &Library) -> Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    // SAFETY: the type is the one that the driver's header gives this name, but for the enum that it
                    // returns, which has the size and the representation of the number.
                    let $symbol = unsafe {
                        library.get::<unsafe extern "C" fn($($kind),*) -> Code>(concat!(stringify!($symbol), "\0"))
                    };
                    let $symbol = match $symbol {
                        Ok(found) => Some(*found),
                        Err(_) => {
                            missing.push(stringify!($symbol));
                            None
                        }
                    };
                )*
                match ($($symbol,)*) {
                    ($(Some($symbol),)*) => Ok(Self { $($symbol),* }),
                    _ => Err(missing),
                }
            }
        }
    };
}

/// `cuGetErrorName` with the code as a number: cudarc's signature takes an enum that may lack it.
pub(super) type ErrorName = unsafe extern "C" fn(Code, *mut *const c_char) -> Code;

/// Resolves `cuGetErrorName`. Without it, errors have codes but no names.
pub(super) fn error_name(library: &Library) -> Option<ErrorName> {
    // SAFETY: the type is that of the driver's header, with the enum as its number.
    unsafe { library.get::<ErrorName>("cuGetErrorName\0") }.ok().map(|found| *found)
}

table! {
    /// Calls that every supported driver has.
    Base {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut CUdevice, c_int);
        cuDeviceGetName(*mut c_char, c_int, CUdevice);
        cuDeviceGetUuid_v2(*mut cuda::CUuuid, CUdevice);
        cuDeviceGetAttribute(*mut c_int, cuda::CUdevice_attribute, CUdevice);
        cuDeviceTotalMem_v2(*mut usize, CUdevice);
        cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        cuDevicePrimaryCtxRelease_v2(CUdevice);
        cuCtxSetCurrent(CUcontext);
        cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut CUdeviceptr, usize);
        cuMemFree_v2(CUdeviceptr);
        cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        cuMemFreeHost(*mut c_void);
        cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        cuStreamCreateWithPriority(*mut CUstream, c_uint, c_int);
        cuStreamDestroy_v2(CUstream);
        cuStreamQuery(CUstream);
        cuStreamSynchronize(CUstream);
        cuEventCreate(*mut CUevent, c_uint);
        cuEventDestroy_v2(CUevent);
        cuEventRecord(CUevent, CUstream);
        cuEventQuery(CUevent);
        cuEventSynchronize(CUevent);
    }
}

table! {
    /// Calls for green contexts with streams: 12.5 and later.
    Green {
        cuDeviceGetDevResource(CUdevice, *mut cuda::CUdevResource, cuda::CUdevResourceType);
        cuDevSmResourceSplitByCount(
            *mut cuda::CUdevResource,
            *mut c_uint,
            *const cuda::CUdevResource,
            *mut cuda::CUdevResource,
            c_uint,
            c_uint,
        );
        cuDevResourceGenerateDesc(*mut CUdevResourceDesc, *mut cuda::CUdevResource, c_uint);
        cuGreenCtxCreate(*mut CUgreenCtx, CUdevResourceDesc, CUdevice, c_uint);
        cuGreenCtxDestroy(CUgreenCtx);
        cuGreenCtxGetDevResource(CUgreenCtx, *mut cuda::CUdevResource, cuda::CUdevResourceType);
        cuGreenCtxStreamCreate(*mut CUstream, CUgreenCtx, c_uint, c_int);
        cuGreenCtxRecordEvent(CUgreenCtx, CUevent);
    }
}

table! {
    /// Calls for our own kernels, which measure GPUs. Serving does not need them.
    Kernels {
        cuModuleLoadData(*mut CUmodule, *const c_void);
        cuModuleUnload(CUmodule);
        cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
        cuLaunchKernel(
            CUfunction,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            CUstream,
            *mut *mut c_void,
            *mut *mut c_void,
        );
    }
}

table! {
    /// Calls for recorded work. Without them, each batch enqueues its kernels one by one.
    Graphs {
        cuStreamBeginCapture_v2(CUstream, cuda::CUstreamCaptureMode);
        cuStreamEndCapture(CUstream, *mut CUgraph);
        cuGraphGetNodes(CUgraph, *mut CUgraphNode, *mut usize);
        cuGraphNodeGetType(CUgraphNode, *mut cuda::CUgraphNodeType);
        cuGraphMemcpyNodeGetParams(CUgraphNode, *mut cuda::CUDA_MEMCPY3D);
        cuPointerGetAttribute(*mut c_void, cuda::CUpointer_attribute, CUdeviceptr);
        cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, c_ulonglong);
        cuGraphLaunch(CUgraphExec, CUstream);
        cuGraphExecDestroy(CUgraphExec);
        cuGraphDestroy(CUgraph);
    }
}

/// A `CUdevResource` that the driver filled in. Its type field may hold a number that the bindings' enum does not have,
/// so it is never read as the enum.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Resource(MaybeUninit<cuda::CUdevResource>);

impl Resource {
    /// All zeros.
    pub(super) const NONE: Self = Self(MaybeUninit::zeroed());

    pub(super) fn as_mut_ptr(&mut self) -> *mut cuda::CUdevResource {
        self.0.as_mut_ptr()
    }

    pub(super) fn as_ptr(&self) -> *const cuda::CUdevResource {
        self.0.as_ptr()
    }

    /// SMs, fewest SMs of a group, and what groups are multiples of; none if it holds no SMs.
    pub(super) fn sms(&self) -> Option<(u32, u32, u32)> {
        // SAFETY: every byte was zero or was written by the driver. The type is read as a number, for which any bytes
        // are valid.
        let (kind, sm) = unsafe {
            let kind = (&raw const (*self.0.as_ptr()).type_).cast::<u32>().read();
            (kind, (*self.0.as_ptr()).__bindgen_anon_1.sm)
        };
        let is_sms = kind == cuda::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM as u32;
        is_sms.then_some((sm.smCount, sm.minSmPartitionSize, sm.smCoscheduledAlignment)).filter(|sm| sm.0 > 0)
    }
}

/// What a node of recorded work does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    /// Runs on the device or does nothing: a kernel, a memset, an allocation of the recording's own.
    OnDevice,
    /// Copies bytes.
    Copy,
    /// Calls a function on the host.
    OnHost,
    /// Anything else.
    Other,
}

impl NodeKind {
    /// The kind of a `CUgraphNodeType`.
    pub(super) fn of(number: u32) -> Self {
        use cuda::CUgraphNodeType as Type;
        const ON_DEVICE: [Type; 5] = [
            Type::CU_GRAPH_NODE_TYPE_KERNEL,
            Type::CU_GRAPH_NODE_TYPE_MEMSET,
            Type::CU_GRAPH_NODE_TYPE_EMPTY,
            Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Type::CU_GRAPH_NODE_TYPE_MEM_FREE,
        ];
        match number {
            _ if ON_DEVICE.iter().any(|kind| *kind as u32 == number) => Self::OnDevice,
            _ if number == Type::CU_GRAPH_NODE_TYPE_MEMCPY as u32 => Self::Copy,
            _ if number == Type::CU_GRAPH_NODE_TYPE_HOST as u32 => Self::OnHost,
            _ => Self::Other,
        }
    }
}

/// Where a side of a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryKind {
    /// On the device.
    Device,
    /// At an address that says where.
    Unified,
    /// On the host, or in an array.
    Other,
}

impl MemoryKind {
    /// The kind of a `CUmemorytype`.
    pub(super) fn of(number: u32) -> Self {
        match number {
            _ if number == cuda::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32 => Self::Device,
            _ if number == cuda::CUmemorytype::CU_MEMORYTYPE_UNIFIED as u32 => Self::Unified,
            _ => Self::Other,
        }
    }
}

/// Source and target of a copy that the driver described.
pub(super) fn sides_of(copy: &MaybeUninit<cuda::CUDA_MEMCPY3D>) -> [(MemoryKind, CUdeviceptr); 2] {
    let copy = copy.as_ptr();
    // SAFETY: every byte was zero or was written by the driver. The types are read as numbers, for which any bytes are valid.
    unsafe {
        [
            (MemoryKind::of((&raw const (*copy).srcMemoryType).cast::<u32>().read()), (*copy).srcDevice),
            (MemoryKind::of((&raw const (*copy).dstMemoryType).cast::<u32>().read()), (*copy).dstDevice),
        ]
    }
}

pub(super) use cuda::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
pub(super) use cuda::CUdevice_attribute::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
};
pub(super) use cuda::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
pub(super) use cuda::{CUdevice_attribute, CUuuid};

/// Records work of this thread, whose calls may not wait; other threads are not affected.
pub(super) const CAPTURE_OF_THIS_THREAD: cuda::CUstreamCaptureMode =
    cuda::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

/// `CU_GREEN_CTX_DEFAULT_STREAM`, which drivers up to 13.0 require.
pub(super) const GREEN_DEFAULT_STREAM: c_uint =
    cuda::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM as c_uint;
/// `CU_STREAM_NON_BLOCKING`: never waits for the null stream.
pub(super) const NON_BLOCKING: c_uint = cuda::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
/// `CU_EVENT_DISABLE_TIMING`: makes recording and querying cheaper.
pub(super) const DISABLE_TIMING: c_uint = cuda::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint;
/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`.
pub(super) const IGNORE_COSCHEDULING: c_uint =
    cuda::CUdevSmResourceSplit_flags::CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING as c_uint;
/// `CUDA_SUCCESS`.
pub(super) const SUCCESS: Code = 0;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub(super) const INVALID_CONTEXT: Code = 201;
/// `CUDA_ERROR_INVALID_HANDLE`.
pub(super) const INVALID_HANDLE: Code = 400;
/// `CUDA_ERROR_NOT_READY`: not an error; the work still runs.
pub(super) const NOT_READY: Code = 600;
