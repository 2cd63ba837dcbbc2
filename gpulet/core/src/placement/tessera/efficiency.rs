//! The shares and batches that serve most for their cost: what parts are cut into, and what no plan can undercut.

use super::super::demand::{Fit, Part, SLACK};
use super::super::search::{cheapest_of_kinds, rounded, same_cost};
use crate::problem::{Device, Problem};

/// Parts that all parts together are cut into at most.
const PIECES_MAX: usize = 4_096;

/// Parts with what the gpulet serves alone that serves most for its share of a device.
pub(super) fn efficient<'a>(problem: &'a Problem, parts: &[Part<'a>]) -> Vec<(Part<'a>, f64)> {
    let device_types = cheapest_of_kinds(problem);
    parts.iter().map(|part| (*part, efficient_rate(problem, &device_types, part).unwrap_or(part.rate))).collect()
}

/// Parts cut into pieces of their most efficient size, where kernels do not fill larger ones; each piece is trusted
/// with `trust` of what it serves alone. None if that cuts nothing.
pub(super) fn cut<'a>(parts: &[(Part<'a>, f64)], trust: f64) -> Option<Vec<Part<'a>>> {
    let mut pieces = Vec::new();
    for (part, rate) in parts {
        let most = trust * rate;
        let mut left = part.rate;
        while left > most * (1.0 + 1e-9) && most > 0.0 {
            pieces.push(part.at_rate(most));
            left -= most;
            if pieces.len() > PIECES_MAX {
                return None;
            }
        }
        pieces.push(part.at_rate(left));
    }
    (pieces.len() > parts.len()).then_some(pieces)
}

/// What the gpulet serves alone that serves most for its share of a device's cost.
fn efficient_rate<'a>(problem: &'a Problem, device_types: &[&'a Device], part: &Part<'a>) -> Option<f64> {
    let mut best: Option<(f64, f64)> = None;
    for device in device_types {
        let Some(fit) = part.on(problem, &device.device_type) else { continue };
        for units in &device.device_type.sizes {
            let in_time = |_, time: f64| 2.0 * time <= part.workload.slo_us;
            let Some((batch, time)) = fit.largest_batch(*units, in_time) else { continue };
            let rate = 1e6 * f64::from(batch) / (time - fit.profile.load_us(batch));
            let price = device.cost * f64::from(*units) / f64::from(device.device_type.units);
            if best.is_none_or(|(most, _)| rate / price > most) {
                best = Some((rate / price, rate));
            }
        }
    }
    best.map(|(_, rate)| rate)
}

/// What no plan can undercut: every request in the batch and on the share in which it costs least, and devices without
/// a gap.
pub(super) fn least_cost_of_work(problem: &Problem, parts: &[Part<'_>]) -> f64 {
    let device_types = cheapest_of_kinds(problem);
    let work = parts.iter().map(|part| {
        let shares = device_types.iter().filter_map(|device| Some((device, part.on(problem, &device.device_type)?)));
        let costs = shares.flat_map(|(device, fit)| {
            device.device_type.sizes.iter().map(move |units| {
                let price = device.cost * f64::from(*units) / f64::from(device.device_type.units);
                price * least_us_a_row(&fit, *units, part.workload.slo_us)
            })
        });
        let least = costs.fold(f64::INFINITY, f64::min);
        if least.is_finite() { part.rate * least / 1e6 } else { 0.0 }
    });
    rounded(work.sum(), same_cost(problem))
}

/// Microseconds that a row takes at least of a share, in batches that are twice within the objective.
fn least_us_a_row(fit: &Fit<'_>, units: u32, slo_us: f64) -> f64 {
    let times = (1..=fit.batch_max).map_while(|batch| {
        let time = fit.profiled_us(batch, units).filter(|time| 2.0 * time <= slo_us * (1.0 + SLACK))?;
        Some((time - fit.profile.load_us(batch)) / f64::from(batch))
    });
    times.fold(f64::INFINITY, f64::min)
}
