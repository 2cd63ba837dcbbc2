//! When jobs will end, from how fast they were.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::job::Millis;

/// Length of one sample of the rate.
const SAMPLE_MILLIS: u64 = 2_000;
/// Most samples that count: the last minute of work.
const SAMPLES: usize = 30;
/// Fewest samples that say how much the rate varies.
const SAMPLES_MIN: usize = 5;
/// Standard errors on each side of the mean that the rate is within in about 95 of 100 cases.
const STANDARD_ERRORS: f64 = 2.0;

/// When a job will end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Rows a second lately.
    pub rate: f64,
    /// About when it ends.
    pub end: Millis,
    /// It ends between these in about 95 of 100 cases, if the load stays. `None` for the later one: perhaps never.
    pub earliest: Millis,
    /// See `earliest`.
    pub latest: Option<Millis>,
}

/// Whether a job will end in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Also in the latest case.
    InTime,
    /// Not even in the earliest case.
    Late,
    /// Perhaps, or it has not run long enough to tell.
    Unknown,
}

impl Verdict {
    /// What a forecast says about a time.
    #[must_use]
    pub fn of(forecast: Option<&Forecast>, by: Millis) -> Self {
        match forecast {
            Some(forecast) if forecast.latest.is_some_and(|latest| latest <= by) => Self::InTime,
            Some(forecast) if forecast.earliest > by => Self::Late,
            _ => Self::Unknown,
        }
    }
}

/// Milliseconds of work that are left: likely, at least, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    pub likely: f64,
    pub least: f64,
    pub most: f64,
}

impl Work {
    pub fn and(self, other: Self) -> Self {
        Self {
            likely: self.likely + other.likely,
            least: self.least + other.least,
            most: self.most + other.most,
        }
    }

    pub fn forecast(self, now: Millis, rate: f64) -> Forecast {
        let at = |millis: f64| now.after(millis.max(0.0) as u64);
        let latest = self.most.is_finite().then(|| at(self.most));
        Forecast { rate, end: at(self.likely), earliest: at(self.least), latest }
    }
}

/// How fast a job was while it was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    /// Start of the open sample, and rows that were done then.
    open: Option<(Millis, u64)>,
    /// Milliseconds and rows of the samples, oldest first.
    samples: VecDeque<(u64, u64)>,
}

impl Pace {
    /// The job has `done` rows now, and is being sent.
    pub fn runs(&mut self, now: Millis, done: u64) {
        let (since, before) = *self.open.get_or_insert((now, done));
        let millis = now.since(since);
        if millis < SAMPLE_MILLIS {
            return;
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((millis, done.saturating_sub(before)));
        self.open = Some((now, done));
    }

    /// The job waits for others. What it did since the last sample does not count.
    pub fn waits(&mut self) {
        self.open = None;
    }

    /// Rows a second. `None` before the first sample.
    pub fn rate(&self) -> Option<f64> {
        let (millis, rows) =
            self.samples.iter().fold((0, 0), |(millis, rows), sample| (millis + sample.0, rows + sample.1));
        (millis > 0).then(|| rows as f64 * 1_000.0 / millis as f64)
    }

    /// Work of this many rows. `None` before the first sample.
    pub fn work(&self, rows: u64) -> Option<Work> {
        let rate = self.rate()?;
        let margin = self.standard_error(rate).map_or(rate, |error| STANDARD_ERRORS * error);
        let millis = |rate: f64| if rate > 0.0 { rows as f64 * 1_000.0 / rate } else { f64::INFINITY };
        Some(Work { likely: millis(rate), least: millis(rate + margin), most: millis(rate - margin) })
    }

    fn standard_error(&self, rate: f64) -> Option<f64> {
        let count = self.samples.len();
        if count < SAMPLES_MIN {
            return None;
        }
        let of = |&(millis, rows): &(u64, u64)| rows as f64 * 1_000.0 / millis.max(1) as f64 - rate;
        let squares: f64 = self.samples.iter().map(of).map(|deviation| deviation * deviation).sum();
        Some((squares / (count - 1) as f64 / count as f64).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_job_ends_when_its_rate_says() {
        let mut pace = Pace::default();
        assert_eq!(pace.work(10), None);
        for second in 0..=20 {
            pace.runs(Millis(1_000 * second), 50 * second);
        }
        let forecast = pace.work(5_000).unwrap().forecast(Millis(20_000), pace.rate().unwrap());
        assert_eq!((forecast.rate, forecast.end), (50.0, Millis(120_000)));
        assert_eq!((forecast.earliest, forecast.latest), (Millis(120_000), Some(Millis(120_000))));
        assert_eq!(Verdict::of(Some(&forecast), Millis(120_000)), Verdict::InTime);
        assert_eq!(Verdict::of(Some(&forecast), Millis(119_999)), Verdict::Late);
    }

    #[test]
    fn an_unsteady_job_has_a_wide_interval_and_a_new_one_an_open_one() {
        let mut pace = Pace::default();
        pace.runs(Millis(0), 0);
        pace.runs(Millis(2_000), 100);
        let new = pace.work(1_000).unwrap().forecast(Millis(2_000), 50.0);
        assert_eq!((new.latest, Verdict::of(Some(&new), Millis(60_000))), (None, Verdict::Unknown));
        let mut done = 100;
        for sample in 2..20_u64 {
            done += if sample % 2 == 0 { 20 } else { 180 };
            pace.runs(Millis(2_000 * sample), done);
        }
        let forecast = pace.work(5_000).unwrap().forecast(Millis(0), 0.0);
        let latest = forecast.latest.unwrap();
        assert!(forecast.earliest < forecast.end && forecast.end < latest, "{forecast:?}");
        assert_eq!(Verdict::of(Some(&forecast), forecast.end), Verdict::Unknown);
    }

    #[test]
    fn time_in_which_a_job_waits_for_others_does_not_count() {
        let mut pace = Pace::default();
        pace.runs(Millis(0), 0);
        pace.runs(Millis(2_000), 100);
        pace.waits();
        pace.runs(Millis(100_000), 100);
        pace.runs(Millis(102_000), 200);
        assert_eq!(pace.rate(), Some(50.0));
    }
}
