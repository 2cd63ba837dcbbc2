//! The driver's functions by their C names. Each counts the call, checks its pointers, and calls the machine.

#![expect(
    unsafe_code,
    reason = "these are C functions: they are exported by name and write through pointers"
)]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::codes::{INVALID_CONTEXT, INVALID_VALUE, NAMES, SUCCESS};
use crate::graphs::Recorded;
use crate::machine::{Answer, Machine};
use crate::resources::Resource;
use crate::shape::Shape;

/// The environment variable that holds the [`Shape`].
pub(crate) const SHAPE_VARIABLE: &str = "CUDA_STANDIN_SHAPE";

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Runs `work` on the machine of this process.
pub(crate) fn with_machine<T>(work: impl FnOnce(&mut Machine) -> T) -> T {
    static MACHINE: OnceLock<Mutex<Machine>> = OnceLock::new();
    let machine = MACHINE.get_or_init(|| {
        let text = std::env::var(SHAPE_VARIABLE).unwrap_or_default();
        let (shape, problem) = match text.parse::<Shape>() {
            Ok(shape) => (shape, None),
            Err(problem) => (Shape::default(), Some(problem)),
        };
        let mut machine = Machine::new(shape);
        if let Some(problem) = problem {
            machine.broken(format!("{SHAPE_VARIABLE}: {problem}"), 0);
        }
        Mutex::new(machine)
    });
    work(&mut machine.lock().unwrap_or_else(PoisonError::into_inner))
}

fn answer(call: &str, work: impl FnOnce(&mut Machine, usize) -> Answer<()>) -> c_uint {
    let current = CURRENT.get();
    let result = with_machine(|machine| {
        machine.enter(call)?;
        work(machine, current)
    });
    result.err().unwrap_or(SUCCESS)
}

/// Writes a result to the caller's pointer.
pub(crate) fn give<T>(place: *mut T, value: T) -> Answer<()> {
    if place.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller of a driver's function provides space for the result; null was refused.
    unsafe { place.write(value) };
    Ok(())
}

/// A handle as a pointer, like the driver's types.
fn handle(value: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(value)
}

/// A `CUDA_MEMCPY3D`, of which only the types of memory are filled in.
#[repr(C)]
pub struct CopyNode {
    source: [usize; 4],
    source_kind: u32,
    source_rest: [usize; 6],
    target: [usize; 4],
    target_kind: u32,
    target_rest: [usize; 9],
}

impl CopyNode {
    /// From the host (`CU_MEMORYTYPE_HOST`) to the device (`CU_MEMORYTYPE_DEVICE`).
    const OF_HOST: Self = Self {
        source: [0; 4],
        source_kind: 1,
        source_rest: [0; 6],
        target: [0; 4],
        target_kind: 2,
        target_rest: [0; 9],
    };
}

const _: () = assert!(size_of::<CopyNode>() == 200, "the size of the driver's type");

/// Defines functions of the driver; the body gets the machine and the thread's current context.
macro_rules! driver {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) |$machine:ident, $current:ident| $body:expr;)*) => {
        $(
            /// The driver's function of this name.
            ///
            /// # Safety
            /// Pointers are null or valid for what the driver writes or reads there.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_uint {
                answer(stringify!($name), |$machine, $current| {
                    let _ = $current;
                    $body
                })
            }
        )*
    };
}

