//! FaST-GShare (Gu et al., ICPP 2023): replicas are rectangles, a share of the units for a part of every period, and
//! devices are filled with maximal rectangles.
//!
//! The heuristic of the paper adds and removes replicas of the plan in force (`replicas`): those with the most requests
//! per second per area are added first, and those with the fewest are removed first. What stays keeps its place. If
//! the new replicas do not fit around it, all are placed again, the largest first; the paper places them in order of
//! arrival.
//!
//! Replicas may own the same units at different times, so light models share. A request may have to wait for its place
//! in the period, and for a batch that uses the time that others leave. The policy does not consider interference.

mod replicas;

use super::Placement;
use super::demand::{Part, Unplaced, parts};
use super::rectangles::{Rectangle, Space};
use super::site::{Floor, Lane, Piece, Site};
use crate::plan::{Plan, Window};
use crate::problem::{Device, Problem};
use replicas::{Replica, Shape, Shapes};

/// Number of parts of a period that quotas are counted in; the paper profiles fifths.
const PARTS: u32 = 10;

/// Rectangles of units and time quota.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FastGshare {
    /// Microseconds after which the windows recur. `None`: as long as the shortest objective allows. A request that
    /// misses its place may wait for a period, half a period for the batch of another replica, and half a period for
    /// its own batch.
    pub period_us: Option<f64>,
    /// Most time of a replica in every period, as a part of the period. Less than its quota counts as its quota.
    pub limit: f64,
}

impl Default for FastGshare {
    /// Replicas may use all the time that others leave.
    fn default() -> Self {
        Self { period_us: None, limit: 1.0 }
    }
}

impl FastGshare {
    fn period_us(&self, problem: &Problem) -> f64 {
        let objectives = problem.workloads().iter().map(|workload| workload.slo_us);
        // After it has used up its limit, a replica may have to wait for the rest of the period as well.
        let periods = 2.0 + (1.0 - self.limit.clamp(0.0, 1.0));
        self.period_us.unwrap_or_else(|| objectives.reduce(f64::min).unwrap_or(1e6) / periods)
    }

    fn window(&self, shape: &Shape, at: Rectangle, period_us: f64) -> Window {
        let (offset_us, length_us) = (length_us(at.left, period_us), length_us(shape.quota, period_us));
        let limit_us = (self.limit < 1.0).then(|| (self.limit * period_us).max(length_us));
        Window { period_us, offset_us, length_us, limit_us }
    }

    fn lane<'a>(&self, problem: &'a Problem, device: &'a Device, replica: &Replica<'a>, at: Rectangle) -> Option<Lane<'a>> {
        let Replica { part, shape } = replica;
        let fit = part.on(problem, &device.device_type)?;
        let window = self.window(shape, at, self.period_us(problem));
        let piece = Piece { part: part.at_rate(shape.rate), fit, batch: shape.batch };
        Some(Lane { placed: Some((at.bottom, window)), ..Lane::dedicated(piece, shape.units) })
    }
}

fn length_us(quota: u32, period_us: f64) -> f64 {
    period_us * f64::from(quota) / f64::from(PARTS)
}

impl Placement for FastGshare {
    const NAME: &'static str = "fast-gshare";
    const ABOUT: &'static str = "rectangles of units by time, packed with the maximal-rectangles algorithm (FaST-GShare)";

    fn place(&self, problem: &Problem) -> Result<Plan, Unplaced> {
        if let Some(plan) = problem.current().and_then(|current| self.scaled(problem, current)) {
            return Ok(plan);
        }
        filled(problem, self).map(|floor| floor.plan())
    }
}

/// Devices with their free rectangles.
struct Packing<'a> {
    floor: Floor<'a>,
    /// Of each site of the floor.
    spaces: Vec<Space>,
}

impl<'a> Packing<'a> {
    fn new(problem: &'a Problem) -> Self {
        Self { floor: Floor::new(problem), spaces: Vec::new() }
    }

    /// Places a replica on the first device with a free rectangle, used ones first.
    fn add(&mut self, policy: &FastGshare, replica: &Replica<'a>) -> Result<(), Unplaced> {
        let Replica { part, .. } = replica;
        let held = self.spaces.iter().zip(&self.floor.sites).enumerate().find_map(|(at, (space, site))| {
            Some((at, self.joined(policy, space, site, replica)?))
        });
        if let Some((at, (taken, lanes))) = held {
            self.floor.replace(at, lanes, *part);
            self.spaces.iter_mut().skip(at).take(1).for_each(|space| space.take(taken));
            return Ok(());
        }
        let opened = self.floor.candidates(part).find_map(|device: &Device| {
            let space = Space::new(PARTS, device.device_type.units);
            let site = Site { device, lanes: Vec::new() };
            let (taken, lanes) = self.joined(policy, &space, &site, replica)?;
            Some((device, space, taken, lanes))
        });
        let (device, mut space, taken, lanes) = opened.ok_or_else(|| Unplaced::of(part.workload))?;
        space.take(taken);
        self.floor.open(device, lanes);
        self.spaces.push(space);
        Ok(())
    }

