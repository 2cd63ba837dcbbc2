//! What a worker process adds to the time of a batch.
//!
//! `cargo run --release -p gpulet-worker --example cost` runs the same model in this process and in a worker, in
//! alternation, and prints the median and the 99th percentile of both. The echo model computes nothing, so its
//! difference is the cost of the round trip.

#![expect(clippy::unwrap_used, reason = "a measurement ends where something fails")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpulet::{CoresDevice, Device, DeviceError, Partition, PartitionSpec, PartitionWatch, allowed_cores};
use gpulet_worker::{Hello, Limits, ProcessDevice, WorkerCommand, WorkerScope};
use models::engine::{Batch, Session};
use models::{Format, LoadOptions, Loader, ModelFiles, ModelName, SampleInputs, Version};
use oip::{Datatype, Shape, Tensor};

const RUNS: usize = 2000;
const SPEC: PartitionSpec = PartitionSpec { lane: 0, first_unit: 0, units: 1 };
const ECHO: &str = "max_batch = 8\n\
    inputs = [{ name = \"x\", datatype = \"UINT8\", dims = [-1, -1] }]\n\
    outputs = [{ name = \"y\", datatype = \"UINT8\", dims = [-1, -1] }]";

struct Report;

impl PartitionWatch for Report {
    fn failed(&self, _lane: u32, reason: &str) {
        eprintln!("lost: {reason}");
    }
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("worker") {
        return gpulet_worker::serve(cores);
    }
    let inner = device();
    let command = WorkerCommand::this_program();
    let info = inner.info().clone();
    let limits = Limits::default();
    let outer = ProcessDevice::new(info, WorkerScope::Gpulet, command, String::new(), limits).unwrap();
    let begun = Instant::now();
    let there = outer.open(&SPEC, Arc::new(Report)).unwrap();
    println!(
        "the worker started in {:.1} ms; {RUNS} runs each, in alternation, in microseconds:",
        millis(begun.elapsed())
    );
    let here = inner.open(&SPEC, Arc::new(Report)).unwrap();
    // As a lane's thread does.
    gpulet::pin_this_thread(here.cores()).unwrap();
    println!(
        "{:32} {:>10} {:>10} {:>10} {:>10}",
        "batch", "here p50", "worker p50", "here p99", "worker p99"
    );
    for (what, bytes) in [("echo, 4 bytes", 4), ("echo, 64 KiB", 64 << 10), ("echo, 600 KB", 600_000)] {
        let files = files("echo", Format::Synthetic, ECHO.into());
        report(what, &here, &there, &files, |_| batch(bytes));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/bundled/digits/1/model.onnx");
    let digits = files("digits", Format::Onnx, std::fs::read(path).unwrap());
    for rows in [1, 8, 64] {
        report(&format!("digits (tract), {rows} rows"), &here, &there, &digits, |session| {
            SampleInputs::of(session).unwrap().batches(rows, 1, 1 << 24).unwrap().remove(0)
        });
    }
    ExitCode::SUCCESS
}

fn device() -> CoresDevice {
    CoresDevice::new("cpu0", allowed_cores().unwrap(), 1 << 30, Arc::new(Loader::without_ort()))
}

fn cores(_hello: &Hello) -> Result<Arc<dyn Device>, DeviceError> {
    Ok(Arc::new(device()))
}

fn files(name: &str, format: Format, bytes: Vec<u8>) -> ModelFiles {
    ModelFiles::from_bytes(ModelName::new(name).unwrap(), Version(1), format, bytes)
}

fn batch(bytes: usize) -> Batch {
    let shape = Shape::from_extents(&[1, bytes as u64]);
    let data = (0..bytes).map(|byte| byte as u8).collect::<Vec<_>>().into();
    Batch {
        inputs: vec![Some(Tensor { name: "x".to_owned(), datatype: Datatype::Uint8, shape, data })],
        rows: 1,
    }
}

fn report(
    what: &str,
    here: &Arc<dyn Partition>,
    there: &Arc<dyn Partition>,
    files: &ModelFiles,
    batch: impl Fn(&mut dyn Session) -> Batch,
) {
    let load = |partition: &Arc<dyn Partition>| partition.load(files, &LoadOptions::default()).unwrap();
    let mut sessions = [load(here), load(there)];
    let [first, _] = &mut sessions;
    let batch = batch(first.as_mut());
    let mut times = [Vec::new(), Vec::new()];
    for run in 0..RUNS {
        for (session, times) in sessions.iter_mut().zip(&mut times) {
            let begun = Instant::now();
            session.run(&batch).unwrap();
            // The first runs create regions and plans.
            if run >= RUNS / 10 {
                times.push(begun.elapsed());
            }
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    let micros = |times: &[Duration], share: usize| {
        times.get(times.len() * share / 100).map_or(0.0, |time| time.as_secs_f64() * 1e6)
    };
    let [here, there] = &times;
    let row = [micros(here, 50), micros(there, 50), micros(here, 99), micros(there, 99)];
    println!("{what:32} {}", row.map(|micros| format!("{micros:10.1}")).join(" "));
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
