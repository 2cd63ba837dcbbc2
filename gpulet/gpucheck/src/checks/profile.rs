//! Times of batches by model, rows and units, as a profile file for plans; and how contention changes them.
//!
//! Models alternate between the two halves of the GPU, and each stays there until the next one was measured, so that two
//! of them run at the same time without loading another session. Measurements under contention go to their own file, and
//! models of interference are fitted to them.

mod cell;
mod contention;
mod pairing;
mod pressure;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use gpulet::Device;
use gpulet_core::profile::{ArenaLine, Header, Line, Profile, Source};
use gpulet_cuda::driver::Primary;
use gpulet_cuda::{CudaDevice, Monitor, Readings, dotted};
use models::engine::Session;
use serde_json::json;

use crate::bench::{Bench, Open, Stop, serve_rows};
use crate::fit::fit;
use crate::pairs::{self, Pair};
use crate::report::Fact;
use crate::subject::{Subject, ready};
use contention::{Half, KernelUse};
use pairing::{Alone, Previous};

/// Rows that are measured first, on every share; the others follow as time allows.
const ROWS_FIRST: [u32; 3] = [1, 8, 32];
const ROWS_THEN: [u32; 3] = [4, 16, 2];
const ROWS_MAX: u32 = 32;
/// Shares that are always measured: all units, and half of them.
const SHARES_MIN: usize = 2;

/// What a profile is measured with.
struct Tools<'a> {
    device: &'a CudaDevice,
    primary: &'a Primary,
    monitor: Option<&'a Monitor>,
    /// What the co-located kernels use; empty on a device with one unit.
    kernels: KernelUse,
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let Some(subjects) = ready(bench, "profile.models", "8") else { return Ok(()) };
    let device = bench.green()?;
    let primary = bench.primary()?;
    let monitor = Monitor::open().ok();
    let (units, half) = (device.info().units, device.info().units / 2);
    let kernels = match half {
        0 => Ok(KernelUse::new()),
        half => contention::kernels(&device, (0, half), (half, units - half)),
    };
    let kernels = kernels.unwrap_or_else(|stop| {
        let fact = Fact::new("profile.kernels", "8").ok(false);
        bench.report.add(&fact.detail(stop.to_string()));
        KernelUse::new()
    });
    let tools = Tools { device: &device, primary: &primary, monitor: monitor.as_ref(), kernels };
    let mut previous: Option<Previous<'_>> = None;
    for (place, subject) in subjects.iter().enumerate() {
        let until = bench.after(1.0 / (subjects.len() - place) as f64);
        bench.tell(subject.name());
        let mirrored = previous.as_ref().is_some_and(|previous| !previous.mirrored);
        let mut model = Model { subject, mirrored, lines: Vec::new(), pairs: Vec::new() };
        match model.measure(bench, &tools, previous.as_mut(), until) {
            Ok(half) => previous = half.or(previous),
            Err(stop) => {
                let fact = Fact::new(format!("profile.{}_cells", subject.name()), "8");
                bench.report.add(&fact.ok(false).detail(stop.to_string()));
                continue;
            }
        }
        keep(bench, subject, &model.lines)?;
        pairs::append(&pairs::file_for(&bench.profiles), &model.pairs).map_err(Stop::Other)?;
    }
    drop(previous);
    fitted(bench, units)
}

/// Fits the regressions to all pairs of this device.
fn fitted(bench: &mut Bench<'_>, units: u32) -> Result<(), Stop> {
    let name = bench.device_type(units);
    let pairs = pairs::read(&pairs::file_for(&bench.profiles), &name, units).map_err(Stop::Other)?;
    let text = std::fs::read_to_string(&bench.profiles).unwrap_or_default();
    let profiles = Profile::read(&text).map_err(|error| Stop::Other(error.to_string()))?;
    let own = profiles.iter().filter(|profile| profile.device() == name && profile.units_total() == units);
    let fits = fit(&pairs, own);
    for (word, fit) in &fits.fits {
        let fact = format!("profile.interference_{word}");
        match (fit, &fits.none) {
            (Ok(fit), Some(none)) => {
                let fact = Fact::new(fact, "8").value(fit.by_pair.mean_pct).unit("%");
                bench.report.add(&fact.detail(fit.to_json(none)));
            }
            (Err(why), _) => bench.report.skip(fact, "8", why.as_str()),
            (Ok(_), None) => {}
        }
    }
    Ok(())
}

