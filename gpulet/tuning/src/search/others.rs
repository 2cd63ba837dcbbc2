//! What trials of other models say of each configuration.

use super::Surface;
use crate::measurement::Measurement;

/// The mean of other models, each relative to its own mean, by index of the space: two logarithms of each trial, which `of` gives. 0 for a
/// configuration that none of them has tried. Trials that cannot be are left out.
pub(crate) fn mean_of(
    count: usize,
    others: &[Surface],
    of: impl Fn(usize, &Measurement) -> (f64, f64),
) -> Vec<(f64, f64)> {
    let mut sums = vec![((0.0, 0.0), 0.0); count];
    for surface in others {
        let trials = surface.iter().filter(|(_, one)| one.is_sane());
        let logs: Vec<(usize, (f64, f64))> = trials.map(|(index, one)| (*index, of(*index, one))).collect();
        let mean = |pick: fn(&(f64, f64)) -> f64| {
            logs.iter().map(|(_, log)| pick(log)).sum::<f64>() / logs.len().max(1) as f64
        };
        let means = (mean(|log| log.0), mean(|log| log.1));
        for (index, log) in &logs {
            if let Some((sum, number)) = sums.get_mut(*index) {
                *sum = (sum.0 + log.0 - means.0, sum.1 + log.1 - means.1);
                *number += 1.0;
            }
        }
    }
    sums.into_iter()
        .map(|(sum, number)| (sum.0 / f64::max(number, 1.0), sum.1 / f64::max(number, 1.0)))
        .collect()
}
