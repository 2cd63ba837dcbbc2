//! Makes the study of autoscaling: `cargo run --release -p sim --example scaling [PAGE [TRACE...]]`.
//!
//! Writes `docs/scaling.md` with its plots, or another page; with names of traces, only those. Recorded traces are read
//! from the folder that `TESSERA_DATA` names, by default `shared/data` next to the project; missing ones are left out.

#![expect(
    clippy::disallowed_methods,
    reason = "the program around the pure simulator reads and writes its files"
)]

mod page;
mod traces;

use std::path::{Path, PathBuf};

use gpulet_core::scaling::SCALERS;
use sim::{Report, Setup, SimError, Simulation, abreast};
use workload::Workload;

use traces::Trace;

/// Devices that the traffic of a trace keeps busy on average, at least.
const DEVICES: f64 = 3.0;
/// Devices that exist.
const DEVICES_MAX: u32 = 24;
/// Seconds that loading a model onto a gpulet takes.
const LOADS: [u32; 2] = [2, 12];
/// Seconds at the start that do not count.
const WARMUP: u64 = 300;
/// iGniter's workloads: model, and objectives in milliseconds.
const MODELS: [(&str, [u32; 3]); 4] =
    [("alexnet", [10, 15, 20]), ("resnet50", [10, 20, 30]), ("vgg19", [20, 30, 40]), ("ssd", [30, 40, 50])];

type Failed = Box<dyn std::error::Error>;

/// All scalers on one trace, with one time to load a model.
struct Contest<'a> {
    trace: &'a Trace,
    load_s: u32,
    /// Devices that are busy at least, on average.
    least: f64,
    /// One for each scaler, in the order of [`SCALERS`].
    runs: Vec<Report>,
}

/// The trace on V100s, as the simulator reads it from a file.
fn world(trace: &Trace, load_s: u32, profiles: &str) -> Result<Workload, Failed> {
    let text = format!(
        r#"
name = "{}"
duration = "{}"
warmup = "{WARMUP}s"
seed = 1
[devices.v100]
count = {DEVICES_MAX}
memory = "16GiB"
[devices.v100.interference]
model = "igniter"
power = {{ v100 = {{ cap_w = 300.0, idle_w = 53.5, clock_mhz = 1530.0, clock_mhz_per_w = -1.02541364, launch_us_per_runner = 4.75065, launch_us = -9.02243 }} }}
[partition]
profiles = "v100.jsonl"
load = "{load_s}s"
[lanes.noise]
cv = 0.02
[models.m]
count = {}
model = "alexnet"
slo = "1s"
{}
"#,
        trace.name,
        trace.duration,
        MODELS.len() * 3,
        trace.arrivals
    );
    let mut files = |name: &str| match name {
        "v100.jsonl" => Ok(profiles.to_owned()),
        _ => Ok(trace.recording.clone()),
    };
    let mut world = Workload::parse(&text, &mut files)?;
    let objectives =
        MODELS.iter().flat_map(|(model, objectives)| objectives.iter().map(move |slo| (model, slo)));
    for (model, (name, slo_ms)) in world.models.iter_mut().zip(objectives) {
        model.name = format!("{name}-{slo_ms}ms");
        (*name).clone_into(&mut model.model);
        model.slo = u64::from(*slo_ms) * 1_000_000;
    }
    let (from, to) = window(&world);
    Ok(world.scaled(DEVICES / sim::least_devices(&world, from, to)?)?)
}

/// Nanoseconds from which on, and up to which, requests count.
fn window(world: &Workload) -> (u64, u64) {
    let workload::Extent::Time(end) = world.extent else { return (world.warmup, world.warmup) };
    (world.warmup, end)
}

fn main() -> Result<(), Failed> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut arguments = std::env::args().skip(1);
    let page = arguments.next().map_or_else(|| project.join("docs/scaling.md"), PathBuf::from);
    let only: Vec<String> = arguments.collect();
    let data = std::env::var_os("TESSERA_DATA").map_or_else(|| project.join("../shared/data"), PathBuf::from);
    let profiles = std::fs::read_to_string(project.join("gpulet/core/examples/igniter-v100.jsonl"))?;
    let traces = traces::all(&mut |file| std::fs::read_to_string(data.join(file)).ok())?;
    let chosen = traces.iter().filter(|trace| only.is_empty() || only.iter().any(|name| name == trace.name));
    let settings: Vec<(&Trace, u32)> = chosen.flat_map(|trace| LOADS.map(|load_s| (trace, load_s))).collect();
    let worlds = settings.iter().map(|(trace, load_s)| world(trace, *load_s, &profiles));
    let worlds = worlds.collect::<Result<Vec<Workload>, _>>()?;
    let jobs: Vec<(&Workload, &str)> =
        worlds.iter().flat_map(|world| SCALERS.iter().map(move |(scaler, _)| (world, *scaler))).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let runs = abreast(threads, &jobs, |(world, scaler)| {
        let setup = Setup { scaling: Some((*scaler).to_owned()), ..Setup::default() };
        let report = Simulation::new(world, &setup)?.run(&mut |_| {})?;
        let problem = report.partition.as_ref().and_then(|used| used.problem.as_deref()).unwrap_or("none");
        eprintln!(
            "{} {scaler}: {:.2} %, last failed change: {problem}",
            world.name,
            100.0 * report.attainment
        );
        Ok::<Report, SimError>(report)
    })?;
    let mut runs = runs.into_iter();
    let mut contests = Vec::new();
    for ((trace, load_s), world) in settings.into_iter().zip(&worlds) {
        let (from, to) = window(world);
        let least = sim::least_devices(world, from, to)?;
        contests.push(Contest { trace, load_s, least, runs: runs.by_ref().take(SCALERS.len()).collect() });
    }
    let folder = page.with_extension("");
    std::fs::create_dir_all(&folder)?;
    for contest in &contests {
        std::fs::write(folder.join(page::file(contest)), page::plot(contest).file())?;
    }
    let stem = folder.file_name().ok_or("expected a page with a name")?.to_string_lossy().into_owned();
    std::fs::write(&page, page::markdown(&contests, &stem))?;
    Ok(())
}
