//! The memory of a model's second session: its weights again, or almost nothing.

use gpulet::Device;
use serde_json::json;

use crate::bench::{Bench, Stop, at_most, open};
use crate::report::Fact;
use crate::subject;

/// Largest share of the weights that a second session may take.
const SHARE_MAX: f64 = 0.1;
/// Granularity of device memory. If a tenth of the weights is less, a session cannot take so little.
const PIECE: u64 = 2 << 20;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let Some(subjects) = subject::ready(bench, "sharing.second_session", "7") else { return Ok(()) };
    let primary = bench.primary()?;
    let device = bench.green()?;
    let half = (device.info().units / 2).max(1);
    let (first, second) = (open(&device, 0, half)?, open(&device, device.info().units - half, half)?);
    for subject in &subjects {
        if bench.is_over() {
            bench.report.skip(format!("sharing.{}", subject.name()), "7", "no time was left");
            continue;
        }
        let free = || primary.memory().map(|(free, _)| free);
        let before = free()?;
        let loaded = (|| {
            let mut one = first.load(&subject.files, &at_most(1))?;
            let batch = subject.batch(one.as_mut(), 1)?;
            one.run(&batch)?;
            let between = free()?;
            let mut two = second.load(&subject.files, &at_most(1))?;
            let batch = subject.batch(two.as_mut(), 1)?;
            two.run(&batch)?;
            Ok::<_, Stop>((between, free()?, device.memory().unshared))
        })();
        let fact = Fact::new(format!("sharing.{}_second_over_weights", subject.name()), "7");
        let fact = match loaded {
            Ok((between, after, unshared)) => {
                let weights = u64::try_from(subject.files.bytes.len()).unwrap_or(u64::MAX);
                let (first_took, second_took) =
                    (before.saturating_sub(between), between.saturating_sub(after));
                let share = second_took as f64 / weights.max(1) as f64;
                let detail = json!({
                    "weights_bytes": weights, "first_bytes": first_took, "second_bytes": second_took,
                    "counted_as_unshared": !unshared.is_empty(),
                });
                let fact = fact.value(share).detail(detail);
                if weights as f64 * SHARE_MAX < PIECE as f64 { fact } else { fact.ok(share < SHARE_MAX) }
            }
            Err(stop) => fact.ok(false).detail(stop.to_string()),
        };
        bench.report.add(&fact);
    }
    Ok(())
}
