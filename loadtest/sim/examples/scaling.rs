//! Makes the study of autoscaling: `cargo run --release -p sim --example scaling [PAGE [TRACE...]]`.
//!
//! Writes `docs/scaling.md` with its plots, or another page; only the traces named, if any are. Recorded traffic is
//! read from the folder that `TESSERA_DATA` names, else from `shared/data` beside the project; what is not there is
//! left out.

#![expect(
    clippy::disallowed_methods,
    reason = "the program around the pure study reads and writes its files"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpulet_core::interference::{DevicePower, Igniter, Interference};
use gpulet_core::problem::{DeviceKind, Workload};
use gpulet_core::profile::Profile;
use sim::scaling::{Fleet, FleetModel, Rules, Study, agreement, contest, recorded, synthetic};

const COMMAND: &str = "TESSERA_DATA=... cargo run --release -p sim --example scaling";
/// Devices that the traffic fills on average.
const DEVICES: f64 = 10.0;
/// Part of a device that cuts fill.
const PACKING: f64 = 0.9;
/// iGniter's workloads: model, objectives in milliseconds.
const WORKLOADS: [(&str, [f64; 3]); 4] = [
    ("alexnet", [10.0, 15.0, 20.0]),
    ("resnet50", [10.0, 20.0, 30.0]),
    ("vgg19", [20.0, 30.0, 40.0]),
    ("ssd", [30.0, 40.0, 50.0]),
];

type Failed = Box<dyn std::error::Error>;

fn fleet(project: &Path) -> Result<Fleet, Failed> {
    let file = project.join("gpulet/core/examples/igniter-v100.jsonl");
    let profiles = Profile::read(&std::fs::read_to_string(file)?)?;
    let mut models = Vec::new();
    for (model, objectives) in WORKLOADS {
        let profile = profiles.iter().find(|profile| profile.model() == model).ok_or("no such profile")?;
        models.extend(objectives.map(|slo_ms| FleetModel {
            workload: Workload {
                name: format!("{model}-{slo_ms}ms"),
                model: model.to_owned(),
                tenant: String::new(),
                not_with: Vec::new(),
                slo_us: 1e3 * slo_ms,
                rate: 0.0,
                head_room: 1.0,
                replicas_min: 1,
                batch_max: 32,
            },
            profile: profile.clone(),
            warm_load_us: 2_000_000,
            cold_load_us: 20_000_000,
        }));
    }
    Ok(Fleet::new(models, PACKING)?)
}

fn v100() -> Arc<DeviceKind> {
    Arc::new(DeviceKind {
        name: "v100".to_owned(),
        units: 40,
        sizes: (1..=40).collect(),
        gpulets_max: 48,
        base_bytes: 0,
        gpulet_bytes: 0,
    })
}

fn main() -> Result<(), Failed> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut arguments = std::env::args().skip(1);
    let page = arguments.next().map_or_else(|| project.join("docs/scaling.md"), PathBuf::from);
    let only: Vec<String> = arguments.collect();
    let data = std::env::var_os("TESSERA_DATA").map_or_else(|| project.join("../shared/data"), PathBuf::from);
    let fleet = fleet(&project)?;
    let mut read = |file: &str| std::fs::read_to_string(data.join(file)).map_err(|error| error.to_string());
    let mut traces = recorded(&fleet, DEVICES, &mut read)?;
    traces.extend(synthetic(&fleet, DEVICES)?);
    let rules = [2, 12].map(|seconds| Rules { change_us: seconds * 1_000_000, ..Rules::default() });
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut study = Study::default();
    for trace in traces.iter().filter(|trace| only.is_empty() || only.iter().any(|name| name == trace.name)) {
        eprintln!("{}", trace.name);
        study.contests.extend(contest(trace, &fleet, &rules, threads)?);
    }
    if only.is_empty() {
        eprintln!("placement");
        let interference = Igniter { devices: [("v100".to_owned(), DevicePower::V100)].into() };
        let interference = Interference::Igniter(interference);
        study.agreements = agreement(&fleet, &v100(), &interference, &[3.5, 7.5, 14.5, 29.5])?;
    }
    let folder = page.with_extension("");
    std::fs::create_dir_all(&folder)?;
    for (name, plot) in study.plots() {
        std::fs::write(folder.join(name), plot.file())?;
    }
    let stem = folder.file_name().ok_or("expected a page with a name")?.to_string_lossy().into_owned();
    std::fs::write(&page, study.markdown(&stem, COMMAND))?;
    Ok(())
}
