//! The GPU and its units, the cost of a green context, and the rules of events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpulet::Device;
use gpulet_cuda::driver::{Event, GreenContext, Primary, Split, Stream};
use gpulet_cuda::{Backend, CudaOptions, Monitor, UnitRange, dotted};
use serde_json::json;

use crate::bench::{Bench, Stop, serve};
use crate::kernel_maker::{Work, amount};
use crate::report::Fact;
use crate::spread::Spread;
use crate::timing::{amount_for, times};

/// Contexts created and destroyed to measure the cost.
const ROUNDS: usize = 50;
/// Upper bound on contexts that exist at once.
const ALIVE_MAX: usize = 256;
/// Length of a batch while activity is measured, and how long that takes.
const WORK: Duration = Duration::from_millis(5);
const WATCHED: Duration = Duration::from_millis(500);

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Stop> {
    driver(bench);
    let primary = bench.primary()?;
    if let Err(stop) = activity(bench) {
        bench.report.skip("facts.sm_active", "8", stop.to_string());
    }
    if !bench.has_green("facts.units", "4.2.2") {
        return Ok(());
    }
    let split = Split::once(&primary, bench.found.capability, false)?;
    units(bench, &split);
    granted(bench, &split)?;
    events(bench, &primary, &split)?;
    costs(bench, &split)?;
    alive(bench, &primary, &split)
}

fn driver(bench: &mut Bench<'_>) {
    let found = &bench.found;
    let detail = json!({"capability": found.capability, "mig": found.mig, "uuid": found.uuid});
    let driver = Fact::new("facts.driver", "3").value(dotted(found.driver_version)).detail(detail);
    bench.report.add(&driver.ok(found.green.is_ok()));
    let connections = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").ok();
    let fact = Fact::new("facts.connections", "11.6").ok(connections.as_deref() == Some("32"));
    bench.report.add(&fact.value(connections));
    match Monitor::open().and_then(|monitor| monitor.read()) {
        Ok(readings) => {
            let of = readings.into_iter().find(|gpu| gpu.uuid.as_deref() == Some(&bench.found.uuid));
            let detail = serde_json::to_value(&of).unwrap_or_default();
            bench.report.add(&Fact::new("facts.management", "3").value(of.is_some()).detail(detail));
        }
        Err(absent) => bench.report.skip("facts.management", "3", absent.to_string()),
    }
}

/// The GPU's activity while a kernel computes on all SMs.
fn activity(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let device = bench.take(Backend::CudaStream, &CudaOptions::default())?;
    let mut gpulet = serve(&device, &Work::Compute.files()?, 0, device.info().units)?;
    let load = amount(amount_for(gpulet.session.as_mut(), WORK)?);
    let absent = |absent: &dyn std::fmt::Display| Stop::Other(absent.to_string());
    let monitor = Monitor::open().map_err(|error| absent(&error))?;
    let mut watch = monitor.activity();
    watch.since_last(&bench.found.uuid).map_err(|error| absent(&error))?;
    let ran = times(gpulet.session.as_mut(), &load, (5, 1_000), Instant::now() + WATCHED)?;
    let read = watch.since_last(&bench.found.uuid).map_err(|error| absent(&error))?;
    let active = read.and_then(|read| read.sm_active);
    let detail = json!({"while": "a kernel computes on all SMs", "batches": ran.len(), "read": read});
    bench.report.add(&Fact::new("facts.sm_active", "8").value(active).detail(detail));
    Ok(())
}

fn units(bench: &mut Bench<'_>, split: &Split) {
    let grid = split.grid();
    let each = (0..grid.units()).filter_map(|unit| grid.range(unit, 1).ok()).map(|unit| grid.sms(unit));
    let each: Vec<u32> = each.collect();
    let sum: u32 = each.iter().sum::<u32>() + grid.remainder();
    let fact = Fact::new("facts.units", "4.2.2").value(grid.units());
    bench.report.add(&fact.detail(json!({"sms_each": each})).ok(sum == bench.found.sms));
    bench.report.add(&Fact::new("facts.remainder", "4.2.2").value(grid.remainder()).unit("SMs"));
}

/// Whether a context of each size has the SMs that were requested.
fn granted(bench: &mut Bench<'_>, split: &Split) -> Result<(), Stop> {
    let grid = split.grid();
    let mut differing = Vec::new();
    for count in grid.sizes() {
        let range = grid.range(0, count).map_err(|error| Stop::Other(error.to_string()))?;
        let sms = GreenContext::create(split.describe(range)?)?.sms();
        if sms != grid.sms(range) {
            differing.push(json!({"units": count, "asked": grid.sms(range), "granted": sms}));
        }
    }
    let fact = Fact::new("facts.granted_as_asked", "11.2").value(differing.is_empty());
    bench.report.add(&fact.ok(differing.is_empty()).detail(differing));
    Ok(())
}

