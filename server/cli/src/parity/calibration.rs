//! Calibration of the simulator: overheads and profiles, measured in separate runs on the server that is compared.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use loadtest::{Drive, LoadError, Report, Session, Settings, Timing};
use models::TimeSpan;
use workload::{Model, Profile, Spans, Stages, Workload, sizes};

use crate::load::line::Line;
use crate::simulate::reading;

/// Duration of the run that measures the overhead of requests and batches, in nanoseconds.
const REHEARSAL: u64 = 10_000_000_000;
/// Warm-up of that run, in nanoseconds.
const REHEARSAL_WARMUP: u64 = 1_000_000_000;
/// Added to the seed, so that calibration and comparison send different requests.
const OTHER_SEED: u64 = 0x9e37_79b9;
/// Default for the largest batch of a model: the server's default.
const LARGEST: u32 = 64;
/// More cannot be put into a workload.
const VARIATION_MAX: f64 = 10.0;
/// How long batches of one size are measured.
const SIZE: Duration = Duration::from_millis(1_000);

/// Adds the measured overheads to the workload, and with `real` models their profiles.
pub fn measure(
    workload: &mut Workload,
    settings: &Settings,
    real: bool,
    stop: &Arc<AtomicBool>,
    line: &Line,
) -> anyhow::Result<()> {
    if real {
        for model in workload.models.iter_mut().filter(|model| model.is_single()) {
            line.say(&format!("measuring batches of {}", model.name));
            let lanes = model.lanes.as_ref().map_or(workload.lanes.count, |lanes| lanes.len() as u32);
            model.profile = Some(profile(model, lanes, settings, stop)?);
        }
    }
    let report = rehearse(workload, settings, stop, line)?;
    for (number, model) in (0..).zip(&mut workload.models) {
        let own = report.timings.iter().filter(|timing| timing.model == number);
        model.overhead = Spans::of_samples(own.map(|timing| timing.outside).collect());
    }
    // The times of a pipeline are those of several batches, and those of a family of several models.
    let report = match workload.models.iter().all(Model::is_single) {
        false => rehearse(&workload.stages_alone(), settings, stop, line)?,
        true => report,
    };
    workload.lanes.overhead = batch_overhead(workload, &report, real);
    if real {
        workload.lanes.noise.cv = variation(&report.timings);
        correct_for_contention(workload, &report.timings)?;
    }
    Ok(())
}

/// A run with other requests than those of the comparison.
fn rehearse(
    workload: &Workload,
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    line: &Line,
) -> anyhow::Result<Report> {
    let mut rehearsal = workload.lasting(REHEARSAL)?.with_seed(workload.seed.wrapping_add(OTHER_SEED));
    rehearsal.warmup = REHEARSAL_WARMUP;
    let settings = Settings { keep_timings: true, ..for_part(settings, &rehearsal) };
    let session = Session::open(&rehearsal, settings)?;
    let drive = Drive::Open(Stages::constant(REHEARSAL)?);
    let report = session.run(&rehearsal, &drive, stop, &mut |live| line.show("overheads  ", live))?;
    anyhow::ensure!(!report.timings.is_empty(), "the server does not report the timing of its responses");
    // Batches at idle priority stand still for others, which is not their own time.
    let timings: Vec<Timing> =
        report.timings.iter().filter(|timing| is_ordinary(workload, timing)).cloned().collect();
    Ok(Report { timings, ..report })
}

/// The settings without the names of models that a part of the workload does not have.
fn for_part(settings: &Settings, part: &Workload) -> Settings {
    let mut settings = settings.clone();
    settings.names.retain(|name, _| part.models.iter().any(|model| model.name == *name));
    settings
}

fn is_ordinary(workload: &Workload, timing: &Timing) -> bool {
    workload.models.get(timing.model as usize).is_none_or(|model| !model.best_effort)
}

fn nanos(millis: f64) -> u64 {
    (millis.max(0.0) * 1e6) as u64
}

/// Overhead of a lane for a batch, in addition to the model's time: the hand-over to the lane, for every batch, and the
/// mean of that back. For synthetic models also the time by which they exceeded their profile.
fn batch_overhead(workload: &Workload, report: &Report, real: bool) -> Spans {
    let server = report.models.iter().filter_map(|model| model.server);
    let (back, requests) = server.fold((0.0, 0.0), |(back, requests), server| {
        let count = server.requests as f64;
        (back + server.output_ms * count, requests + count)
    });
    let back = if requests > 0.0 { nanos(back / requests) } else { 0 };
    let samples = one_a_batch(&report.timings).map(|timing| {
        let profile = workload.models.get(timing.model as usize).and_then(|model| model.profile.as_ref());
        let told = profile.map_or(timing.compute, |profile| profile.time(timing.batch_rows));
        let longer = if real { 0 } else { timing.compute.saturating_sub(told) };
        timing.wait + back + longer
    });
    Spans::of_samples(samples.collect())
}

