//! What only a GPU can confirm. Each test probes for one first, and prints why it is skipped if there is no GPU.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpulet::Device;
use gpulet_cuda::driver::{Driver, GreenContext, Primary, Split};
use gpulet_cuda::{Backend, CudaDevice, CudaOptions, Found, Monitor, probe};

use crate::stage::{Failures, Tracer, spec};

/// The first GPU that supports green contexts.
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
        println!("skipped: no GPU here supports green contexts");
    }
    first
}

fn take(found: &Found, options: &CudaOptions) -> CudaDevice {
    CudaDevice::take(found, Backend::CudaGreen, Arc::new(Tracer::default()), options).unwrap()
}

#[test]
#[ignore = "needs a GPU"]
fn a_gpu_is_split_as_the_documentation_says() {
    let Some(found) = found() else { return };
    let primary = Primary::retain(Driver::load().unwrap(), found.ordinal).unwrap();
    let split = Split::once(&primary, found.capability, false).unwrap();
    let grid = split.grid();
    println!("{}: {} SMs, {} units, {} left over", found.name, found.sms, grid.units(), grid.remainder());
    assert_eq!(grid.sms(grid.range(0, grid.units()).unwrap()), found.sms);
    if found.capability.0 == 9 && found.sms == 132 {
        // Which SMs of a chip are in use differs between cards: one H200 had 15 units and 12 SMs more.
        assert_eq!(grid.units() * 8 + grid.remainder(), 132);
        assert!((14..=16).contains(&grid.units()), "{} units", grid.units());
    }
    for units in grid.sizes() {
        let range = grid.range(0, units).unwrap();
        let granted = GreenContext::create(split.describe(range).unwrap()).unwrap().sms();
        assert_eq!(granted, grid.sms(range), "{units} units");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpulets_leave_no_memory_behind() {
    let Some(found) = found() else { return };
    let before = used(&found);
    let device = take(&found, &CudaOptions { idle_contexts: 0, ..CudaOptions::default() });
    let mut times: Vec<Duration> = Vec::new();
    for round in 0..200 {
        let begun = Instant::now();
        let gpulet = device.open(&spec(0, round % 4, 4), Failures::new()).unwrap();
        times.push(begun.elapsed());
        drop(gpulet);
    }
    times.sort_unstable();
    println!("opening a gpulet: median {:?}, slowest {:?}", times[100], times[199]);
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
        (0..all).map(|unit| device.open(&spec(unit, unit, 1), Failures::new()).unwrap()).collect();
    let overlapping = device.open(&spec(all, 0, all), Failures::new()).unwrap();
    println!("{} gpulets are open at once", gpulets.len() + 1);
    drop((gpulets, overlapping));
}

/// Bytes in use on the GPU, from the management library.
fn used(found: &Found) -> Option<u64> {
    let readings = Monitor::open().ok()?.read().ok()?;
    readings.into_iter().find(|gpu| gpu.uuid.as_deref() == Some(&found.uuid))?.memory_used_bytes
}
