//! What a fault ends, and how long it takes until another process serves.

mod index;

use std::sync::Arc;
use std::time::Duration;

use gpulet::{Device, Partition, PartitionSpec};
use gpulet_cuda::{Backend, CudaDevice, CudaOptions, Cudnn, Found};
use models::LoadOptions;
use models::engine::{RunError, Session};
use serde_json::json;

use crate::arguments::{Arguments, Task};
use crate::bench::{Bench, Failures, Stop, serve};
use crate::check::GRACE;
use crate::exit;
use crate::kernel_maker::{Work, amount, is_computed, words};
use crate::makers::Makers;
use crate::report::{Fact, Report};
use crate::tasks::run_task;

pub(crate) use index::index_task;

/// Steps of the batches whose results are checked.
const ROUNDS: u32 = 10_000;
/// Time for a process that faults or serves once.
const TASK_TIMEOUT: Duration = Duration::from_secs(8);
/// Time for a process that loads an engine first.
const ENGINE_TASK_TIMEOUT: Duration = Duration::from_secs(12);
/// Processes started to measure a restart.
const RESTARTS: usize = 3;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Stop> {
    if !bench.has_green("faults.spread", "9") {
        return Ok(());
    }
    let device = bench.green()?;
    let mut bystander = serve(&device, &Work::Compute.files()?, 0, 1)?;
    let well = |session: &mut dyn Session| {
        let answer = session.run(&amount(ROUNDS)).map(|outputs| words(&outputs));
        answer.map(|answer| is_computed(&answer, ROUNDS))
    };
    let before = well(bystander.session.as_mut())?;
    let arguments = bench.arguments();
    let report = &mut bench.report;
    let ended =
        run_task(Task::Fault, &arguments, TASK_TIMEOUT, |fact| report.add(&fact)).map_err(Stop::Other)?;
    let code = ended.code();
    let fact =
        Fact::new("faults.exit_code", "9").value(code).detail(json!({"took_s": ended.took.as_secs_f64()}));
    bench.report.add(&fact.ok(code == Some(i32::from(exit::DEVICE_FAILED))));
    let after = well(bystander.session.as_mut());
    let fact = Fact::new("faults.other_process_serves_on", "9").value(matches!(after, Ok(true)));
    let detail = after.as_ref().err().map(ToString::to_string);
    bench.report.add(&fact.ok(before && matches!(after, Ok(true))).detail(detail));
    index::run(bench, &arguments)?;
    restarts(bench, &arguments)
}

fn restarts(bench: &mut Bench<'_>, arguments: &Arguments) -> Result<(), Stop> {
    let mut shortest: Option<Duration> = None;
    for _ in 0..RESTARTS {
        // A process that is killed late must not outlive this one.
        let time = TASK_TIMEOUT.min(bench.left().saturating_sub(GRACE));
        if time.is_zero() {
            break;
        }
        let ended = run_task(Task::Health, arguments, time, drop).map_err(Stop::Other)?;
        if ended.code() != Some(i32::from(exit::SUCCESS)) {
            let fact = Fact::new("faults.restart", "9").ok(false).unit("ms");
            bench.report.add(&fact.detail(format!("a new process did not serve: {:?}", ended.status)));
            return Ok(());
        }
        shortest = Some(shortest.map_or(ended.took, |known| known.min(ended.took)));
    }
    let Some(took) = shortest else {
        bench.report.skip("faults.restart", "9", "no time was left");
        return Ok(());
    };
    let fact = Fact::new("faults.restart", "9").value(took.as_secs_f64() * 1e3).unit("ms").ok(true);
    bench.report.add(
        &fact.detail("from the start of a process to its end after one correct batch, the best of three"),
    );
    Ok(())
}

fn take(found: &Found) -> Result<CudaDevice, Stop> {
    let makers = Arc::new(Makers::new(&Err("not needed".to_owned()), Cudnn::IfItRuns));
    Ok(CudaDevice::take(found, Backend::CudaGreen, makers, &CudaOptions::default())?)
}

/// The task that serves once. Returns its exit code.
pub(crate) fn health_task(found: &Found) -> u8 {
    let serves = || -> Result<bool, Stop> {
        let device = take(found)?;
        let mut gpulet = serve(&device, &Work::Compute.files()?, 0, 1)?;
        let answer = words(&gpulet.session.run(&amount(ROUNDS))?);
        Ok(is_computed(&answer, ROUNDS))
    };
    match serves() {
        Ok(true) => exit::SUCCESS,
        Ok(false) => exit::FAILED,
        Err(stop) => {
            eprintln!("  {stop}");
            exit::FAILED
        }
    }
}

/// The task that faults on one of two gpulets and reports what happens to both. Returns its exit code.
pub(crate) fn fault_task(found: &Found, report: &mut Report<'_>) -> u8 {
    match faulted(found, report) {
        Ok(true) => exit::DEVICE_FAILED,
        Ok(false) => exit::FAILED,
        Err(stop) => {
            report.add(&Fact::new("faults.planting", "9").ok(false).detail(stop.to_string()));
            exit::FAILED
        }
    }
}

fn faulted(found: &Found, report: &mut Report<'_>) -> Result<bool, Stop> {
    let device = take(found)?;
    let failures = Arc::new(Failures::default());
    let open = |lane, first_unit| -> Result<Arc<dyn Partition>, Stop> {
        Ok(device.open(&PartitionSpec { lane, first_unit, units: 1 }, Arc::clone(&failures) as _)?)
    };
    let last = device.info().units.saturating_sub(1);
    let (one, other) = (open(0, 0)?, open(1, last)?);
    let options = LoadOptions::default();
    let mut culprit = one.load(&Work::Fault.files()?, &options)?;
    let mut co_located = other.load(&Work::Compute.files()?, &options)?;
    let well = words(&co_located.run(&amount(ROUNDS))?);
    report.add(&Fact::new("faults.before", "9").value(true).ok(is_computed(&well, ROUNDS)));
    let own = culprit.run(&amount(0));
    let lost = matches!(own, Err(RunError::DeviceFailed(_)));
    let said = own.err().map(|error| error.to_string());
    report.add(&Fact::new("faults.own_batch_is_lost", "9").value(lost).ok(lost).detail(said));
    let other = co_located.run(&amount(ROUNDS));
    let lost_too = matches!(other, Err(RunError::DeviceFailed(_)));
    let said = other.err().map(|error| error.to_string());
    let fact = Fact::new("faults.gpulet_of_the_same_process_is_lost", "9").value(lost_too);
    report.add(&fact.ok(lost_too).detail(said));
    let told = failures.all().len();
    report.add(&Fact::new("faults.gpulets_told", "9").value(told).ok(told == 2).detail(device.failure()));
    Ok(lost && lost_too)
}
