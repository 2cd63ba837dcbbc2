//! Failing calls: they leave nothing behind, affect nothing else, and a failure of the device is reported once.

use std::sync::Arc;

use cuda_standin::{Control, Driver, Kind, Shape, staged, with_driver};
use gpulet::Device;
use gpulet_cuda::driver::ErrorClass;
use gpulet_cuda::{Backend, CudaDevice, CudaOptions, probe};
use models::LoadOptions;
use models::engine::RunError;

use crate::stage::{Failures, Tracer, batch, model, open, serve, sms_of, spec, take};

/// Calls that take a device and open a gpulet. Calls that free something are left out, because what they fail to free
/// cannot be freed.
const CALLS: &[&str] = &[
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",
    "cuDeviceGetDevResource",
    "cuDevSmResourceSplitByCount",
    "cuCtxGetStreamPriorityRange",
    "cuMemHostAlloc",
    "cuMemAlloc_v2",
    "cuEventCreate",
    "cuMemGetInfo_v2",
    "cuDevResourceGenerateDesc",
    "cuGreenCtxCreate",
    "cuGreenCtxGetDevResource",
    "cuGreenCtxStreamCreate",
    "cuMemcpyHtoDAsync_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuMemcpyDtoHAsync_v2",
];

/// Takes the device, opens a gpulet, loads a model and runs it. Returns what failed.
fn serve_once() -> Result<(), String> {
    let found = probe().map_err(|error| error.to_string())?.remove(0);
    let maker = Arc::new(Tracer::default());
    let device = CudaDevice::take(&found, Backend::CudaGreen, maker, &CudaOptions::default())
        .map_err(|error| error.to_string())?;
    let gpulet = device.open(&spec(0, 0, 4), Failures::new()).map_err(|error| error.to_string())?;
    let session = gpulet.load(&model("m"), &LoadOptions::default());
    sms_of(&mut *session.map_err(|error| error.to_string())?);
    Ok(())
}

fn uses_of_each_call(control: &Control) -> Vec<(&'static str, u64)> {
    let before: Vec<_> = CALLS.iter().map(|call| control.calls(call)).collect();
    serve_once().unwrap();
    CALLS.iter().zip(before).map(|(call, before)| (*call, control.calls(call) - before)).collect()
}

#[test]
fn each_failing_call_leaves_nothing_behind() {
    with_driver("faults::each_failing_call_leaves_nothing_behind", Shape::default(), |control| {
        let mut failures = 0;
        for (call, uses) in uses_of_each_call(control) {
            assert!(uses > 0, "{call} is not used");
            // The last use sets the context for freeing, whose failure is ignored.
            let uses = if call == "cuCtxSetCurrent" { 4 } else { uses };
            for nth in 1..=uses {
                for code in [2, 999, 424_242] {
                    control.fail(call, nth, code);
                    let result = serve_once();
                    control.heal();
                    assert_eq!(control.everything(), Vec::new(), "{call} failed with {code} at use {nth}");
                    let error = result.expect_err(call);
                    assert!(error.starts_with("gpu0: ") && error.contains(&format!("({code})")), "{error}");
                    failures += 1;
                }
            }
        }
        println!("{failures} failures");
        serve_once().unwrap();
    });
}

#[test]
fn a_gpulet_that_cannot_be_opened_affects_no_other() {
    with_driver("faults::a_gpulet_that_cannot_be_opened_affects_no_other", Shape::default(), |control| {
        let (device, _) = take(&CudaOptions::default());
        let (_gpulet, mut session) = serve(&device, 0, 0, 4);
        for call in
            ["cuDevResourceGenerateDesc", "cuGreenCtxCreate", "cuGreenCtxStreamCreate", "cuEventRecord"]
        {
            control.fail(call, 1, 1);
            let failures = Failures::new();
            let refused = device.open(&spec(1, 4, 4), Arc::clone(&failures) as _).err().unwrap();
            assert_eq!(
                refused.to_string(),
                format!("gpu0: gpulet 1: units 4 to 7: {call}: CUDA_ERROR_INVALID_VALUE (1)")
            );
            assert_eq!((control.alive(Kind::Green), failures.all().len()), (1, 0));
            assert_eq!(sms_of(&mut *session).len(), 32);
        }
    });
}

#[test]
fn a_failing_engine_fails_only_its_batch() {
    with_driver("faults::a_failing_engine_fails_only_its_batch", Shape::default(), |_| {
        let (device, _) = take(&CudaOptions::default());
        let (_gpulet, mut session) = serve(&device, 0, 0, 4);
        assert_eq!(session.run(&batch(true)), Err(RunError::Engine("planted".to_owned())));
        assert_eq!(sms_of(&mut *session).len(), 32);
        assert_eq!(device.failure(), None);
    });
}

