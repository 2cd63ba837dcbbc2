//! Decides when a cell is warm and has enough runs, and computes its statistics. It has no clock: the caller passes
//! the duration of each run.

use std::time::Duration;

/// Number of successive medians that must agree before the measurement starts.
const MEDIANS: usize = 3;
/// Allowed difference between those medians, as a fraction of the smallest.
const AGREEMENT: f64 = 0.05;
/// Runs and time for a median of the warm-up; enough runs end it early.
const WINDOW_RUNS: usize = 3;
const WINDOW_TIME: Duration = Duration::from_millis(10);
const WINDOW_RUNS_MAX: usize = 1_000;
/// Runs of a cell: usual minimum, minimum for slow cells, and maximum.
const RUNS: usize = 100;
const RUNS_SLOW: usize = 20;
const RUNS_MAX: usize = 100_000;
/// Multiples of the requested time after which the minimum for slow cells suffices, and after which any number does.
const TIME_FACTOR_SLOW: u32 = 10;
const TIME_FACTOR_MAX: u32 = 30;
/// Multiple of the requested time after which a cell is measured even if its medians do not agree.
const TIME_FACTOR_WARM_UP: u32 = 5;
/// CPU wait above the usual that marks a run as disturbed: minimum, and as a fraction of the run.
const WAITED: Duration = Duration::from_micros(50);
const WAITED_SHARE: f64 = 0.05;

/// One run of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Time from submission to result.
    pub took: Duration,
    /// Total time that its threads waited for cores during the run; zero if unknown.
    pub waited: Duration,
}

/// Usual run of a warm cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usual {
    /// Median of the last runs.
    pub run: Run,
    /// Whether the last medians agreed.
    pub settled: bool,
}

/// The warm-up runs, which do not count.
#[derive(Debug)]
pub struct WarmUp {
    /// A window has a multiple of this many runs: those in which every shape ran as often as its share.
    rotation: usize,
    window: Vec<Run>,
    in_window: Duration,
    medians: Vec<Run>,
}

impl WarmUp {
    /// Batches start over after `rotation` runs, if they are of several shapes; else 1.
    pub fn new(rotation: usize) -> Self {
        Self { rotation, window: Vec::new(), in_window: Duration::ZERO, medians: Vec::new() }
    }

    /// Adds a run. `passed` is the time since the first run began, `time` the requested time. Returns the usual run
    /// once the cell is warm or its warm-up time is over.
    pub fn take(&mut self, run: Run, passed: Duration, time: Duration) -> Option<Usual> {
        self.window.push(run);
        self.in_window = self.in_window.saturating_add(run.took);
        let runs = self.window.len();
        if runs.checked_rem(self.rotation).unwrap_or(0) != 0
            || runs < WINDOW_RUNS
            || (self.in_window < WINDOW_TIME && runs < WINDOW_RUNS_MAX)
        {
            return None;
        }
        let run = median(&self.window);
        self.medians.push(run);
        self.window.clear();
        self.in_window = Duration::ZERO;
        let settled = self.settled();
        (settled || passed >= time.saturating_mul(TIME_FACTOR_WARM_UP)).then_some(Usual { run, settled })
    }

    fn settled(&self) -> bool {
        let last = self.medians.iter().rev().take(MEDIANS).map(|run| run.took.as_secs_f64());
        let (count, least, most) = last.fold((0, f64::INFINITY, 0.0_f64), |(count, least, most), took| {
            (count + 1, least.min(took), most.max(took))
        });
        count == MEDIANS && most <= least * (1.0 + AGREEMENT)
    }
}

fn median(runs: &[Run]) -> Run {
    let middle = |pick: fn(&Run) -> Duration| {
        let mut values: Vec<Duration> = runs.iter().map(pick).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Run { took: middle(|run| run.took), waited: middle(|run| run.waited) }
}

/// The runs that count.
#[derive(Debug)]
pub struct Runs {
    usual: Usual,
    /// CPU wait above which a run is left out.
    disturbed: Duration,
    kept: Vec<Duration>,
    kept_waited: Duration,
    left_out: usize,
}

/// Statistics of the duration of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Median in microseconds.
    pub p50_us: f64,
    /// 95th percentile in microseconds.
    pub p95_us: f64,
    /// 99th percentile in microseconds.
    pub p99_us: f64,
    /// Number of runs.
    pub count: usize,
    /// Number of runs left out because other processes used their cores.
    pub left_out: usize,
    /// Time that threads waited for cores in the counted runs, as a fraction of their duration.
    pub waited: f64,
    /// Whether the medians of the warm-up agreed.
    pub settled: bool,
}

impl Runs {
    /// Starts counting, for a cell with this usual run.
    pub fn new(usual: Usual) -> Self {
        let disturbed = usual.run.waited + WAITED.max(usual.run.took.mul_f64(WAITED_SHARE));
        Self { usual, disturbed, kept: Vec::new(), kept_waited: Duration::ZERO, left_out: 0 }
    }

    /// Adds a run.
    pub fn take(&mut self, run: Run) {
        if run.waited > self.disturbed {
            self.left_out = self.left_out.saturating_add(1);
        } else {
            self.kept.push(run.took);
            self.kept_waited = self.kept_waited.saturating_add(run.waited);
        }
    }