/// Either result is acceptable because of the fallback. One of the two ways must work.
fn events(bench: &mut Bench<'_>, primary: &Arc<Primary>, split: &Split) -> Result<(), Stop> {
    let (_, stream) = make(split, half(split)?)?;
    let event = Event::create(primary)?;
    let done = stream.record(&event).and_then(|()| event.wait()).and_then(|()| event.is_done());
    let direct = !stream.records_by_context();
    let how = if direct { "on the stream" } else { "through the green context only" };
    let fact = Fact::new("facts.primary_event_on_green_stream", "4.2.6").value(direct);
    bench.report.add(&match done {
        Ok(done) => fact.ok(done).detail(how),
        Err(error) => fact.ok(false).detail(error.to_string()),
    });
    Ok(())
}

fn half(split: &Split) -> Result<UnitRange, Stop> {
    let units = split.grid().units();
    split.grid().range(0, (units / 2).max(1)).map_err(|error| Stop::Other(error.to_string()))
}

fn make(split: &Split, range: UnitRange) -> Result<(Arc<GreenContext>, Stream), Stop> {
    let context = GreenContext::create(split.describe(range)?)?;
    let stream = Stream::on_green(&context, 0)?;
    Ok((context, stream))
}

fn costs(bench: &mut Bench<'_>, split: &Split) -> Result<(), Stop> {
    let range = half(split)?;
    let (mut contexts, mut streams, mut ends): (Vec<Duration>, Vec<_>, Vec<_>) = Default::default();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let context = GreenContext::create(split.describe(range)?)?;
        let made = Instant::now();
        let stream = Stream::on_green(&context, 0)?;
        let ready = Instant::now();
        drop((stream, context));
        contexts.push(made - begun);
        streams.push(ready - made);
        ends.push(ready.elapsed());
    }
    for (what, times) in [("create", &contexts), ("stream", &streams), ("destroy", &ends)] {
        if let Some(spread) = Spread::of(times) {
            let fact = Fact::new(format!("facts.green_{what}"), "4.2").value(spread.median()).unit("us");
            bench.report.add(&fact.detail(spread.to_json()));
        }
    }
    Ok(())
}

/// Creates contexts until the driver refuses, or the bound is reached. The driver keeps memory of destroyed contexts and uses
/// it for later ones: only what a second round takes in addition is lost.
fn alive(bench: &mut Bench<'_>, primary: &Arc<Primary>, split: &Split) -> Result<(), Stop> {
    let (before, _) = primary.memory()?;
    let (kept, refusal) = as_many_as_exist(bench, split)?;
    let taken = before.saturating_sub(primary.memory()?.0);
    let each = taken as f64 / kept.len().max(1) as f64;
    // Every unit is a gpulet, twice while a plan changes.
    let enough = kept.len() >= usize::try_from(split.grid().units()).unwrap_or(usize::MAX).saturating_mul(2);
    let bound = refusal.unwrap_or_else(|| format!("the bound of {ALIVE_MAX} was reached"));
    let fact = Fact::new("facts.green_alive", "4.2").value(kept.len()).detail(bound);
    bench.report.add(&fact.ok(enough));
    bench.report.add(&Fact::new("facts.green_memory_each", "7").value(each).unit("bytes"));
    drop(kept);
    let between = primary.memory()?.0;
    let reserved = Fact::new("facts.green_memory_reserved", "7").value(before.saturating_sub(between));
    bench.report.add(&reserved.unit("bytes"));
    drop(as_many_as_exist(bench, split)?);
    let left = between.saturating_sub(primary.memory()?.0);
    let fact = Fact::new("facts.green_memory_left_behind", "10.5").value(left).unit("bytes");
    bench.report.add(&fact.ok(left <= 16 << 20));
    Ok(())
}

/// Contexts with a stream each, and why there are no more of them. `None`: the bound was reached.
#[expect(clippy::type_complexity, reason = "a pair that is taken apart at once")]
fn as_many_as_exist(
    bench: &Bench<'_>,
    split: &Split,
) -> Result<(Vec<(Arc<GreenContext>, Stream)>, Option<String>), Stop> {
    let grid = split.grid();
    let mut kept = Vec::new();
    while kept.len() < ALIVE_MAX && !bench.is_over() {
        let unit = u32::try_from(kept.len()).unwrap_or(0) % grid.units();
        let range = grid.range(unit, 1).map_err(|error| Stop::Other(error.to_string()))?;
        match make(split, range) {
            Ok(made) => kept.push(made),
            Err(refused) => return Ok((kept, Some(refused.to_string()))),
        }
    }
    Ok((kept, None))
}
