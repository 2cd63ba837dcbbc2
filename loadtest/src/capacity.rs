//! The highest rate that a live server holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sim::{Search, Trial};
use workload::{Extent, Stages, Workload};

use crate::error::LoadError;
use crate::report::Report;
use crate::session::{Drive, Live, Session};

/// How the search goes: the trial that runs, the rates so far, and the run itself.
pub type Watch<'a> = dyn FnMut(&[Trial], f64, &Live) + 'a;

impl Session {
    /// Looks for the highest multiple of the workload's rate at which enough answers are right and in time: runs of
    /// `time` nanoseconds with the same seed, warm-up included. The report is that of the run at the highest rate that
    /// held, or of the last one if none did, or if somebody stopped the search.
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
        let found = search.run(1.0, |scale| -> Result<Trial, Option<LoadError>> {
            if stop.load(Ordering::Relaxed) {
                return Err(None);
            }
            let mut scaled = workload.scaled(scale).map_err(|error| Some(error.into()))?;
            scaled.extent = Extent::Time(time);
            let drive = Drive::Open(Stages::constant(time).map_err(|error| Some(error.into()))?);
            let report = self.run(&scaled, &drive, stop, &mut |live| watch(&trials, scale, live))?;
            if report.interrupted {
                last = Some(report);
                return Err(None);
            }
            let total = &report.total;
            let holds = total.attainment >= search.attainment;
            let trial = Trial { scale, rate: total.offered_rate, attainment: total.attainment, holds };
            trials.push(trial);
            if holds && best.as_ref().is_none_or(|(best, _)| best.scale < scale) {
                best = Some((trial, report));
            } else if best.is_none() {
                last = Some(report);
            }
            Ok(trial)
        });
        let mut report = match (best, last) {
            (Some((_, report)), _) | (None, Some(report)) => report,
            (None, None) => return Err(found.err().flatten().unwrap_or(LoadError::Lost)),
        };
        match found {
            Ok(capacity) => report.capacity = Some(capacity),
            Err(None) => report.interrupted = true,
            Err(Some(error)) => return Err(error),
        }
        Ok(report)
    }
}