/// Writes the lines of a model if they are a valid profile.
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
            bench.report.add(
                &fact.ok(cells > 0).detail(json!({"file": file, "contradicting": repairs, "lines": lines})),
            );
        }
        Err(error) => bench.report.add(&fact.ok(false).detail(error.to_string())),
    }
    Ok(())
}

fn append(path: &Path, text: &str) -> Result<(), String> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("--profiles {}: {error}", path.display()))
}

/// All units first, because objectives are multiples of the time on them; then from the largest share down.
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

/// A model that is being measured.
struct Model<'a> {
    subject: &'a Subject,
    /// Whether its smaller shares are at the end of the GPU.
    mirrored: bool,
    lines: Vec<Line>,
    pairs: Vec<Pair>,
}

impl<'a> Model<'a> {
    /// Measures the model, also with the previous one. Returns it on half of the GPU, to be the next previous one.
    fn measure(
        &mut self,
        bench: &mut Bench<'_>,
        tools: &Tools<'_>,
        mut other: Option<&mut Previous<'_>>,
        until: Instant,
    ) -> Result<Option<Previous<'a>>, Stop> {
        let units = tools.device.info().units;
        let weights = u64::try_from(self.subject.files.bytes.len()).unwrap_or(u64::MAX);
        // The previous session stays until the next one is loaded, and keeps the shared weights.
        let mut before_this: Option<Open> = None;
        let (mut previous, mut whole) = (None, Alone::new());
        for (at, share) in shares(units).into_iter().enumerate() {
            // A plan needs the first shares. Finer ones are left out if time is short.
            if at >= SHARES_MIN && Instant::now() >= until {
                break;
            }
            let free = tools.primary.memory()?.0;
            let first = if self.mirrored && share < units { units - share } else { 0 };
            let mut gpulet = serve_rows(tools.device, &self.subject.files, (first, share), ROWS_MAX)?;
            let session = gpulet.session.as_mut();
            if self.lines.is_empty() {
                let header = header(bench, (self.subject, session.engine()), units, tools.monitor);
                self.lines.push(Line::Profile(header));
            }
            let most = session.signature().max_batch.max(1);
            let alone = self.cells(bench, (session, share), tools.monitor, until)?;
            if at == 0 {
                let taken = free.saturating_sub(tools.primary.memory()?.0);
                let largest = ROWS_FIRST.into_iter().filter(|rows| *rows <= most).max().unwrap_or(1);
                let bytes = taken.saturating_sub(weights);
                self.lines.push(Line::Arena(ArenaLine { batch: largest, bytes }));
                whole.clone_from(&alone);
            }
            if share == units / 2 {
                let rest = if self.mirrored { (0, units - share) } else { (share, units - share) };
                let half = Half { subject: self.subject, session: &mut *session, units: share, rest };
                let measured =
                    contention::measure(bench, tools.device, half, (&alone, &whole), &tools.kernels);
                if let Some(measured) = self.or_tell(bench, measured) {
                    self.pairs.extend(measured.pairs);
                    self.lines.extend(measured.used.into_iter().map(Line::Utilisation));
                }
            }
            if let Some(previous) = other.as_deref_mut().filter(|previous| share + previous.units <= units) {
                let pairs =
                    pairing::measure(bench, (self.subject, &mut *session, share, &alone), previous, units);
                self.pairs.extend(self.or_tell(bench, pairs).into_iter().flatten());
            }
            if share == units / 2 {
                let (subject, mirrored) = (self.subject, self.mirrored);
                previous = Some(Previous { subject, open: gpulet, units: share, mirrored, alone });
            } else {
                drop(before_this.replace(gpulet));
            }
        }
        Ok(previous)
    }

    /// Contention may remain unknown, because plans only need solo times.
    fn or_tell<T>(&self, bench: &mut Bench<'_>, result: Result<T, Stop>) -> Option<T> {
        result
            .map_err(|stop| {
                let fact = Fact::new(format!("profile.{}_contention", self.subject.name()), "8");
                bench.report.add(&fact.ok(false).detail(stop.to_string()));
            })
            .ok()
    }

    /// Times on a share. Sizes that take long are left out if time is short.
    fn cells(
        &mut self,
        bench: &mut Bench<'_>,
        (session, share): (&mut dyn Session, u32),
        monitor: Option<&Monitor>,
        until: Instant,
    ) -> Result<Alone, Stop> {
        let most = session.signature().max_batch.max(1);
        let extra: &[u32] = if Instant::now() < until { &ROWS_THEN } else { &[] };
        let mut alone: Alone = BTreeMap::new();
        for &rows in ROWS_FIRST.iter().chain(extra).filter(|rows| **rows <= most) {
            let batch = self.subject.batch(session, rows)?;
            let mut cell = cell::measured(session, &batch, (rows, share))?;
            cell.doubt = cell.doubt.or_else(|| lowered(own_readings(bench, monitor)));
            alone.insert(rows, (cell.p50_us, cell.p99_us));
            self.lines.push(Line::Cell(cell));
        }
        Ok(alone)
    }
}