/// Corrects profiles, which were measured one model at a time, by batch times under contention: models that share a core
/// evict each other from its caches.
fn correct_for_contention(workload: &mut Workload, timings: &[Timing]) -> anyhow::Result<()> {
    for (number, model) in (0..).zip(&mut workload.models) {
        let Some(profile) = &model.profile else { continue };
        let own = one_a_batch(timings).filter(|timing| timing.model == number);
        let (took, told) = own.fold((0.0, 0.0), |(took, told), timing| {
            (took + timing.compute as f64, told + profile.time(timing.batch_rows) as f64)
        });
        if told > 0.0 {
            let corrected = |rows| (rows, (profile.time(rows) as f64 * took / told) as u64);
            let points: Vec<(u32, u64)> = sizes(profile.max_batch()).map(corrected).collect();
            model.profile = Some(Profile::from_points(&points)?);
        }
    }
    Ok(())
}

/// One request for each batch, approximately: of each batch size, every n-th request for batches of n rows.
fn one_a_batch(timings: &[Timing]) -> impl Iterator<Item = &Timing> {
    let mut seen: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    timings.iter().filter(move |timing| {
        let seen = seen.entry((timing.model, timing.batch_rows)).or_insert(0);
        *seen += 1;
        (*seen - 1).is_multiple_of(timing.batch_rows.max(1))
    })
}

/// Coefficient of variation of the models' times around the mean of their batch size.
fn variation(timings: &[Timing]) -> f64 {
    let mut sizes: BTreeMap<(u32, u32), Vec<f64>> = BTreeMap::new();
    for timing in one_a_batch(timings) {
        sizes.entry((timing.model, timing.batch_rows)).or_default().push(timing.compute as f64);
    }
    let (mut squares, mut freedom) = (0.0, 0.0);
    for times in sizes.values().filter(|times| times.len() > 1) {
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        squares += times.iter().map(|time| (time / mean - 1.0).powi(2)).sum::<f64>();
        freedom += (times.len() - 1) as f64;
    }
    if freedom > 0.0 { (squares / freedom).sqrt().min(VARIATION_MAX) } else { 0.0 }
}

/// Times of batches of 1, 2, 4 ... rows, all lanes working on the model.
fn profile(
    model: &Model,
    lanes: u32,
    settings: &Settings,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Profile> {
    let largest = model.profile.as_ref().map_or(LARGEST, Profile::max_batch);
    let mut settings = settings.clone();
    settings.payloads.of_other_models = true;
    let mut measured: BTreeMap<u32, f64> = BTreeMap::new();
    for rows in sizes(largest) {
        let alone = alone(model, rows)?;
        let session = match Session::open(&alone, for_part(&settings, &alone)) {
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

/// A workload of one model with requests of this many rows and no objective that would drop them.
fn alone(model: &Model, rows: u32) -> anyhow::Result<Workload> {
    let name = toml::Value::String(model.name.clone());
    let text = format!(
        "name = {name}\nduration = \"{}\"\n[models.{name}]\nslo = \"{}\"\nrate = 1\nrows = {rows}\n",
        TimeSpan(SIZE),
        TimeSpan(Duration::from_nanos(model.slo)),
    );
    reading::parse(&text, Path::new("calibration")).map_err(anyhow::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(batch_rows: u32, compute: u64) -> Timing {
        Timing { model: 0, batch_rows, wait: 10, compute, outside: 5 }
    }

    #[test]
    fn batches_count_once_however_many_requests_they_held() {
        let timings: Vec<Timing> = [1, 4, 4, 4, 4, 1, 4, 4, 4, 4].map(|rows| timing(rows, 1)).to_vec();
        let rows: Vec<u32> = one_a_batch(&timings).map(|timing| timing.batch_rows).collect();
        assert_eq!(rows, [1, 4, 1, 4]);
    }

    #[test]
    fn variation_is_around_the_mean_of_the_size() {
        let timings = [timing(1, 90), timing(1, 110), timing(2, 900), timing(2, 1), timing(2, 1_100)];
        let expected = (0.04_f64 / 2.0).sqrt();
        assert!((variation(&timings) - expected).abs() < 1e-9, "{}", variation(&timings));
        assert_eq!(variation(&[]), 0.0);
    }
}
