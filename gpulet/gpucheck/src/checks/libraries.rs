//! Models on gpulets: whether they load, return correct results, and stay on the gpulet's SMs. A model that does not run
//! on the stream of a green context is tried in the other ways, in the order of the fallbacks.

use std::time::{Duration, Instant};

use gpulet::Device;
use gpulet_cuda::{
    Backend, CudaDevice, CudaOptions, Cudnn, MPS_FOLDER, MPS_FOLDER_VARIABLE, MPS_SHARE_VARIABLE, mps_daemon,
};
use models::engine::Session;
use oip::{Datatype, Tensor};
use serde_json::json;

use crate::arguments::Task;
use crate::bench::{Bench, Stop, serve, serve_rows};
use crate::check::GRACE;
use crate::exit;
use crate::kernel_maker::{Work, amount};
use crate::report::Fact;
use crate::spread::Spread;
use crate::subject::{Known, Subject, ready_on_any_backend};
use crate::tasks::{MPS_SHARE, run_task};
use crate::timing::{CoLocated, times, under_contention};

/// Batches per model.
const RUNS: usize = 20;

/// Changes of the size of batches; the cheapest counts.
const CHANGES: usize = 3;
/// Differences below this are not told from what the host adds.
const NOISE: Duration = Duration::from_millis(2);

/// A way of running models. A model that one refuses is tried with the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Green,
    GreenWithoutCudnn,
    Mps,
    Streams,
}

impl Way {
    const ALL: [Self; 4] = [Self::Green, Self::GreenWithoutCudnn, Self::Mps, Self::Streams];

    fn name(self) -> &'static str {
        match self {
            Self::Green => "cuda-green",
            Self::GreenWithoutCudnn => "cuda-green without cuDNN",
            Self::Mps => "cuda-mps",
            Self::Streams => "cuda-stream",
        }
    }

    /// Suffix of the names of its facts.
    fn suffix(self) -> &'static str {
        match self {
            Self::Green => "",
            Self::GreenWithoutCudnn => "_without_cudnn",
            Self::Mps => "_under_mps",
            Self::Streams => "_on_streams",
        }
    }

    fn device(self, bench: &Bench<'_>) -> Result<CudaDevice, Stop> {
        let (backend, cudnn) = match self {
            Self::Green => (Backend::CudaGreen, Cudnn::Always),
            Self::GreenWithoutCudnn => (Backend::CudaGreen, Cudnn::Never),
            Self::Mps => (Backend::CudaMps, Cudnn::Always),
            Self::Streams => (Backend::CudaStream, Cudnn::Always),
        };
        let share = std::env::var(MPS_SHARE_VARIABLE).ok().and_then(|share| share.parse().ok());
        bench.take_with(backend, cudnn, &CudaOptions { mps_share: share, ..CudaOptions::default() })
    }

    /// Units of the gpulet for models.
    fn units(self, device: &CudaDevice) -> u32 {
        match self {
            Self::Green | Self::GreenWithoutCudnn => (device.info().units / 2).max(1),
            Self::Mps => MPS_SHARE,
            Self::Streams => device.info().units,
        }
    }
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let Some(subjects) = ready_on_any_backend(bench, "libraries.models", "4.3") else { return Ok(()) };
    let mut left: Vec<&Subject> = subjects.iter().collect();
    let mut found: Vec<(Way, Vec<String>)> = Vec::new();
    for way in Way::ALL {
        if left.is_empty() {
            break;
        }
        let run = match missing(bench, way) {
            Some(missing) => {
                bench.report.skip(format!("libraries.models{}", way.suffix()), "4.3", missing);
                Vec::new()
            }
            None if way == Way::Mps => under_mps(bench)?,
            None => try_way(bench, way, &left)?,
        };
        left.retain(|subject| !run.iter().any(|name| name == subject.name()));
        found.push((way, run));
    }
    // The last way that some model needed.
    let way = found.iter().rev().find(|(_, run)| !run.is_empty()).map(|(way, _)| way.name());
    let by_way = found.iter().map(|(way, run)| (way.name().to_owned(), json!(run)));
    let fact = Fact::new("libraries.way", "4.3").value(way).ok(left.is_empty());
    let none: Vec<&str> = left.iter().map(|subject| subject.name()).collect();
    let by_way: serde_json::Map<String, serde_json::Value> = by_way.collect();
    bench.report.add(&fact.detail(json!({"models": by_way, "no_way": none})));
    Ok(())
}

/// Why a way cannot be tried.
fn missing(bench: &Bench<'_>, way: Way) -> Option<String> {
    match way {
        Way::Green | Way::GreenWithoutCudnn => bench.found.green.as_ref().err().map(ToString::to_string),
        Way::Mps => {
            let folder = std::env::var(MPS_FOLDER_VARIABLE).unwrap_or_else(|_| MPS_FOLDER.to_owned());
            mps_daemon(folder.as_ref()).err().map(|absent| absent.to_string())
        }
        Way::Streams => None,
    }
}

