//! Opening gpulets: the SMs they get, and refusals.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cuda_standin::{Kind, Shape, with_driver};
use gpulet::{Capacity, Compute, Device, FaultDomain, Resize};
use gpulet_cuda::{Backend, CudaDevice, CudaOptions, probe};
use models::LoadOptions;

use crate::stage::{Failures, Tracer, model, open, serve, sms_of, spec, take};

#[test]
fn three_units_of_132_sms_are_24_of_its_own() {
    with_driver("opening::three_units_of_132_sms_are_24_of_its_own", Shape::default(), |_| {
        let (device, _) = take(&CudaOptions::default());
        let (_first, mut first) = serve(&device, 0, 0, 3);
        let (_second, mut second) = serve(&device, 1, 3, 13);
        let (first, second) = (sms_of(&mut *first), sms_of(&mut *second));
        assert_eq!((first.len(), second.len()), (24, 108), "13 of 16 units and the remainder of 4");
        assert!(first.iter().all(|sm| !second.contains(sm)));
    });
}

#[test]
fn the_device_says_what_it_is() {
    with_driver("opening::the_device_says_what_it_is", Shape::default(), |_| {
        let (device, _) = take(&CudaOptions::default());
        let info = device.info();
        assert_eq!(
            (info.name.as_str(), info.backend, info.device_type.as_str()),
            ("gpu0", "cuda-green", "Stand-in GPU (16 units)")
        );
        assert_eq!((info.units, info.sizes.len()), (16, 16));
        let (total, base, reserve) = (80 << 30, 512 << 20, 4 << 30);
        assert!(
            info.memory_bytes <= total - base - reserve
                && info.memory_bytes > total - base - reserve - (1 << 20)
        );
        let guarantees = info.guarantees;
        assert_eq!(
            (guarantees.compute, guarantees.memory_capacity),
            (Compute::Exclusive, Capacity::Accounted)
        );
        assert_eq!((guarantees.fault_domain, guarantees.resize), (FaultDomain::Process, Resize::Live));
        assert!(guarantees.overlap);
    });
}

#[test]
fn units_beyond_the_last_are_refused() {
    with_driver("opening::units_beyond_the_last_are_refused", Shape::default(), |control| {
        let (device, _) = take(&CudaOptions::default());
        for (first, count) in [(14, 3), (16, 1), (0, 0), (0, 17), (u32::MAX, 2), (1, u32::MAX)] {
            let refused = device.open(&spec(7, first, count), Failures::new()).err().unwrap();
            let expected = format!(
                "gpu0: gpulet 7: {count} units from unit {first} on: expected at least 1, and no unit beyond the last, 15"
            );
            assert_eq!(refused.to_string(), expected);
        }
        assert_eq!(control.alive(Kind::Green), 0);
    });
}

#[test]
fn the_device_is_split_once() {
    with_driver("opening::the_device_is_split_once", Shape::default(), |control| {
        let (device, _) = take(&CudaOptions::default());
        for lane in 0..8 {
            drop(open(&device, lane, lane, 8));
        }
        assert_eq!(control.calls("cuDevSmResourceSplitByCount"), 2, "one to count groups and one split");
        let found = probe().unwrap().remove(0);
        let again = CudaDevice::take(
            &found,
            Backend::CudaGreen,
            Arc::new(Tracer::default()),
            &CudaOptions::default(),
        );
        assert_eq!(again.err().unwrap().to_string(), "gpu0: this process uses the device already");
        drop(device);
        let (device, _) = take(&CudaOptions::default());
        assert_eq!(device.info().units, 16, "it can be taken again after it was dropped");
    });
}

#[test]
fn gpulets_of_two_plans_may_be_open_on_the_same_units() {
    with_driver("opening::gpulets_of_two_plans_may_be_open_on_the_same_units", Shape::default(), |_| {
        let (device, _) = take(&CudaOptions::default());
        let (_old, mut old) = serve(&device, 0, 0, 8);
        let (_new, mut new) = serve(&device, 1, 4, 8);
        let (_twin, mut twin) = serve(&device, 2, 0, 8);
        let (old, new, twin) = (sms_of(&mut *old), sms_of(&mut *new), sms_of(&mut *twin));
        assert_eq!(old.iter().filter(|sm| new.contains(sm)).count(), 32, "four units of eight are in both");
        assert_eq!(old, twin);
    });
}

