//! How computing and copying kernels slow each other, with the other one at half and at full load.

use std::time::Duration;

use gpulet::Device;
use gpulet_cuda::CudaDevice;
use serde_json::json;

use crate::bench::{Bench, Stop, serve};
use crate::kernel_maker::{STREAM_BYTES, Work, amount};
use crate::report::Fact;
use crate::spread::Spread;
use crate::timing::{CoLocated, amount_for, times, under_contention};

const WORKS: [Work; 2] = [Work::Compute, Work::Stream];
const DUTIES: [u32; 2] = [50, 100];
/// Length of the measured batch.
const OWN: Duration = Duration::from_millis(1);
/// Length of the other kernel's batch.
const OTHER: Duration = Duration::from_millis(3);

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Stop> {
    if !bench.has_green("interference.bandwidth", "8") {
        return Ok(());
    }
    let device = bench.green()?;
    let units = device.info().units;
    bandwidth(bench, &device)?;
    if units < 2 {
        bench.report.skip(
            "interference.slowdown",
            "8",
            "the device has one unit: expected units for a second gpulet",
        );
        return Ok(());
    }
    let shares = [units / 2, units / 4, units - units / 4];
    let mut left = shares.len() * WORKS.len();
    for own_units in shares {
        for work in WORKS {
            let until = bench.after(1.0 / left as f64);
            left -= 1;
            if own_units == 0 || bench.is_over() {
                continue;
            }
            all_combinations(bench, &device, (work, own_units), until)?;
        }
    }
    Ok(())
}

/// Bandwidth by units: how few units can use all of the memory bandwidth.
fn bandwidth(bench: &mut Bench<'_>, device: &CudaDevice) -> Result<(), Stop> {
    let all = device.info().units;
    let sizes = [1, 2, 3, 4, 6, 8, 12, all];
    let until = bench.after(0.2);
    for units in sizes.into_iter().filter(|units| *units < all).chain([all]) {
        if std::time::Instant::now() >= until && units < all {
            continue;
        }
        let mut gpulet = serve(device, &Work::Stream.files()?, 0, units)?;
        let passes = amount_for(gpulet.session.as_mut(), OTHER)?;
        let measured = times(gpulet.session.as_mut(), &amount(passes), (5, 30), until)?;
        let Some(spread) = Spread::of(&measured) else { continue };
        let bytes = 2.0 * STREAM_BYTES as f64 * f64::from(passes);
        let rate = bytes / (spread.median() * 1e-6).max(1e-12) / 1e9;
        let sms = device.grid().range(0, units).map_or(0, |range| device.grid().sms(range));
        let fact = Fact::new(format!("interference.bandwidth_{units}_units"), "8").value(rate).unit("GB/s");
        bench.report.add(&fact.detail(json!({"sms": sms, "units": units, "read_and_written": true})));
    }
    Ok(())
}

fn all_combinations(
    bench: &mut Bench<'_>,
    device: &CudaDevice,
    (work, units): (Work, u32),
    until: std::time::Instant,
) -> Result<(), Stop> {
    let others = device.info().units - units;
    let mut own = serve(device, &work.files()?, 0, units)?;
    let batch = amount(amount_for(own.session.as_mut(), OWN)?);
    // One part of the time solo, and one for each combination.
    let part = until.saturating_duration_since(std::time::Instant::now()) / 5;
    let measured_until = || std::time::Instant::now() + part;
    let measured = times(own.session.as_mut(), &batch, (50, 1_000), measured_until())?;
    let Some(alone) = Spread::of(&measured) else { return Ok(()) };
    for other_work in WORKS {
        let mut other = serve(device, &other_work.files()?, units, others)?;
        let load = amount(amount_for(other.session.as_mut(), OTHER)?);
        for duty in DUTIES {
            let session = other.session.as_mut();
            let mut co_located = CoLocated { session, batch: load.clone(), duty };
            let run = || times(own.session.as_mut(), &batch, (50, 1_000), measured_until());
            let (measured, other_runs) = under_contention(&mut co_located, run)?;
            let Some(spread) = Spread::of(&measured) else { continue };
            let (own_word, other_word) = (work.name(), other_work.name());
            let name = format!("interference.{own_word}_{units}_with_{other_word}_{others}_at_{duty}");
            let fact = Fact::new(name, "8").value(spread.median() / alone.median().max(1e-9));
            bench.report.add(&fact.detail(json!({
                "own": own_word, "own_units": units, "other": other_word, "other_units": others,
                "other_duty_pct": duty, "other_batches": other_runs.batches,
                "p99_over_solo": spread.p99() / alone.p99().max(1e-9),
                "solo_us": alone.to_json(), "co_located_us": spread.to_json(),
            })));
        }
    }
    Ok(())
}