/// Runs all models in a process with a share of the GPU, because a share under MPS belongs to a process. Returns the
/// names of those that ran.
fn under_mps(bench: &mut Bench<'_>) -> Result<Vec<String>, Stop> {
    let (arguments, time) = (bench.arguments(), bench.left().saturating_sub(GRACE));
    let (report, mut run) = (&mut bench.report, Vec::new());
    let (start, end) = ("libraries.", format!("_loads{}", Way::Mps.suffix()));
    let on_fact = |fact: Fact| {
        let name = fact.fact.strip_prefix(start).and_then(|rest| rest.strip_suffix(end.as_str()));
        if let (Some(name), Some(true)) = (name, fact.value.as_bool()) {
            run.push(name.to_owned());
        }
        report.add(&fact);
    };
    let ended = run_task(Task::Share, &arguments, time, on_fact).map_err(Stop::Other)?;
    let well = [exit::SUCCESS, exit::FAILED].map(|code| Some(i32::from(code)));
    if !well.contains(&ended.code()) {
        let fact = Fact::new("libraries.process_under_mps", "4.3").value(ended.code()).ok(false);
        bench.report.add(&fact.detail("a process with a share of the GPU did not end normally"));
    }
    Ok(run)
}

/// The task of a process with a share of the GPU: runs all models.
///
/// # Errors
/// The driver failed.
pub(crate) fn share_task(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let Some(subjects) = ready_on_any_backend(bench, "libraries.models_under_mps", "4.3") else {
        return Ok(());
    };
    try_way(bench, Way::Mps, &subjects.iter().collect::<Vec<_>>()).map(drop)
}

/// Runs models and returns the names of those that ran.
fn try_way(bench: &mut Bench<'_>, way: Way, subjects: &[&Subject]) -> Result<Vec<String>, Stop> {
    let device = way.device(bench)?;
    if way == Way::Green && device.info().units < 2 {
        bench.report.skip("libraries.models", "4.3", "the device has one unit: expected a gpulet and a rest");
        return Ok(Vec::new());
    }
    let mut run = Vec::new();
    for (place, subject) in subjects.iter().enumerate() {
        let until = bench.after(1.0 / (subjects.len() - place) as f64);
        let name = subject.name();
        if bench.is_over() {
            bench.report.skip(format!("libraries.{name}{}", way.suffix()), "4.3", "no time was left");
            continue;
        }
        bench.tell(&format!("{name}, {}", way.name()));
        match look_at(bench, &device, (subject, way), until) {
            Ok(()) => run.push(name.to_owned()),
            Err(stop) => {
                let fact = Fact::new(format!("libraries.{name}_loads{}", way.suffix()), "4.3");
                bench.report.add(&fact.value(false).ok(false).detail(stop.to_string()));
            }
        }
    }
    Ok(run)
}

fn look_at(
    bench: &mut Bench<'_>,
    device: &CudaDevice,
    (subject, way): (&Subject, Way),
    until: Instant,
) -> Result<(), Stop> {
    let (units, suffix) = (way.units(device), way.suffix());
    let begun = Instant::now();
    let rows = subject.known.as_ref().map_or(1, |known| known.batch.rows);
    let mut gpulet = serve_rows(device, &subject.files, (0, units), rows)?;
    let loaded = begun.elapsed().as_secs_f64() * 1e3;
    let session = gpulet.session.as_mut();
    let batch = subject.batch(session, 1)?;
    session.run(&batch)?;
    let fact = Fact::new(format!("libraries.{}_loads{suffix}", subject.name()), "4.3").value(true).ok(true);
    bench.report.add(&fact.detail(json!({"engine": session.engine(), "load_ms": loaded, "way": way.name()})));
    answers(bench, (subject, way), session)?;
    changes_size(bench, (subject, way), session, until)?;
    let measured = times(session, &batch, (3, RUNS), until)?;
    let Some(alone) = Spread::of(&measured) else { return Ok(()) };
    let name = format!("libraries.{}_batch_1{suffix}", subject.name());
    let fact = Fact::new(name, "4.3").value(alone.median()).unit("us");
    bench.report.add(&fact.detail(json!({"units": units, "us": alone.to_json()})));
    match way {
        Way::Green | Way::GreenWithoutCudnn => {
            keeps_to_its_sms(bench, device, (subject, session, way), alone.median())
        }
        Way::Mps | Way::Streams => Ok(()),
    }
}

fn answers(
    bench: &mut Bench<'_>,
    (subject, way): (&Subject, Way),
    session: &mut dyn Session,
) -> Result<(), Stop> {
    let name = format!("libraries.{}_difference{}", subject.name(), way.suffix());
    let Some(known) = &subject.known else {
        bench.report.skip(name, "4.3", "the model's folder has no `reference.json`");
        return Ok(());
    };
    let outputs = session.run(&known.batch)?;
    let worst = worst_difference(known, &outputs).map_err(Stop::Other)?;
    let fact = Fact::new(name, "4.3").value(worst).ok(worst <= known.tolerance);
    bench.report.add(&fact.detail(json!({"tolerance": known.tolerance, "rows": known.batch.rows})));
    Ok(())
}

