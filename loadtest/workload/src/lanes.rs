//! The lanes of a simulation: their number, noise and failures.

use crate::document::{LanesSection, NoiseSection};
use crate::limits::LANES_MAX;
use crate::overhead::Spans;
use crate::spans::{Span, show};
use units::Fault as WorkloadError;

/// Shortest mean time between stalls in nanoseconds, so that few steps pass a long idle time.
const STALLS_EVERY_MIN: u64 = 1_000_000;

/// The lanes of a simulation. The load generator has a real server and ignores them.
#[derive(Clone, Debug, PartialEq)]
pub struct Lanes {
    /// Number of lanes, which are numbered from 0. For a workload with devices, the number of devices.
    pub count: u32,
    /// Whether each lane has another one on the same device at idle priority, with the number `count` higher: models of best
    /// effort run only there, and their batches stand still while the lane itself runs one.
    pub idle_priority: bool,
    /// How true execution times differ from the profiles.
    pub noise: Noise,
    /// Overhead of a lane between two batches, in addition to the model's own time: hand-over to the lane and back, and
    /// gathering and splitting rows. Zero in a simulation of the scheduler alone.
    pub overhead: Spans,
    /// Failures and recoveries of lanes, in order of time.
    pub changes: Vec<LaneChange>,
}

/// How true execution times differ from the profiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Coefficient of variation of a lognormal factor of mean 1 on every batch; 0 for none.
    pub cv: f64,
    /// Factor between profiled and true times of every model.
    pub bias: f64,
    /// The true time of each model differs from its profile by a fixed factor, drawn from 1 - spread to 1 + spread.
    pub spread: f64,
    /// Stalls of lanes. `None` for no stalls.
    pub stalls: Option<Stalls>,
}

/// Stalls of a lane. A stall lengthens the batch that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    /// Mean nanoseconds from the end of a stall to the start of the next, exponential, each lane on its own.
    pub every: u64,
    /// Nanoseconds that each stall lasts.
    pub time: u64,
}

/// A failure or recovery of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneChange {
    /// Virtual time from the start, in nanoseconds.
    pub at: u64,
    /// Number of the lane.
    pub lane: u32,
    /// True for a recovery, false for a failure.
    pub up: bool,
}

impl Lanes {
    /// Reads the section. `devices` is the number of devices to partition, which is then the number of lanes.
    pub(crate) fn read(section: &LanesSection, devices: Option<u32>) -> Result<Self, WorkloadError> {
        let count = section.count.or(devices).unwrap_or(1);
        if count == 0 || count > LANES_MAX {
            let problem = format!("expected 1 to {LANES_MAX}, got {count}");
            return Err(WorkloadError::new("lanes.count", problem));
        }
        Ok(Self {
            count,
            idle_priority: section.idle_priority,
            noise: Noise::read(&section.noise)?,
            overhead: Spans::read(section.overhead.as_ref(), "lanes.overhead")?,
            changes: read_failures(section, count)?,
        })
    }
}

impl Noise {
    fn read(section: &NoiseSection) -> Result<Self, WorkloadError> {
        let check = |key: &str, value: f64, sound: bool, right: &str| {
            let problem = format!("expected {right}, got {value}");
            if sound { Ok(value) } else { Err(WorkloadError::new(format!("lanes.noise.{key}"), problem)) }
        };
        let (cv, bias) = (section.cv.unwrap_or(0.0), section.bias.unwrap_or(1.0));
        let spread = section.spread.unwrap_or(0.0);
        let stalls =
            section.stalls.as_ref().map(|stalls| Stalls { every: stalls.every.0, time: stalls.time.0 });
        if let Some(stalls) = stalls {
            if stalls.every < STALLS_EVERY_MIN {
                let problem = format!("expected at least 1ms, got {}", show(stalls.every));
                return Err(WorkloadError::new("lanes.noise.stalls.every", problem));
            }
            if stalls.time == 0 {
                return Err(WorkloadError::new("lanes.noise.stalls.time", "expected more than 0"));
            }
        }
        Ok(Self {
            cv: check("cv", cv, (0.0..=10.0).contains(&cv), "0 to 10")?,
            bias: check("bias", bias, bias > 0.0 && bias <= 100.0, "more than 0, at most 100")?,
            spread: check("spread", spread, (0.0..1.0).contains(&spread), "0 to less than 1")?,
            stalls,
        })
    }
}

fn read_failures(section: &LanesSection, count: u32) -> Result<Vec<LaneChange>, WorkloadError> {
    let mut downs: Vec<(u32, u64, u64)> = Vec::new();
    for (position, failure) in section.failures.iter().enumerate() {
        let wrong = |key: &str, problem: String| {
            Err(WorkloadError::new(format!("lanes.failures[{position}].{key}"), problem))
        };
        if failure.lane >= count {
            let last = count - 1;
            return wrong("lane", format!("expected a lane from 0 to {last}, got {}", failure.lane));
        }
        let (Span(from), until) = (failure.from, failure.until.map_or(u64::MAX, |until| until.0));
        if until <= from {
            return wrong("until", format!("expected a time after `from`, got {}", show(until)));
        }
        if downs.iter().any(|&(lane, other, end)| lane == failure.lane && from <= end && other <= until) {
            return wrong("from", format!("lane {} is already down at that time", failure.lane));
        }
        downs.push((failure.lane, from, until));
    }
    let changes = downs.into_iter().flat_map(|(lane, from, until)| {
        let back = (until < u64::MAX).then_some(LaneChange { at: until, lane, up: true });
        [Some(LaneChange { at: from, lane, up: false }), back]
    });
    let mut changes: Vec<LaneChange> = changes.flatten().collect();
    changes.sort_unstable();
    Ok(changes)
}
