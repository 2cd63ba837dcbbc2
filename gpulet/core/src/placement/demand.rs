//! Workloads as planners use them: split into parts for different fault domains, with sufficient batches and shares.

use crate::interference::Runner;
use crate::problem::{DeviceType, Problem, Workload};
use crate::profile::Profile;

/// Relative tolerance for sums of floating-point numbers.
pub(super) const SLACK: f64 = 1e-10;

/// The workload that cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unplaced {
    pub workload: String,
}

impl Unplaced {
    pub fn of(workload: &Workload) -> Self {
        Self { workload: workload.name.clone() }
    }

    /// A plan failed, and no part of a workload is left over.
    pub fn unknown() -> Self {
        invariant::violated!("placement.failure_without_workload");
        Self { workload: String::new() }
    }
}

/// A part of a workload's rate. The parts of a workload that needs several fault domains go to different ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub workload: &'a Workload,
    /// Index among the parts of the workload.
    pub part: u32,
    /// Requests per second.
    pub rate: f64,
}

/// Returns the parts of all workloads that must be placed, in the problem's order.
pub(super) fn parts(problem: &Problem) -> Vec<Part<'_>> {
    let needed = problem.workloads().iter().filter(|workload| workload.is_needed());
    needed.flat_map(parts_of).collect()
}

/// Returns the parts of a workload, one for each replica.
pub(super) fn parts_of(workload: &Workload) -> impl Iterator<Item = Part<'_>> {
    let count = workload.replicas_min.max(1);
    let rate = workload.wanted() / f64::from(count);
    (0..count).map(move |part| Part { workload, part, rate })
}

impl<'a> Part<'a> {
    /// Returns the same part with another rate.
    pub fn at_rate(self, rate: f64) -> Self {
        Self { rate, ..self }
    }

    /// Returns the part with its profile on that device type, if there is one.
    pub fn on(self, problem: &'a Problem, device_type: &'a DeviceType) -> Option<Fit<'a>> {
        let profile = problem.profile(self.workload, device_type)?;
        let batch_max = self.workload.batch_max.min(profile.batches().1);
        (batch_max > 0).then_some(Fit { problem, device_type, profile, batch_max })
    }
}

/// A workload solo on a device type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit<'a> {
    pub problem: &'a Problem,
    pub device_type: &'a DeviceType,
    pub profile: &'a Profile,
    /// Largest batch that is profiled and allowed.
    pub batch_max: u32,
}

impl Fit<'_> {
    /// Returns the profiled microseconds of a batch, or `None` outside the profile.
    pub fn profiled_us(&self, batch: u32, units: u32) -> Option<f64> {
        self.problem.solo_us(self.profile, batch, units).ok()
    }

    /// Returns the microseconds of a batch solo on the device, or `None` outside the profile. A single batch can
    /// reach the power cap.
    pub fn solo_us(&self, batch: u32, units: u32) -> Option<f64> {
        let runner = Runner { profile: self.profile, batch, units };
        Some(self.profiled_us(batch, units)? * self.problem.interference().slowdown(&runner, &[]))
    }

    /// Returns the largest batch that `accepts` takes, with its solo time. Tries batches from 1 upwards and stops at
    /// the first rejection, so the condition must be harder for larger batches.
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

    /// Returns the smallest legal size on which a solo batch takes at most `within_us`.
    pub fn smallest_size(&self, batch: u32, within_us: f64) -> Option<u32> {
        let fits = |size: u32| self.solo_us(batch, size).is_some_and(|time| time <= within_us);
        let sizes = &self.device_type.sizes;
        // Small shares, or all, may be outside the profile. On larger shares, time only falls.
        let known = sizes.iter().position(|size| self.solo_us(batch, *size).is_some())?;
        let (unknown, known) = sizes.split_at(known);
        let at = known.partition_point(|size| !fits(*size));
        debug_assert!(unknown.iter().all(|size| !fits(*size)), "a size is unknown and fits");
        known.get(at).copied()
    }

    /// Returns the rows that arrive in `time_us` microseconds, rounded up.
    pub fn rows_in(rate: f64, time_us: f64) -> u32 {
        let rows = (rate * time_us / 1e6 * (1.0 - SLACK)).ceil().clamp(1.0, f64::from(u32::MAX));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
        let rows = rows as u32;
        rows
    }
}
