//! What a fault takes with it, and how soon another process serves.

use std::sync::Arc;
use std::time::Duration;

use gpulet::{Device, Partition, PartitionSpec};
use gpulet_cuda::{Backend, CudaDevice, CudaOptions, Cudnn, Found};
use models::engine::{Batch, RunError, Session};
use models::{Format, LoadOptions, ModelFiles, ModelName, Version};
use oip::{Datatype, Shape, Tensor};
use serde_json::json;

use crate::answer::{Answers, Fact};
use crate::arguments::{Arguments, Errand};
use crate::bench::{Bench, Losses, Stop, serve};
use crate::exit;
use crate::kernel_maker::{Work, amount, is_computed, words};
use crate::makers::{Engine, Makers};
use crate::question::GRACE;
use crate::supervision::attend;

/// Steps of the batches whose answers are looked at.
const ROUNDS: u32 = 10_000;
/// Time for a process that is to fault or to serve once.
const PATIENCE: Duration = Duration::from_secs(8);
/// Time for a process that loads an engine before it asks.
const ENGINE_PATIENCE: Duration = Duration::from_secs(12);
/// Processes started to see how long that takes.
const RESTARTS: usize = 3;

pub(super) fn ask(bench: &mut Bench<'_>) -> Result<(), Stop> {
    if let Err(missing) = &bench.found.green {
        let missing = missing.to_string();
        bench.answers.skip("faults.spread", "9", missing);
        return Ok(());
    }
    let device = bench.cut()?;
    let mut bystander = serve(&device, &Work::Compute.files()?, 0, 1)?;
    let well = |session: &mut dyn Session| {
        let answer = session.run(&amount(ROUNDS)).map(|outputs| words(&outputs));
        answer.map(|answer| is_computed(&answer, ROUNDS))
    };
    let before = well(bystander.session.as_mut())?;
    let arguments = bench.arguments();
    let answers = &mut bench.answers;
    let ended =
        attend(Errand::Fault, &arguments, PATIENCE, |fact| answers.say(&fact)).map_err(Stop::Other)?;
    let code = ended.code();
    let fact =
        Fact::new("faults.exit_code", "9").value(code).detail(json!({"took_s": ended.took.as_secs_f64()}));
    bench.answers.say(&fact.ok(code == Some(i32::from(exit::LOST))));
    let after = well(bystander.session.as_mut());
    let fact = Fact::new("faults.other_process_serves_on", "9").value(matches!(after, Ok(true)));
    let detail = after.as_ref().err().map(ToString::to_string);
    bench.answers.say(&fact.ok(before && matches!(after, Ok(true))).detail(detail));
    index(bench, &arguments)?;
    restarts(bench, &arguments)
}

/// What a client's index does that no table has: on the CPU it is refused.
fn index(bench: &mut Bench<'_>, arguments: &Arguments) -> Result<(), Stop> {
    let name = "faults.index_beyond_a_table";
    if let Err(missing) = &bench.engine {
        let missing = missing.clone();
        bench.answers.skip(name, "4.3", missing);
        return Ok(());
    }
    let time = bench.left().saturating_sub(GRACE);
    let mut said = false;
    let answers = &mut bench.answers;
    let ended = attend(Errand::Index, arguments, ENGINE_PATIENCE.min(time), |fact| {
        said |= fact.fact == name;
        answers.say(&fact);
    });
    let code = ended.map_err(Stop::Other)?.code();
    if !said {
        let fact = Fact::new(name, "4.3").value("its process ended").ok(false);
        bench.answers.say(&fact.detail(json!({"exit_code": code})));
    }
    Ok(())
}

/// `y = table[x]` with 16 entries.
const TABLE: &[u8] = include_bytes!("gather.onnx");
/// Indices that no table has: just beyond this one, and beyond all memory.
const BEYOND: [i64; 2] = [16, 1 << 40];

/// A child that asks a table for entries that it has not; its exit code.
pub(crate) fn look_beyond(found: &Found, engine: &Engine, answers: &mut Answers<'_>) -> u8 {
    match beyond(found, engine) {
        Ok(fact) => {
            answers.say(&fact);
            exit::ANSWERED
        }
        Err(stop) => {
            answers.say(&Fact::new("faults.index_beyond_a_table", "4.3").detail(stop.to_string()));
            exit::FAILED
        }
    }
}

