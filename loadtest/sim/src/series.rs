//! Figures over time, in buckets of equal length. The length doubles when there would be too many buckets.

use hdrhistogram::{CreationError, Histogram};
use workload::DURATION_MAX;

use crate::report::{Bucket, SERIES_MAX};
use crate::units::{millis, quantile, seconds};

/// Digits of the latencies of a bucket.
const DIGITS: u8 = 2;

/// Buckets aimed at when it is known how long a run is.
const SERIES_AIM: u64 = 160;

/// Nanoseconds of the unit in which latencies are counted here.
const UNIT: u64 = 1_000;

#[derive(Clone, Debug)]
struct Part {
    offered: u64,
    good: u64,
    refused: u64,
    rows: u64,
    batches: u64,
    /// Nanoseconds of lanes that worked.
    busy: u64,
    latencies: Histogram<u32>,
}

impl Part {
    fn new() -> Result<Self, CreationError> {
        let latencies = Histogram::new_with_bounds(1, DURATION_MAX / UNIT, DIGITS)?;
        Ok(Self { offered: 0, good: 0, refused: 0, rows: 0, batches: 0, busy: 0, latencies })
    }

    fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.good += other.good;
        self.refused += other.refused;
        self.rows += other.rows;
        self.batches += other.batches;
        self.busy = self.busy.saturating_add(other.busy);
        // Both count up to the same latency, so nothing can be out of range.
        let _ = self.latencies.add(&other.latencies);
    }

    fn clear(&mut self) {
        (self.offered, self.good, self.refused, self.rows, self.batches, self.busy) = (0, 0, 0, 0, 0, 0);
        self.latencies.reset();
    }

    fn is_empty(&self) -> bool {
        self.offered == 0 && self.batches == 0 && self.busy == 0
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Series {
    parts: Vec<Part>,
    /// Length of a bucket, in nanoseconds.
    width: u64,
}

impl Series {
    /// Creates the series of a run of about `expected` nanoseconds. It allocates all memory that it needs.
    pub(crate) fn new(expected: u64) -> Result<Self, CreationError> {
        let parts = (0..SERIES_MAX).map(|_| Part::new()).collect::<Result<_, _>>()?;
        Ok(Self { parts, width: round_up(expected / SERIES_AIM) })
    }

    fn part(&mut self, at: u64) -> Option<&mut Part> {
        while at / self.width >= SERIES_MAX as u64 {
            self.halve();
        }
        invariant::expected!(
            self.parts.get_mut(usize::try_from(at / self.width).ok()?),
            "sim.time_outside_the_series"
        )
    }

    fn halve(&mut self) {
        let (mut halved, mut spare) = (Vec::with_capacity(SERIES_MAX), Vec::new());
        let mut parts = std::mem::take(&mut self.parts).into_iter();
        while let Some(mut first) = parts.next() {
            if let Some(mut second) = parts.next() {
                first.add(&second);
                second.clear();
                spare.push(second);
            }
            halved.push(first);
        }
        halved.append(&mut spare);
        (self.parts, self.width) = (halved, self.width.saturating_mul(2));
    }

    pub(crate) fn offered(&mut self, at: u64) {
        if let Some(part) = self.part(at) {
            part.offered += 1;
        }
    }

    /// Counts the answer to a request that arrived at that time.
    pub(crate) fn answered(&mut self, arrived: u64, latency: u64, good: bool) {
        let Some(part) = self.part(arrived) else { return };
        part.good += u64::from(good);
        part.latencies.saturating_record(latency / UNIT);
    }

    /// Counts a request that arrived at that time and was not answered.
    pub(crate) fn refused(&mut self, arrived: u64) {
        if let Some(part) = self.part(arrived) {
            part.refused += 1;
        }
    }

    /// Counts a batch that started at that time.
    pub(crate) fn batch(&mut self, start: u64, rows: u32) {
        if let Some(part) = self.part(start) {
            part.rows += u64::from(rows);
            part.batches += 1;
        }
    }

    /// Counts `lanes` lanes as busy from `from` to `to`.
    pub(crate) fn busy(&mut self, mut from: u64, to: u64, lanes: u32) {
        while from < to {
            // Grown first, for the width may change by it.
            self.part(from);
            let end = (from / self.width + 1).saturating_mul(self.width).min(to);
            if let Some(part) = self.part(from) {
                part.busy = part.busy.saturating_add((end - from).saturating_mul(u64::from(lanes)));
            }
            from = end;
        }
    }

    /// Up to the end of the traffic.
    pub(crate) fn report(&self, end: u64) -> Vec<Bucket> {
        let last = self.parts.iter().rposition(|part| !part.is_empty()).map_or(0, |last| last + 1);
        let starts = (0..).map(|index: u64| index.saturating_mul(self.width));
        let parts = starts.zip(self.parts.iter().take(last)).filter(|(start, _)| *start < end);
        let bucket = |(start, part): (u64, &Part)| {
            let covered = self.width.min(end - start).max(1);
            let p99 =
                (!part.latencies.is_empty()).then(|| quantile(&part.latencies, 0.99).saturating_mul(UNIT));
            Bucket {
                t: seconds(start),
                offered: part.offered,
                good: part.good,
                refused: part.refused,
                mean_batch: part.rows as f64 / part.batches.max(1) as f64,
                busy_lanes: part.busy as f64 / covered as f64,
                p99_ms: p99.map(millis),
            }
        };
        parts.map(bucket).collect()
    }
}

/// The next of 1, 2, 5, 10, 20 ... microseconds.
fn round_up(width: u64) -> u64 {
    let mut decade = 1_000_u64;
    loop {
        for step in [1, 2, 5] {
            let round = decade.saturating_mul(step);
            if round >= width {
                return round;
            }
        }
        decade = decade.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_round_widths_and_double_when_there_are_too_many() {
        let second = 1_000_000_000;
        let mut series = Series::new(60 * second).unwrap();
        assert_eq!(series.width, second / 2);
        for at in 0..400 {
            series.offered(at * second);
            series.answered(at * second, 5_000_000, at % 2 == 0);
            series.busy(at * second, (at + 1) * second, 3);
        }
        let buckets = series.report(400 * second);
        assert!(buckets.len() <= SERIES_MAX && buckets.len() >= SERIES_MAX / 2);
        assert_eq!(buckets.iter().map(|bucket| bucket.offered).sum::<u64>(), 400);
        assert_eq!(buckets.iter().map(|bucket| bucket.good).sum::<u64>(), 200);
        assert!(buckets.iter().all(|bucket| (bucket.busy_lanes - 3.0).abs() < 1e-9), "{buckets:?}");
        let p99 = buckets[7].p99_ms.unwrap();
        assert!((p99 - 5.0).abs() < 0.05, "{p99}");
    }

    #[test]
    fn the_last_bucket_is_averaged_over_what_there_is_of_it() {
        let mut series = Series::new(1_600_000).unwrap();
        series.busy(0, 25_000, 2);
        let busy: Vec<f64> = series.report(25_000).iter().map(|bucket| bucket.busy_lanes).collect();
        assert_eq!(busy, [2.0, 2.0, 2.0]);
    }
}