#[test]
fn a_fault_ends_every_gpulet_and_each_is_told_once() {
    with_driver("faults::a_fault_ends_every_gpulet_and_each_is_told_once", Shape::default(), |control| {
        let (device, _) = take(&CudaOptions::default());
        let failures = Failures::new();
        let closed = device.open(&spec(1, 0, 2), Arc::clone(&failures) as _).unwrap();
        let first = device.open(&spec(2, 0, 8), Arc::clone(&failures) as _).unwrap();
        let second = device.open(&spec(3, 8, 8), Arc::clone(&failures) as _).unwrap();
        drop(closed);
        let mut sessions =
            [&first, &second].map(|gpulet| gpulet.load(&model("m"), &LoadOptions::default()).unwrap());

        control.fail("cuStreamQuery", 1, 700);
        let lost = sessions[0].run(&batch(true)).unwrap_err();
        let reason =
            "gpu0 failed: cuStreamQuery: CUDA_ERROR_ILLEGAL_ADDRESS (700) while a batch ran: planted"
                .to_owned();
        assert_eq!(lost, RunError::DeviceFailed(reason.clone()));
        assert_eq!(failures.all(), [(2, reason.clone()), (3, reason.clone())]);

        assert_eq!(
            sessions[1].run(&batch(false)),
            Err(RunError::DeviceFailed(reason.clone())),
            "batches of co-located gpulets too"
        );
        let refused = device.open(&spec(4, 0, 1), Failures::new()).err().unwrap();
        assert_eq!(refused.to_string(), format!("gpu0: gpulet 4: {reason}"));
        let unloaded = second.load(&model("n"), &LoadOptions::default()).err().unwrap();
        assert_eq!(unloaded.to_string(), format!("model `n`: {reason}"));
        assert_eq!((device.failure(), failures.all().len()), (Some(reason), 2));
        control.heal();
    });
}

#[test]
fn a_fault_while_opening_fails_the_device() {
    let test = "faults::a_fault_while_opening_fails_the_device";
    staged(test, &Driver::Standin(Shape::default()), || {
        // After a fault, objects cannot be destroyed, so this does not check for objects left behind.
        let control = Control::open().unwrap();
        let (device, _) = take(&CudaOptions::default());
        let failures = Failures::new();
        let _open = device.open(&spec(5, 0, 2), Arc::clone(&failures) as _).unwrap();
        control.fail("cuEventSynchronize", 1, 719);
        let refused = device.open(&spec(6, 2, 2), Arc::clone(&failures) as _).err().unwrap();
        control.heal();
        let cause = "cuEventSynchronize: CUDA_ERROR_LAUNCH_FAILED (719)";
        assert_eq!(refused.to_string(), format!("gpu0: gpulet 6: units 2 to 3: {cause}"));
        assert_eq!(failures.all(), [(5, format!("gpu0 failed: {cause}"))]);
    });
}

#[test]
fn a_fault_is_noticed_when_a_gpulet_is_closed() {
    let test = "faults::a_fault_is_noticed_when_a_gpulet_is_closed";
    staged(test, &Driver::Standin(Shape::default()), || {
        // After a fault, objects cannot be destroyed, so this does not check for objects left behind.
        let control = Control::open().unwrap();
        let (device, _) = take(&CudaOptions::default());
        let failures = Failures::new();
        let _other = device.open(&spec(1, 0, 2), Arc::clone(&failures) as _).unwrap();
        let closing = open(&device, 2, 2, 2);
        control.fail("cuStreamQuery", 1, 214);
        drop(closing);
        control.heal();
        let reason = "gpu0 failed: cuStreamQuery: CUDA_ERROR_ECC_UNCORRECTABLE (214)".to_owned();
        assert_eq!(failures.all(), [(1, reason)]);
    });
}

#[test]
fn errors_say_what_is_broken() {
    with_driver("faults::errors_say_what_is_broken", Shape::default(), |control| {
        probe().unwrap();
        let driver = gpulet_cuda::driver::Driver::load().unwrap();
        for (code, class) in [
            (2, ErrorClass::Batch),
            (1, ErrorClass::Gpulet),
            (803, ErrorClass::Machine),
            (700, ErrorClass::Sticky),
        ] {
            control.fail("cuDevicePrimaryCtxRetain", 1, code);
            let error = gpulet_cuda::driver::Primary::retain(driver, 0).err().unwrap();
            control.heal();
            assert_eq!((error.call, error.code, error.class), ("cuDevicePrimaryCtxRetain", code, class));
        }
    });
}
