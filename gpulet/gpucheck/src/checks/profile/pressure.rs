//! How much of the device's shared resources a session uses: what it takes away from a probe kernel that wants all.
//!
//! The probe kernel copies continuously on half of the GPU, solo and with the session on the other half. The share of its
//! speed that it loses is what the session uses (the pressure of Bubble-Up: Mars et al., MICRO 2011). One probe kernel
//! copies through memory, one within the last-level cache.

use std::time::{Duration, Instant};

use gpulet_core::profile::Utilisation;
use gpulet_cuda::CudaDevice;
use models::engine::{Batch, Session};

use crate::bench::{Stop, serve};
use crate::kernel_maker::{Work, amount};
use crate::spread::Spread;
use crate::timing::{CoLocated, amount_for, times, under_contention};

/// Length of a probe kernel's batch.
const OWN: Duration = Duration::from_millis(1);
/// Least and greatest number of measured batches, and the time for them.
const RUNS: (usize, usize) = (10, 500);
const TIME: Duration = Duration::from_millis(80);

/// What a session uses while it runs this batch continuously, from 0 to 1. `rest` is first unit and number of units of
/// the probe kernels.
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
        let mut co_located = CoLocated { session: &mut *session, batch: batch.clone(), duty: 100 };
        let (slowed, _) = under_contention(&mut co_located, run)?;
        let medians = Spread::of(&alone).zip(Spread::of(&slowed));
        Ok(medians.map_or(0.0, |(alone, slowed)| part_lost(alone.median(), slowed.median())))
    };
    Ok(Utilisation { cache: lost(Work::Cache)?, bandwidth: lost(Work::Stream)? })
}

/// The lost share of a speed, from the time of a batch solo and under contention.
fn part_lost(alone: f64, slowed: f64) -> f64 {
    (1.0 - alone / slowed.max(1e-9)).clamp(0.0, 1.0)
}

/// Converts what was measured on a share to the whole device, where batches run `stretch` times faster and the session
/// therefore uses as much more per second.
pub(super) fn on_the_whole(seen: Utilisation, stretch: f64) -> Utilisation {
    let whole = |share: f64| (share * stretch.max(1.0)).clamp(0.0, 1.0);
    Utilisation { cache: whole(seen.cache), bandwidth: whole(seen.bandwidth) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_of_a_probe_is_the_use_of_the_session() {
        assert_eq!(part_lost(100.0, 100.0), 0.0);
        assert_eq!(part_lost(100.0, 200.0), 0.5);
        assert_eq!(part_lost(100.0, 90.0), 0.0, "noise is ignored");
        assert_eq!(part_lost(100.0, f64::INFINITY), 1.0);
        let whole = on_the_whole(Utilisation { cache: 0.2, bandwidth: 0.7 }, 1.5);
        assert!((whole.cache - 0.3).abs() < 1e-12 && whole.bandwidth == 1.0, "{whole:?}");
    }
}
