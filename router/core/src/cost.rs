//! What a batch of a model costs, learned from the batches that ran.
//!
//! Each (payload size bucket, rows) has a smoothed mean and deviation, updated as TCP's round-trip estimator
//! does (RFC 6298: gains 1/8 and 1/4, the first few samples weighing more). Sizes never measured are interpolated between measured neighbours. The
//! value of a size that has not been measured for long fades, so that a size once judged too slow is tried
//! again.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::{Nanos, ProfilePoint};

/// Payload sizes a row that are told apart: powers of two, the nearest one standing in beyond this many.
const MAX_BUCKETS: usize = 16;

/// Batches after which an unmeasured size looks half as costly to [`CostModel::hopeful`].
const FADE_BATCHES: u64 = 4_096;

/// Inverse of the gain of a mean that has been measured for long.
const GAIN: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    mean: u64,
    deviation: u64,
    /// Batches measured in service, up to the inverse of the lasting gain.
    samples: u64,
    /// `CostModel::observed` when it was last measured.
    seen: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bucket {
    log2_bytes: u32,
    points: BTreeMap<u32, Point>,
}

/// Batch times of one model on the lanes that run it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostModel {
    buckets: SmallVec<[Bucket; 1]>,
    observed: u64,
}

fn bucket_of(row_bytes: u64) -> u32 {
    u64::BITS - row_bytes.leading_zeros()
}

impl CostModel {
    /// From measurements made before the first request.
    pub fn from_profile(profile: &[ProfilePoint]) -> Self {
        let mut model = Self::default();
        for point in profile {
            let time = point.time.0;
            if let Some(bucket) = model.bucket_mut(bucket_of(point.row_bytes)) {
                bucket
                    .points
                    .insert(point.rows, Point { mean: time, deviation: time / 8, samples: 0, seen: 0 });
            }
        }
        model
    }

    /// Learns from a finished batch.
    pub fn observe(&mut self, rows: u32, row_bytes: u64, time: Nanos) {
        self.observed += 1;
        let seen = self.observed;
        let Some(bucket) = self.bucket_mut(bucket_of(row_bytes)) else { return };
        let point = bucket.points.entry(rows).or_insert(Point {
            mean: time.0,
            deviation: time.0 / 8,
            samples: 0,
            seen,
        });
        // One stall must not poison the estimate; a lasting change still gets through in a few batches.
        let sample = time.0.min(point.mean.saturating_mul(4).max(1));
        if sample < point.mean / 2 {
            // An estimate far too long refuses requests, so chances to correct it are rare: each counts for more.
            point.mean = point.mean.midpoint(sample);
            point.deviation = point.mean / 4;
        } else {
            let error = sample.abs_diff(point.mean);
            point.deviation = (point.deviation.saturating_mul(3).saturating_add(error)) / 4;
            // A measurement made before the first request weighs as much as one batch in service: neighbours on
            // the other lanes were idle then.
            let weight = point.samples.saturating_add(1).min(GAIN - 1);
            point.mean = point.mean.saturating_mul(weight).saturating_add(sample) / (weight + 1);
        }
        point.samples = point.samples.saturating_add(1).min(GAIN);
        point.seen = seen;
    }

    /// Expected time of a batch; `None` while nothing like it has been measured.
    pub fn expected(&self, rows: u32, row_bytes: u64) -> Option<Nanos> {
        self.interpolate(rows, row_bytes, |point| point.mean)
    }

    /// Time that a batch takes at most, nearly always: mean and two deviations. Zero while unknown, so that
    /// ignorance never refuses a request.
    pub fn cautious(&self, rows: u32, row_bytes: u64) -> Nanos {
        self.interpolate(rows, row_bytes, |point| point.mean.saturating_add(2 * point.deviation))
            .unwrap_or(Nanos::ZERO)
    }

    /// Expected time, discounted the longer the size has not been measured.
    pub fn hopeful(&self, rows: u32, row_bytes: u64) -> Option<Nanos> {
        let observed = self.observed;
        self.interpolate(rows, row_bytes, |point| {
            let age = observed.saturating_sub(point.seen);
            let scaled = u128::from(point.mean) * u128::from(FADE_BATCHES) / u128::from(FADE_BATCHES + age);
            u64::try_from(scaled).unwrap_or(u64::MAX)
        })
    }

    /// Expected time a row at the best measured batch size; zero while unknown.
    pub fn best_row_time(&self, row_bytes: u64) -> Nanos {
        let bucket = self.nearest(bucket_of(row_bytes));
        let row_times =
            bucket.into_iter().flat_map(|b| &b.points).map(|(&rows, p)| p.mean / u64::from(rows.max(1)));
        Nanos(row_times.min().unwrap_or(0))
    }

    /// Largest batch measured at this payload size.
    pub fn largest_measured(&self, row_bytes: u64) -> Option<u32> {
        self.nearest(bucket_of(row_bytes))?.points.last_key_value().map(|(&rows, _)| rows)
    }

