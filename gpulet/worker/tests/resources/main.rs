//! Gpulets leave no resources behind. These tests count resources of the whole process, so they run one at a time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::panic, reason = "a test fails by panicking")]

#[path = "../suite/process.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
mod process;
#[path = "../suite/support.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
mod support;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use gpulet::{Device, PartitionSpec};
use gpulet_worker::WorkerScope;

use support::{Losses, command, device, digits, echo, echoes, limits, load};

static ALONE: Mutex<()> = Mutex::new(());
const SPEC: PartitionSpec = PartitionSpec { lane: 0, first_unit: 0, units: 1 };

#[derive(Debug, PartialEq, Eq)]
struct Counted {
    files: usize,
    threads: usize,
    children: usize,
    mapped: usize,
}

fn counted() -> Counted {
    let entries = |path| std::fs::read_dir(path).unwrap().count();
    Counted {
        files: entries("/proc/self/fd"),
        threads: threads(),
        children: children().len(),
        mapped: mapped(),
    }
}

/// Threads that devices started. Those of the tests come and go.
fn threads() -> usize {
    let name = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).unwrap_or_default();
    let of_devices = |task: &PathBuf| {
        let name = name(task);
        name.starts_with("starter-") || name.starts_with("reaper-")
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    tasks.filter(of_devices).filter(|task| !is_exiting(task)).count()
}

/// Whether the kernel is removing a thread. It is still listed for a moment after it was joined.
fn is_exiting(task: &Path) -> bool {
    const PF_EXITING: u32 = 0x4;
    let Ok(status) = std::fs::read_to_string(task.join("stat")) else { return true };
    let flags = status.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(6));
    flags.unwrap().parse::<u32>().unwrap() & PF_EXITING != 0
}

/// Child processes, including dead ones that were not reaped.
fn children() -> Vec<PathBuf> {
    let own = std::process::id().to_string();
    let is_child = |process: &PathBuf| {
        let status = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        status.rsplit_once(") ").is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(own.as_str()))
    };
    std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(is_child).collect()
}

/// Open files of the only worker.
fn worker_files() -> usize {
    let children = children();
    assert_eq!(children.len(), 1);
    std::fs::read_dir(children[0].join("fd")).unwrap().count()
}

/// Mapped bytes of shared memory.
fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let regions = maps.lines().filter(|line| line.contains("memfd:tessera"));
    let bytes = regions.map(|line| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        usize::from_str_radix(to, 16).unwrap() - usize::from_str_radix(from, 16).unwrap()
    });
    bytes.sum()
}

#[test]
fn two_hundred_gpulets_leave_nothing_behind() {
    let _alone = ALONE.lock();
    let device = device(WorkerScope::Gpulet, "", command(), limits());
    let cycle = || {
        let partition = device.open(&SPEC, Losses::new().1).unwrap();
        let mut session = load(&partition, &echo("echo", ""));
        echoes(session.as_mut(), 2, 100_000);
    };
    cycle();
    let before = counted();
    (0..200).for_each(|_| cycle());
    assert_eq!(counted(), before);
    assert_eq!(before.children, 0);
}

#[test]
fn two_hundred_sessions_of_one_worker_leave_nothing_behind() {
    let _alone = ALONE.lock();
    let device = device(WorkerScope::Device, "", command(), limits());
    let files = digits();
    let cycle = || {
        let partition = device.open(&SPEC, Losses::new().1).unwrap();
        let mut session = load(&partition, &files);
        let samples = models::SampleInputs::of(session.as_mut()).unwrap();
        session.run(&samples.batches(4, 1, 1 << 20).unwrap()[0]).unwrap();
    };
    cycle();
    let before = (counted(), worker_files());
    assert_eq!((before.0.children, before.0.threads), (1, 2));
    (0..200).for_each(|_| cycle());
    assert_eq!((counted(), worker_files()), before);
    drop(device);
    assert_eq!(counted().children, 0, "the worker ends with its device");
}

#[test]
fn shared_memory_grows_with_batches_and_is_freed() {
    let _alone = ALONE.lock();
    let device = device(WorkerScope::Gpulet, "", command(), limits());
    let partition = device.open(&SPEC, Losses::new().1).unwrap();
    let mut session = load(&partition, &echo("echo", ""));
    assert_eq!(mapped(), 0);
    let mut after = |width| {
        echoes(session.as_mut(), 1, width);
        mapped() >> 10
    };
    assert_eq!([4, 60_000, 70_000, 4, 3 << 20].map(&mut after), [128, 128, 256, 256, 8192]);
    session.trim();
    assert!(mapped() >> 10 <= 4096, "inputs are freed immediately");
    echoes(session.as_mut(), 1, 4);
    assert_eq!(mapped() >> 10, 128);
    drop((session, partition));
    assert_eq!(mapped(), 0);
}
