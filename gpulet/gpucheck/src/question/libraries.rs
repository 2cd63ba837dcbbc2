//! Models on gpulets: do they load there, do they answer rightly, and do they keep to the gpulet's SMs? A model that does
//! not run on a green context's stream is tried in the other ways that there are, in the order of the fallbacks.

use std::time::{Duration, Instant};

use gpulet::Device;
use gpulet_cuda::{
    Backend, CudaDevice, CudaOptions, Cudnn, MPS_FOLDER, MPS_FOLDER_VARIABLE, MPS_SHARE_VARIABLE, mps_daemon,
};
use models::engine::Session;
use oip::{Datatype, Tensor};
use serde_json::json;

use crate::answer::Fact;
use crate::arguments::Errand;
use crate::bench::{Bench, Stop, serve, serve_rows};
use crate::exit;
use crate::kernel_maker::{Work, amount};
use crate::pace::{Neighbour, beside, times};
use crate::question::GRACE;
use crate::spread::Spread;
use crate::subject::{Known, Subject, ready_anyhow};
use crate::supervision::attend;

/// Batches behind a model's time.
const RUNS: usize = 20;

/// Part of the GPU for a process under MPS, in percent.
pub(crate) const MPS_SHARE: u32 = 50;

/// A way of running models; what one refuses is tried with the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Green,
    GreenWithoutCudnn,
    Mps,
    Streams,
}

impl Way {
    const ALL: [Self; 4] = [Self::Green, Self::GreenWithoutCudnn, Self::Mps, Self::Streams];

    fn word(self) -> &'static str {
        match self {
            Self::Green => "cuda-green",
            Self::GreenWithoutCudnn => "cuda-green without cuDNN",
            Self::Mps => "cuda-mps",
            Self::Streams => "cuda-stream",
        }
    }

    /// What facts are called beside those of the first way.
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

    /// Units of the gpulet that models run on.
    fn units(self, device: &CudaDevice) -> u32 {
        match self {
            Self::Green | Self::GreenWithoutCudnn => (device.info().units / 2).max(1),
            Self::Mps => MPS_SHARE,
            Self::Streams => device.info().units,
        }
    }
}

pub(super) fn ask(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let Some(subjects) = ready_anyhow(bench, "libraries.models", "4.3") else { return Ok(()) };
    let mut left: Vec<&Subject> = subjects.iter().collect();
    let mut found: Vec<(Way, Vec<String>)> = Vec::new();
    for way in Way::ALL {
        if left.is_empty() {
            break;
        }
        let run = match missing(bench, way) {
            Some(missing) => {
                bench.answers.skip(format!("libraries.models{}", way.suffix()), "4.3", missing);
                Vec::new()
            }
            None if way == Way::Mps => under_mps(bench)?,
            None => try_way(bench, way, &left)?,
        };
        left.retain(|subject| !run.iter().any(|name| name == subject.name()));
        found.push((way, run));
    }
    // The last way that some model needed.
    let way = found.iter().rev().find(|(_, run)| !run.is_empty()).map(|(way, _)| way.word());
    let by_way = found.iter().map(|(way, run)| (way.word().to_owned(), json!(run)));
    let fact = Fact::new("libraries.way", "4.3").value(way).ok(left.is_empty());
    let none: Vec<&str> = left.iter().map(|subject| subject.name()).collect();
    let by_way: serde_json::Map<String, serde_json::Value> = by_way.collect();
    bench.answers.say(&fact.detail(json!({"models": by_way, "no_way": none})));
    Ok(())
}

/// What is in the way of trying a way at all.
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

/// A share under MPS is a process's: one that has it tries all models. Names of those that ran.
fn under_mps(bench: &mut Bench<'_>) -> Result<Vec<String>, Stop> {
    let (arguments, time) = (bench.arguments(), bench.left().saturating_sub(GRACE));
    let (answers, mut run) = (&mut bench.answers, Vec::new());
    let (start, end) = ("libraries.", format!("_loads{}", Way::Mps.suffix()));
    let hear = |fact: Fact| {
        let name = fact.fact.strip_prefix(start).and_then(|rest| rest.strip_suffix(end.as_str()));
        if let (Some(name), Some(true)) = (name, fact.value.as_bool()) {
            run.push(name.to_owned());
        }
        answers.say(&fact);
    };
    let ended = attend(Errand::Share, &arguments, time, hear).map_err(Stop::Other)?;
    let well = [exit::ANSWERED, exit::FAILED].map(|code| Some(i32::from(code)));
    if !well.contains(&ended.code()) {
        let fact = Fact::new("libraries.process_under_mps", "4.3").value(ended.code()).ok(false);
        bench.answers.say(&fact.detail("a process with a share of the GPU did not come to its end"));
    }
    Ok(run)
}

