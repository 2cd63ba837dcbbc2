//! Stages: changes of the offered load while a workload is played.
//!
//! A workload has its own nominal time, in which the seed determines when requests arrive. Stages set how fast that
//! time passes: at a factor of 2 the same requests arrive twice as fast. A ramp therefore changes only the rate. The
//! same requests arrive in the same order under any stages.

use std::fmt;
use std::str::FromStr;

use crate::arrivals::{Arrivals, Offered};
use crate::limits::DURATION_MAX;
use crate::spans::{Span, show};
use units::Fault as WorkloadError;

/// Upper bound on the number of stages.
const STAGES_MAX: usize = 1_000;

/// Largest factor.
const FACTOR_MAX: f64 = 1e6;

/// A period of real time in which the factor changes linearly from one value to another.
///
/// As text: `10s:0..1` for a ramp, `30s:2` for a constant factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// Multiple of the workload's rate at the start; 0 for a pause.
    pub from: f64,
    /// Multiple of the workload's rate at the end.
    pub to: f64,
    /// Length in nanoseconds.
    pub time: u64,
}

impl Stage {
    /// Nominal nanoseconds in the first `at` of the stage. Never falls as `at` grows, rounding included: every
    /// operation on the way is monotone.
    fn passed(&self, at: u64) -> f64 {
        let length = self.time as f64;
        let rising = |from: f64, to: f64, at: f64| at * (from + (to - from) * (at / (2.0 * length)));
        if self.to >= self.from {
            rising(self.from, self.to, at as f64)
        } else {
            let left = self.time.saturating_sub(at) as f64;
            rising(self.to, self.from, length) - rising(self.to, self.from, left)
        }
    }

    fn nominal(&self) -> u64 {
        if self.is_identity() { self.time } else { self.passed(self.time).round() as u64 }
    }

    fn is_identity(&self) -> bool {
        self.from == 1.0 && self.to == 1.0
    }

    /// The last nanosecond of the stage at which no more than `nominal` has passed.
    fn reaches(&self, nominal: u64) -> u64 {
        if self.is_identity() {
            return nominal;
        }
        let wanted = nominal as f64;
        let (mut low, mut high) = (0, self.time);
        while high.saturating_sub(low) > 1 {
            let middle = low + (high - low) / 2;
            if self.passed(middle) <= wanted { low = middle } else { high = middle }
        }
        low
    }
}

impl FromStr for Stage {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let wrong = |problem: String| WorkloadError::apart("stage", format!("`{text}`: {problem}"));
        let (time, factors) = text
            .split_once(':')
            .ok_or_else(|| wrong("expected a time and a factor, like `30s:2` or `10s:0..1`".to_owned()))?;
        let Span(time) = Span::parse(time.trim()).map_err(|error| wrong(error.to_string()))?;
        let factor = |factor: &str| {
            let factor = factor.trim();
            factor.parse().map_err(|_| wrong(format!("expected a factor such as `1.5`, got `{factor}`")))
        };
        let (from, to) = factors.split_once("..").unwrap_or((factors, factors));
        let stage = Self { from: factor(from)?, to: factor(to)?, time };
        check(&stage).map_err(wrong)?;
        Ok(stage)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", show(self.time), self.from)?;
        if self.to == self.from { Ok(()) } else { write!(f, "..{}", self.to) }
    }
}

fn check(stage: &Stage) -> Result<(), String> {
    if let Some(factor) =
        [stage.from, stage.to].into_iter().find(|factor| !(0.0..=FACTOR_MAX).contains(factor))
    {
        return Err(format!("factor {factor}: expected 0 to {FACTOR_MAX}"));
    }
    if !(1..=DURATION_MAX).contains(&stage.time) {
        return Err(format!("time {}: expected more than 0 and at most 400d", show(stage.time)));
    }
    Ok(())
}

/// Stages, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Stages {
    pieces: Vec<Piece>,
    total: u64,
    nominal: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    stage: Stage,
    /// Real nanoseconds before it.
    begin: u64,
    /// Nominal nanoseconds before it.
    nominal_begin: u64,
    /// Nominal nanoseconds up to its end.
    nominal_end: u64,
}

impl Stages {
    /// Creates a sequence of stages.
    ///
    /// # Errors
    /// Unless there are 1 to 1000 of them, with factors from 0 to a million, each longer than 0, at most 400 days
    /// together, in which more than 0 and at most 400 days of the workload's own time pass.
    pub fn new(stages: Vec<Stage>) -> Result<Self, WorkloadError> {
        if stages.is_empty() || stages.len() > STAGES_MAX {
            let problem = format!("expected 1 to {STAGES_MAX}, got {}", stages.len());
            return Err(WorkloadError::apart("stages", problem));
        }
        let mut pieces = Vec::with_capacity(stages.len());
        let (mut total, mut nominal) = (0_u64, 0_u64);
        for (position, stage) in stages.into_iter().enumerate() {
            check(&stage).map_err(|problem| WorkloadError::apart(format!("stages[{position}]"), problem))?;
            let nominal_end = nominal.saturating_add(stage.nominal());
            pieces.push(Piece { stage, begin: total, nominal_begin: nominal, nominal_end });
            total = total.saturating_add(stage.time);
            nominal = nominal_end;
        }
        if total > DURATION_MAX {
            let problem = format!("last {} together: expected at most 400d", show(total));
            return Err(WorkloadError::apart("stages", problem));
        }
        if nominal == 0 || nominal > DURATION_MAX {
            let nominal = show(nominal);
            let problem = format!(
                "{nominal} of the workload's time pass in them: expected more than 0 and at most 400d"
            );
            return Err(WorkloadError::apart("stages", problem));
        }
        Ok(Self { pieces, total, nominal })
    }

    /// The unchanged workload, for `time` nanoseconds.
    ///
    /// # Errors
    /// Unless that is more than 0 and at most 400 days.
    pub fn constant(time: u64) -> Result<Self, WorkloadError> {
        Self::new(vec![Stage { from: 1.0, to: 1.0, time }])
    }

    /// Total length in real time, in nanoseconds.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Nanoseconds of the workload's nominal time that pass in all stages. A workload of this length
    /// ([`Workload::lasting`](crate::Workload::lasting)) has traffic until the end.
    pub fn nominal(&self) -> u64 {
        self.nominal
    }

    /// Number of the stage at a real time. From the end on, the last stage.
    pub fn stage_at(&self, at: u64) -> usize {
        self.pieces.partition_point(|piece| piece.begin <= at).saturating_sub(1)
    }

    /// The stages in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Stage> {
        self.pieces.iter().map(|piece| &piece.stage)
    }

    /// The real time at which the workload's nominal time is `nominal`: the last nanosecond at which no more than
    /// `nominal` has passed. `None` from the end on. The result never falls as `nominal` grows, and equals `nominal` if
    /// the factor is always 1.
    pub fn warp(&self, nominal: u64) -> Option<u64> {
        let piece = self.pieces.get(self.pieces.partition_point(|piece| piece.nominal_end <= nominal))?;
        Some(piece.begin.saturating_add(piece.stage.reaches(nominal - piece.nominal_begin)))
    }

    /// The requests at their real times, up to the end of the stages.
    pub fn apply(&self, arrivals: Arrivals) -> impl Iterator<Item = Offered> + use<> {
        let stages = self.clone();
        arrivals.map_while(move |offered| Some(Offered { at: stages.warp(offered.at)?, ..offered }))
    }
}
