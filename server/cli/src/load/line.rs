//! Progress line of a run: rate, p99 against the SLO, rejected requests.

use charts::number;
use indicatif::ProgressBar;
use loadtest::Live;

use crate::progress;

/// Steps of the bar.
const STEPS: u64 = 1_000;

/// One line on standard error, if that is a terminal.
#[derive(Debug)]
pub struct Line(ProgressBar);

impl Line {
    /// Creates the line; it is hidden if standard error is not a terminal.
    pub fn new(shown: bool) -> Self {
        Self(progress::bar(shown, STEPS, "{msg} {wide_bar}"))
    }

    /// Shows the current activity before the first measurement.
    pub fn say(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Shows the last full second, after the text `before`.
    pub fn show(&self, before: &str, live: &Live) {
        if let Some(total) = live.total_s.filter(|&total| total > 0.0) {
            self.0.set_position((STEPS as f64 * (live.elapsed_s / total).min(1.0)) as u64);
        }
        self.0.set_message(format!("{before}{}", words(live)));
    }

    /// Clears the line.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

fn words(live: &Live) -> String {
    let mut words = format!("{:.0} s  {}/s", live.elapsed_s, number(live.rate as f64));
    if let (Some(p99), Some(of_slo)) = (live.p99_ms, live.p99_of_slo) {
        words.push_str(&format!("  p99 {} ms, {:.0} % of SLO", number(p99), of_slo * 100.0));
    }
    for (count, what) in [(live.refused, "refused"), (live.failed, "failed")] {
        if count > 0 {
            words.push_str(&format!("  {} {what}", number(count as f64)));
        }
    }
    if !live.kept_up {
        words.push_str("  THIS CLIENT IS LATE");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_rate_latency_and_what_goes_wrong() {
        let live = Live {
            elapsed_s: 12.3,
            rate: 512,
            p99_ms: Some(20.5),
            p99_of_slo: Some(0.41),
            kept_up: true,
            ..Live::default()
        };
        assert_eq!(words(&live), "12 s  512/s  p99 20.5 ms, 41 % of SLO");
        let bad = Live { refused: 3, failed: 1, kept_up: false, p99_ms: None, ..live };
        assert_eq!(words(&bad), "12 s  512/s  3 refused  1 failed  THIS CLIENT IS LATE");
    }
}
