//! Memory that models take of the device, and refusals when there is not enough.

use std::sync::atomic::Ordering;

use cuda_standin::{Kind, Shape, with_driver};
use gpulet_cuda::{CudaOptions, Need};
use models::LoadOptions;

use crate::stage::{model, open, serve, sms_of, take};

const GIB: u64 = 1 << 30;

fn need(weights: u64, arena: u64) -> Option<Need> {
    Some(Need { weights: weights * GIB, arena: arena * GIB })
}

#[test]
fn a_model_that_is_too_large_is_refused_and_running_ones_keep_running() {
    let test = "memory::a_model_that_is_too_large_is_refused_and_running_ones_keep_running";
    with_driver(test, Shape::default(), |_| {
        let (device, tracer) = take(&CudaOptions::default());
        *tracer.needs.lock().unwrap() = need(60, 2);
        let (gpulet, mut session) = serve(&device, 0, 0, 4);
        *tracer.needs.lock().unwrap() = need(12, 2);
        let refused = gpulet.load(&model("large"), &LoadOptions::default()).err().unwrap();
        assert!(
            refused.to_string().starts_with(
                "gpu0: model `large`: needs 14336 MiB, and 13824 MiB of 81920 MiB on the device are available (in use \
                 before: 513 MiB, weights: 61440 MiB, arenas: 2048 MiB, reserve: 4096 MiB)"
            ),
            "{refused}"
        );
        assert_eq!(sms_of(&mut *session).len(), 32);
        drop(session);
        assert!(
            gpulet.load(&model("large"), &LoadOptions::default()).is_ok(),
            "it fits after the other session was dropped"
        );
    });
}

#[test]
fn weights_count_once_for_any_number_of_gpulets() {
    with_driver("memory::weights_count_once_for_any_number_of_gpulets", Shape::default(), |_| {
        let (device, tracer) = take(&CudaOptions::default());
        *tracer.needs.lock().unwrap() = need(30, 1);
        tracer.takes.store(31 * GIB, Ordering::Relaxed);
        let first = serve(&device, 0, 0, 4);
        tracer.takes.store(GIB, Ordering::Relaxed);
        let second = serve(&device, 1, 4, 4);
        let third = serve(&device, 2, 8, 4);
        let ledger = device.memory();
        assert_eq!((ledger.weights, ledger.arenas, ledger.unshared), (30 * GIB, 3 * GIB, Vec::new()));
        drop((first, third));
        assert_eq!(device.memory().weights, 30 * GIB);
        drop(second);
        assert_eq!((device.memory().weights, device.memory().arenas), (0, 0));
    });
}

#[test]
fn a_model_whose_sessions_share_nothing_is_detected_and_counted_per_session() {
    let test = "memory::a_model_whose_sessions_share_nothing_is_detected_and_counted_per_session";
    with_driver(test, Shape::default(), |_| {
        let (device, tracer) = take(&CudaOptions::default());
        *tracer.needs.lock().unwrap() = need(20, 1);
        tracer.takes.store(20 * GIB, Ordering::Relaxed);
        let first = serve(&device, 0, 0, 4);
        let second = serve(&device, 1, 4, 4);
        let ledger = device.memory();
        assert_eq!((ledger.weights, ledger.unshared), (40 * GIB, vec!["m".to_owned()]));
        let third = serve(&device, 2, 8, 4);
        let gpulet = open(&device, 3, 12, 4);
        let refused = gpulet.load(&model("m"), &LoadOptions::default()).err().unwrap().to_string();
        assert!(refused.contains("needs 21504 MiB"), "a fourth copy does not fit: {refused}");
        drop((first, second, third));
    });
}

#[test]
fn a_session_that_cannot_be_made_is_not_counted() {
    with_driver("memory::a_session_that_cannot_be_made_is_not_counted", Shape::default(), |control| {
        let (device, tracer) = take(&CudaOptions::default());
        let gpulet = open(&device, 0, 0, 4);
        *tracer.needs.lock().unwrap() = need(10, 1);
        *tracer.breaks.lock().unwrap() = Some("operator `Foo` runs on no device".to_owned());
        let refused = gpulet.load(&model("m"), &LoadOptions::default()).err().unwrap();
        assert_eq!(refused.to_string(), "model `m`: operator `Foo` runs on no device");
        *tracer.breaks.lock().unwrap() = None;
        for nth in [1, 2] {
            control.fail("cuMemGetInfo_v2", nth, 2);
            let refused = gpulet.load(&model("m"), &LoadOptions::default()).err().unwrap();
            let expected = "gpu0: model `m`: cuMemGetInfo_v2: CUDA_ERROR_OUT_OF_MEMORY (2)";
            assert_eq!(refused.to_string(), expected);
        }
        assert_eq!((device.memory().weights, device.memory().arenas), (0, 0));
        assert_eq!(control.alive(Kind::Green), 1, "the gpulet stays open");
        assert!(gpulet.load(&model("m"), &LoadOptions::default()).is_ok());
    });
}

#[test]
fn repeated_plans_leave_the_memory_unchanged() {
    with_driver("memory::repeated_plans_leave_the_memory_unchanged", Shape::default(), |control| {
        let (device, tracer) = take(&CudaOptions::default());
        tracer.takes.store(GIB, Ordering::Relaxed);
        let (ledger, buffers) = (device.memory(), control.alive(Kind::Buffer));
        for round in 0..200 {
            let size = 1 + round % 7;
            let sessions: Vec<_> = (0..2).map(|lane| serve(&device, lane, lane * size, size)).collect();
            drop(sessions);
        }
        assert_eq!((device.memory(), control.alive(Kind::Buffer)), (ledger, buffers));
        assert!(control.alive(Kind::Green) <= 8, "at most the bound on idle contexts");
    });
}
