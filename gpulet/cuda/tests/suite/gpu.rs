//! What only a GPU can confirm. Each begins with the probe and says why it does nothing where there is none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpulet::Device;
use gpulet_cuda::{Backend, CudaDevice, CudaOptions, Found, Monitor, probe};

use crate::stage::{Ears, Tracer, spec};

/// The first GPU that can be cut.
fn found() -> Option<Found> {
    let found = match probe() {
        Ok(found) => found,
        Err(absent) => {
            println!("skipped: {absent}");
            return None;
        }
    };
    let first = found.into_iter().find(|gpu| gpu.green.is_ok());
    if first.is_none() {
        println!("skipped: no GPU here can be cut into green contexts");
    }
    first
}

fn take(found: &Found, options: &CudaOptions) -> CudaDevice {
    CudaDevice::take(found, Backend::CudaGreen, Arc::new(Tracer::default()), options).unwrap()
}

#[test]
#[ignore = "needs a GPU"]
fn a_gpu_is_cut_as_the_documentation_says() {
    let Some(found) = found() else { return };
    let device = take(&found, &CudaOptions::default());
    let grid = device.grid();
    println!("{}: {} SMs, {} units, {} left over", found.name, found.sms, grid.units(), grid.remainder());
    assert_eq!(grid.sms(grid.whole()), found.sms);
    if found.capability.0 == 9 && found.sms == 132 {
        assert_eq!((grid.units(), grid.remainder()), (16, 4));
    }
    for units in grid.sizes() {
        let gpulet = device.open(&spec(0, 0, units), Ears::new()).unwrap();
        let granted = device.gpulets().remove(0).sms;
        assert_eq!(granted, grid.sms(grid.range(0, units).unwrap()), "{units} units");
        drop(gpulet);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpulets_are_made_in_milliseconds_and_leave_nothing() {
    let Some(found) = found() else { return };
    let before = used(&found);
    let device = take(&found, &CudaOptions { idle_contexts: 0, ..CudaOptions::default() });
    let mut times: Vec<Duration> = Vec::new();
    for round in 0..200 {
        let begun = Instant::now();
        let gpulet = device.open(&spec(0, round % 4, 4), Ears::new()).unwrap();
        times.push(begun.elapsed());
        drop(gpulet);
    }
    times.sort_unstable();
    println!("opening a gpulet: median {:?}, slowest {:?}", times[100], times[199]);
    assert!(times[100] < Duration::from_millis(50));
    drop(device);
    if let (Some(before), Some(after)) = (before, used(&found)) {
        println!("device memory in use: {before} bytes before, {after} after");
        assert!(after <= before + (16 << 20));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn every_unit_can_be_a_gpulet_at_once() {
    let Some(found) = found() else { return };
    let device = take(&found, &CudaOptions::default());
    let all = device.grid().units();
    let gpulets: Vec<_> =
        (0..all).map(|unit| device.open(&spec(unit, unit, 1), Ears::new()).unwrap()).collect();
    let overlapping = device.open(&spec(all, 0, all), Ears::new()).unwrap();
    println!("{} gpulets stand at once", gpulets.len() + 1);
    drop((gpulets, overlapping));
}

/// Bytes in use on the GPU, as the management library says.
fn used(found: &Found) -> Option<u64> {
    let readings = Monitor::open().ok()?.read().ok()?;
    readings.into_iter().find(|gpu| gpu.uuid.as_deref() == Some(&found.uuid))?.memory_used_bytes
}