fn header(
    bench: &Bench<'_>,
    (subject, engine): (&Subject, &str),
    units: u32,
    monitor: Option<&Monitor>,
) -> Header {
    Header {
        version: 1,
        model: subject.name().to_owned(),
        model_sha256: Some(subject.files.hash.to_string()),
        device: bench.device_type(units),
        engine: engine.to_owned(),
        source: Source::Measured,
        note: note(bench, monitor),
        shapes: Vec::new(),
        units_total: units,
        weights_bytes: u64::try_from(subject.files.bytes.len()).ok(),
        load_us_per_row: 0.0,
    }
}

/// The readings of the GPU.
fn own_readings(bench: &Bench<'_>, monitor: Option<&Monitor>) -> Option<Readings> {
    let readings = monitor.and_then(|monitor| monitor.read().ok())?;
    readings.into_iter().find(|gpu| gpu.uuid.as_deref() == Some(&bench.found.uuid))
}

/// Why the clock was lowered; none if only for idleness or by a setting.
fn lowered(readings: Option<Readings>) -> Option<String> {
    const HARMLESS: [&str; 3] = ["NONE", "GPU_IDLE", "APPLICATIONS_CLOCKS_SETTING"];
    let reasons = readings?.throttle_reasons?;
    let reasons: Vec<&str> = reasons.into_iter().filter(|reason| !HARMLESS.contains(reason)).collect();
    (!reasons.is_empty()).then(|| format!("clocks were lowered: {}", reasons.join(" ")))
}

/// What the times depend on, apart from the model and the device.
fn note(bench: &Bench<'_>, monitor: Option<&Monitor>) -> String {
    let own = own_readings(bench, monitor);
    let clock = own.as_ref().and_then(|gpu| gpu.clock_sm_mhz);
    let clock = clock.map_or_else(String::new, |clock| format!(", SM clock {clock} MHz at the start"));
    let reasons = own.and_then(|gpu| gpu.throttle_reasons).unwrap_or_default().join(" ");
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({reasons})") };
    let library = crate::makers::library().unwrap_or("no ONNX Runtime");
    format!(
        "gpucheck {}: driver {}, {library}, {} SMs{clock}{reasons}; synthetic inputs, copies to and from the device \
          included, solo",
        env!("CARGO_PKG_VERSION"),
        dotted(bench.found.driver_version),
        bench.found.sms
    )
}
