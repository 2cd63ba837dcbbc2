//! Progress of the measurement, and the remaining time.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::progress;

/// Steps of the bar for one cell.
const STEPS: u64 = 1_000;
/// Minimum time between two updates: drawing must not disturb the measurement.
const PERIOD: Duration = Duration::from_millis(200);

/// One line on standard error, if that is a terminal.
#[derive(Debug)]
pub struct Bar {
    line: ProgressBar,
    /// Steps of all cells, those of the current one, and when they were last shown.
    done: u64,
    cell: u64,
    shown: Instant,
    /// When the measurement began, and how long it may take.
    limit: Option<(Instant, Duration)>,
}

impl Bar {
    /// A bar, or nothing if standard error is not a terminal.
    pub fn new(shown: bool) -> Self {
        let line = progress::bar(shown, 0, "{msg:<44!} {wide_bar} {percent:>3} %  {eta:>4} left");
        Self { line, done: 0, cell: 0, shown: Instant::now(), limit: None }
    }

    /// Adds `cells` to the number of expected cells.
    pub fn expect(&self, cells: usize) {
        self.line.inc_length(STEPS.saturating_mul(cells as u64));
    }

    /// The measurement ends after this time, whatever is left.
    pub fn within(&mut self, time: Duration) {
        self.limit = Some((Instant::now(), time));
    }

    /// Shows the current activity.
    pub fn say(&self, what: impl Into<String>) {
        self.line.set_message(what.into());
    }

    /// Removes `cells` from the expected cells, the current one included.
    pub fn skip(&mut self, cells: usize) {
        let steps = STEPS.saturating_mul(cells as u64);
        self.line.dec_length(steps);
        self.done = self.done.saturating_sub(self.cell);
        self.cell = 0;
        self.line.set_position(self.position());
    }

    /// Shows the progress of the current cell, from 0 to 1, at a limited frequency.
    pub fn show(&mut self, share: f64) {
        if self.shown.elapsed() < PERIOD {
            return;
        }
        self.shown = Instant::now();
        self.advance((STEPS as f64 * share.clamp(0.0, 1.0)) as u64);
    }

    /// Marks a cell as done or not needed.
    pub fn finish_cell(&mut self) {
        self.advance(STEPS);
        self.cell = 0;
    }

    /// Clears the line.
    pub fn clear(&self) {
        self.line.finish_and_clear();
    }

    fn advance(&mut self, to: u64) {
        let to = to.clamp(self.cell, STEPS);
        self.done += to - self.cell;
        self.cell = to;
        self.line.set_position(self.position());
    }

    /// Steps by the cells or by the time, whichever is further.
    fn position(&self) -> u64 {
        let spent = self.limit.map_or(0.0, |(began, time)| began.elapsed().div_duration_f64(time).min(1.0));
        self.done.max((spent * self.line.length().unwrap_or(0) as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_count_in_full_whatever_was_shown_of_them() {
        let mut bar = Bar::new(false);
        bar.expect(2);
        bar.shown = Instant::now() - PERIOD;
        bar.show(0.25);
        assert_eq!(bar.line.position(), STEPS / 4);
        bar.show(0.5);
        assert_eq!(bar.line.position(), STEPS / 4, "shown too often");
        bar.finish_cell();
        bar.finish_cell();
        assert_eq!((bar.line.position(), bar.line.length()), (2 * STEPS, Some(2 * STEPS)));
    }

    #[test]
    fn a_limit_of_time_counts_where_it_is_nearer_than_the_last_cell() {
        let mut bar = Bar::new(false);
        bar.expect(10);
        bar.within(Duration::from_secs(100));
        bar.limit = bar.limit.map(|(began, time)| (began - Duration::from_secs(50), time));
        bar.finish_cell();
        assert_eq!(bar.line.position() / STEPS, 5);
        for _ in 0..6 {
            bar.finish_cell();
        }
        assert_eq!(bar.line.position(), 7 * STEPS);
    }
}
