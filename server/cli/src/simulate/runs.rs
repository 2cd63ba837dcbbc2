//! Simulation runs with a progress bar.

use indicatif::ProgressBar;
use sim::{Report, Setup, SimError, Simulation};
use workload::Workload;

use crate::progress;

/// Steps of the bar for one run.
const STEPS: u64 = 1_000;

/// Progress on standard error, if that is a terminal.
#[derive(Clone, Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar, or nothing if standard error is not a terminal.
    pub fn new(shown: bool) -> Self {
        Self(progress::bar(shown, 0, "{msg:<40!} {wide_bar} {percent:>3} %  {eta:>4} left"))
    }

    /// Adds `runs` to the number of expected runs.
    pub fn expect(&self, runs: usize) {
        self.0.inc_length(STEPS * runs as u64);
    }

    /// Shows the current activity.
    pub fn say(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// Performs one run and shows its steps. At its end, the run counts as complete.
    pub fn run(&self, workload: &Workload, setup: &Setup) -> Result<Report, SimError> {
        let mut shown = 0;
        let report = Simulation::new(workload, setup)?.run(&mut |progress| {
            let now = ((progress.share * STEPS as f64) as u64).clamp(shown, STEPS);
            self.0.inc(now - shown);
            shown = now;
        });
        self.0.inc(STEPS - shown);
        report
    }

    /// Marks an expected run as complete: it is not needed, or was done elsewhere.
    pub fn skip(&self, runs: usize) {
        self.0.inc(STEPS * runs as u64);
    }

    /// Clears the line.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
