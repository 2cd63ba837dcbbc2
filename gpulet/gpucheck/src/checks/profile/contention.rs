//! A model on half of the GPU with kernels on the other half: how much slower its batches are, and how much of the
//! shared resources it uses.

use std::time::{Duration, Instant};

use gpulet::Device;
use gpulet_core::profile::{Utilisation, UtilisationLine};
use gpulet_cuda::CudaDevice;
use models::engine::Session;
use serde_json::json;

use super::pairing::Alone;
use super::pressure;
use crate::bench::{Bench, Stop, serve};
use crate::kernel_maker::{Work, amount};
use crate::pairs::{KernelSide, Other, Pair, Side};
use crate::report::Fact;
use crate::spread::Spread;
use crate::subject::Subject;
use crate::timing::{CoLocated, amount_for, times, under_contention};

/// Co-located kernels, and the share of the time in which they run, in percent.
const KERNELS: [(Work, u32); 3] = [(Work::Compute, 100), (Work::Stream, 50), (Work::Stream, 100)];
/// Rows of the batches, if the model accepts as many.
const ROWS: u32 = 8;
/// Least and greatest number of measured batches, and the time for them.
const RUNS: (usize, usize) = (10, 500);
const TIME: Duration = Duration::from_millis(150);
/// Length of a kernel's batch.
const OTHER: Duration = Duration::from_millis(3);

/// How much of the shared resources the kernels use; measured once.
pub(super) type KernelUse = Vec<(Work, Utilisation)>;

/// Measures what kernels on units `own` use, with probe kernels on `rest`. Both are first unit and number of units.
pub(super) fn kernels(device: &CudaDevice, own: (u32, u32), rest: (u32, u32)) -> Result<KernelUse, Stop> {
    let mut used = Vec::new();
    for work in [Work::Compute, Work::Stream] {
        let mut kernel = serve(device, &work.files()?, own.0, own.1)?;
        let load = amount(amount_for(kernel.session.as_mut(), OTHER)?);
        used.push((work, pressure::of(device, (kernel.session.as_mut(), &load), rest)?));
    }
    Ok(used)
}

/// The measurements of one model.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) pairs: Vec<Pair>,
    pub(super) used: Vec<UtilisationLine>,
}

/// A session on its half of the GPU.
pub(super) struct Half<'a> {
    pub(super) subject: &'a Subject,
    pub(super) session: &'a mut dyn Session,
    pub(super) units: u32,
    /// First unit and number of units of the other half.
    pub(super) rest: (u32, u32),
}

/// Measures a session with each kernel, and probe kernels with the session. `alone` and `whole` are its solo times on its
/// half and on all units.
pub(super) fn measure(
    bench: &mut Bench<'_>,
    device: &CudaDevice,
    half: Half<'_>,
    (alone, whole): (&Alone, &Alone),
    kernels: &KernelUse,
) -> Result<Measured, Stop> {
    let Half { subject, session, units, rest } = half;
    let mut measured = Measured::default();
    let rows = session.signature().max_batch.clamp(1, ROWS);
    for (work, duty) in KERNELS {
        let found = with_kernel(bench, device, (subject, session, rows), (units, rest), (work, duty))?;
        let used = kernels.iter().find(|(known, _)| *known == work);
        let Some(((spread, over_alone), (_, used))) = found.zip(used) else { continue };
        let (p50, p99) = over_alone;
        let word = work.name().to_owned();
        let (cache, bandwidth) = (used.cache, used.bandwidth);
        let kernel = KernelSide { name: word, units: rest.1, duty_pct: duty, cache, bandwidth };
        measured.pairs.push(Pair {
            device: bench.device_type(device.info().units),
            units_total: device.info().units,
            own: Side { model: subject.name().to_owned(), rows, units },
            other: Other::Kernel(kernel),
            factor: p50,
            p99_factor: p99,
            runs: u64::try_from(spread.count()).unwrap_or(u64::MAX),
        });
    }
    for rows in [1, rows] {
        if measured.used.iter().any(|line| line.batch == rows) {
            continue;
        }
        let batch = subject.batch(session, rows)?;
        let seen = pressure::of(device, (&mut *session, &batch), rest)?;
        let stretch = alone.get(&rows).zip(whole.get(&rows)).map_or(1.0, |(half, whole)| half.0 / whole.0);
        let used = pressure::on_the_whole(seen, stretch);
        let fact = Fact::new(format!("profile.{}_bandwidth_of_{rows}_rows", subject.name()), "8");
        let detail = json!({"cache": used.cache, "seen_on_units": units, "seen": seen});
        bench.report.add(&fact.value(used.bandwidth).detail(detail));
        measured.used.push(UtilisationLine { batch: rows, used });
    }
    Ok(measured)
}

/// Times under contention, and their median and 99th percentile divided by the solo ones.
type Slowed = (Spread, (f64, f64));

/// Times with a co-located kernel. The solo times are measured immediately before.
fn with_kernel(
    bench: &mut Bench<'_>,
    device: &CudaDevice,
    (subject, session, rows): (&Subject, &mut dyn Session, u32),
    (units, rest): (u32, (u32, u32)),
    (work, duty): (Work, u32),
) -> Result<Option<Slowed>, Stop> {
    let batch = subject.batch(session, rows)?;
    let run = |session: &mut dyn Session| times(session, &batch, RUNS, Instant::now() + TIME);
    let Some(alone) = Spread::of(&run(session)?) else { return Ok(None) };
    let mut other = serve(device, &work.files()?, rest.0, rest.1)?;
    let load = amount(amount_for(other.session.as_mut(), OTHER)?);
    let mut co_located = CoLocated { session: other.session.as_mut(), batch: load, duty };
    let (measured, other_runs) = under_contention(&mut co_located, || run(session))?;
    let Some(spread) = Spread::of(&measured) else { return Ok(None) };
    let over_alone = (spread.median() / alone.median().max(1e-9), spread.p99() / alone.p99().max(1e-9));
    let fact = Fact::new(format!("profile.{}_with_{}_at_{duty}", subject.name(), work.name()), "8");
    bench.report.add(&fact.value(over_alone.0).detail(json!({
        "rows": rows, "units": units, "other_units": rest.1, "other_batches": other_runs.batches,
        "p99_over_solo": over_alone.1, "solo_us": alone.to_json(), "co_located_us": spread.to_json(),
    })));
    Ok(Some((spread, over_alone)))
}
