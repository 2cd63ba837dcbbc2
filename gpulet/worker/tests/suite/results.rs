//! A session in another process returns the same results as one in this process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gpulet::{Device, FaultDomain, PartitionSpec, Resize, allowed_cores, pin_this_thread};
use gpulet_worker::{Limits, WorkerScope};
use models::SampleInputs;
use models::engine::RunError;
use rustix::process::getpriority_process;

use crate::support::{
    Losses, World, broken, bytes, cores, digits, echo, echoes, limits, load, synthetic, try_load,
};

const SPEC: PartitionSpec = PartitionSpec { lane: 3, first_unit: 0, units: 1 };

#[test]
fn a_real_model_returns_the_same_bits_as_in_this_process() {
    let world = World::new(WorkerScope::Gpulet);
    let (there, _losses) = world.open(3);
    let here = cores().open(&SPEC, Losses::new().1).unwrap();
    assert_eq!(there.cores(), here.cores());
    let (mut there, mut here) = (load(&there, &digits()), load(&here, &digits()));
    assert_eq!(there.signature(), here.signature());
    assert_eq!((there.engine(), here.engine()), ("tract", "tract"));
    let samples = SampleInputs::of(here.as_mut()).unwrap();
    for rows in [1, 2, 5, 64, 3] {
        for batch in samples.batches(rows, 3, 1 << 24).unwrap() {
            assert_eq!(there.run(&batch), here.run(&batch), "{rows} rows");
        }
    }
}

#[test]
fn errors_keep_their_class_and_the_session_keeps_running() {
    let world = World::new(WorkerScope::Gpulet);
    let (partition, losses) = world.open(0);
    let mut session = load(&partition, &echo("echo", "fail = { every = 3, message = \"out of memory\" }"));
    echoes(session.as_mut(), 1, 4);
    assert_eq!(session.run(&bytes(1, 4, 0xF6)), Err(RunError::Input("planted".to_owned())));
    let panicked = Err(RunError::Engine("the engine panicked".to_owned()));
    assert_eq!(session.run(&bytes(1, 4, 0xF3)), panicked);
    echoes(session.as_mut(), 2, 4);
    assert_eq!(session.run(&bytes(1, 4, 1)), Err(RunError::Engine("out of memory".to_owned())));
    echoes(session.as_mut(), 3, 4);
    assert!(losses.none_yet());
}

#[test]
fn a_failed_load_gives_the_same_error_and_the_gpulet_keeps_working() {
    let world = World::new(WorkerScope::Gpulet);
    let (there, losses) = world.open(0);
    let here = cores().open(&SPEC, Losses::new().1).unwrap();
    let error = |partition| try_load(partition, &broken()).err().unwrap().to_string();
    assert_eq!(error(&there), error(&here));
    let panicked = try_load(&there, &echo("panics", "")).err().unwrap().to_string();
    assert_eq!(panicked, "model `panics`: the engine panicked while it was loaded");
    echoes(load(&there, &echo("echo", "")).as_mut(), 1, 4);
    assert!(losses.none_yet());
}

#[test]
fn tensors_may_grow_to_64_mib_and_shrink_again() {
    let world = World::new(WorkerScope::Gpulet);
    let (partition, _losses) = world.open(0);
    let mut session = load(&partition, &echo("echo", ""));
    for width in [1, 0, 100_000, 64 << 20, 5, 64 << 20, 70_000] {
        echoes(session.as_mut(), 1, width);
    }
    session.trim();
    for width in [5, 200_000, 9] {
        echoes(session.as_mut(), 2, width);
    }
}

#[test]
fn tensors_beyond_the_limit_are_refused_and_the_worker_keeps_running() {
    let world = World::with(WorkerScope::Gpulet, Limits { tensor_bytes: 1000, ..limits() });
    let (partition, losses) = world.open(0);
    let mut session = load(&partition, &echo("echo", ""));
    let refused = RunError::Input("inputs take 1001 bytes: expected at most 1000".to_owned());
    assert_eq!(session.run(&bytes(1, 1001, 1)), Err(refused));
    echoes(session.as_mut(), 1, 1000);
    let text = "max_batch = 8\n\
                inputs = [{ name = \"x\", datatype = \"UINT8\", dims = [-1, -1] }]\n\
                outputs = [{ name = \"y\", datatype = \"UINT8\", dims = [-1, 600] }]";
    let mut wide = load(&partition, &synthetic("wide", text));
    assert_eq!(wide.run(&bytes(1, 1, 1)).unwrap()[0].data.len(), 600);
    let refused = RunError::Engine("outputs take 1200 bytes: expected at most 1000".to_owned());
    assert_eq!(wide.run(&bytes(2, 1, 1)), Err(refused));
    assert_eq!(wide.run(&bytes(1, 1, 1)).unwrap()[0].data.len(), 600);
    assert!(losses.none_yet());
}

