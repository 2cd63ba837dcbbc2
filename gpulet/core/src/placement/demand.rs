//! Workloads as planners take them: in parts that must not share a fate, with the batches and shares that would do.

use crate::interference::Runner;
use crate::problem::{DeviceType, Problem, Workload};
use crate::profile::Profile;

/// Part of a limit that a sum of floating-point numbers may be beyond it.
pub(super) const SLACK: f64 = 1e-10;

/// The workload that found no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unplaced {
    pub workload: String,
}

impl Unplaced {
    pub fn of(workload: &Workload) -> Self {
        Self { workload: workload.name.clone() }
    }
}

/// A share of a workload's rate. Different parts of one workload go to different fault domains, where it has to be in
/// more than one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub workload: &'a Workload,
    /// Its number among the parts of the workload.
    pub part: u32,
    /// Requests a second.
    pub rate: f64,
}

/// The parts of all workloads that need a place, in the problem's order.
pub(super) fn parts(problem: &Problem) -> Vec<Part<'_>> {
    let needed = problem.workloads().iter().filter(|workload| workload.is_needed());
    needed.flat_map(parts_of).collect()
}

/// The parts of a workload, one a replica.
pub(super) fn parts_of(workload: &Workload) -> impl Iterator<Item = Part<'_>> {
    let count = workload.replicas_min.max(1);
    let rate = workload.wanted() / f64::from(count);
    (0..count).map(move |part| Part { workload, part, rate })
}

impl<'a> Part<'a> {
    /// The same part with another rate.
    pub fn at_rate(self, rate: f64) -> Self {
        Self { rate, ..self }
    }

    /// What is known of it on that device type.
    pub fn on(self, problem: &'a Problem, device_type: &'a DeviceType) -> Option<Fit<'a>> {
        let profile = problem.profile(self.workload, device_type)?;
        let batch_max = self.workload.batch_max.min(profile.batches().1);
        (batch_max > 0).then_some(Fit { problem, device_type, profile, batch_max })
    }
}

/// A workload on a device type, alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit<'a> {
    pub problem: &'a Problem,
    pub device_type: &'a DeviceType,
    pub profile: &'a Profile,
    /// The largest batch that is known and allowed.
    pub batch_max: u32,
}

impl Fit<'_> {
    /// Microseconds of a batch as profiled; none where nothing is known.
    pub fn profiled_us(&self, batch: u32, units: u32) -> Option<f64> {
        self.problem.solo_us(self.profile, batch, units).ok()
    }

    /// Microseconds of a batch that has the device to itself; none where nothing is known. A single batch can reach
    /// the power cap by itself.
    pub fn solo_us(&self, batch: u32, units: u32) -> Option<f64> {
        let runner = Runner { profile: self.profile, batch, units };
        Some(self.profiled_us(batch, units)? * self.problem.interference().slowdown(&runner, &[]))
    }

    /// The largest batch up to the limit that `accepts` takes with its time alone; batches are tried from 1 on until
    /// one is refused, so what is asked must be harder the larger the batch.
    pub fn largest_batch(&self, units: u32, accepts: impl Fn(u32, f64) -> bool) -> Option<(u32, f64)> {
        let taken = |batch| {
            let time = self.solo_us(batch, units)?;
            accepts(batch, time).then_some((batch, time))
        };
        let mut best = taken(1)?;
        let (mut low, mut high) = (1, self.batch_max);
        while low < high {
            let middle = low.saturating_add(high).div_ceil(2);
            match taken(middle) {
                Some(found) => (low, best) = (middle, found),
                None => high = middle.saturating_sub(1),
            }
        }
        Some(best)
    }

    /// The smallest legal size on which a batch alone takes at most so long.
    pub fn smallest_size(&self, batch: u32, within_us: f64) -> Option<u32> {
        let fits = |size: u32| self.solo_us(batch, size).is_some_and(|time| time <= within_us);
        let sizes = &self.device_type.sizes;
        // Small shares may lie outside what was measured; beyond them, time only falls.
        let known = sizes.iter().position(|size| self.solo_us(batch, *size).is_some())?;
        let (unknown, known) = sizes.split_at(known);
        let at = known.partition_point(|size| !fits(*size));
        debug_assert!(unknown.iter().all(|size| !fits(*size)), "a size is unknown and fits");
        known.get(at).copied()
    }

    /// Rows that arrive in so many microseconds.
    pub fn rows_in(rate: f64, time_us: f64) -> u32 {
        let rows = (rate * time_us / 1e6 * (1.0 - SLACK)).ceil().clamp(1.0, f64::from(u32::MAX));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
        let rows = rows as u32;
        rows
    }
}
