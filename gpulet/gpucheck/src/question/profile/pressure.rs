//! How much of the device's shared parts something takes: what it leaves of them to a kernel that wants them all.
//!
//! A kernel that copies without end on half of the GPU runs alone and beside what is asked about, which has the other
//! half. The part of its speed that it loses is what the other one took (the pressure of Bubble-Up: Mars et al., MICRO
//! 2011). One kernel copies through memory, one within the last cache.

use std::time::{Duration, Instant};

use gpulet_core::profile::Utilisation;
use gpulet_cuda::CudaDevice;
use models::engine::{Batch, Session};

use crate::bench::{Stop, serve};
use crate::kernel_maker::{Work, amount};
use crate::pace::{Neighbour, amount_for, beside, times};
use crate::spread::Spread;

/// Length of a prober's batch.
const OWN: Duration = Duration::from_millis(1);
/// Batches that count, at least and at most, and the time for them.
const RUNS: (usize, usize) = (10, 500);
const TIME: Duration = Duration::from_millis(80);

/// What a session takes while it runs these batches without a pause, from 0 to 1; the probers have `(first, units)`.
pub(super) fn of(
    device: &CudaDevice,
    (session, batch): (&mut dyn Session, &Batch),
    rest: (u32, u32),
) -> Result<Utilisation, Stop> {
    let mut lost = |work: Work| -> Result<f64, Stop> {
        let mut prober = serve(device, &work.files()?, rest.0, rest.1)?;
        let load = amount(amount_for(prober.session.as_mut(), OWN)?);
        let mut run = || times(prober.session.as_mut(), &load, RUNS, Instant::now() + TIME);
        let alone = run()?;
        let mut neighbour = Neighbour { session: &mut *session, batch: batch.clone(), duty: 100 };
        let (slowed, _) = beside(&mut neighbour, run)?;
        let medians = Spread::of(&alone).zip(Spread::of(&slowed));
        Ok(medians.map_or(0.0, |(alone, slowed)| part_lost(alone.median(), slowed.median())))
    };
    Ok(Utilisation { cache: lost(Work::Cache)?, bandwidth: lost(Work::Stream)? })
}

/// Of a speed, where a batch takes so long alone and beside something.
fn part_lost(alone: f64, slowed: f64) -> f64 {
    (1.0 - alone / slowed.max(1e-9)).clamp(0.0, 1.0)
}

/// As it is alone on the whole device, of what was seen on a share on which batches take `stretch` times as long: it does
/// so much more work a second there.
pub(super) fn on_the_whole(seen: Utilisation, stretch: f64) -> Utilisation {
    let whole = |share: f64| (share * stretch.max(1.0)).clamp(0.0, 1.0);
    Utilisation { cache: whole(seen.cache), bandwidth: whole(seen.bandwidth) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_prober_loses_is_what_its_neighbour_takes() {
        assert_eq!(part_lost(100.0, 100.0), 0.0);
        assert_eq!(part_lost(100.0, 200.0), 0.5);
        assert_eq!(part_lost(100.0, 90.0), 0.0, "noise takes nothing");
        assert_eq!(part_lost(100.0, f64::INFINITY), 1.0);
        let whole = on_the_whole(Utilisation { cache: 0.2, bandwidth: 0.7 }, 1.5);
        assert!((whole.cache - 0.3).abs() < 1e-12 && whole.bandwidth == 1.0, "{whole:?}");
    }
}
