//! Whether gpulets stay on their SMs and run concurrently, and how contention changes their times.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use gpulet::Device;
use gpulet_cuda::{CudaDevice, UnitRange};
use models::engine::{RunError, Session};
use serde_json::json;

use crate::bench::{Bench, Open, Stop, serve};
use crate::kernel_maker::{Work, amount, words};
use crate::report::Fact;
use crate::spread::Spread;
use crate::timing::{CoLocated, amount_for, times, under_contention};

/// Limit on the 99th percentile with a busy co-located gpulet, divided by the solo one.
const P99_FACTOR_MAX: f64 = 1.2;
/// How long blocks hold their SM while its number is read.
const HOLD_US: u32 = 20;
/// Traces of a gpulet that are combined, because one may miss an SM.
const TRACES: usize = 5;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Stop> {
    if !bench.has_green("isolation.sms", "10.5") {
        return Ok(());
    }
    let device = bench.green()?;
    let units = device.info().units;
    if units < 2 {
        bench.report.skip(
            "isolation.sms",
            "10.5",
            "the device has one unit: expected two gpulets to compare",
        );
        return Ok(());
    }
    let half = units / 2;
    halves(bench, &device, half)?;
    every_unit(bench, &device)?;
    at_once(bench, &device, half)?;
    contention(bench, &device, half)
}

fn traced(session: &mut dyn Session) -> Result<BTreeSet<u32>, RunError> {
    let mut seen = BTreeSet::new();
    for _ in 0..TRACES {
        seen.extend(words(&session.run(&amount(HOLD_US))?));
    }
    Ok(seen)
}

fn sms(device: &CudaDevice, first: u32, units: u32) -> u32 {
    let range: Option<UnitRange> = device.grid().range(first, units).ok();
    range.map_or(0, |range| device.grid().sms(range))
}

fn halves(bench: &mut Bench<'_>, device: &CudaDevice, half: u32) -> Result<(), Stop> {
    let rest = device.info().units - half;
    let files = Work::Trace.files()?;
    let mut left = serve(device, &files, 0, half)?;
    let mut right = serve(device, &files, half, rest)?;
    let (seen_left, seen_right) = (traced(left.session.as_mut())?, traced(right.session.as_mut())?);
    for (side, seen, planned) in
        [("left", &seen_left, sms(device, 0, half)), ("right", &seen_right, sms(device, half, rest))]
    {
        let count = u32::try_from(seen.len()).unwrap_or(u32::MAX);
        let fact = Fact::new(format!("isolation.sms_{side}"), "10.5").value(count).unit("SMs");
        bench.report.add(&fact.ok(count == planned).detail(json!({"planned": planned})));
    }
    let common = seen_left.intersection(&seen_right).count();
    bench.report.add(&Fact::new("isolation.sms_common", "10.5").value(common).unit("SMs").ok(common == 0));
    let union = seen_left.union(&seen_right).count();
    let planned = sms(device, 0, half) + sms(device, half, rest);
    let fact = Fact::new("isolation.sms_together", "10.5").value(union).unit("SMs");
    bench.report.add(&fact.ok(u32::try_from(union) == Ok(planned)).detail(json!({"planned": planned})));
    let mut co_located = CoLocated { session: right.session.as_mut(), batch: amount(HOLD_US), duty: 100 };
    let trace = || traced(left.session.as_mut());
    let (seen_under_contention, _) = under_contention(&mut co_located, trace)?;
    let strange = seen_under_contention.difference(&seen_left).count();
    let fact = Fact::new("isolation.sms_gained_under_contention", "10.5").value(strange).unit("SMs");
    bench.report.add(&fact.ok(strange == 0));
    Ok(())
}

