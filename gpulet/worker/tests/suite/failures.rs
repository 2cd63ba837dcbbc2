//! Failures of workers: what fails with them, how it is reported, and how the device recovers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gpulet::pin_this_thread;
use gpulet_worker::{Limits, WorkerScope};
use rustix::process::Signal;

use crate::support::{SOON, World, bytes, echo, echoes, limits, load, lost, signal, stop};

/// Longer than any test waits.
const LONG: &str = "time = { alpha_us = 60000000 }";

#[test]
fn kill_9_during_a_batch_loses_that_gpulet_and_no_other() {
    let world = World::new(WorkerScope::Gpulet);
    let ((hit, hit_losses), (other, other_losses)) = (world.open(4), world.open(5));
    let (mut session, mut unaffected) = (load(&hit, &echo("long", LONG)), load(&other, &echo("echo", "")));
    let reason = thread::scope(|scope| {
        let running = scope.spawn(|| lost(session.run(&bytes(1, 4, 1))));
        signal(world.started().0, Signal::KILL);
        running.join().unwrap()
    });
    assert!(reason.ends_with("of device `cpu0`: killed by SIGKILL"), "{reason}");
    assert_eq!(lost(session.run(&bytes(1, 4, 1))), reason, "later batches fail too");
    drop((session, hit));
    assert_eq!(hit_losses.only(), (4, reason));
    echoes(unaffected.as_mut(), 1, 4);
    assert!(other_losses.none_yet());
    let (again, _losses) = world.open(4);
    echoes(load(&again, &echo("echo", "")).as_mut(), 1, 4);
}

#[test]
fn all_gpulets_of_a_shared_worker_fail_with_it_and_each_is_reported_once() {
    let world = World::new(WorkerScope::Device);
    let ((one, one_losses), (two, two_losses)) = (world.open(1), world.open(2));
    let (mut long, mut quick) = (load(&one, &echo("long", LONG)), load(&two, &echo("echo", "")));
    echoes(quick.as_mut(), 1, 4);
    let (worker, _) = world.started();
    let reason = thread::scope(|scope| {
        let running = scope.spawn(|| lost(long.run(&bytes(1, 4, 1))));
        assert_eq!(world.started().0, worker, "one process for both");
        signal(worker, Signal::KILL);
        running.join().unwrap()
    });
    assert_eq!(lost(quick.run(&bytes(1, 4, 1))), reason);
    assert_eq!((one_losses.only(), two_losses.only()), ((1, reason.clone()), (2, reason)));
    let (again, _losses) = world.open(1);
    let mut session = load(&again, &echo("echo", ""));
    echoes(session.as_mut(), 1, 4);
    assert_ne!(world.started().0, worker);
}

#[test]
fn a_worker_that_dies_between_batches_is_reported() {
    let world = World::new(WorkerScope::Gpulet);
    let (partition, losses) = world.open(9);
    let mut session = load(&partition, &echo("echo", ""));
    echoes(session.as_mut(), 1, 4);
    signal(world.started().0, Signal::TERM);
    let (lane, reason) = losses.only();
    assert!(lane == 9 && reason.ends_with("killed by SIGTERM"), "{reason}");
    assert_eq!(lost(session.run(&bytes(1, 4, 1))), reason);
}

#[test]
fn a_stopped_worker_is_killed() {
    let world = World::new(WorkerScope::Gpulet);
    let (partition, losses) = world.open(9);
    let mut session = load(&partition, &echo("echo", "time = { alpha_us = 2000 }"));
    for _ in 0..5 {
        echoes(session.as_mut(), 1, 4);
    }
    stop(world.started().0);
    let reason = lost(session.run(&bytes(1, 4, 1)));
    assert!(reason.contains("no answer for ") && reason.contains(" ms to a batch, expected "), "{reason}");
    drop((session, partition));
    assert_eq!(losses.only(), (9, reason));
}

#[test]
fn a_worker_that_does_not_close_a_session_is_killed() {
    let close = Duration::from_millis(200);
    let world = World::with(WorkerScope::Device, Limits { close, ..limits() });
    let ((one, one_losses), (two, two_losses)) = (world.open(1), world.open(2));
    let mut session = load(&one, &echo("echo", ""));
    echoes(session.as_mut(), 1, 4);
    stop(world.started().0);
    drop(session);
    drop(one);
    let reason = two_losses.only().1;
    assert!(reason.contains("to closing a session"), "{reason}");
    assert_eq!(one_losses.only(), (1, reason));
    drop(two);
}

#[test]
fn a_worker_whose_batch_hangs_is_killed() {
    let world = World::new(WorkerScope::Gpulet);
    let (partition, losses) = world.open(9);
    // Twice the rows, and ten thousand times the time.
    let mut session = load(&partition, &echo("hangs", "time = { points = [[1, 3000], [2, 30000000]] }"));
    for _ in 0..3 {
        echoes(session.as_mut(), 1, 4);
    }
    let reason = lost(session.run(&bytes(2, 4, 1)));
    assert!(reason.contains("no answer for ") && reason.contains(" ms to a batch, expected "), "{reason}");
    assert_eq!(losses.only(), (9, reason));
}