/// What a process with a share of the GPU does: tries all models.
///
/// # Errors
/// What the GPU lacks.
pub(crate) fn ask_with_share(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let Some(subjects) = ready_anyhow(bench, "libraries.models_under_mps", "4.3") else { return Ok(()) };
    try_way(bench, Way::Mps, &subjects.iter().collect::<Vec<_>>()).map(drop)
}

/// Names of the models that ran.
fn try_way(bench: &mut Bench<'_>, way: Way, subjects: &[&Subject]) -> Result<Vec<String>, Stop> {
    let device = way.device(bench)?;
    if way == Way::Green && device.info().units < 2 {
        bench.answers.skip(
            "libraries.models",
            "4.3",
            "the device has one unit: expected a gpulet and a rest",
        );
        return Ok(Vec::new());
    }
    let mut run = Vec::new();
    for (place, subject) in subjects.iter().enumerate() {
        let until = bench.after(1.0 / (subjects.len() - place) as f64);
        let name = subject.name();
        if bench.is_over() {
            bench.answers.skip(format!("libraries.{name}{}", way.suffix()), "4.3", "no time was left");
            continue;
        }
        bench.tell(&format!("{name}, {}", way.word()));
        match look_at(bench, &device, (subject, way), until) {
            Ok(()) => run.push(name.to_owned()),
            Err(stop) => {
                let fact = Fact::new(format!("libraries.{name}_loads{}", way.suffix()), "4.3");
                bench.answers.say(&fact.value(false).ok(false).detail(stop.to_string()));
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
    bench
        .answers
        .say(&fact.detail(json!({"engine": session.engine(), "load_ms": loaded, "way": way.word()})));
    answers(bench, (subject, way), session)?;
    let measured = times(session, &batch, (3, RUNS), until)?;
    let Some(alone) = Spread::of(&measured) else { return Ok(()) };
    let name = format!("libraries.{}_batch_1{suffix}", subject.name());
    let fact = Fact::new(name, "4.3").value(alone.median()).unit("us");
    bench.answers.say(&fact.detail(json!({"units": units, "us": alone.to_json()})));
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
        bench.answers.skip(name, "4.3", "no `reference.json` beside the model");
        return Ok(());
    };
    let outputs = session.run(&known.batch)?;
    let worst = worst_difference(known, &outputs).map_err(Stop::Other)?;
    let fact = Fact::new(name, "4.3").value(worst).ok(worst <= known.tolerance);
    bench.answers.say(&fact.detail(json!({"tolerance": known.tolerance, "rows": known.batch.rows})));
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

/// All threads of all other SMs are held while a batch runs: one that needed any of them would wait until they are let
/// go. Held for much longer than a batch takes.
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
    let mut neighbour = Neighbour { session: rest.session.as_mut(), batch: hold, duty: 100 };
    let (measured, meanwhile) = beside(&mut neighbour, || times(session, &batch, (3, 5), Instant::now()))?;
    let Some(held) = Spread::of(&measured) else { return Ok(()) };
    let holding = meanwhile.busy / u32::try_from(meanwhile.batches.max(1)).unwrap_or(1);
    let kept = held.median() < holding.as_secs_f64() * 1e6 / 2.0;
    let fact = Fact::new(format!("libraries.{}_keeps_to_its_sms{}", subject.name(), way.suffix()), "4.3");
    let fact = fact.value(kept);
    // Where holding takes no time, as on a stand-in, nothing was held.
    let fact = if holding >= Duration::from_millis(5) { fact.ok(kept) } else { fact };
    let detail = json!({"alone_us": alone_us, "beside_held_sms_us": held.to_json(), "held_ms": holding.as_secs_f64() * 1e3});
    bench.answers.say(&fact.detail(detail));
    Ok(())
}
