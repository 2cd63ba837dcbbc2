//! Runs with a bar that shows how far they are.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sim::{Report, Setup, SimError, Simulation};
use workload::Workload;

/// Steps of the bar that a run has.
const STEPS: u64 = 1_000;

/// How far the work has come, shown on standard error if that is a terminal.
#[derive(Clone, Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar, or nothing if standard error is not a terminal.
    pub fn new(shown: bool) -> Self {
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        // A template of literals: should it not parse, the default style serves.
        if let Ok(style) = ProgressStyle::with_template("{msg:<40!} {wide_bar} {percent:>3} %  {eta:>4} left")
        {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Adds `runs` to the number of expected runs.
    pub fn expect(&self, runs: usize) {
        self.0.inc_length(STEPS * runs as u64);
    }

    /// Says what is being done.
    pub fn say(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// One run, with its steps. A run that was expected counts in full at its end.
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

    /// Says that an expected run is not needed, or was done elsewhere.
    pub fn skip(&self, runs: usize) {
        self.0.inc(STEPS * runs as u64);
    }

    /// Clears the line.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
