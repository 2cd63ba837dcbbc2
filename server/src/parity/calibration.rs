//! What the simulator must know of this machine, measured on the server that is compared, by runs of their own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use loadtest::{Drive, LoadError, Report, Session, Settings};
use models::TimeSpan;
use workload::{Model, Profile, Stages, Workload};

use crate::load::line::Line;
use crate::simulate::reading;

/// How long the workload is sent to see what requests and batches cost beside the models.
const REHEARSAL: u64 = 5_000_000_000;
/// Of these, left out.
const REHEARSAL_WARMUP: u64 = 1_000_000_000;
/// Added to the seed, so that the run that is compared is another one.
const OTHER_SEED: u64 = 0x9e37_79b9;
/// Rows of the largest batch of a model whose profile does not say: the server's default.
const LARGEST: u32 = 64;
/// How long batches of one size are measured.
const SIZE: Duration = Duration::from_millis(1_000);

/// Puts into the workload what was measured: the overheads, and with `real` models their profiles.
pub fn measure(
    workload: &mut Workload,
    settings: &Settings,
    real: bool,
    stop: &Arc<AtomicBool>,
    line: &Line,
) -> anyhow::Result<()> {
    if real {
        for place in 0..workload.models.len() {
            let Some(model) = workload.models.get(place) else { continue };
            line.say(&format!("measuring batches of {}", model.name));
            let profile = profile(model, workload.lanes.count, settings, stop)?;
            if let Some(model) = workload.models.get_mut(place) {
                model.profile = Some(profile);
            }
        }
    }
    let mut rehearsal = workload.lasting(REHEARSAL)?.with_seed(workload.seed.wrapping_add(OTHER_SEED));
    rehearsal.warmup = REHEARSAL_WARMUP;
    let session = Session::open(&rehearsal, settings.clone())?;
    let drive = Drive::Open(Stages::constant(REHEARSAL)?);
    let report = session.run(&rehearsal, &drive, stop, &mut |live| line.show("overheads  ", live))?;
    let batch_ms = batch_overhead(workload, &report);
    workload.lanes.overhead.batch = nanos(batch_ms);
    workload.lanes.overhead.request = nanos(request_overhead(&report));
    Ok(())
}

fn nanos(millis: f64) -> u64 {
    (millis.max(0.0) * 1e6) as u64
}

/// Milliseconds that a lane takes for a batch beside what the profile says.
fn batch_overhead(workload: &Workload, report: &Report) -> f64 {
    let (mut beside, mut batches) = (0.0, 0.0);
    for (model, figures) in workload.models.iter().zip(&report.models) {
        let Some(profile) = &model.profile else { continue };
        for size in &figures.batches {
            let rows = u32::try_from(size.rows).unwrap_or(u32::MAX);
            let told = profile.time(rows) as f64 / 1e6;
            beside += size.batches as f64 * (size.compute_ms + size.overhead_ms - told);
            batches += size.batches as f64;
        }
    }
    if batches > 0.0 { beside / batches } else { 0.0 }
}

/// Milliseconds of an answered request outside the queue and the lane, as its client sees it.
fn request_overhead(report: &Report) -> f64 {
    let (mut outside, mut requests) = (0.0, 0.0);
    for model in &report.models {
        if let (Some(server), Some(latency)) = (model.server, &model.figures.latency) {
            let inside = server.queue_ms + server.input_ms + server.compute_ms + server.output_ms;
            outside += (latency.mean_ms - inside) * latency.count as f64;
            requests += latency.count as f64;
        }
    }
    if requests > 0.0 { outside / requests } else { 0.0 }
}

/// Times of batches of 1, 2, 4 ... rows, all lanes working on the model.
fn profile(
    model: &Model,
    lanes: u32,
    settings: &Settings,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Profile> {
    let largest = model.profile.as_ref().map_or(LARGEST, Profile::max_batch);
    let sizes = (0..u32::BITS).map(|log| 1 << log).take_while(|&rows| rows < largest).chain([largest]);
    let mut measured: BTreeMap<u32, f64> = BTreeMap::new();
    for rows in sizes {
        let alone = alone(model, rows)?;
        let session = match Session::open(&alone, settings.clone()) {
            // Beyond the largest batch of the model's own settings.
            Err(LoadError::Model { .. }) if !measured.is_empty() => break,
            session => session?,
        };
        let time = u64::try_from(SIZE.as_nanos()).unwrap_or(u64::MAX);
        let report = session.run(&alone, &Drive::Closed { concurrency: lanes, time }, stop, &mut |_| {})?;
        let size = report.models.iter().flat_map(|model| &model.batches);
        let size = size.filter(|size| size.rows == u64::from(rows)).max_by_key(|size| size.batches);
        if let Some(size) = size {
            measured.insert(rows, size.compute_ms);
        }
    }
    anyhow::ensure!(!measured.is_empty(), "model `{}`: the server's statistics have no batches", model.name);
    let mut least = 0;
    let points = measured.into_iter().map(|(rows, millis)| {
        // A profile may not fall as batches grow; what looks like it is noise.
        least = nanos(millis).max(least);
        (rows, least)
    });
    Ok(Profile::from_points(&points.collect::<Vec<_>>())?)
}

/// Requests of so many rows for one model, without an objective that could refuse them.
fn alone(model: &Model, rows: u32) -> anyhow::Result<Workload> {
    let name = toml::Value::String(model.name.clone());
    let text = format!(
        "name = {name}\nduration = \"{}\"\n[models.{name}]\nslo = \"{}\"\nrate = 1\nrows = {rows}\n",
        TimeSpan(SIZE),
        TimeSpan(Duration::from_nanos(model.slo)),
    );
    reading::parse(&text, Path::new("calibration")).map_err(anyhow::Error::from)
}
