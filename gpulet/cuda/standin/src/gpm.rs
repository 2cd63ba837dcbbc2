//! The management library's GPU performance monitoring (GPM): samples, and metrics between two of them. GPUs before
//! Hopper (capability 9.0) do not have it.

#![expect(
    unsafe_code,
    reason = "these are C functions: they are exported by name and write through pointers"
)]

use std::ffi::{c_uint, c_void};

use crate::calls::give;
use crate::machine::{Answer, Machine};
use crate::management::{INVALID_ARGUMENT, NOT_SUPPORTED, Part, management};

/// The least capability with GPM, times ten.
const CAPABILITY_MIN: u32 = 90;

/// Numbers of metrics and their constant values in percent: active SMs, occupancy of the SMs, memory bandwidth.
const METRICS: [(c_uint, f64); 3] = [(2, 42.0), (3, 18.5), (10, 27.0)];

/// `nvmlGpmSupport_t`.
#[repr(C)]
pub struct Support {
    version: c_uint,
    supported: c_uint,
}

/// `nvmlGpmMetric_t`.
#[repr(C)]
pub struct Metric {
    id: c_uint,
    result: c_uint,
    value: f64,
    names: [*mut c_void; 3],
}

/// `nvmlGpmMetricsGet_t` up to its first metric; the other metrics follow in memory.
#[repr(C)]
pub struct Request {
    version: c_uint,
    count: c_uint,
    samples: [*mut c_void; 2],
    first: Metric,
}

fn gpu(machine: &Machine, device: *mut c_void) -> Answer<usize> {
    match Part::of(device)? {
        Part::Gpu(index) if machine.shape.capability >= CAPABILITY_MIN => Ok(index),
        Part::Gpu(_) | Part::Instance(_) => Err(NOT_SUPPORTED),
    }
}

/// Whether both samples are of the same GPU and the second one is later.
fn are_in_order(machine: &Machine, samples: [*mut c_void; 2]) -> bool {
    let [first, second] = samples.map(|sample| machine.samples.get(&sample.addr()).copied().flatten());
    first.zip(second).is_some_and(|((of, earlier), (same, later))| of == same && earlier < later)
}

management! {
    fn nvmlGpmQueryDeviceSupport(device: *mut c_void, support: *mut Support) |machine| {
        let supported = match gpu(machine, device) {
            Ok(_) => 1,
            Err(NOT_SUPPORTED) => 0,
            Err(code) => return Err(code),
        };
        give(support, Support { version: 1, supported })
    };
    fn nvmlGpmSampleAlloc(sample: *mut *mut c_void) |machine| {
        let handle = machine.new_handle();
        machine.samples.insert(handle, None);
        give(sample, std::ptr::without_provenance_mut(handle))
    };
    fn nvmlGpmSampleFree(sample: *mut c_void) |machine| {
        match machine.samples.remove(&sample.addr()) {
            Some(_) => Ok(()),
            None => {
                machine.broken("nvmlGpmSampleFree without a sample".to_owned(), 0);
                Err(INVALID_ARGUMENT)
            }
        }
    };
    fn nvmlGpmSampleGet(device: *mut c_void, sample: *mut c_void) |machine| {
        let index = gpu(machine, device)?;
        let number = machine.count("nvmlGpmSampleGet");
        match machine.samples.get_mut(&sample.addr()) {
            Some(place) => {
                *place = Some((index, number));
                Ok(())
            }
            None => Err(INVALID_ARGUMENT),
        }
    };
    fn nvmlGpmMetricsGet(request: *mut Request) |machine| {
        if request.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: not null; the caller passes a request of the library's type, which starts like this.
        let (count, samples, first) =
            unsafe { ((*request).count, (*request).samples, &raw mut (*request).first) };
        if !are_in_order(machine, samples) {
            machine.broken("nvmlGpmMetricsGet with samples that are not in order".to_owned(), 0);
            return Err(INVALID_ARGUMENT);
        }
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the request has `count` metrics, one after the other.
            let metric = unsafe { &mut *first.add(at) };
            let known = METRICS.iter().find(|(id, _)| *id == metric.id);
            (metric.result, metric.value) = known.map_or((NOT_SUPPORTED, 0.0), |(_, value)| (0, *value));
        }
        Ok(())
    };
}