    /// Returns the lanes of a device with one more replica, if it has a free rectangle and memory, and tenants allow
    /// it.
    fn joined(
        &self,
        policy: &FastGshare,
        space: &Space,
        site: &Site<'a>,
        replica: &Replica<'a>,
    ) -> Option<(Rectangle, Vec<Lane<'a>>)> {
        if !self.floor.admits(site.device, &replica.part) {
            return None;
        }
        let taken = space.find(replica.shape.quota, replica.shape.units)?;
        let mut trial = site.clone();
        trial.lanes.push(policy.lane(self.floor.problem, site.device, replica, taken)?);
        trial.fits().then_some((taken, trial.lanes))
    }

    /// Adds replicas, the largest first.
    fn add_all(&mut self, policy: &FastGshare, mut replicas: Vec<Replica<'a>>) -> Result<(), Unplaced> {
        replicas.sort_by_key(|replica| std::cmp::Reverse((replica.shape.area(), replica.shape.quota)));
        replicas.iter().try_for_each(|replica| self.add(policy, replica))
    }
}

/// Returns the devices as this policy fills them from scratch.
pub(super) fn filled<'a>(problem: &'a Problem, policy: &FastGshare) -> Result<Floor<'a>, Unplaced> {
    let mut replicas = Vec::new();
    for part in parts(problem) {
        let chosen = policy.shapes(problem, &part).and_then(|shapes| shapes.replicas(part.rate));
        let chosen = chosen.ok_or_else(|| Unplaced::of(part.workload))?;
        replicas.extend(chosen.into_iter().map(|shape| Replica { part, shape }));
    }
    let mut packing = Packing::new(problem);
    packing.add_all(policy, replicas)?;
    Ok(packing.floor)
}

impl FastGshare {
    /// Returns the shapes of a part on the first device type that keeps its objective.
    fn shapes(&self, problem: &Problem, part: &Part<'_>) -> Option<Shapes> {
        let fits = problem.devices().iter().filter_map(|device| part.on(problem, &device.device_type));
        fits.map(|fit| Shapes::of(&fit, part, self.period_us(problem), self.limit)).find(|shapes| !shapes.is_empty())
    }

    /// The plan in force with replicas added and removed. `None` if it has others than this policy makes, or if the new
    /// replicas do not fit around those that stay.
    fn scaled(&self, problem: &Problem, current: &Plan) -> Option<Plan> {
        // Parts of a workload must be in different fault domains, which says more than a number of replicas.
        if problem.workloads().iter().any(|workload| workload.replicas_min > 1) {
            return None;
        }
        let period_us = self.period_us(problem);
        let mut packing = Packing::new(problem);
        let mut added = Vec::new();
        let mut stays: Vec<(&Device, Rectangle, Replica<'_>)> = Vec::new();
        for part in parts(problem) {
            let shapes = self.shapes(problem, &part)?;
            let mut running = Vec::new();
            for (gpulet, slot) in current.slots_of(&part.workload.name) {
                let device = problem.devices().iter().find(|device| device.name == gpulet.device)?;
                let (at, shape) = shapes.running(gpulet, slot, period_us)?;
                running.push((device, at, Replica { part, shape }));
            }
            added.extend(shapes.scale(&mut running, part.rate)?.into_iter().map(|shape| Replica { part, shape }));
            stays.extend(running);
        }
        for device in problem.devices() {
            let own = stays.iter().filter(|(on, ..)| std::ptr::eq(*on, device));
            let mut space = Space::new(PARTS, device.device_type.units);
            let mut lanes = Vec::new();
            for (_, at, replica) in own {
                space.take(*at);
                lanes.push(self.lane(problem, device, replica, *at)?);
            }
            let site = Site { device, lanes };
            if !site.lanes.is_empty() {
                if !site.fits() {
                    return None;
                }
                packing.floor.open(device, site.lanes);
                packing.spaces.push(space);
            }
        }
        packing.add_all(self, added).ok()?;
        let mut plan = packing.floor.plan();
        replicas::share(&mut plan, problem);
        Some(plan)
    }
}
