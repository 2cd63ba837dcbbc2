//! Times of batches by model, rows and units, as a profile file that plans are made with.

mod cell;
mod neighbours;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use gpulet::Device;
use gpulet_core::profile::{ArenaLine, Header, Line, Profile, Source};
use gpulet_cuda::driver::Primary;
use gpulet_cuda::{CudaDevice, Monitor, Readings, dotted};
use serde_json::json;

use crate::answer::Fact;
use crate::bench::{Bench, Open, Stop, serve_rows};
use crate::subject::{Subject, ready};

/// Rows that are measured first, on every share; then the others as time allows.
const ROWS_FIRST: [u32; 3] = [1, 8, 32];
const ROWS_THEN: [u32; 3] = [4, 16, 2];
const ROWS_MAX: u32 = 32;
/// Shares that are measured however long it takes: all units and half of them.
const SHARES_MIN: usize = 2;

pub(super) fn ask(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let Some(subjects) = ready(bench, "profile.models", "8") else { return Ok(()) };
    let device = bench.cut()?;
    let primary = bench.primary()?;
    let monitor = Monitor::open().ok();
    for (place, subject) in subjects.iter().enumerate() {
        let until = bench.after(1.0 / (subjects.len() - place) as f64);
        bench.tell(subject.name());
        let mut lines = Vec::new();
        if let Err(stop) = measure(bench, (&device, &primary, monitor.as_ref()), subject, until, &mut lines) {
            let fact = Fact::new(format!("profile.{}_cells", subject.name()), "8");
            bench.answers.say(&fact.ok(false).detail(stop.to_string()));
            continue;
        }
        keep(bench, subject, &lines)?;
    }
    Ok(())
}

/// Writes the lines of a model if they are a profile.
fn keep(bench: &mut Bench<'_>, subject: &Subject, lines: &[Line]) -> Result<(), Stop> {
    let text: Result<String, _> =
        lines.iter().map(|line| serde_json::to_string(line).map(|line| line + "\n")).collect();
    let text = text.map_err(|error| Stop::Other(error.to_string()))?;
    let cells = lines.iter().filter(|line| matches!(line, Line::Cell(_))).count();
    let fact = Fact::new(format!("profile.{}_cells", subject.name()), "8").value(cells);
    match Profile::read(&text) {
        Ok(profiles) => {
            append(&bench.profiles, &text).map_err(Stop::Other)?;
            let repairs: usize = profiles.iter().map(|profile| profile.repairs().len()).sum();
            let file = bench.profiles.display().to_string();
            bench.answers.say(
                &fact.ok(cells > 0).detail(json!({"file": file, "contradicting": repairs, "lines": lines})),
            );
        }
        Err(error) => bench.answers.say(&fact.ok(false).detail(error.to_string())),
    }
    Ok(())
}

fn append(path: &Path, text: &str) -> Result<(), String> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("--profiles {}: {error}", path.display()))
}

/// All units first, for objectives are multiples of the time on them; then from the largest share down.
fn shares(units: u32) -> Vec<u32> {
    let mut shares = vec![units];
    let steps = [units / 2, units / 4, units / 8, 1, units * 3 / 4, 3, 6];
    for share in steps.into_iter().filter(|share| (1..units).contains(share)) {
        if !shares.contains(&share) {
            shares.push(share);
        }
    }
    shares
}

