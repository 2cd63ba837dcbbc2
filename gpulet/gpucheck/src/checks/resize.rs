//! Plan changes under load: the border between two gpulets moves while each has a lane that runs continuously.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use gpulet::Device;
use gpulet_cuda::{Backend, CudaDevice, CudaOptions};
use models::engine::{Batch, RunError};
use serde_json::json;

use crate::bench::{Bench, Open, Stop, serve};
use crate::kernel_maker::{Work, amount, is_computed, words};
use crate::report::Fact;
use crate::spread::Spread;
use crate::timing::amount_for;

/// Number of plan changes.
const CHANGES: usize = 1_000;
/// Length of the lanes' batches.
const BATCH: Duration = Duration::from_micros(300);
/// Limit on the time of reduced capacity of a plan change.
const DIP_MAX: Duration = Duration::from_millis(50);
/// Device memory that may be missing afterwards, which the driver keeps for itself.
const LEFT_BEHIND_MAX: u64 = 16 << 20;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Stop> {
    if !bench.has_green("resize.changes", "10.5") {
        return Ok(());
    }
    // No idle contexts, so that every change includes creating its contexts and none counts as left behind.
    let device =
        bench.take(Backend::CudaGreen, &CudaOptions { idle_contexts: 0, ..CudaOptions::default() })?;
    if device.info().units < 2 {
        bench.report.skip("resize.changes", "10.5", "the device has one unit: expected two gpulets");
        return Ok(());
    }
    let primary = bench.primary()?;
    // Memory that the driver needs for any kernel is not left behind.
    warm(&device)?;
    let (before, _) = primary.memory()?;
    change_and_run(bench, &device)?;
    let left = before.saturating_sub(primary.memory()?.0);
    let fact = Fact::new("resize.memory_left_behind", "10.5").value(left).unit("bytes");
    bench.report.add(&fact.ok(left <= LEFT_BEHIND_MAX));
    Ok(())
}

fn warm(device: &CudaDevice) -> Result<(), Stop> {
    serve(device, &Work::Compute.files()?, 0, 1)?.session.run(&amount(1))?;
    Ok(())
}

/// A batch of a lane.
struct Ran {
    ended: Instant,
    right: bool,
}

/// The batches of a lane.
#[derive(Default)]
struct Log {
    batches: Vec<Ran>,
    failed: Vec<String>,
}

/// Runs batches until the sender of gpulets is dropped. Replaces its gpulet between two batches and returns the old one.
fn lane(mut open: Open, batch: &Batch, rounds: u32, next: &Receiver<Open>, old: &Sender<Open>) -> Log {
    let mut log = Log::default();
    loop {
        match open.session.run(batch) {
            Ok(outputs) => {
                let right = is_computed(&words(&outputs), rounds);
                log.batches.push(Ran { ended: Instant::now(), right });
            }
            Err(error) => {
                log.failed.push(error.to_string());
                if matches!(error, RunError::DeviceFailed(_)) {
                    return log;
                }
            }
        }
        match next.try_recv() {
            Ok(new) => {
                // The sender drops it, because that would take time of the lane.
                let replaced = std::mem::replace(&mut open, new);
                if old.send(replaced).is_err() {
                    return log;
                }
            }
            Err(mpsc::TryRecvError::Empty) => {}
            Err(mpsc::TryRecvError::Disconnected) => return log,
        }
    }
}

/// One side of the border, as the code that changes plans sees it.
struct Side {
    next: Sender<Open>,
    old: Receiver<Open>,
}

/// Times of plan changes.
#[derive(Default)]
struct Changes {
    /// Opening, loading and warming up both gpulets.
    prepare: Vec<Duration>,
    /// Until both lanes run on the new gpulets.
    switch: Vec<Duration>,
    /// Closing both old gpulets.
    close: Vec<Duration>,
}

fn prepared(device: &CudaDevice, first: u32, units: u32, batch: &Batch) -> Result<Open, Stop> {
    let mut open = serve(device, &Work::Compute.files()?, first, units)?;
    open.session.run(batch)?;
    Ok(open)
}

fn change(
    device: &CudaDevice,
    border: u32,
    batch: &Batch,
    sides: &[Side; 2],
    changes: &mut Changes,
) -> Result<(), Stop> {
    let units = device.info().units;
    let begun = Instant::now();
    let new = [prepared(device, 0, border, batch)?, prepared(device, border, units - border, batch)?];
    let ready = Instant::now();
    let ended = || Stop::Other("a lane has ended".to_owned());
    for (side, open) in sides.iter().zip(new) {
        side.next.send(open).map_err(|_| ended())?;
    }
    let mut old = Vec::new();
    for side in sides {
        old.push(side.old.recv().map_err(|_| ended())?);
    }
    let switched = Instant::now();
    drop(old);
    changes.prepare.push(ready - begun);
    changes.switch.push(switched - ready);
    changes.close.push(switched.elapsed());
    Ok(())
}

