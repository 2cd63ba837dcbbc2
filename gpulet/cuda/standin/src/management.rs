//! The management library's functions by their C names, for the GPUs of the driver: those that read. None sets anything.

#![expect(
    unsafe_code,
    reason = "these are C functions: they are exported by name and write through pointers"
)]

use std::ffi::{c_char, c_uint, c_void};

use crate::calls::{give, with_machine};
use crate::codes::INVALID_VALUE;
use crate::machine::{Answer, Machine};

/// `NVML_ERROR_UNINITIALIZED`.
const UNINITIALIZED: u32 = 1;
/// `NVML_ERROR_INVALID_ARGUMENT`.
pub(crate) const INVALID_ARGUMENT: u32 = 2;
/// `NVML_ERROR_NOT_SUPPORTED`.
pub(crate) const NOT_SUPPORTED: u32 = 3;
/// `NVML_ERROR_NOT_FOUND`.
const NOT_FOUND: u32 = 6;
/// Indices of instances on a GPU with MIG.
const INSTANCE_PLACES: u32 = 7;

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct Memory {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlUtilization_t`.
#[repr(C)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// A GPU, or an instance of the first one. Handles are numbers above zero.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Gpu(usize),
    Instance(u32),
}

impl Part {
    pub(crate) fn of(handle: *mut c_void) -> Answer<Self> {
        match handle.addr() {
            0 => Err(INVALID_ARGUMENT),
            number @ 1..0x1000 => Ok(Self::Gpu(number - 1)),
            number => u32::try_from(number - 0x1000).map(Self::Instance).map_err(|_| INVALID_ARGUMENT),
        }
    }

    fn uuid(self) -> String {
        match self {
            Self::Gpu(index) => format!("GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a{index:02x}"),
            Self::Instance(place) => format!("MIG-5a5a5a5a-5a5a-5a5a-5a5a-00000000{place:04x}"),
        }
    }

    fn name(self, machine: &Machine) -> String {
        let name = machine.shape.name.replace('_', " ");
        match self {
            Self::Gpu(_) => name,
            Self::Instance(_) => format!("{name} MIG 1g.10gb"),
        }
    }

    /// All bytes and those in use.
    fn memory(self, machine: &Machine) -> (u64, u64) {
        let total = machine.shape.memory_bytes;
        match self {
            Self::Gpu(index) => (total, machine.gpus.get(index).map_or(0, |gpu| gpu.used_bytes)),
            Self::Instance(_) => (total / u64::from(INSTANCE_PLACES + 1), 0),
        }
    }
}

fn text(place: *mut c_char, length: c_uint, text: &str) -> Answer<()> {
    if usize::try_from(length).unwrap_or(0) <= text.len() {
        return Err(INVALID_ARGUMENT);
    }
    text.bytes()
        .chain([0])
        .enumerate()
        .try_for_each(|(index, byte)| give(place.wrapping_add(index).cast(), byte))
}

pub(crate) fn answer(call: &str, work: impl FnOnce(&mut Machine) -> Answer<()>) -> c_uint {
    let result = with_machine(|machine| {
        machine.enter_management(call).map_err(|code| code.unwrap_or(UNINITIALIZED))?;
        work(machine).map_err(|code| if code == INVALID_VALUE { INVALID_ARGUMENT } else { code })
    });
    result.err().unwrap_or(0)
}

/// Defines functions of the library; the body gets the machine.
macro_rules! management {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) |$machine:ident| $body:expr;)*) => {
        $(
            /// The management library's function of this name.
            ///
            /// # Safety
            /// Pointers are null or valid for what the library writes there.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_uint {
                $crate::management::answer(stringify!($name), |$machine| $body)
            }
        )*
    };
}
pub(crate) use management;

management! {
    fn nvmlInit_v2() |machine| {
        machine.management += 1;
        Ok(())
    };
    fn nvmlShutdown() |machine| {
        machine.management = machine.management.saturating_sub(1);
        Ok(())
    };
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) |machine| {
        text(version, length, &format!("{}.0", machine.shape.driver / 20))
    };
    fn nvmlDeviceGetCount_v2(count: *mut c_uint) |machine| {
        give(count, c_uint::try_from(machine.gpus.len()).unwrap_or(0))
    };
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut *mut c_void) |machine| {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if index >= machine.gpus.len() {
            return Err(INVALID_ARGUMENT);
        }
        give(device, std::ptr::without_provenance_mut(index + 1))
    };
    fn nvmlDeviceGetUUID(device: *mut c_void, uuid: *mut c_char, length: c_uint) |_machine| {
        text(uuid, length, &Part::of(device)?.uuid())
    };
    fn nvmlDeviceGetName(device: *mut c_void, name: *mut c_char, length: c_uint) |machine| {
        text(name, length, &Part::of(device)?.name(machine))
    };
    fn nvmlDeviceGetMemoryInfo_v2(device: *mut c_void, memory: *mut Memory) |machine| {
        let (total, used) = Part::of(device)?.memory(machine);
        give(memory, Memory { version: 2, total, reserved: 0, free: total.saturating_sub(used), used })
    };
    fn nvmlDeviceGetUtilizationRates(device: *mut c_void, rates: *mut Utilization) |_machine| {
        match Part::of(device)? {
            Part::Gpu(_) => give(rates, Utilization { gpu: 37, memory: 12 }),
            Part::Instance(_) => Err(NOT_SUPPORTED),
        }
    };
    fn nvmlDeviceGetClockInfo(device: *mut c_void, which: c_uint, mhz: *mut c_uint) |_machine| {
        Part::of(device)?;
        match which {
            1 => give(mhz, 1755),
            2 => give(mhz, 2619),
            _ => Err(INVALID_ARGUMENT),
        }
    };
    fn nvmlDeviceGetCurrentClocksThrottleReasons(device: *mut c_void, reasons: *mut u64) |_machine| {
        Part::of(device)?;
        // The power cap, and a bit that has no name yet.
        give(reasons, 0x4 | 1 << 60)
    };
    fn nvmlDeviceGetPowerUsage(device: *mut c_void, _milliwatts: *mut c_uint) |_machine| {
        Part::of(device)?;
        Err(NOT_SUPPORTED)
    };
    fn nvmlDeviceGetTemperature(device: *mut c_void, _sensor: c_uint, celsius: *mut c_uint) |_machine| {
        Part::of(device)?;
        give(celsius, 41)
    };
    fn nvmlDeviceGetMigMode(device: *mut c_void, current: *mut c_uint, pending: *mut c_uint) |machine| {
        Part::of(device)?;
        let on = u32::from(machine.shape.instances > 0);
        give(current, on)?;
        give(pending, on)
    };
    fn nvmlDeviceGetMaxMigDeviceCount(device: *mut c_void, count: *mut c_uint) |_machine| {
        Part::of(device)?;
        give(count, INSTANCE_PLACES)
    };
    fn nvmlDeviceGetMigDeviceHandleByIndex(device: *mut c_void, place: c_uint, instance: *mut *mut c_void)
    |machine| {
        Part::of(device)?;
        // Every second index has an instance, as after some were removed.
        if !place.is_multiple_of(2) || place / 2 >= machine.shape.instances {
            return Err(NOT_FOUND);
        }
        let handle = 0x1000 + usize::try_from(place).unwrap_or(0);
        give(instance, std::ptr::without_provenance_mut(handle))
    };
}