driver! {
    fn cuInit(flags: c_uint) |machine, current| machine.init(flags);
    fn cuDriverGetVersion(version: *mut c_int) |machine, current| {
        give(version, c_int::try_from(machine.shape.driver).unwrap_or(0))
    };
    fn cuGetErrorName(code: c_uint, name: *mut *const c_char) |machine, current| {
        let _ = &machine;
        let found = NAMES.iter().find(|(known, _)| *known == code).ok_or(INVALID_VALUE)?;
        give(name, found.1.as_ptr().cast())
    };
    fn cuDeviceGetCount(count: *mut c_int) |machine, current| {
        give(count, c_int::try_from(machine.gpus.len()).unwrap_or(0))
    };
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) |machine, current| {
        machine.gpu(ordinal)?;
        give(device, ordinal)
    };
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) |machine, current| {
        machine.gpu(device)?;
        let length = usize::try_from(length).unwrap_or(0).checked_sub(1).ok_or(INVALID_VALUE)?;
        let text = machine.shape.name.replace('_', " ");
        for (index, byte) in text.bytes().take(length).chain([0]).enumerate() {
            give(name.wrapping_add(index).cast(), byte)?;
        }
        Ok(())
    };
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) |machine, current| {
        let index = machine.gpu(device)?;
        let number = u8::try_from(index).unwrap_or(u8::MAX);
        give(uuid, std::array::from_fn(|byte| if byte == 15 { number } else { 0x5a }))
    };
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) |machine, current| {
        machine.gpu(device)?;
        let number = match attribute {
            16 => machine.shape.sms,
            75 => machine.shape.capability / 10,
            76 => machine.shape.capability % 10,
            _ => return Err(INVALID_VALUE),
        };
        give(value, c_int::try_from(number).unwrap_or(c_int::MAX))
    };
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) |machine, current| {
        machine.gpu(device)?;
        give(bytes, usize::try_from(machine.shape.memory_bytes).unwrap_or(usize::MAX))
    };
    fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) |machine, current| {
        let retained = machine.retain(device)?;
        give(context, handle(retained))
    };
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) |machine, current| machine.release(device);
    fn cuCtxSetCurrent(context: *mut c_void) |machine, current| {
        machine.set_current(context.addr())?;
        CURRENT.set(context.addr());
        Ok(())
    };
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) |machine, current| {
        machine.current_gpu("cuCtxGetStreamPriorityRange", current)?;
        give(least, 0)?;
        give(greatest, -5)
    };
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |machine, current| {
        let (unused, all) = machine.memory(current)?;
        give(free, usize::try_from(unused).unwrap_or(usize::MAX))?;
        give(total, usize::try_from(all).unwrap_or(usize::MAX))
    };
    fn cuDeviceGetDevResource(device: c_int, resource: *mut Resource, kind: c_uint) |machine, current| {
        let found = machine.device_resource(device, kind)?;
        give(resource, found)
    };
    fn cuDevSmResourceSplitByCount(
        parts: *mut Resource,
        count: *mut c_uint,
        input: *const Resource,
        remainder: *mut Resource,
        flags: c_uint,
        least: c_uint,
    ) |machine, current| {
        if input.is_null() || count.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null; the caller passes a resource and a number, as the driver's header requires.
        let (whole, length) = unsafe { (*input, *count) };
        let (found, rest) = machine.split(&whole, (!parts.is_null()).then_some(length), flags, least)?;
        if !parts.is_null() {
            for (index, part) in found.iter().enumerate() {
                give(parts.wrapping_add(index), *part)?;
            }
            if !remainder.is_null() {
                give(remainder, rest)?;
            }
        }
        give(count, c_uint::try_from(found.len()).unwrap_or(0))
    };
    fn cuDevResourceGenerateDesc(descriptor: *mut *mut c_void, parts: *mut Resource, count: c_uint)
    |machine, current| {
        if parts.is_null() || count == 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and the caller says that this many are there.
        let parts = unsafe { std::slice::from_raw_parts(parts, usize::try_from(count).unwrap_or(0)) };
        let described = machine.describe(parts)?;
        give(descriptor, handle(described))
    };
    fn cuGreenCtxCreate(green: *mut *mut c_void, descriptor: *mut c_void, device: c_int, flags: c_uint)
    |machine, current| {
        let created = machine.green_create(descriptor.addr(), device, flags)?;
        give(green, handle(created))
    };
    fn cuGreenCtxDestroy(green: *mut c_void) |machine, current| machine.green_destroy(green.addr());
    fn cuGreenCtxGetDevResource(green: *mut c_void, resource: *mut Resource, kind: c_uint) |machine, current| {
        let found = machine.green_resource(green.addr(), kind)?;
        give(resource, found)
    };
    fn cuGreenCtxStreamCreate(stream: *mut *mut c_void, green: *mut c_void, flags: c_uint, priority: c_int)
    |machine, current| {
        let created = machine.green_stream(green.addr(), flags, priority)?;
        give(stream, handle(created))
    };
    fn cuGreenCtxRecordEvent(green: *mut c_void, event: *mut c_void) |machine, current| {
        machine.green_record(green.addr(), event.addr())
    };
    fn cuStreamCreateWithPriority(stream: *mut *mut c_void, flags: c_uint, priority: c_int) |machine, current| {
        let created = machine.stream_create(current, flags, priority)?;
        give(stream, handle(created))
    };
    fn cuStreamDestroy_v2(stream: *mut c_void) |machine, current| machine.stream_destroy(stream.addr());
    fn cuStreamQuery(stream: *mut c_void) |machine, current| machine.stream_query(stream.addr());
    fn cuStreamSynchronize(stream: *mut c_void) |machine, current| machine.stream_synchronize(stream.addr());
    fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) |machine, current| {
        let created = machine.event_create(current)?;
        give(event, handle(created))
    };
    fn cuEventRecord(event: *mut c_void, stream: *mut c_void) |machine, current| {
        machine.event_record(event.addr(), stream.addr())
    };
    fn cuEventQuery(event: *mut c_void) |machine, current| machine.event_query(event.addr());
    fn cuEventSynchronize(event: *mut c_void) |machine, current| machine.event_synchronize(event.addr());
    fn cuEventDestroy_v2(event: *mut c_void) |machine, current| machine.event_destroy(event.addr());
    fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_char) |machine, current| {
        if image.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null; an image that is PTX text has a terminating zero.
        let text = unsafe { CStr::from_ptr(image) }.to_string_lossy();
        let loaded = machine.module_load(current, &text)?;
        give(module, handle(loaded))
    };
    fn cuModuleUnload(module: *mut c_void) |machine, current| machine.module_unload(module.addr());
    fn cuModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char)
    |machine, current| {
        if name.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null; names have a terminating zero.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let found = machine.function(module.addr(), &name)?;
        give(function, handle(found))
    };
    fn cuLaunchKernel(
        function: *mut c_void,
        blocks: c_uint,
        _blocks_y: c_uint,
        _blocks_z: c_uint,
        threads: c_uint,
        _threads_y: c_uint,
        _threads_z: c_uint,
        _shared: c_uint,
        stream: *mut c_void,
        parameters: *mut *mut c_void,
        _extra: *mut *mut c_void,
    ) |machine, current| {
        if current == 0 {
            return Err(machine.broken("cuLaunchKernel without a current context".to_owned(), INVALID_CONTEXT));
        }
        let kernel = machine.kernel(function.addr())?;
        let mut arguments = Vec::new();
        for index in 0..kernel.parameters() {
            // SAFETY: the caller passes a pointer per parameter of the kernel; those of the stand-in have 8 bytes each.
            arguments.push(unsafe { parameters.wrapping_add(index).read().cast::<u64>().read() });
        }
        machine.launch(kernel, (blocks, threads), &arguments, stream.addr())
    };
    fn cuStreamBeginCapture_v2(stream: *mut c_void, mode: c_uint) |machine, current| {
        machine.capture_begin(stream.addr(), mode)
    };
    fn cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) |machine, current| {
        let recorded = machine.capture_end(stream.addr())?;
        give(graph, handle(recorded))
    };
    fn cuGraphGetNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) |machine, current| {
        let graph = machine.graph("cuGraphGetNodes", graph.addr())?;
        if !nodes.is_null() {
            for (index, (node, _)) in graph.work.iter().enumerate() {
                give(nodes.wrapping_add(index), handle(*node))?;
            }
        }
        give(count, graph.work.len())
    };
    fn cuGraphNodeGetType(node: *mut c_void, kind: *mut c_uint) |machine, current| {
        let found = machine.node_kind(node.addr())?;
        give(kind, found)
    };
    fn cuGraphMemcpyNodeGetParams(node: *mut c_void, copy: *mut CopyNode) |machine, current| {
        machine.node_kind(node.addr())?;
        give(copy, CopyNode::OF_HOST)
    };
    fn cuPointerGetAttribute(_data: *mut c_void, _attribute: c_uint, _address: u64) |machine, current| {
        let _ = &machine;
        Err(INVALID_VALUE)
    };
    fn cuGraphInstantiateWithFlags(launchable: *mut *mut c_void, graph: *mut c_void, _flags: c_ulonglong)
    |machine, current| {
        let made = machine.graph_instantiate(graph.addr())?;
        give(launchable, handle(made))
    };
    fn cuGraphLaunch(launchable: *mut c_void, stream: *mut c_void) |machine, current| {
        machine.graph_launch(launchable.addr(), stream.addr())
    };
    fn cuGraphExecDestroy(launchable: *mut c_void) |machine, current| {
        machine.launchable_destroy(launchable.addr())
    };
    fn cuGraphDestroy(graph: *mut c_void) |machine, current| machine.graph_destroy(graph.addr());
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) |machine, current| {
        let allocated = machine.allocate(current, u64::try_from(bytes).unwrap_or(u64::MAX))?;
        give(address, u64::try_from(allocated).unwrap_or(0))
    };
    fn cuMemFree_v2(address: u64) |machine, current| {
        machine.free(usize::try_from(address).unwrap_or(0))
    };
    fn cuMemHostAlloc(place: *mut *mut c_void, bytes: usize, _flags: c_uint) |machine, current| {
        let pinned = machine.pin(current, u64::try_from(bytes).unwrap_or(u64::MAX))?;
        give(place, std::ptr::with_exposed_provenance_mut(pinned))
    };
    fn cuMemFreeHost(place: *mut c_void) |machine, current| machine.unpin(place.addr());
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) |machine, current| {
        machine.copies_on("cuMemcpyHtoDAsync", stream.addr())?;
        if from.is_null() {
            return Err(INVALID_VALUE);
        }
        if machine.keep(stream.addr(), Recorded::HostCopy) {
            return Ok(());
        }
        let to = machine.device_bytes("cuMemcpyHtoDAsync", usize::try_from(to).unwrap_or(0), bytes)?;
        // SAFETY: not null, and the caller says that this many bytes are there; our buffers are not the caller's.
        to.copy_from_slice(unsafe { std::slice::from_raw_parts(from.cast(), bytes) });
        Ok(())
    };
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) |machine, current| {
        machine.copies_on("cuMemcpyDtoHAsync", stream.addr())?;
        if to.is_null() {
            return Err(INVALID_VALUE);
        }
        if machine.keep(stream.addr(), Recorded::HostCopy) {
            return Ok(());
        }
        let from = machine.device_bytes("cuMemcpyDtoHAsync", usize::try_from(from).unwrap_or(0), bytes)?;
        // SAFETY: not null, and the caller says that this many bytes may be written; our buffers are not the caller's.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.cast(), bytes) };
        Ok(())
    };
}