fn beyond(found: &Found, engine: &Engine) -> Result<Fact, Stop> {
    let makers = Arc::new(Makers::new(engine, Cudnn::IfItRuns));
    let device = CudaDevice::take(found, Backend::CudaGreen, makers, &CudaOptions::default())?;
    let name = ModelName::new("table").map_err(|error| Stop::Other(error.to_string()))?;
    let files = ModelFiles::from_bytes(name, Version(1), Format::Onnx, TABLE.to_vec());
    let mut gpulet = serve(&device, &files, 0, 1)?;
    let mut ask = |index: i64| {
        let shape = Shape::from_extents(&[1, 1]);
        let data = index.to_le_bytes().to_vec().into();
        let tensor = Tensor { name: "x".to_owned(), datatype: Datatype::Int64, shape, data };
        gpulet.session.run(&Batch { inputs: vec![Some(tensor)], rows: 1 })
    };
    ask(3)?;
    let mut worst = "refused";
    let mut said = Vec::new();
    for index in BEYOND {
        match ask(index) {
            Ok(_) => {
                worst = "answered";
                said.push(format!("{index}: an answer"));
            }
            Err(RunError::Lost(reason)) => {
                worst = "the device is lost";
                said.push(format!("{index}: {reason}"));
                break;
            }
            Err(RunError::Input(reason) | RunError::Engine(reason)) => {
                said.push(format!("{index}: {reason}"))
            }
        }
    }
    let fact = Fact::new("faults.index_beyond_a_table", "4.3").value(worst).ok(worst == "refused");
    Ok(fact.detail(said))
}

fn restarts(bench: &mut Bench<'_>, arguments: &Arguments) -> Result<(), Stop> {
    let mut shortest: Option<Duration> = None;
    for _ in 0..RESTARTS {
        // A process that is ended late must not outlive this one.
        let time = PATIENCE.min(bench.left().saturating_sub(GRACE));
        if time.is_zero() {
            break;
        }
        let ended = attend(Errand::Health, arguments, time, drop).map_err(Stop::Other)?;
        if ended.code() != Some(i32::from(exit::ANSWERED)) {
            let fact = Fact::new("faults.restart", "9").ok(false).unit("ms");
            bench.answers.say(&fact.detail(format!("a new process did not serve: {:?}", ended.status)));
            return Ok(());
        }
        shortest = Some(shortest.map_or(ended.took, |known| known.min(ended.took)));
    }
    let Some(took) = shortest else {
        bench.answers.skip("faults.restart", "9", "no time was left");
        return Ok(());
    };
    let fact = Fact::new("faults.restart", "9").value(took.as_secs_f64() * 1e3).unit("ms").ok(true);
    bench
        .answers
        .say(&fact.detail("from the start of a process to its end after one right batch, the best of three"));
    Ok(())
}

fn take(found: &Found) -> Result<CudaDevice, Stop> {
    let makers = Arc::new(Makers::new(&Err("not needed".to_owned()), Cudnn::IfItRuns));
    Ok(CudaDevice::take(found, Backend::CudaGreen, makers, &CudaOptions::default())?)
}

/// A child that serves once; its exit code.
pub(crate) fn recover(found: &Found) -> u8 {
    let serves = || -> Result<bool, Stop> {
        let device = take(found)?;
        let mut gpulet = serve(&device, &Work::Compute.files()?, 0, 1)?;
        let answer = words(&gpulet.session.run(&amount(ROUNDS))?);
        Ok(is_computed(&answer, ROUNDS))
    };
    match serves() {
        Ok(true) => exit::ANSWERED,
        Ok(false) => exit::FAILED,
        Err(stop) => {
            eprintln!("  {stop}");
            exit::FAILED
        }
    }
}

/// A child that faults on one of two gpulets, and says what became of both; its exit code.
pub(crate) fn suffer(found: &Found, answers: &mut Answers<'_>) -> u8 {
    match faulted(found, answers) {
        Ok(true) => exit::LOST,
        Ok(false) => exit::FAILED,
        Err(stop) => {
            answers.say(&Fact::new("faults.planting", "9").ok(false).detail(stop.to_string()));
            exit::FAILED
        }
    }
}

fn faulted(found: &Found, answers: &mut Answers<'_>) -> Result<bool, Stop> {
    let device = take(found)?;
    let losses = Arc::new(Losses::default());
    let open = |lane, first_unit| -> Result<Arc<dyn Partition>, Stop> {
        Ok(device.open(&PartitionSpec { lane, first_unit, units: 1 }, Arc::clone(&losses) as _)?)
    };
    let last = device.info().units.saturating_sub(1);
    let (one, other) = (open(0, 0)?, open(1, last)?);
    let options = LoadOptions::default();
    let mut culprit = one.load(&Work::Fault.files()?, &options)?;
    let mut neighbour = other.load(&Work::Compute.files()?, &options)?;
    let well = words(&neighbour.run(&amount(ROUNDS))?);
    answers.say(&Fact::new("faults.before", "9").value(true).ok(is_computed(&well, ROUNDS)));
    let own = culprit.run(&amount(0));
    let lost = matches!(own, Err(RunError::Lost(_)));
    let said = own.err().map(|error| error.to_string());
    answers.say(&Fact::new("faults.own_batch_is_lost", "9").value(lost).ok(lost).detail(said));
    let beside = neighbour.run(&amount(ROUNDS));
    let lost_too = matches!(beside, Err(RunError::Lost(_)));
    let said = beside.err().map(|error| error.to_string());
    let fact = Fact::new("faults.gpulet_of_the_same_process_is_lost", "9").value(lost_too);
    answers.say(&fact.ok(lost_too).detail(said));
    let heard = losses.heard().len();
    answers.say(&Fact::new("faults.gpulets_told", "9").value(heard).ok(heard == 2).detail(device.lost()));
    Ok(lost && lost_too)
}