#[test]
fn a_worker_that_becomes_many_times_slower_is_killed() {
    // No single batch exceeds its limit.
    let limits = Limits { run_min: SOON, run_max: SOON, ..limits() };
    let world = World::with(WorkerScope::Gpulet, limits);
    let (partition, losses) = world.open(9);
    let mut session = load(&partition, &echo("slows", "time = { alpha_us = 2000 }"));
    for _ in 0..10 {
        echoes(session.as_mut(), 1, 4);
    }
    let mut answered = 0;
    let reason = loop {
        match session.run(&bytes(1, 4, 0xF7)) {
            Ok(outputs) => assert_eq!(outputs[0].data[0], 0xF7),
            ended => break lost(ended),
        }
        answered += 1;
        assert!(answered < 200);
    };
    assert!(reason.contains(" batches in a row were slow, the last "), "{reason}");
    drop((session, partition));
    assert_eq!(losses.only(), (9, reason));
}

#[test]
fn a_worker_that_waits_for_a_core_is_not_killed() {
    // The limit is 30 ms. With eight busy threads on its core a batch takes more than twice as long.
    let limit = Duration::from_millis(30);
    let world = World::with(WorkerScope::Gpulet, Limits { run_min: limit, run_max: limit, ..limits() });
    let (partition, losses) = world.open(9);
    let cores = partition.cores().to_vec();
    let mut session = load(&partition, &echo("spins", "time = { alpha_us = 6000, mode = \"spin\" }"));
    // At least as many as it learns from.
    for _ in 0..10 {
        echoes(session.as_mut(), 1, 4);
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                pin_this_thread(&cores).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // A failure ends the loop, not the test: the busy threads must end first.
        let failed = (0..10).find_map(|_| session.run(&bytes(1, 4, 1)).err());
        over.store(true, Ordering::Relaxed);
        assert_eq!(failed, None);
    });
    echoes(session.as_mut(), 1, 4);
    assert!(losses.none_yet());
}

/// A batch that takes a second, of a model whose batches take a few milliseconds.
const A_SECOND: u8 = 0xF7;

#[test]
fn a_batch_may_wait_for_batches_of_co_located_gpulets() {
    let world = World::shared(Limits { run_max: SOON, ..limits() });
    let ((one, losses), (two, _losses)) = (world.open(1), world.open(2));
    let mut waiting = load(&one, &echo("quick", "time = { alpha_us = 2000 }"));
    let mut before = load(&two, &echo("slow", "time = { alpha_us = 200000 }"));
    // At least as many as it learns from, so that the slow batch below does not raise the limit.
    for _ in 0..10 {
        echoes(waiting.as_mut(), 1, 4);
    }
    for _ in 0..3 {
        echoes(before.as_mut(), 1, 4);
    }
    assert!(
        waiting.run(&bytes(1, 4, A_SECOND)).is_ok(),
        "a batch of 200 ms may be ahead, so the limit is ten times that"
    );
    assert!(losses.none_yet());
    // A closed gpulet runs no batches.
    drop((before, two));
    let reason = lost(waiting.run(&bytes(1, 4, A_SECOND)));
    assert!(reason.contains(" ms to a batch, expected "), "{reason}");
}

#[test]
fn a_batch_may_wait_while_a_co_located_session_is_prepared() {
    let world = World::with(WorkerScope::Device, limits());
    let ((one, losses), (two, _losses)) = (world.open(1), world.open(2));
    let mut session = load(&one, &echo("quick", "time = { alpha_us = 2000 }"));
    for _ in 0..10 {
        echoes(session.as_mut(), 1, 4);
        world.started();
    }
    thread::scope(|scope| {
        let loading = scope.spawn(|| drop(load(&two, &echo("waits", ""))));
        assert_eq!(world.report(), "loading");
        assert!(session.run(&bytes(1, 4, A_SECOND)).is_ok());
        world.go();
        loading.join().unwrap();
    });
    assert!(losses.none_yet());
    let reason = lost(session.run(&bytes(1, 4, A_SECOND)));
    assert!(reason.contains(" ms to a batch, expected "), "after the preparation: {reason}");
}

#[test]
fn the_reason_names_the_cause_of_any_other_end() {
    for (order, part) in [
        (0xF1, "invalid message: "),
        (0xF2, "killed by SIGABRT"),
        (0xF5, "of device `cpu0`: gpulet of lane 6: illegal address"),
    ] {
        let world = World::new(WorkerScope::Device);
        let (partition, losses) = world.open(6);
        let mut session = load(&partition, &echo("echo", ""));
        echoes(session.as_mut(), 1, 4);
        let reason = lost(session.run(&bytes(1, 4, order)));
        assert!(reason.contains(part), "{reason}");
        drop((session, partition));
        assert_eq!(losses.only(), (6, reason));
    }
}