fn measure(
    bench: &mut Bench<'_>,
    (device, primary, monitor): (&CudaDevice, &Primary, Option<&Monitor>),
    subject: &Subject,
    until: Instant,
    lines: &mut Vec<Line>,
) -> Result<(), Stop> {
    let units = device.info().units;
    let weights = u64::try_from(subject.files.bytes.len()).unwrap_or(u64::MAX);
    // The one before stays until the next is there, and with it the weights that sessions share.
    let mut before_this: Option<Open> = None;
    for (at, share) in shares(units).into_iter().enumerate() {
        // No plan does without the first shares; the finer ones are left out where time is short.
        if at >= SHARES_MIN && Instant::now() >= until {
            break;
        }
        let before = primary.memory()?.0;
        let mut gpulet = serve_rows(device, &subject.files, (0, share), ROWS_MAX)?;
        let session = gpulet.session.as_mut();
        if lines.is_empty() {
            lines.push(Line::Profile(header(bench, (subject, session.engine()), units, monitor)));
        }
        let most = session.signature().max_batch.max(1);
        let extra: &[u32] = if Instant::now() < until { &ROWS_THEN } else { &[] };
        for &rows in ROWS_FIRST.iter().chain(extra).filter(|rows| **rows <= most) {
            let batch = subject.batch(session, rows)?;
            let mut cell = cell::measured(session, &batch, (rows, share))?;
            cell.doubt = cell.doubt.or_else(|| lowered(own_readings(bench, monitor)));
            lines.push(Line::Cell(cell));
        }
        if share == units / 2 {
            neighbours::measure(bench, device, (subject, session), share)?;
        }
        if at == 0 {
            let taken = before.saturating_sub(primary.memory()?.0);
            let largest = ROWS_FIRST.into_iter().filter(|rows| *rows <= most).max().unwrap_or(1);
            lines.push(Line::Arena(ArenaLine { batch: largest, bytes: taken.saturating_sub(weights) }));
        }
        drop(before_this.replace(gpulet));
    }
    Ok(())
}

fn header(
    bench: &Bench<'_>,
    (subject, engine): (&Subject, &str),
    units: u32,
    monitor: Option<&Monitor>,
) -> Header {
    let found = &bench.found;
    Header {
        version: 1,
        model: subject.name().to_owned(),
        model_sha256: Some(subject.files.hash.to_string()),
        device: found.name.clone(),
        engine: engine.to_owned(),
        source: Source::Measured,
        note: note(bench, monitor),
        units_total: units,
        weights_bytes: u64::try_from(subject.files.bytes.len()).ok(),
        load_us_per_row: 0.0,
    }
}

/// What the GPU says of itself.
fn own_readings(bench: &Bench<'_>, monitor: Option<&Monitor>) -> Option<Readings> {
    let readings = monitor.and_then(|monitor| monitor.read().ok())?;
    readings.into_iter().find(|gpu| gpu.uuid.as_deref() == Some(&bench.found.uuid))
}

/// Why times are not those of the full clock; none where nothing lowers it but idleness or somebody's setting.
fn lowered(readings: Option<Readings>) -> Option<String> {
    const HARMLESS: [&str; 3] = ["NONE", "GPU_IDLE", "APPLICATIONS_CLOCKS_SETTING"];
    let reasons = readings?.throttle_reasons?;
    let reasons: Vec<&str> = reasons.into_iter().filter(|reason| !HARMLESS.contains(reason)).collect();
    (!reasons.is_empty()).then(|| format!("clocks were lowered: {}", reasons.join(" ")))
}

/// What the times depend on beside the model and the device.
fn note(bench: &Bench<'_>, monitor: Option<&Monitor>) -> String {
    let own = own_readings(bench, monitor);
    let clock = own.as_ref().and_then(|gpu| gpu.clock_sm_mhz);
    let clock = clock.map_or_else(String::new, |clock| format!(", SM clock {clock} MHz at the start"));
    let reasons = own.and_then(|gpu| gpu.throttle_reasons).unwrap_or_default().join(" ");
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({reasons})") };
    let library = crate::makers::library().unwrap_or("no ONNX Runtime");
    format!(
        "gpucheck {}: driver {}, {library}, {} SMs{clock}{reasons}; made-up inputs, copies to and from the device \
         included, nothing beside it",
        env!("CARGO_PKG_VERSION"),
        dotted(bench.found.driver_version),
        bench.found.sms
    )
}