#[test]
fn a_gpulet_of_idle_priority_shares_units_with_others_on_the_least_urgent_stream() {
    let name = "opening::a_gpulet_of_idle_priority_shares_units_with_others_on_the_least_urgent_stream";
    with_driver(name, Shape::default(), |control| {
        let (device, tracer) = take(&CudaOptions::default());
        let priority = || control.stream_priority(tracer.last_stream.load(Ordering::Relaxed));
        let (_ordinary, mut ordinary) = serve(&device, 0, 0, 16);
        assert_eq!(priority(), -5, "the most urgent");
        for round in 0..2 {
            let idle = device.open_at_idle_priority(&spec(1, 0, 16), Failures::new()).unwrap();
            assert!(idle.idle_priority());
            let mut session = idle.load(&model("m"), &LoadOptions::default()).unwrap();
            assert_eq!(priority(), 0, "the least urgent");
            assert_eq!(sms_of(&mut *session), sms_of(&mut *ordinary));
            drop((session, idle));
            assert_eq!(device.idle_contexts().len(), 1, "round {round}");
        }
        assert_eq!(
            control.calls("cuGreenCtxStreamCreate"),
            2,
            "its context is used again, and by no ordinary gpulet"
        );
        let (_second, _session) = serve(&device, 2, 0, 16);
        assert_eq!((priority(), control.calls("cuGreenCtxStreamCreate")), (-5, 3));
    });
}

#[test]
fn without_the_drivers_granularity_units_are_those_of_the_generation() {
    let shape = Shape { granularity: false, driver: 12_050, ..Shape::default() };
    with_driver("opening::without_the_drivers_granularity_units_are_those_of_the_generation", shape, |_| {
        let (device, _) = take(&CudaOptions::default());
        assert_eq!((device.info().units, device.grid().remainder()), (16, 4));
    });
}

#[test]
fn a_driver_that_refuses_primary_events_on_green_streams_works_too() {
    let shape = Shape { primary_events: false, ..Shape::default() };
    with_driver(
        "opening::a_driver_that_refuses_primary_events_on_green_streams_works_too",
        shape,
        |control| {
            let (device, _) = take(&CudaOptions::default());
            let (_gpulet, mut session) = serve(&device, 0, 0, 2);
            assert_eq!(sms_of(&mut *session).len(), 16);
            assert!(control.calls("cuGreenCtxRecordEvent") > 0);
            assert_eq!(control.calls("cuEventRecord"), 1, "it is tried once per stream");
        },
    );
}

#[test]
fn a_gpu_that_is_too_small_to_split_is_refused() {
    with_driver("opening::a_gpu_that_is_too_small_to_split_is_refused", Shape::with_sms(6, 8, 8), |_| {
        let found = probe().unwrap().remove(0);
        let maker = || Arc::new(Tracer::default());
        let options = CudaOptions::default();
        let refused = CudaDevice::take(&found, Backend::CudaGreen, maker(), &options).err().unwrap();
        assert_eq!(refused.to_string(), "gpu0: the device has 6 SMs: expected at least 8");
        let whole = CudaDevice::take(&found, Backend::CudaStream, maker(), &options).unwrap();
        assert_eq!((whole.info().backend, whole.info().units), ("cuda-stream", 1));
        let gpulet = whole.open(&spec(0, 0, 1), Failures::new()).unwrap();
        let mut session = gpulet.load(&model("m"), &LoadOptions::default()).unwrap();
        assert_eq!(sms_of(&mut *session).len(), 6);
    });
}

#[test]
fn units_can_be_small() {
    with_driver("opening::units_can_be_small", Shape::default(), |_| {
        let (device, _) = take(&CudaOptions { ignore_coscheduling: true, ..CudaOptions::default() });
        assert_eq!((device.info().units, device.grid().remainder()), (66, 0));
        let (_gpulet, mut session) = serve(&device, 0, 5, 1);
        assert_eq!(sms_of(&mut *session), [10, 11]);
    });
}