fn change_and_run(bench: &mut Bench<'_>, device: &CudaDevice) -> Result<(), Stop> {
    let units = device.info().units;
    let half = units / 2;
    let mut first = serve(device, &Work::Compute.files()?, 0, half)?;
    let rounds = amount_for(first.session.as_mut(), BATCH)?;
    let batch = amount(rounds);
    let second = serve(device, &Work::Compute.files()?, half, units - half)?;
    let quiet = bench.left().mul_f64(0.1).min(Duration::from_secs(2));
    let until = bench.after(0.9);
    let mut changes = Changes::default();
    let batch = &batch;
    let (from, result, logs) = std::thread::scope(|scope| {
        let (sides, running): (Vec<_>, Vec<_>) = [first, second]
            .into_iter()
            .map(|open| {
                let ((next, taken), (given, old)) = (mpsc::channel(), mpsc::channel());
                let running = scope.spawn(move || lane(open, batch, rounds, &taken, &given));
                (Side { next, old }, running)
            })
            .unzip();
        // The lanes without changes are the baseline.
        std::thread::sleep(quiet);
        let from = Instant::now();
        let result = match <[Side; 2]>::try_from(sides) {
            Ok(sides) => all_changes(device, batch, &sides, until, &mut changes),
            Err(_) => Err(Stop::Other("expected two lanes".to_owned())),
        };
        let logs: Vec<Log> = running.into_iter().filter_map(|thread| thread.join().ok()).collect();
        (from, result, logs)
    });
    report(bench, &changes, &logs, from);
    result
}

/// Moves the border over all places in a fixed order.
fn all_changes(
    device: &CudaDevice,
    batch: &Batch,
    sides: &[Side; 2],
    until: Instant,
    changes: &mut Changes,
) -> Result<(), Stop> {
    let places = device.info().units - 1;
    // A stride without a common divisor with most counts gives near and far moves and visits every place.
    for number in 0..CHANGES {
        if Instant::now() >= until {
            break;
        }
        let step = u32::try_from(number).unwrap_or(0).wrapping_mul(7);
        change(device, 1 + step % places, batch, sides, changes)?;
    }
    Ok(())
}

fn report(bench: &mut Bench<'_>, changes: &Changes, logs: &[Log], from: Instant) {
    let done = changes.close.len();
    let fact = Fact::new("resize.changes", "10.5").value(done).ok(done == CHANGES);
    bench.report.add(&fact.detail(json!({"wanted": CHANGES})));
    let failed: Vec<&String> = logs.iter().flat_map(|log| &log.failed).collect();
    let lost = failed.len() + 2_usize.saturating_sub(logs.len());
    let fact = Fact::new("resize.batches_lost", "10.5").value(lost).ok(lost == 0);
    bench.report.add(&fact.detail(failed.first().map(|first| first.as_str())));
    let all: usize = logs.iter().map(|log| log.batches.len()).sum();
    let wrong = logs.iter().flat_map(|log| &log.batches).filter(|ran| !ran.right).count();
    let fact = Fact::new("resize.batches_wrong", "10.5").value(wrong).ok(wrong == 0 && all > 0);
    bench.report.add(&fact.detail(json!({"batches": all})));
    for (what, times) in
        [("prepare", &changes.prepare), ("switch", &changes.switch), ("close", &changes.close)]
    {
        if let Some(spread) = Spread::of(times) {
            let fact = Fact::new(format!("resize.{what}"), "6").value(spread.median()).unit("us");
            bench.report.add(&fact.detail(spread.to_json()));
        }
    }
    dips(bench, logs, from);
}

/// Gaps between the ends of a lane's batches: the additional delay of a request that arrives at the worst moment.
fn dips(bench: &mut Bench<'_>, logs: &[Log], from: Instant) {
    let (mut quiet, mut busy) = (Vec::new(), Vec::new());
    for log in logs {
        for (before, after) in log.batches.iter().zip(log.batches.iter().skip(1)) {
            let gap = after.ended - before.ended;
            if after.ended < from { quiet.push(gap) } else { busy.push(gap) }
        }
    }
    let (Some(quiet), Some(busy)) = (Spread::of(&quiet), Spread::of(&busy)) else { return };
    let worst = busy.percentile(100) - quiet.median();
    let fact = Fact::new("resize.longest_reduced_capacity", "6").value(worst).unit("us");
    let fact = fact.ok(worst < DIP_MAX.as_secs_f64() * 1e6);
    bench.report.add(
        &fact.detail(json!({"gap_us_before": quiet.to_json(), "gap_us_while_changing": busy.to_json()})),
    );
    let share = quiet.median() / busy.median().max(1e-9);
    bench.report.add(&Fact::new("resize.capacity_while_changing", "6").value(share));
}