#[test]
fn inputs_that_an_engine_still_reads_are_not_overwritten() {
    let world = World::new(WorkerScope::Gpulet);
    let (partition, _losses) = world.open(0);
    let mut session = load(&partition, &echo("echo", ""));
    for byte in [0xF4, 1, 0xF4, 2, 3] {
        let batch = bytes(2, 5000, byte);
        assert_eq!(session.run(&batch).unwrap()[0].data, batch.inputs[0].as_ref().unwrap().data);
    }
}

#[test]
fn a_load_delays_no_batch() {
    let world = World::new(WorkerScope::Device);
    let (partition, _losses) = world.open(0);
    let mut session = load(&partition, &echo("echo", ""));
    thread::scope(|scope| {
        let loading = scope.spawn(|| try_load(&partition, &echo("waits", "")).map(drop));
        assert_eq!(world.report(), "loading");
        for _ in 0..20 {
            echoes(session.as_mut(), 1, 4);
            world.started();
        }
        // Nor does it delay another load.
        echoes(load(&partition, &echo("other", "")).as_mut(), 1, 4);
        assert!(!loading.is_finished());
        world.go();
        loading.join().unwrap().unwrap();
    });
}

#[test]
fn a_caller_at_background_priority_gets_it_in_the_worker_and_no_other_caller_does() {
    let world = World::new(WorkerScope::Gpulet);
    let own = getpriority_process(None).unwrap();
    let (partition, mut session) = thread::scope(|scope| {
        let warming = scope.spawn(|| {
            models::enter_background().unwrap();
            let (partition, _losses) = world.open(0);
            let mut session = load(&partition, &echo("echo", ""));
            echoes(session.as_mut(), 1, 4);
            (partition, session)
        });
        warming.join().unwrap()
    });
    let (first, niceness) = world.started();
    assert!(niceness > own, "the warm-up batch");
    echoes(session.as_mut(), 1, 4);
    assert_eq!(world.started(), (first, own), "the worker outlives the thread that opened it");
    drop((partition, session));
}

#[test]
fn the_time_of_a_background_batch_excludes_waiting_for_a_core() {
    let world = World::new(WorkerScope::Gpulet);
    let (partition, _losses) = world.open(0);
    // The model spins until 60 ms of wall time have passed, most of which it waits for a core.
    let files = echo("spins", "time = { alpha_us = 60000, mode = \"spin\" }");
    let over = AtomicBool::new(false);
    let took = thread::scope(|scope| {
        for core in allowed_cores().unwrap() {
            let over = &over;
            scope.spawn(move || {
                pin_this_thread(&[core]).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let measuring = scope.spawn(|| {
            models::enter_background().unwrap();
            let mut session = load(&partition, &files);
            assert_eq!(session.took(), None, "no batch has run yet");
            echoes(session.as_mut(), 1, 4);
            session.took().unwrap()
        });
        let measured = measuring.join().unwrap();
        over.store(true, Ordering::Relaxed);
        measured
    });
    assert!(took < Duration::from_millis(60), "the model spins for longer by the clock: {took:?}");
}

#[test]
fn guarantees_depend_on_the_scope_of_workers() {
    for (scope, domain, resize) in [
        (WorkerScope::Gpulet, FaultDomain::Gpulet, Resize::NewProcess),
        (WorkerScope::Device, FaultDomain::Device, Resize::Live),
    ] {
        let world = World::new(scope);
        let (outer, inner) = (world.device.info().clone(), cores().info().clone());
        assert_eq!((outer.guarantees.fault_domain, outer.guarantees.resize), (domain, resize));
        assert_eq!((outer.units, outer.device_type), (inner.units, inner.device_type));
        let beyond = PartitionSpec { first_unit: inner.units, ..SPEC };
        let error = world.device.open(&beyond, Losses::new().1).err().unwrap().to_string();
        assert_eq!(error, cores().open(&beyond, Losses::new().1).err().unwrap().to_string());
    }
}