/// Opens all units as gpulets at the same time.
fn every_unit(bench: &mut Bench<'_>, device: &CudaDevice) -> Result<(), Stop> {
    let files = Work::Trace.files()?;
    let units = device.info().units;
    let mut gpulets: Vec<Open> = Vec::new();
    for unit in 0..units {
        gpulets.push(serve(device, &files, unit, 1)?);
    }
    let (mut all, mut shared) = (BTreeSet::new(), 0_usize);
    for gpulet in &mut gpulets {
        let seen = traced(gpulet.session.as_mut())?;
        shared += seen.intersection(&all).count();
        all.extend(seen);
    }
    let fact = Fact::new("isolation.sms_shared_by_units", "4.2.2").value(shared).unit("SMs");
    bench.report.add(&fact.ok(shared == 0).detail(json!({"gpulets": units, "sms_together": all.len()})));
    // 5 ms, four times.
    let hold = amount(5_000);
    let alone = match gpulets.first_mut() {
        Some(first) => times(first.session.as_mut(), &hold, (3, 3), Instant::now())?.into_iter().min(),
        None => None,
    };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let run = |gpulet: &mut Open| gpulet.session.run(&hold).map(drop);
        let running: Vec<_> = gpulets.iter_mut().map(|gpulet| scope.spawn(move || run(gpulet))).collect();
        running.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    let together = begun.elapsed();
    let factor = together.as_secs_f64() / alone.unwrap_or(together).as_secs_f64().max(1e-9);
    let fact = Fact::new("isolation.all_units_at_once_over_one", "11.6").value(factor);
    // On the stand-in kernels take no time, so only the threads' own time remains.
    let fact = if alone.is_some_and(|alone| alone > Duration::from_millis(1)) {
        fact.ok(factor < 2.0)
    } else {
        fact
    };
    bench.report.add(&fact.detail(json!({"gpulets": units})));
    Ok(())
}

/// Whether two long kernels take as long as one of them, or as both.
fn at_once(bench: &mut Bench<'_>, device: &CudaDevice, half: u32) -> Result<(), Stop> {
    let files = Work::Trace.files()?;
    let mut left = serve(device, &files, 0, half)?;
    let mut right = serve(device, &files, half, half)?;
    let hold = amount(25_000);
    let alone = times(left.session.as_mut(), &hold, (1, 1), Instant::now())?;
    let alone = alone.first().copied().unwrap_or_default();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| right.session.run(&hold).map(drop));
        left.session.run(&hold).map(drop)?;
        other.join().unwrap_or(Ok(()))
    })?;
    let factor = begun.elapsed().as_secs_f64() / alone.as_secs_f64().max(1e-9);
    let fact = Fact::new("isolation.two_at_once_over_one", "4.1").value(factor);
    let fact = if alone > Duration::from_millis(1) { fact.ok(factor < 1.5) } else { fact };
    bench.report.add(&fact.detail(json!({"solo_ms": alone.as_secs_f64() * 1e3})));
    Ok(())
}

fn contention(bench: &mut Bench<'_>, device: &CudaDevice, half: u32) -> Result<(), Stop> {
    let mut own = serve(device, &Work::Compute.files()?, 0, half)?;
    let batch = amount(amount_for(own.session.as_mut(), Duration::from_millis(1))?);
    let until = bench.after(0.3);
    let Some(alone) = Spread::of(&times(own.session.as_mut(), &batch, (200, 2_000), until)?) else {
        return Ok(());
    };
    let fact = Fact::new("isolation.compute_p99_alone", "10.5").value(alone.p99()).unit("us");
    bench.report.add(&fact.detail(alone.to_json()));
    for (work, share) in [(Work::Compute, 0.4), (Work::Stream, 0.8)] {
        let mut other = serve(device, &work.files()?, half, device.info().units - half)?;
        let load = amount(amount_for(other.session.as_mut(), Duration::from_millis(5))?);
        let until = bench.after(share);
        let mut co_located = CoLocated { session: other.session.as_mut(), batch: load, duty: 100 };
        let (measured, other_runs) =
            under_contention(&mut co_located, || times(own.session.as_mut(), &batch, (200, 2_000), until))?;
        let Some(spread) = Spread::of(&measured) else { continue };
        let factor = spread.p99() / alone.p99().max(1e-9);
        let name = format!("isolation.compute_p99_with_{}_over_solo", work.name());
        let detail = json!({"co_located": spread.to_json(), "other_batches": other_runs.batches});
        let fact = Fact::new(name, "10.5").value(factor).detail(detail);
        // Memory is shared whatever the units are, so a copying kernel is only measured.
        let assessed = work == Work::Compute && alone.median() > 100.0;
        bench.report.add(&if assessed { fact.ok(factor <= P99_FACTOR_MAX) } else { fact });
    }
    Ok(())
}
