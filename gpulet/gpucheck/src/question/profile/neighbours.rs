//! A model on half of the GPU, beside kernels on the other half: how much longer its batches take, and what it takes of
//! the shared parts itself.

use std::time::{Duration, Instant};

use gpulet::Device;
use gpulet_core::profile::{Utilisation, UtilisationLine};
use gpulet_cuda::CudaDevice;
use models::engine::Session;
use serde_json::json;

use super::pairing::Alone;
use super::pressure;
use crate::answer::Fact;
use crate::bench::{Bench, Stop, serve};
use crate::kernel_maker::{Work, amount};
use crate::pace::{Neighbour, amount_for, beside, times};
use crate::pairs::{Beside, KernelSide, Pair, Side};
use crate::spread::Spread;
use crate::subject::Subject;

/// Neighbours, and how much of the time they run, in percent.
const NEIGHBOURS: [(Work, u32); 3] = [(Work::Compute, 100), (Work::Stream, 50), (Work::Stream, 100)];
/// Rows of the batches, if the model takes so many.
const ROWS: u32 = 8;
/// Batches that count, at least and at most, and the time for them.
const RUNS: (usize, usize) = (10, 500);
const TIME: Duration = Duration::from_millis(150);
/// Length of a neighbour's batch.
const OTHER: Duration = Duration::from_millis(3);

/// What the kernels themselves take of the shared parts; measured once.
pub(super) type KernelUse = Vec<(Work, Utilisation)>;

/// What kernels on `(first, units)` take, by probers on `rest`.
pub(super) fn kernels(device: &CudaDevice, own: (u32, u32), rest: (u32, u32)) -> Result<KernelUse, Stop> {
    let mut used = Vec::new();
    for work in [Work::Compute, Work::Stream] {
        let mut kernel = serve(device, &work.files()?, own.0, own.1)?;
        let load = amount(amount_for(kernel.session.as_mut(), OTHER)?);
        used.push((work, pressure::of(device, (kernel.session.as_mut(), &load), rest)?));
    }
    Ok(used)
}

/// What comes of measuring one model.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) pairs: Vec<Pair>,
    pub(super) used: Vec<UtilisationLine>,
}

/// A session on its half of the GPU, and the other half.
pub(super) struct Half<'a> {
    pub(super) subject: &'a Subject,
    pub(super) session: &'a mut dyn Session,
    pub(super) units: u32,
    /// First unit of the rest, and how many.
    pub(super) rest: (u32, u32),
}

/// Measures a session beside each kernel, and probers beside it. `alone` and `whole` are its times on its half and on all
/// units.
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
    for (work, duty) in NEIGHBOURS {
        let found = beside_kernel(bench, device, (subject, session, rows), (units, rest), (work, duty))?;
        let used = kernels.iter().find(|(known, _)| *known == work);
        let Some(((spread, over_alone), (_, used))) = found.zip(used) else { continue };
        let (p50, p99) = over_alone;
        let word = work.word().to_owned();
        let (cache, bandwidth) = (used.cache, used.bandwidth);
        let kernel = KernelSide { word, units: rest.1, duty_pct: duty, cache, bandwidth };
        measured.pairs.push(Pair {
            device: bench.found.name.clone(),
            units_total: device.info().units,
            own: Side { model: subject.name().to_owned(), rows, units },
            beside: Beside::Kernel(kernel),
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
        bench.answers.say(&fact.value(used.bandwidth).detail(detail));
        measured.used.push(UtilisationLine { batch: rows, used });
    }
    Ok(measured)
}

/// Times beside something, and their median and 99th percentile over those alone.
type Slowed = (Spread, (f64, f64));

/// Times beside a kernel; those alone are measured just before.
fn beside_kernel(
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
    let mut neighbour = Neighbour { session: other.session.as_mut(), batch: load, duty };
    let (measured, meanwhile) = beside(&mut neighbour, || run(session))?;
    let Some(spread) = Spread::of(&measured) else { return Ok(None) };
    let over_alone = (spread.median() / alone.median().max(1e-9), spread.p99() / alone.p99().max(1e-9));
    let fact = Fact::new(format!("profile.{}_beside_{}_at_{duty}", subject.name(), work.word()), "8");
    bench.answers.say(&fact.value(over_alone.0).detail(json!({
        "rows": rows, "units": units, "neighbour_units": rest.1, "neighbour_batches": meanwhile.batches,
        "p99_over_alone": over_alone.1, "alone_us": alone.to_json(), "beside_us": spread.to_json(),
    })));
    Ok(Some((spread, over_alone)))
}