/// Time that a batch takes in addition if the one before it had another size. ONNX Runtime plans convolutions again when the
/// size changes, unless runs are recorded. At most the time of a batch is allowed.
fn changes_size(
    bench: &mut Bench<'_>,
    (subject, way): (&Subject, Way),
    session: &mut dyn Session,
    until: Instant,
) -> Result<(), Stop> {
    if session.signature().max_batch < 2 {
        return Ok(());
    }
    let (one, two) = (subject.batch(session, 1)?, subject.batch(session, 2)?);
    let (mut added, mut usual) = (Duration::MAX, Duration::MAX);
    for change in 0..CHANGES {
        // Planning again may take seconds, which later models need.
        if change > 0 && Instant::now() >= until {
            break;
        }
        session.run(&two)?;
        let [first, next] = [(); 2].map(|()| {
            let begun = Instant::now();
            session.run(&one).map(|_| begun.elapsed())
        });
        let next = next?;
        added = added.min(first?.saturating_sub(next));
        usual = usual.min(next);
    }
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let name = format!("libraries.{}_change_of_size", subject.name()) + way.suffix();
    let fact = Fact::new(name, "4.3").value(us(added)).unit("us").ok(added <= usual.max(NOISE));
    bench.report.add(&fact.detail(json!({"batch_us": us(usual)})));
    Ok(())
}

/// The largest relative difference of an output, by norms.
fn worst_difference(known: &Known, outputs: &[Tensor]) -> Result<f64, String> {
    let mut worst = 0.0_f64;
    for wanted in &known.outputs {
        let given = outputs.iter().find(|given| given.name == wanted.name);
        let given = given.ok_or_else(|| format!("output `{}`: expected one, got none", wanted.name))?;
        if given.shape != wanted.shape || given.datatype != wanted.datatype {
            let (wanted_shape, shape) = (wanted.shape.extents(), given.shape.extents());
            return Err(format!("output `{}`: expected {wanted_shape:?}, got {shape:?}", wanted.name));
        }
        worst = worst.max(difference(wanted, given)?);
    }
    Ok(worst)
}

fn difference(wanted: &Tensor, given: &Tensor) -> Result<f64, String> {
    if wanted.datatype != Datatype::Fp32 {
        return Ok(if wanted.data == given.data { 0.0 } else { f64::INFINITY });
    }
    let numbers = |data: &[u8]| -> Vec<f64> {
        let words = data.chunks_exact(4).filter_map(|word| word.try_into().ok());
        words.map(|word| f64::from(f32::from_le_bytes(word))).collect()
    };
    let (wanted_numbers, given_numbers) = (numbers(&wanted.data), numbers(&given.data));
    if given_numbers.iter().any(|number| !number.is_finite()) {
        return Err(format!("output `{}`: expected finite numbers", wanted.name));
    }
    let norm =
        |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|number| number * number).sum::<f64>().sqrt();
    let apart = norm(&mut wanted_numbers.iter().zip(&given_numbers).map(|(one, other)| one - other));
    Ok(apart / norm(&mut wanted_numbers.iter().copied()).max(1e-12))
}

/// Holds all threads of all other SMs while a batch runs, for much longer than a batch takes. A batch that needs any of
/// these SMs has to wait until they are released.
fn keeps_to_its_sms(
    bench: &mut Bench<'_>,
    device: &CudaDevice,
    (subject, session, way): (&Subject, &mut dyn Session, Way),
    alone_us: f64,
) -> Result<(), Stop> {
    let half = device.info().units / 2;
    let mut rest = serve(device, &Work::Trace.files()?, half, device.info().units - half)?;
    let hold_us = (alone_us * 5.0).clamp(20_000.0, 500_000.0);
    let hold = amount(hold_us as u32);
    rest.session.run(&amount(1))?;
    let batch = subject.batch(session, 1)?;
    let mut co_located = CoLocated { session: rest.session.as_mut(), batch: hold, duty: 100 };
    let (measured, other_runs) =
        under_contention(&mut co_located, || times(session, &batch, (3, 5), Instant::now()))?;
    let Some(held) = Spread::of(&measured) else { return Ok(()) };
    let holding = other_runs.busy / u32::try_from(other_runs.batches.max(1)).unwrap_or(1);
    let kept = held.median() < holding.as_secs_f64() * 1e6 / 2.0;
    let fact = Fact::new(format!("libraries.{}_keeps_to_its_sms{}", subject.name(), way.suffix()), "4.3");
    let fact = fact.value(kept);
    // On the stand-in holding takes no time.
    let fact = if holding >= Duration::from_millis(5) { fact.ok(kept) } else { fact };
    let detail = json!({"solo_us": alone_us, "with_held_sms_us": held.to_json(), "held_ms": holding.as_secs_f64() * 1e3});
    bench.report.add(&fact.detail(detail));
    Ok(())
}