    fn bucket_mut(&mut self, log2_bytes: u32) -> Option<&mut Bucket> {
        let position = match self.buckets.iter().position(|bucket| bucket.log2_bytes == log2_bytes) {
            Some(position) => position,
            None if self.buckets.len() < MAX_BUCKETS => {
                self.buckets.push(Bucket { log2_bytes, points: BTreeMap::new() });
                self.buckets.len() - 1
            }
            None => {
                let nearest = self.buckets.iter().enumerate();
                nearest.min_by_key(|(_, bucket)| bucket.log2_bytes.abs_diff(log2_bytes))?.0
            }
        };
        self.buckets.get_mut(position)
    }

    /// A payload size never seen borrows from no other: a model with free shapes may take a hundred times
    /// longer there.
    fn nearest(&self, log2_bytes: u32) -> Option<&Bucket> {
        let full = self.buckets.len() >= MAX_BUCKETS;
        let distance = |bucket: &&Bucket| bucket.log2_bytes.abs_diff(log2_bytes);
        self.buckets.iter().min_by_key(distance).filter(|bucket| full || bucket.log2_bytes == log2_bytes)
    }

    fn interpolate(&self, rows: u32, row_bytes: u64, value: impl Fn(&Point) -> u64) -> Option<Nanos> {
        let bucket = self.nearest(bucket_of(row_bytes))?;
        let below = bucket.points.range(..=rows).next_back().map(|(&r, p)| (r, value(p)));
        let above = bucket.points.range(rows..).next().map(|(&r, p)| (r, value(p)));
        let time = match (below, above) {
            (Some((low, low_time)), Some((high, high_time))) if high > low => {
                let (low_time, high_time) = (i128::from(low_time), i128::from(high_time));
                let slope = (high_time - low_time) * i128::from(rows - low) / i128::from(high - low);
                u64::try_from(low_time + slope).unwrap_or(0)
            }
            (Some((low, time)), None) => {
                let scaled = u128::from(time) * u128::from(rows) / u128::from(low.max(1));
                u64::try_from(scaled).unwrap_or(u64::MAX)
            }
            (_, Some((_, time))) => time,
            (None, None) => return None,
        };
        Some(Nanos(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(points: &[(u32, u64)]) -> CostModel {
        let points: Vec<_> = points
            .iter()
            .map(|&(rows, micros)| ProfilePoint { rows, row_bytes: 64, time: Nanos::from_micros(micros) })
            .collect();
        CostModel::from_profile(&points)
    }

    #[test]
    fn sizes_between_measurements_are_interpolated_and_beyond_them_scaled() {
        let cost = profile(&[(1, 100), (8, 240)]);
        assert_eq!(cost.expected(1, 64), Some(Nanos::from_micros(100)));
        assert_eq!(cost.expected(4, 64), Some(Nanos::from_micros(160)));
        assert_eq!(cost.expected(16, 64), Some(Nanos::from_micros(480)));
        assert_eq!(cost.expected(1, 4096), None);
        assert_eq!(cost.cautious(1, 4096), Nanos::ZERO);
    }

    #[test]
    fn estimates_follow_a_lasting_change_and_ignore_one_stall() {
        let mut cost = profile(&[(1, 100)]);
        cost.observe(1, 64, Nanos::from_millis(50));
        assert!(cost.expected(1, 64).unwrap() < Nanos::from_micros(260), "{:?}", cost.expected(1, 64));
        for _ in 0..60 {
            cost.observe(1, 64, Nanos::from_micros(200));
        }
        let learned = cost.expected(1, 64).unwrap();
        assert!(learned.0.abs_diff(200_000) < 2_000, "{learned}");
    }

    #[test]
    fn the_first_batches_in_service_outweigh_the_profile() {
        let mut cost = profile(&[(2, 1_000)]);
        cost.observe(2, 64, Nanos::from_micros(3_000));
        assert_eq!(cost.expected(2, 64), Some(Nanos::from_micros(2_000)));
        for _ in 0..100 {
            cost.observe(2, 64, Nanos::from_micros(2_000));
        }
        cost.observe(2, 64, Nanos::from_micros(2_800));
        assert!(cost.expected(2, 64).unwrap() < Nanos::from_micros(2_200), "later ones weigh an eighth");
    }

    #[test]
    fn a_size_long_unmeasured_looks_cheaper_until_it_is_measured_again() {
        let mut cost = profile(&[(1, 100), (8, 1600)]);
        for _ in 0..4_096 {
            cost.observe(1, 64, Nanos::from_micros(100));
        }
        assert_eq!(cost.hopeful(8, 64), Some(Nanos::from_micros(800)));
        cost.observe(8, 64, Nanos::from_micros(1600));
        assert_eq!(cost.hopeful(8, 64), Some(Nanos::from_micros(1600)));
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let mut cost = CostModel::default();
        for shift in 0..64 {
            cost.observe(1, 1 << shift, Nanos::from_micros(shift + 1));
        }
        assert_eq!(cost.buckets.len(), MAX_BUCKETS);
        assert!(cost.expected(1, 1 << 60).is_some());
    }
}
