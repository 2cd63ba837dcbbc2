//! A model on half of the GPU, beside kernels on the other half: how much longer its batches take is what a model of
//! interference is fitted to.

use std::time::{Duration, Instant};

use gpulet::Device;
use gpulet_cuda::CudaDevice;
use models::engine::Session;
use serde_json::json;

use crate::answer::Fact;
use crate::bench::{Bench, Stop, serve};
use crate::kernel_maker::{Work, amount};
use crate::pace::{Neighbour, amount_for, beside, times};
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

/// Measures a session that has `share` units from the first on, beside each neighbour on the rest.
pub(super) fn measure(
    bench: &mut Bench<'_>,
    device: &CudaDevice,
    (subject, session): (&Subject, &mut dyn Session),
    share: u32,
) -> Result<(), Stop> {
    let units = device.info().units;
    let rows = session.signature().max_batch.clamp(1, ROWS);
    let batch = subject.batch(session, rows)?;
    let run = |session: &mut dyn Session| times(session, &batch, RUNS, Instant::now() + TIME);
    run(session)?;
    let Some(alone) = Spread::of(&run(session)?) else { return Ok(()) };
    for (work, duty) in NEIGHBOURS {
        let mut other = serve(device, &work.files()?, share, units - share)?;
        let load = amount(amount_for(other.session.as_mut(), OTHER)?);
        let mut neighbour = Neighbour { session: other.session.as_mut(), batch: load, duty };
        let (measured, meanwhile) = beside(&mut neighbour, || run(session))?;
        let Some(spread) = Spread::of(&measured) else { continue };
        let fact = Fact::new(format!("profile.{}_beside_{}_at_{duty}", subject.name(), work.word()), "8");
        let fact = fact.value(spread.median() / alone.median().max(1e-9));
        bench.answers.say(&fact.detail(json!({
            "rows": rows, "units": share, "neighbour_units": units - share,
            "neighbour_batches": meanwhile.batches,
            "p99_over_alone": spread.p99() / alone.p99().max(1e-9),
            "alone_us": alone.to_json(), "beside_us": spread.to_json(),
        })));
    }
    Ok(())
}