    /// Progress from 0 to 1, `passed` after the first run began; 1 means that the cell has enough runs.
    pub fn done(&self, passed: Duration, time: Duration) -> f64 {
        let kept = self.kept.len();
        if kept.saturating_add(self.left_out) >= RUNS_MAX || passed >= time.saturating_mul(TIME_FACTOR_MAX) {
            return 1.0;
        }
        let of_time = |factor: u32| passed.as_secs_f64() / time.saturating_mul(factor).as_secs_f64();
        let fast = of_time(1).min(kept as f64 / RUNS as f64);
        let slow = of_time(TIME_FACTOR_SLOW).min(kept as f64 / RUNS_SLOW as f64);
        fast.max(slow).min(1.0)
    }

    /// Computes the statistics; `None` if all runs were disturbed.
    pub fn measured(mut self) -> Option<Measured> {
        self.kept.sort_unstable();
        let total: f64 = self.kept.iter().map(Duration::as_secs_f64).sum();
        let at = |share: f64| {
            let rank = (share * self.kept.len() as f64).ceil() as usize;
            let took = self.kept.get(rank.saturating_sub(1))?;
            // Times in profiles are above zero.
            Some(took.as_nanos().max(1) as f64 / 1e3)
        };
        Some(Measured {
            p50_us: at(0.50)?,
            p95_us: at(0.95)?,
            p99_us: at(0.99)?,
            count: self.kept.len(),
            left_out: self.left_out,
            waited: if total > 0.0 { self.kept_waited.as_secs_f64() / total } else { 0.0 },
            settled: self.usual.settled,
        })
    }
}

impl Measured {
    /// Runs left out, as a fraction of all runs.
    pub fn left_out_share(&self) -> f64 {
        self.left_out as f64 / self.count.saturating_add(self.left_out).max(1) as f64
    }

    /// Whether there were fewer runs than the minimum for slow cells.
    pub fn is_thin(&self) -> bool {
        self.count < RUNS_SLOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(2);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn run(took: u64, waited: u64) -> Run {
        Run { took: ms(took), waited: ms(waited) }
    }

    fn usual(took: u64, waited: u64) -> Usual {
        Usual { run: run(took, waited), settled: true }
    }

    #[test]
    fn a_cell_is_warm_when_three_medians_agree() {
        let mut warm_up = WarmUp::new(1);
        let times = [90, 50, 40, 30, 22, 21, 20, 20, 20, 20, 21, 20, 20, 21, 20];
        let given = times.map(|took| warm_up.take(run(took, 0), ms(1), TIME));
        // Medians of three: 50, 22, 20, 20, 20.
        assert!(given[..14].iter().all(Option::is_none), "{given:?}");
        assert_eq!(given[14], Some(usual(20, 0)));
    }

    #[test]
    fn a_short_run_counts_by_time_and_not_by_number() {
        let mut warm_up = WarmUp::new(1);
        let short = Run { took: Duration::from_micros(100), waited: Duration::ZERO };
        let needed = (1..).find(|_| warm_up.take(short, ms(1), TIME).is_some()).unwrap();
        assert_eq!(needed, 300);
    }

    #[test]
    fn the_warm_up_of_a_cell_that_never_settles_ends() {
        let mut warm_up = WarmUp::new(1);
        for took in [10, 10, 10, 20, 20, 20, 10, 10, 10, 20, 20] {
            assert_eq!(warm_up.take(run(took, 0), TIME * 5 - ms(1), TIME), None);
        }
        let usual = warm_up.take(run(20, 0), TIME * 5, TIME).unwrap();
        assert!(!usual.settled && usual.run.took == ms(20));
    }

    #[test]
    fn percentiles_are_of_runs_that_happened() {
        let mut runs = Runs::new(usual(50, 0));
        (1..=100).rev().for_each(|took| runs.take(run(took, 0)));
        let measured = runs.measured().unwrap();
        assert_eq!((measured.p50_us, measured.p95_us, measured.p99_us), (50e3, 95e3, 99e3));
        assert_eq!((measured.count, measured.left_out, measured.settled), (100, 0, true));
        assert!(Runs::new(usual(1, 0)).measured().is_none());
    }

    #[test]
    fn runs_whose_threads_waited_longer_than_usual_are_left_out_and_counted() {
        // A run of 20 ms that usually waits 2 ms, as one whose helpers are woken often does: 3 ms are within 5 %.
        let mut runs = Runs::new(usual(20, 2));
        for (took, waited) in [(20, 2), (21, 3), (24, 4), (900, 880), (20, 0)] {
            runs.take(run(took, waited));
        }
        let measured = runs.measured().unwrap();
        assert_eq!((measured.count, measured.left_out, measured.p99_us), (3, 2, 21e3));
        assert!((measured.left_out_share() - 0.4).abs() < 1e-12);
        assert!((measured.waited - 5.0 / 61.0).abs() < 1e-12);
    }

    #[test]
    fn a_slow_cell_needs_fewer_runs_and_a_very_slow_one_any() {
        let with = |count: usize| {
            let mut runs = Runs::new(usual(20, 0));
            (0..count).for_each(|_| runs.take(run(20, 0)));
            runs
        };
        let enough = |count: usize, passed: Duration| with(count).done(passed, TIME) >= 1.0;
        assert!(enough(100, TIME) && !enough(99, TIME) && !enough(1_000, TIME - ms(1)));
        assert!(enough(20, TIME * 10) && !enough(20, TIME * 10 - ms(1)) && !enough(19, TIME * 10));
        assert!(enough(1, TIME * 30) && !enough(1, TIME * 30 - ms(1)));
        assert!(enough(RUNS_MAX, ms(1)));
        assert!(with(19).measured().unwrap().is_thin() && !with(20).measured().unwrap().is_thin());
    }
}
