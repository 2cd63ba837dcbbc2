//! The shares and batches that serve most for their cost. They determine how parts are split, and give a lower bound
//! on the cost of any plan.

use super::super::demand::{Fit, Part, SLACK};
use super::super::search::{cheapest_of_types, rounded, same_cost};
use crate::problem::{Device, Problem};

/// Largest total number of pieces that parts are split into.
const PIECES_MAX: usize = 4_096;

/// Returns each part with the solo rate of the gpulet that serves most for its cost.
pub(super) fn efficient<'a>(problem: &'a Problem, parts: &[Part<'a>]) -> Vec<(Part<'a>, f64)> {
    let device_types = cheapest_of_types(problem);
    parts.iter().map(|part| (*part, efficient_rate(problem, &device_types, part).unwrap_or(part.rate))).collect()
}

/// Splits parts into pieces of their most efficient size, for models whose kernels do not fill larger shares. Each
/// piece is planned with `trust` of its solo rate. Returns `None` if no part is split.
pub(super) fn split<'a>(parts: &[(Part<'a>, f64)], trust: f64) -> Option<Vec<Part<'a>>> {
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

/// Returns the solo rate of the gpulet that serves most for its cost.
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

/// Returns a lower bound on the cost of any plan: every request in its cheapest batch and share, on devices without
/// free units.
pub(super) fn least_cost_of_work(problem: &Problem, parts: &[Part<'_>]) -> f64 {
    let device_types = cheapest_of_types(problem);
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

/// Returns the least microseconds of a share per row, in batches that run twice within the objective.
fn least_us_a_row(fit: &Fit<'_>, units: u32, slo_us: f64) -> f64 {
    let times = (1..=fit.batch_max).map_while(|batch| {
        let time = fit.profiled_us(batch, units).filter(|time| 2.0 * time <= slo_us * (1.0 + SLACK))?;
        Some((time - fit.profile.load_us(batch)) / f64::from(batch))
    });
    times.fold(f64::INFINITY, f64::min)
}
