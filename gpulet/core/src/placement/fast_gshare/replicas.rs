//! How many replicas of which shape a workload gets: the heuristic autoscaling of FaST-GShare.
//!
//! T is the requests per second that a replica serves, RPR (requests per resource) is T per area. If the rate exceeds
//! what runs, n = floor(excess / T) replicas of the shape with the best RPR are added. What remains gets the shape with
//! the smallest T that covers it, else one more of the best. If the rate falls below what runs, the replicas with the
//! lowest RPR are removed first, as long as the others cover the rate.

use std::collections::BTreeMap;

use super::super::demand::{Fit, Part, SLACK};
use super::super::rectangles::Rectangle;
use super::super::site::worst_in_window;
use super::{PARTS, length_us};
use crate::plan::{Gpulet, Plan, Slot, Window};
use crate::problem::{Device, Problem};

/// Largest number of replicas of a workload.
const REPLICAS_MAX: usize = 65_536;

/// Shape of a replica and what it serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub units: u32,
    /// Parts of a period.
    pub quota: u32,
    pub batch: u32,
    /// T: requests per second that it serves, or that are sent to it.
    pub rate: f64,
}

impl Shape {
    pub fn area(&self) -> u32 {
        self.units.saturating_mul(self.quota)
    }

    fn efficiency(&self) -> f64 {
        self.rate / f64::from(self.area())
    }
}

/// A replica of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replica<'a> {
    pub part: Part<'a>,
    pub shape: Shape,
}

/// Every shape that keeps the objective of a workload, with the largest batch that does.
#[derive(Clone, Debug)]
pub(super) struct Shapes(Vec<Shape>);

impl Shapes {
    /// Batches take at most half a period, so that no other replica waits for longer.
    pub fn of(fit: &Fit<'_>, part: &Part<'_>, period_us: f64, limit: f64) -> Self {
        let mut found = Vec::new();
        for units in &fit.device_type.sizes {
            for quota in 1..=PARTS {
                let length = length_us(quota, period_us);
                let other = period_us / 2.0;
                let used_up = (1.0 - limit.max(f64::from(quota) / f64::from(PARTS))).max(0.0) * period_us;
                let window = Window { period_us, offset_us: 0.0, length_us: length, limit_us: Some(period_us - used_up) };
                let worst = |time: f64| worst_in_window(&window, time, other);
                let in_time = |_, time: f64| {
                    let fits = time <= length.min(other) * (1.0 + SLACK);
                    fits && worst(time) <= part.workload.slo_us * (1.0 + SLACK)
                };
                let Some((batch, time)) = fit.largest_batch(*units, in_time) else { continue };
                let batches = (length / time * (1.0 + SLACK)).floor();
                found.push(Shape { units: *units, quota, batch, rate: 1e6 * batches * f64::from(batch) / period_us });
            }
        }
        Self(found)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the replicas that serve a rate.
    pub fn replicas(&self, rate: f64) -> Option<Vec<Shape>> {
        let best = self.0.iter().max_by(|left, right| left.efficiency().total_cmp(&right.efficiency()))?;
        let mut chosen = Vec::new();
        let mut left = rate;
        while left >= best.rate {
            chosen.push(*best);
            left -= best.rate;
            if chosen.len() > REPLICAS_MAX {
                return None;
            }
        }
        if left > SLACK * rate || chosen.is_empty() {
            let serving = self.0.iter().filter(|shape| shape.rate >= left);
            let least = serving.min_by(|a, b| a.rate.total_cmp(&b.rate).then(a.area().cmp(&b.area())));
            chosen.push(Shape { rate: left, ..*least.unwrap_or(best) });
        }
        Some(chosen)
    }

    /// Returns the place and the shape of a running replica, or `None` if this policy would not make it.
    pub fn running(&self, gpulet: &Gpulet, slot: &Slot, period_us: f64) -> Option<(Rectangle, Shape)> {
        let window = gpulet.window.filter(|window| (window.period_us - period_us).abs() <= SLACK * period_us)?;
        let parts = |time_us: f64| {
            let parts = time_us / period_us * f64::from(PARTS);
            let whole = (0..=PARTS).find(|whole| (f64::from(*whole) - parts).abs() <= f64::from(PARTS) * SLACK)?;
            Some(whole)
        };
        let (left, quota) = (parts(window.offset_us)?, parts(window.length_us)?);
        let known = self.0.iter().find(|shape| (shape.units, shape.quota) == (gpulet.units, quota))?;
        let at = Rectangle { left, bottom: gpulet.first_unit, across: quota, up: gpulet.units };
        (gpulet.slots.len() == 1 && slot.batch == known.batch).then_some((at, *known))
    }

    /// Removes running replicas that the rate does not need, and returns those that it lacks.
    pub fn scale(&self, running: &mut Vec<(&Device, Rectangle, Replica<'_>)>, rate: f64) -> Option<Vec<Shape>> {
        let served = |(_, _, replica): &(&Device, Rectangle, Replica<'_>)| replica.shape.rate;
        let mut excess = running.iter().map(served).sum::<f64>() - rate;
        // The queue of replicas by RPR, the least efficient last.
        running.sort_by(|(_, _, one), (_, _, other)| other.shape.efficiency().total_cmp(&one.shape.efficiency()));
        while running.len() > 1 && running.last().is_some_and(|last| excess >= served(last)) {
            excess -= running.pop().as_ref().map_or(0.0, served);
        }
        if excess >= -SLACK * rate && !running.is_empty() { Some(Vec::new()) } else { self.replicas(-excess) }
    }
}

/// Divides the rate of each workload among its gpulets in proportion to what they serve.
pub(super) fn share(plan: &mut Plan, problem: &Problem) {
    let served = |window: Option<Window>, slot: &Slot| {
        let window = window?;
        let batches = (window.length_us / slot.budget_us * (1.0 + SLACK)).floor().max(1.0);
        Some(batches * f64::from(slot.batch) / window.period_us)
    };
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for gpulet in &plan.gpulets {
        for slot in &gpulet.slots {
            *sums.entry(slot.workload.clone()).or_default() += served(gpulet.window, slot).unwrap_or(0.0);
        }
    }
    let wanted: BTreeMap<&str, f64> =
        problem.workloads().iter().map(|workload| (workload.name.as_str(), workload.wanted())).collect();
    for gpulet in &mut plan.gpulets {
        for slot in &mut gpulet.slots {
            let share = served(gpulet.window, slot).zip(sums.get(&slot.workload)).map(|(own, all)| own / all);
            slot.rate = share.unwrap_or(0.0) * wanted.get(slot.workload.as_str()).copied().unwrap_or(0.0);
        }
    }
}
