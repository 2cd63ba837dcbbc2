//! Closing gpulets: in any order, with work in flight, and with idle contexts.

use std::any::Any;

use cuda_standin::{Kind, Shape, with_driver};
use gpulet::Device;
use gpulet_cuda::CudaOptions;
use models::LoadOptions;

use crate::stage::{model, open, serve, sms_of, take};

/// Every order of `count` objects.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    let with_last = |order: &Vec<usize>, place: usize| {
        let mut order = order.clone();
        order.insert(place, count - 1);
        order
    };
    shorter.iter().flat_map(|order| (0..count).map(move |place| with_last(order, place))).collect()
}

#[test]
fn streams_end_before_contexts_in_whatever_order_owners_are_dropped() {
    let test = "closing::streams_end_before_contexts_in_whatever_order_owners_are_dropped";
    with_driver(test, Shape::default(), |control| {
        for kept in [0, 8] {
            for order in orders(5) {
                let (device, _) = take(&CudaOptions { idle_contexts: kept, ..CudaOptions::default() });
                let (gpulet, session) = serve(&device, 0, 0, 4);
                let second = gpulet.load(&model("n"), &LoadOptions::default()).unwrap();
                let other = open(&device, 1, 4, 4);
                let owners: Vec<Box<dyn Any>> = vec![
                    Box::new(device),
                    Box::new(gpulet),
                    Box::new(session),
                    Box::new(second),
                    Box::new(other),
                ];
                let mut owners: Vec<_> = owners.into_iter().map(Some).collect();
                for place in order {
                    owners[place] = None;
                }
                assert_eq!(control.everything(), Vec::new());
            }
        }
        assert_eq!(control.violations(), Vec::<String>::new());
    });
}

#[test]
fn a_session_alone_keeps_its_gpulet_open() {
    with_driver("closing::a_session_alone_keeps_its_gpulet_open", Shape::default(), |control| {
        let (device, _) = take(&CudaOptions { idle_contexts: 0, ..CudaOptions::default() });
        let (gpulet, mut session) = serve(&device, 0, 3, 2);
        drop(gpulet);
        drop(device);
        assert_eq!(sms_of(&mut *session).len(), 16);
        assert_eq!(control.alive(Kind::Green), 1);
    });
}

#[test]
fn idle_contexts_are_reused() {
    with_driver("closing::idle_contexts_are_reused", Shape::default(), |control| {
        let (device, _) = take(&CudaOptions::default());
        for _ in 0..50 {
            let plan_a = [open(&device, 0, 0, 8), open(&device, 1, 8, 8)];
            let plan_b = [open(&device, 2, 0, 4), open(&device, 3, 4, 12)];
            drop(plan_a);
            drop(plan_b);
        }
        assert_eq!(control.calls("cuGreenCtxCreate"), 4);
        assert_eq!((control.alive(Kind::Green), control.alive(Kind::Stream)), (4, 4));
    });
}

#[test]
fn the_oldest_idle_contexts_beyond_the_bound_are_dropped() {
    let test = "closing::the_oldest_idle_contexts_beyond_the_bound_are_dropped";
    with_driver(test, Shape::default(), |control| {
        let (device, _) = take(&CudaOptions { idle_contexts: 2, ..CudaOptions::default() });
        for unit in [0, 1, 2, 3] {
            drop(open(&device, 0, unit, 1));
        }
        let idle: Vec<_> = device.idle_contexts().iter().map(|units| units.first()).collect();
        assert_eq!((idle, control.alive(Kind::Green)), (vec![2, 3], 2));
        drop(open(&device, 0, 2, 1));
        drop(open(&device, 0, 9, 1));
        let idle: Vec<_> = device.idle_contexts().iter().map(|units| units.first()).collect();
        assert_eq!(idle, [2, 9], "the most recently used one stays");
    });
}

#[test]
fn idle_contexts_are_dropped_when_the_driver_allows_no_more() {
    let shape = Shape { greens_max: 3, ..Shape::default() };
    with_driver("closing::idle_contexts_are_dropped_when_the_driver_allows_no_more", shape, |_| {
        let (device, _) = take(&CudaOptions::default());
        drop((open(&device, 0, 0, 1), open(&device, 1, 1, 1), open(&device, 2, 2, 1)));
        let open_ones = [open(&device, 3, 3, 4), open(&device, 4, 7, 4), open(&device, 5, 11, 4)];
        assert_eq!(device.idle_contexts(), []);
        let spec = crate::stage::spec(6, 15, 1);
        let refused = device.open(&spec, crate::stage::Failures::new()).err().unwrap();
        assert_eq!(
            refused.to_string(),
            "gpu0: gpulet 6: unit 15: cuGreenCtxCreate: CUDA_ERROR_OUT_OF_MEMORY (2)"
        );
        drop(open_ones);
        assert_eq!(device.idle_contexts().len(), 3, "the refusal does not affect open gpulets");
    });
}

#[test]
fn a_context_with_work_in_flight_is_neither_destroyed_nor_waited_for() {
    let test = "closing::a_context_with_work_in_flight_is_neither_destroyed_nor_waited_for";
    with_driver(test, Shape::default(), |control| {
        let (device, tracer) = take(&CudaOptions::default());
        let gpulet = open(&device, 0, 0, 4);
        let stream = tracer.stream_of(&*gpulet);
        control.hold(stream, true);
        drop(gpulet);
        assert_eq!((control.alive(Kind::Green), device.idle_contexts().len()), (1, 0));
        let (_gpulet, mut session) = serve(&device, 1, 0, 4);
        assert_eq!(sms_of(&mut *session).len(), 32, "a new gpulet on the same units does not wait for it");
        control.hold(stream, false);
        drop(open(&device, 2, 8, 1));
        assert!(device.idle_contexts().iter().any(|units| (units.first(), units.count()) == (0, 4)));
    });
}
