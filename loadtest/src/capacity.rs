//! The highest rate that a live server sustains.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sim::{Capacity, Search, Trial};
use workload::{Extent, Stages, Workload};

use crate::collector::Live;
use crate::drive::Drive;
use crate::error::LoadError;
use crate::report::Report;
use crate::session::Session;

/// Upper bound on runs at one rate.
const RUNS_MAX: u32 = 3;
/// Attainment that is too far below the required one for another run to change the result.
const HOPELESS: f64 = 0.05;

/// Progress of the search: the current trial, the rates so far, and the run itself.
pub type Watch<'a> = dyn FnMut(&[Trial], f64, &Live) + 'a;

/// Why a search ended before its result was certain.
enum Ended {
    Interrupted,
    OutOfRuns,
    Failed(LoadError),
}

impl From<LoadError> for Ended {
    fn from(error: LoadError) -> Self {
        Self::Failed(error)
    }
}

impl Session {
    /// Searches for the highest multiple of the workload's rate at which enough answers are correct and in time. Runs take
    /// `time` nanoseconds including the warm-up, and there are at most `search.trials_max` of them; the first run at each
    /// rate has the same seed. The report is that of the run at the highest sustained rate. If no rate was sustained or the
    /// search was stopped, it is that of the last run.
    pub fn capacity(
        &self,
        workload: &Workload,
        search: &Search,
        time: u64,
        stop: &Arc<AtomicBool>,
        watch: &mut Watch<'_>,
    ) -> Result<Report, LoadError> {
        let mut best: Option<(Trial, Report)> = None;
        let mut last = None;
        let mut trials: Vec<Trial> = Vec::new();
        let mut runs_left = search.trials_max;
        let found = search.run(1.0, |scale| -> Result<Trial, Ended> {
            if runs_left == 0 {
                return Err(Ended::OutOfRuns);
            }
            let mut scaled = workload.scaled(scale).map_err(LoadError::from)?;
            scaled.extent = Extent::Time(time);
            let mut watch = |live: &Live| watch(&trials, scale, live);
            let attempt = self.attempt(&scaled, search, time, stop, &mut runs_left, &mut watch)?;
            if attempt.report.interrupted {
                last = Some(attempt.report);
                return Err(Ended::Interrupted);
            }
            let (trial, report) = (Trial { scale, ..attempt.trial }, attempt.report);
            trials.push(trial);
            if trial.holds && best.as_ref().is_none_or(|(best, _)| best.scale < scale) {
                best = Some((trial, report));
            } else if best.is_none() {
                last = Some(report);
            }
            Ok(trial)
        });
        let (held, mut report) = match (best, last) {
            (Some((held, report)), _) => (Some(held), report),
            (None, Some(report)) => (None, report),
            (None, None) => {
                return Err(match found {
                    Err(Ended::Failed(error)) => error,
                    _ => LoadError::Lost,
                });
            }
        };
        match found {
            Ok(capacity) => report.capacity = Some(capacity),
            Err(Ended::Failed(error)) => return Err(error),
            Err(ended) => {
                report.interrupted = matches!(ended, Ended::Interrupted);
                report.capacity = held.map(|Trial { scale, rate, attainment, .. }| Capacity {
                    rate,
                    scale,
                    attainment,
                    settled: false,
                    trials,
                });
            }
        }
        Ok(report)
    }

    /// Tests one rate with a run, and with more runs with other seeds while the result is close; all count together. A run
    /// in which this client could not keep up is repeated, unless far too little was answered in time.
    fn attempt(
        &self,
        workload: &Workload,
        search: &Search,
        time: u64,
        stop: &Arc<AtomicBool>,
        runs_left: &mut u32,
        watch: &mut dyn FnMut(&Live),
    ) -> Result<Attempt, LoadError> {
        let drive = Drive::Open(Stages::constant(time)?);
        let (mut good, mut offered, mut seconds) = (0, 0, 0.0);
        let mut run = 0;
        loop {
            let workload = workload.with_seed(workload.seed.wrapping_add(u64::from(run)));
            let report = self.run(&workload, &drive, stop, watch)?;
            run += 1;
            *runs_left = runs_left.saturating_sub(1);
            let is_last = run == RUNS_MAX || *runs_left == 0 || report.interrupted;
            let hopeless = report.total.attainment < search.attainment - HOPELESS;
            if report.client.late_from.is_some() && !is_last && !hopeless {
                continue;
            }
            good += report.total.good;
            offered += report.total.offered;
            seconds += report.measured_s;
            let attainment = if offered == 0 { 1.0 } else { good as f64 / offered as f64 };
            let holds = attainment >= search.attainment;
            if holds || is_last || attainment < search.attainment - HOPELESS {
                let rate = if seconds > 0.0 { offered as f64 / seconds } else { 0.0 };
                return Ok(Attempt { trial: Trial { scale: 1.0, rate, attainment, holds }, report });
            }
        }
    }
}

/// A rate that was tested, with the report of its last run.
struct Attempt {
    trial: Trial,
    report: Report,
}
