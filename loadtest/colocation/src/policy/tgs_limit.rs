//! The rate limit of TGS (Wu et al., NSDI 2023, section 4.2), constants from `hijack/src/low_priority_hijack_call.c`.

use std::collections::VecDeque;

const LIMIT_FIRST: f64 = 20_000.0;
const STEP_MIN: f64 = 1_000.0;
/// Upper bound of limits, so high that it never binds.
const LIMIT_MAX: f64 = 1_099_511_627_776.0;
/// Reports over which the online rate is smoothed.
const WINDOW: usize = 5;
/// Reports of the profiling phase, in which best-effort work pauses.
const PROFILE_REPORTS: u32 = 5;
/// Relative distance of the online rate from its best one that is tolerated.
const TOLERATED: f64 = 0.03;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Profile { reports: u32 },
    SlowStart,
    Avoidance { grew: bool },
}

/// Blocks that best-effort kernels may launch in each window of 50 ms, adapted at each report of the online rate: like TCP's window.
#[derive(Debug)]
pub struct TgsLimit {
    limit: f64,
    phase: Phase,
    /// Online blocks a report without best-effort work, as far as known.
    best: f64,
    window: VecDeque<f64>,
    reports: u32,
    /// Reports in a row that were 12 % off.
    far: u32,
}

impl Default for TgsLimit {
    fn default() -> Self {
        let window = VecDeque::from([0.0; WINDOW]);
        Self { limit: 0.0, phase: Phase::Profile { reports: 0 }, best: 1.0, window, reports: 0, far: 0 }
    }
}

impl TgsLimit {
    /// Blocks a window; a kernel starts while the window has launched at most this number.
    #[must_use]
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// Takes the number of blocks that the online model launched since the last report.
    pub fn report(&mut self, blocks: f64) {
        let rate = blocks.max(1.0);
        let smoothed = self.smooth(rate);
        let off = (smoothed - self.best) / self.best;
        if let Phase::Profile { reports } = self.phase {
            let steady = off.abs() <= 0.05;
            self.best = if steady { self.best.max(smoothed) } else { moved(self.best, smoothed) };
            let reports = reports + 1;
            self.phase = Phase::Profile { reports };
            if reports >= PROFILE_REPORTS && steady {
                self.phase = Phase::SlowStart;
                self.limit = LIMIT_FIRST;
            }
            return;
        }
        if off.abs() > 0.2 {
            self.best = moved(self.best, smoothed);
            self.limit = 0.0;
            self.phase = Phase::Profile { reports: 0 };
            return;
        }
        if off.abs() <= 0.1 {
            self.best = self.best.max(smoothed);
        }
        self.reports += 1;
        let silent = self.window.iter().filter(|rate| **rate < STEP_MIN).count();
        if silent > WINDOW / 5 * 2 && self.reports >= 15 {
            self.limit = LIMIT_MAX;
            self.phase = Phase::SlowStart;
        } else {
            self.adapt(rate);
        }
    }

    fn adapt(&mut self, rate: f64) {
        let off = ((rate - self.best) / self.best).abs();
        match self.phase {
            Phase::SlowStart if off <= TOLERATED => self.limit = (self.limit * 1.5 + 1.0).min(LIMIT_MAX),
            Phase::SlowStart | Phase::Profile { .. } => {
                self.limit /= 1.5;
                self.phase = Phase::Avoidance { grew: false };
            }
            Phase::Avoidance { .. } => {
                let grew = off <= TOLERATED;
                let step = if grew {
                    (self.best * 0.00025).max(STEP_MIN)
                } else {
                    -(self.limit * 0.08).max(STEP_MIN)
                };
                self.limit = (self.limit + step).clamp(0.0, LIMIT_MAX);
                self.phase = Phase::Avoidance { grew };
                if off >= 3.0 * TOLERATED {
                    self.phase = Phase::SlowStart;
                    self.limit /= 10.0;
                }
            }
        }
        self.far = if off >= 0.12 { self.far + 1 } else { 0 };
        if self.far >= 20 {
            self.best *= 0.8;
            self.far = 0;
            self.phase = Phase::SlowStart;
            self.limit /= 2.0;
        }
    }

    /// The highest mean of two reports that follow each other, without the new one, which it adds.
    fn smooth(&mut self, rate: f64) -> f64 {
        let pairs = self.window.iter().zip(self.window.iter().skip(1));
        let highest = pairs.map(|(newer, older)| f64::midpoint(*newer, *older)).fold(0.0, f64::max);
        self.window.pop_back();
        self.window.push_front(rate);
        highest
    }
}

/// The best rate after a report that is far from it.
fn moved(best: f64, smoothed: f64) -> f64 {
    if smoothed > best { best.max(smoothed * 0.975) } else { best.min(smoothed * 1.025).max(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(reports: &[f64]) -> TgsLimit {
        let mut limit = TgsLimit::default();
        reports.iter().for_each(|blocks| limit.report(*blocks));
        limit
    }

    #[test]
    fn nothing_starts_while_the_online_rate_is_profiled() {
        assert_eq!(after(&[1e6; 4]).limit(), 0.0);
        assert!(after(&[1e6; 10]).limit() >= LIMIT_FIRST);
    }

    #[test]
    fn the_limit_grows_by_half_until_the_online_rate_drops() {
        let mut limit = after(&[1e6; 10]);
        let before = limit.limit();
        limit.report(1e6);
        assert_eq!(limit.limit(), before * 1.5 + 1.0);
        let before = limit.limit();
        limit.report(0.96e6);
        assert_eq!(limit.limit(), before / 1.5);
        let before = limit.limit();
        limit.report(1e6);
        assert_eq!(limit.limit(), before + 1_000.0);
        let before = limit.limit();
        limit.report(0.95e6);
        assert_eq!(limit.limit(), before - (before * 0.08).max(1_000.0));
    }

    #[test]
    fn a_large_drop_starts_over_with_a_tenth() {
        let mut limit = after(&[1e6; 10]);
        limit.report(0.96e6);
        let before = limit.limit();
        limit.report(0.90e6);
        assert_eq!(limit.limit(), (before - (before * 0.08).max(1_000.0)) / 10.0);
    }
}
