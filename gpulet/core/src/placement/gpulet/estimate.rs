//! The gpulets that a model needs: how many, of which size, with which batch.

use super::super::demand::{Fit, Part, SLACK};
use super::rules::Rules;
use crate::problem::DeviceType;

/// Throughput gain, as a factor, from which a larger size counts as a step.
const STEP: f64 = 1.05;
/// Factor by which the released program shortens the cycle of a light rate.
const LIGHT: f64 = 1.1;
/// Largest number of gpulets of one model. A rate that needs more is not served.
const WANTED_MAX: usize = 4_096;

/// The paper's sizes, percent of a device.
const SIZES_PCT: [u32; 6] = [20, 40, 50, 60, 80, 100];

/// Returns the legal sizes if they are few, else those of the paper. A step between fine sizes gains too little to
/// find the knee.
pub(super) fn sizes(device_type: &DeviceType) -> Vec<u32> {
    if device_type.sizes.len() <= SIZES_PCT.len() {
        return device_type.sizes.clone();
    }
    let size = |pct| device_type.size_for(device_type.units.saturating_mul(pct).div_ceil(100));
    let mut sizes: Vec<u32> = SIZES_PCT.into_iter().filter_map(size).collect();
    sizes.extend(sizes.is_empty().then(|| device_type.size_most()));
    sizes.dedup();
    sizes
}

/// A gpulet that a model needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Wanted {
    pub units: u32,
    pub batch: u32,
    /// Time in which a batch arrives, microseconds; `None` for a saturated gpulet, which runs batch after batch.
    pub duty_us: Option<f64>,
    /// Requests per second.
    pub rate: f64,
}

fn solo_us(rules: Rules, fit: &Fit<'_>, batch: u32, units: u32) -> Option<f64> {
    Some(rules.margin * fit.solo_us(batch, units)?)
}

/// Returns the largest batch of a saturated gpulet, and the requests per second that it serves.
fn saturated(rules: Rules, fit: &Fit<'_>, part: &Part<'_>, units: u32) -> Option<(u32, f64)> {
    let (batch, time) = rules.saturated(fit, part, |batch| solo_us(rules, fit, batch, units))?;
    Some((batch, 1e6 * f64::from(batch) / time))
}

/// Returns the size with the largest marginal gain of throughput. As in the released program, the last step does not
/// count.
fn knee(rules: Rules, fit: &Fit<'_>, part: &Part<'_>) -> u32 {
    let sizes = sizes(fit.device_type);
    let rate = |size: &u32| (*size, saturated(rules, fit, part, *size).map_or(0.0, |(_, rate)| rate));
    let rates: Vec<(u32, f64)> = sizes.iter().map(rate).collect();
    let first = rates.iter().find(|(_, rate)| *rate > 0.0);
    let steps = rates.iter().zip(rates.iter().skip(1)).take(sizes.len().saturating_sub(2));
    let mut best = (0.0, first.map_or_else(|| fit.device_type.size_most(), |(size, _)| *size));
    for ((small, low), (large, high)) in steps.filter(|((_, low), (_, high))| *high >= STEP * low) {
        let gain = (high - low) / f64::from(large.saturating_sub(*small));
        if gain > best.0 {
            best = (gain, *large);
        }
    }
    best.1
}

/// Returns the gpulets for a rate, largest first: saturated ones at the knee, and a smaller one for the residue.
pub(super) fn wanted(rules: Rules, fit: &Fit<'_>, part: &Part<'_>) -> Vec<Wanted> {
    let knee = knee(rules, fit, part);
    let Some((batch, full)) = saturated(rules, fit, part, knee) else { return Vec::new() };
    let mut wanted = Vec::new();
    let mut left = part.rate;
    while rules.counts(part, left) && wanted.len() < WANTED_MAX {
        if full >= left {
            wanted.extend(residue(rules, fit, part, knee, left));
            break;
        }
        wanted.push(Wanted { units: knee, batch, duty_us: None, rate: full });
        left -= full;
    }
    wanted.sort_by_key(|wanted| std::cmp::Reverse(wanted.units));
    wanted
}

/// Returns the largest batch that arrives and runs within the objective, the time in which it arrives, and the rate
/// that this serves. A rate too light to gather a batch of one has the time that its objective leaves.
pub(super) fn gathered(
    rules: Rules,
    part: &Part<'_>,
    rate: f64,
    batch_max: u32,
    time_us: impl Fn(u32) -> Option<f64>,
) -> Option<(u32, f64, f64)> {
    let slo_us = part.workload.slo_us;
    let gather = |batch: u32| 1e6 * f64::from(batch) / rate;
    let in_time = |batch: u32| (time_us(batch)? + gather(batch) <= slo_us).then_some(batch);
    if let Some(batch) = (1..=batch_max).map_while(in_time).last() {
        return Some((batch, gather(batch), rate));
    }
    let time = time_us(1).filter(|time| *time < gather(1) && *time < slo_us)?;
    let duty_us = (slo_us - time) / if rules.released { LIGHT } else { 1.0 };
    Some((1, duty_us, if rules.released { 1e6 / duty_us } else { rate }))
}

/// Returns the smallest gpulet that serves a rate below saturation.
fn residue(rules: Rules, fit: &Fit<'_>, part: &Part<'_>, knee: u32, rate: f64) -> Option<Wanted> {
    let slo_us = part.workload.slo_us * (1.0 + SLACK);
    let time_us = |batch, units| solo_us(rules, fit, batch, units);
    let (batch, duty_us, rate) = gathered(rules, part, rate, fit.batch_max, |batch| time_us(batch, knee))?;
    // The gpulet of a light rate has time left when a batch is complete, so it may be slower.
    let light = !rules.released && rate * duty_us < 1e6 * f64::from(batch) * (1.0 - SLACK);
    let in_time = |units: &u32| {
        let time = time_us(batch, *units);
        time.is_some_and(|time| time <= duty_us && time + if light { time } else { duty_us } <= slo_us)
    };
    let sizes = sizes(fit.device_type);
    let smaller = sizes.into_iter().rev().filter(|size| *size <= knee);
    let units = smaller.take_while(in_time).last().unwrap_or(knee);
    let time = time_us(batch, units)?;
    let duty_us = if light { duty_us.min(part.workload.slo_us - time) } else { duty_us };
    Some(Wanted { units, batch, duty_us: Some(duty_us.max(time)), rate })
}
