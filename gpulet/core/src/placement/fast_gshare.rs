//! FaST-GShare (Gu et al., ICPP 2023): replicas are rectangles, a share of the units for a part of every period, and
//! devices are filled with maximal rectangles.
//!
//! Each workload gets replicas of the shape with the most requests per second per area, and one smaller shape for the
//! remaining rate. Replicas may own the same units at different times, so light models share. A request may have to
//! wait for its window, and the policy does not consider interference. Large shapes go first; the paper places pods
//! in order of arrival.

use super::Placement;
use super::demand::{Fit, Part, SLACK, Unplaced, parts};
use super::rectangles::{Rectangle, Space};
use super::site::{Floor, Lane, Piece, Site};
use crate::plan::{Plan, Window};
use crate::problem::{Device, Problem};

/// Number of parts of a period that quotas are counted in; the paper profiles fifths.
const PARTS: u32 = 10;

/// Rectangles of units and time quota.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FastGshare {
    /// Microseconds after which the windows recur. `None` means half the shortest objective, so that a request that
    /// misses one window still meets its objective.
    pub period_us: Option<f64>,
}

/// Shape of a replica and what it serves.
#[derive(Clone, Copy, Debug)]
struct Shape {
    units: u32,
    quota: u32,
    batch: u32,
    rate: f64,
}

impl Shape {
    fn area(&self) -> u32 {
        self.units.saturating_mul(self.quota)
    }
}

fn length_us(quota: u32, period_us: f64) -> f64 {
    period_us * f64::from(quota) / f64::from(PARTS)
}

/// Returns every shape that keeps the objective, with the largest batch that does.
fn shapes(fit: &Fit<'_>, part: &Part<'_>, period_us: f64) -> Vec<Shape> {
    let mut found = Vec::new();
    for units in &fit.device_type.sizes {
        for quota in 1..=PARTS {
            let length = length_us(quota, period_us);
            let worst = |time: f64| (period_us - length + 3.0 * time).min(period_us + time);
            let in_time = |_, time: f64| time <= length && worst(time) <= part.workload.slo_us * (1.0 + SLACK);
            let Some((batch, time)) = fit.largest_batch(*units, in_time) else { continue };
            let batches = (length / time * (1.0 + SLACK)).floor();
            found.push(Shape { units: *units, quota, batch, rate: 1e6 * batches * f64::from(batch) / period_us });
        }
    }
    found
}

/// Returns as many replicas of the most efficient shape as the rate fills, and the smallest shape that serves the
/// rest.
fn replicas(fit: &Fit<'_>, part: &Part<'_>, period_us: f64) -> Option<Vec<Shape>> {
    let shapes = shapes(fit, part, period_us);
    let efficiency = |shape: &Shape| shape.rate / f64::from(shape.area());
    let best = shapes.iter().max_by(|left, right| efficiency(left).total_cmp(&efficiency(right)))?;
    let mut chosen = Vec::new();
    let mut left = part.rate;
    while left >= best.rate {
        chosen.push(*best);
        left -= best.rate;
        if chosen.len() > usize::from(u16::MAX) {
            return None;
        }
    }
    if left > SLACK * part.rate || chosen.is_empty() {
        let serving = shapes.iter().filter(|shape| shape.rate >= left);
        let least = serving.min_by(|a, b| a.area().cmp(&b.area()).then(a.rate.total_cmp(&b.rate)))?;
        chosen.push(Shape { rate: left, ..*least });
    }
    Some(chosen)
}

fn lane<'a>(fit: Fit<'a>, part: Part<'a>, shape: &Shape, at: Rectangle, period_us: f64) -> Lane<'a> {
    let window = Window {
        period_us,
        offset_us: length_us(at.left, period_us),
        length_us: length_us(shape.quota, period_us),
    };
    let piece = Piece { part: part.at_rate(shape.rate), fit, batch: shape.batch };
    Lane { placed: Some((at.bottom, window)), ..Lane::dedicated(piece, shape.units) }
}

impl Placement for FastGshare {
    const NAME: &'static str = "fast-gshare";
    const ABOUT: &'static str = "rectangles of units by time, packed with the maximal-rectangles algorithm (FaST-GShare)";

    fn place(&self, problem: &Problem) -> Result<Plan, Unplaced> {
        filled(problem, self.period_us).map(|floor| floor.plan())
    }
}

/// Returns the devices as this policy fills them.
pub(super) fn filled(problem: &Problem, period_us: Option<f64>) -> Result<Floor<'_>, Unplaced> {
        let objectives = problem.workloads().iter().map(|workload| workload.slo_us);
        let period_us = period_us.unwrap_or_else(|| objectives.reduce(f64::min).unwrap_or(1e6) / 2.0);
        let mut floor = Floor::new(problem);
        let mut pods: Vec<(Part<'_>, Shape)> = Vec::new();
        for part in parts(problem) {
            let fits = problem.devices().iter().filter_map(|device| part.on(problem, &device.device_type));
            let chosen = fits.filter_map(|fit| replicas(&fit, &part, period_us)).next();
            let chosen = chosen.ok_or_else(|| Unplaced::of(part.workload))?;
            pods.extend(chosen.into_iter().map(|shape| (part, shape)));
        }
        pods.sort_by_key(|(_, shape)| std::cmp::Reverse((shape.area(), shape.quota)));
        let mut spaces: Vec<Space> = Vec::new();
        for (part, shape) in pods {
            let held = spaces.iter().zip(&floor.sites).enumerate().find_map(|(at, (space, site))| {
                let lanes = joined(&floor, space, site, part, &shape, period_us)?;
                Some((at, lanes))
            });
            if let Some((at, (taken, lanes))) = held {
                floor.replace(at, lanes, part);
                spaces.iter_mut().skip(at).take(1).for_each(|space| space.take(taken));
                continue;
            }
            let opened = floor.candidates(&part).find_map(|device: &Device| {
                let space = Space::new(PARTS, device.device_type.units);
                let site = Site { device, lanes: Vec::new() };
                let (taken, lanes) = joined(&floor, &space, &site, part, &shape, period_us)?;
                Some((device, space, taken, lanes))
            });
            let (device, mut space, taken, lanes) = opened.ok_or_else(|| Unplaced::of(part.workload))?;
            space.take(taken);
            floor.open(device, lanes);
            spaces.push(space);
        }
        Ok(floor)
}

/// Returns the lanes of a device with one more pod, if it has a free rectangle and memory, and tenants allow it.
fn joined<'a>(
    floor: &Floor<'a>,
    space: &Space,
    site: &Site<'a>,
    part: Part<'a>,
    shape: &Shape,
    period_us: f64,
) -> Option<(Rectangle, Vec<Lane<'a>>)> {
    if !floor.admits(site.device, &part) {
        return None;
    }
    let fit = part.on(floor.problem, &site.device.device_type)?;
    let taken = space.find(shape.quota, shape.units)?;
    let mut trial = site.clone();
    trial.lanes.push(lane(fit, part, shape, taken, period_us));
    trial.fits().then_some((taken, trial.lanes))
}
