//! Batch times of a model, learned from the batches that ran.
//!
//! Each (payload size bucket, rows) has a smoothed mean, updated as TCP's round-trip estimator does (RFC 6298:
//! gain 1/8, the first few samples weighing more); each bucket has one smoothed relative deviation. Sizes between
//! measured ones are interpolated, sizes known from a profile only are corrected by how far the profile was off
//! where it could be checked. The value of a size without recent measurements fades, so that a size once considered
//! too slow is tried again.

use std::ops::RangeInclusive;

use invariant::expected;
use smallvec::SmallVec;

use crate::{Nanos, ProfilePoint};

/// Payload sizes a row are grouped into halves of powers of two: 8 to 11, 12 to 15, 16 to 23 and so on. Beyond this many
/// groups, the nearest known one is used.
const MAX_BUCKETS: usize = 32;

/// Batches after which an unmeasured size looks half as costly to [`CostModel::hopeful`].
const FADE_BATCHES: u64 = 32_768;

/// Batches between two updates of the faded values.
const FADE_EVERY: u64 = 64;

/// Inverse of the gain of a mean that has been measured for long.
const GAIN: u64 = 8;

/// Inverse of the gain of the relative deviation.
const DEVIATION_GAIN: u64 = 16;

/// Fixed-point 1 of ratios.
const ONE: u64 = 1 << 16;

/// A correction of the profile is taken over when it differs by more than this from the one in use.
const BIAS_STEP: u64 = ONE / 256;

/// Sizes kept in a table for reading at once; larger ones are computed.
const TABLE_ROWS: u32 = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    rows: u32,
    mean: u64,
    /// The estimate before the first request, or zero.
    profile: u64,
    /// Batches measured in service, up to the inverse of the lasting gain.
    samples: u64,
    /// `Bucket::observed` when it was last measured.
    seen: u64,
    /// Expected time a row when the tables were last filled here.
    row_time: u64,
}

impl Point {
    fn new(rows: u32, mean: u64, profile: u64, seen: u64) -> Self {
        Self { rows, mean, profile, samples: 0, seen, row_time: 0 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bucket {
    size: u32,
    /// Payload bytes a row of this size.
    bytes: RangeInclusive<u64>,
    /// In order of their rows.
    points: Vec<Point>,
    observed: u64,
    /// Mean relative deviation of measurements from the estimate.
    deviation: u64,
    /// Measured time over profile time, smoothed.
    learned_bias: u64,
    /// The correction in use.
    bias: u64,
    /// Expected times of 0, 1, 2 ... rows up to the largest point.
    table: Vec<u64>,
    /// The same, faded.
    hopeful: Vec<u64>,
    /// Shortest expected time a row of the measured sizes.
    best_row: u64,
}

impl Bucket {
    fn new(size: u32) -> Self {
        Self {
            size,
            bytes: bytes_of(size),
            points: Vec::new(),
            observed: 0,
            deviation: ONE / 8,
            learned_bias: ONE,
            bias: ONE,
            table: Vec::new(),
            hopeful: Vec::new(),
            best_row: 0,
        }
    }

    fn mean(&self, point: &Point) -> u64 {
        if point.samples == 0 && point.profile > 0 { scale(point.mean, self.bias, ONE) } else { point.mean }
    }

    fn faded(&self, point: &Point) -> u64 {
        let age = self.observed.saturating_sub(point.seen);
        scale(self.mean(point), FADE_BATCHES, FADE_BATCHES + age)
    }

    fn observe(&mut self, rows: u32, time: u64) {
        self.observed += 1;
        let seen = self.observed;
        let believed = self.time_of(rows);
        let bias = self.bias;
        let position = self.position(rows);
        if self.points.get(position).is_none_or(|point| point.rows != rows) {
            self.points.insert(position, Point::new(rows, believed.unwrap_or(time), 0, seen));
        }
        let point = expected!(self.points.get_mut(position), "router.observed_size_without_point");
        let Some(point) = point else { return };
        if point.samples == 0 && point.profile > 0 {
            point.mean = scale(point.mean, bias, ONE);
        }
        // One stall must not spoil the estimate. A lasting change still has its effect after a few batches.
        let sample = time.min(point.mean.saturating_mul(4).max(1));
        let error = scale(sample.abs_diff(point.mean), ONE, point.mean.max(1));
        if sample < point.mean / 2 {
            // An estimate that is far too long rejects requests, so chances to correct it are rare and count for more.
            point.mean = point.mean.midpoint(sample);
            self.deviation = ONE / 4;
        } else {
            self.deviation = (self.deviation * (DEVIATION_GAIN - 1) + error) / DEVIATION_GAIN;
            // A measurement made before the first request has the weight of one batch in service: the other
            // lanes were idle then.
            let weight = point.samples.saturating_add(1).min(GAIN - 1);
            point.mean = point.mean.saturating_mul(weight).saturating_add(sample) / (weight + 1);
        }
        point.samples = point.samples.saturating_add(1).min(GAIN);
        point.seen = seen;
        if point.profile > 0 {
            let ratio = scale(sample, ONE, point.profile);
            self.learned_bias = (self.learned_bias * (GAIN - 1) + ratio) / GAIN;
        }
        let moved = self.learned_bias.abs_diff(self.bias) > BIAS_STEP;
        if moved {
            self.bias = self.learned_bias;
        }
        if moved || seen.is_multiple_of(FADE_EVERY) || self.table.len() <= rows as usize {
            self.tabulate(0, u32::MAX);
        } else {
            let below = position.checked_sub(1).and_then(|below| self.points.get(below));
            let above = self.points.get(position + 1);
            self.tabulate(below.map_or(0, |point| point.rows), above.map_or(rows, |point| point.rows));
        }
    }

    /// Position of the first point of at least `rows` rows.
    fn position(&self, rows: u32) -> usize {
        self.points.partition_point(|point| point.rows < rows)
    }

    /// Fills the tables for `from..=to` rows.
    fn tabulate(&mut self, from: u32, to: u32) {
        let largest = self.points.last().map_or(0, |point| point.rows).min(TABLE_ROWS);
        let (mut table, mut hopeful) = (std::mem::take(&mut self.table), std::mem::take(&mut self.hopeful));
        table.resize(largest as usize + 1, 0);
        hopeful.resize(largest as usize + 1, 0);
        let first = self.position(from);
        let mut position = first;
        let entries = table.iter_mut().zip(&mut hopeful).skip(from as usize);
        for (rows, (expected, faded)) in (from..=to.min(largest)).zip(entries) {
            if self.points.get(position).is_some_and(|point| point.rows < rows) {
                position += 1;
            }
            *expected = self.interpolate_at(position, rows, |point| self.mean(point)).unwrap_or(0);
            *faded = self.interpolate_at(position, rows, |point| self.faded(point)).unwrap_or(0);
        }
        let mut points = std::mem::take(&mut self.points);
        let (mut best_before, mut best) = (u64::MAX, u64::MAX);
        for point in points.iter_mut().skip(first).take_while(|point| point.rows <= to) {
            best_before = best_before.min(point.row_time);
            point.row_time = self.mean(point) / u64::from(point.rows.max(1));
            best = best.min(point.row_time);
        }
        // Only a best size that got slower makes it necessary to look at the others.
        if best <= self.best_row {
            self.best_row = best;
        } else if best_before <= self.best_row {
            self.best_row = points.iter().map(|point| point.row_time).min().unwrap_or(0);
        }
        (self.points, self.table, self.hopeful) = (points, table, hopeful);
    }

    fn cautious(&self, time: u64) -> u64 {
        if self.deviation == 0 { time } else { scale(time, ONE + 2 * self.deviation, ONE) }
    }

    fn time_of(&self, rows: u32) -> Option<u64> {
        match self.table.get(rows as usize) {
            Some(&time) => Some(time),
            None => self.interpolate(rows, |point| self.mean(point)),
        }
    }

    fn largest_within(&self, budget: u64, limit: u32) -> u32 {
        // The margin is the same for all sizes, so it is taken off the budget instead.
        let budget = if self.deviation == 0 { budget } else { scale(budget, ONE, ONE + 2 * self.deviation) };
        if self.time_of(limit).is_none_or(|time| time <= budget) {
            return limit;
        }
        let known = self.table.get(1..=limit.min(TABLE_ROWS) as usize).or_else(|| self.table.get(1..));
        let known = known.unwrap_or_default();
        let fits = known.partition_point(|&time| time <= budget);
        if fits < known.len() {
            return u32::try_from(fits).unwrap_or(limit);
        }
        let (mut fits, mut too_large) = (u32::try_from(fits).unwrap_or(limit), limit);
        while too_large.saturating_sub(fits) > 1 {
            let middle = fits.midpoint(too_large);
            if self.time_of(middle).is_none_or(|time| time <= budget) {
                fits = middle
            } else {
                too_large = middle
            }
        }
        fits
    }

    fn interpolate(&self, rows: u32, value: impl Fn(&Point) -> u64) -> Option<u64> {
        self.interpolate_at(self.position(rows), rows, value)
    }

    /// The value for `rows` rows, where `position` is that of the first point of at least as many.
    fn interpolate_at(&self, position: usize, rows: u32, value: impl Fn(&Point) -> u64) -> Option<u64> {
        let above = self.points.get(position);
        if let Some(point) = above.filter(|point| point.rows == rows) {
            return Some(value(point));
        }
        let below = position.checked_sub(1).and_then(|below| self.points.get(below));
        match (below, above) {
            (Some(low), Some(high)) => {
                let part = (u64::from(rows - low.rows), u64::from(high.rows - low.rows));
                Some(between(value(low), value(high), part))
            }
            (Some(low), None) => Some(scale(value(low), u64::from(rows), u64::from(low.rows.max(1)))),
            (None, Some(high)) => Some(value(high)),
            (None, None) => None,
        }
    }
}

/// The value at `part.0 / part.1` of the way from one value to another.
fn between(from: u64, to: u64, (steps, of): (u64, u64)) -> u64 {
    let way = scale(from.abs_diff(to), steps, of);
    if to >= from { from.saturating_add(way) } else { from - way }
}

fn scale(value: u64, times: u64, over: u64) -> u64 {
    match value.checked_mul(times) {
        Some(product) => product / over.max(1),
        None => {
            u64::try_from(u128::from(value) * u128::from(times) / u128::from(over.max(1))).unwrap_or(u64::MAX)
        }
    }
}

/// Batch times of one model on the lanes that run it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostModel {
    buckets: SmallVec<[Bucket; 1]>,
}

fn bucket_of(row_bytes: u64) -> u32 {
    let bits = u64::BITS - row_bytes.leading_zeros();
    let upper_half = bits >= 2 && row_bytes >> (bits - 2) & 1 == 1;
    2 * bits + u32::from(upper_half)
}

/// The payload sizes of a bucket.
fn bytes_of(bucket: u32) -> RangeInclusive<u64> {
    let (bits, upper_half) = (bucket / 2, u64::from(bucket % 2));
    let half = 1 << bits.saturating_sub(2);
    let from = if bits == 0 { 0 } else { (1 << (bits - 1)) + upper_half * half };
    from..=from + (half - 1)
}

impl CostModel {
    /// From measurements made before the first request.
    pub fn from_profile(profile: &[ProfilePoint]) -> Self {
        let mut model = Self::default();
        for point in profile {
            let time = point.time.0;
            if let Some(bucket) = model.bucket_mut(bucket_of(point.row_bytes)) {
                let new = Point::new(point.rows, time, time.max(1), 0);
                let position = bucket.position(point.rows);
                match bucket.points.get_mut(position).filter(|known| known.rows == point.rows) {
                    Some(known) => *known = new,
                    None => bucket.points.insert(position, new),
                }
            }
        }
        for bucket in &mut model.buckets {
            bucket.tabulate(0, u32::MAX);
        }
        model
    }

    /// Learns from a finished batch.
    pub fn observe(&mut self, rows: u32, row_bytes: u64, time: Nanos) {
        if let Some(bucket) = self.bucket_mut(bucket_of(row_bytes)) {
            bucket.observe(rows, time.0);
        }
    }

    /// Expected time of a batch; `None` while nothing like it has been measured.
    pub fn expected(&self, rows: u32, row_bytes: u64) -> Option<Nanos> {
        self.nearest(row_bytes)?.time_of(rows).map(Nanos)
    }

    /// Time that a batch rarely exceeds: the mean plus two deviations. Zero while unknown, so that no request is rejected
    /// for lack of data.
    pub fn cautious(&self, rows: u32, row_bytes: u64) -> Nanos {
        let Some(bucket) = self.nearest(row_bytes) else { return Nanos::ZERO };
        let Some(time) = bucket.time_of(rows) else { return Nanos::ZERO };
        Nanos(bucket.cautious(time))
    }

    /// Expected time, discounted the longer the size has not been measured.
    pub fn hopeful(&self, rows: u32, row_bytes: u64) -> Option<Nanos> {
        let bucket = self.nearest(row_bytes)?;
        match bucket.hopeful.get(rows as usize) {
            Some(&time) => Some(Nanos(time)),
            None => bucket.interpolate(rows, |point| bucket.faded(point)).map(Nanos),
        }
    }

    /// Expected time a row at the best measured batch size; zero while unknown.
    pub fn best_row_time(&self, row_bytes: u64) -> Nanos {
        let Some(bucket) = self.nearest(row_bytes) else { return Nanos::ZERO };
        Nanos(bucket.best_row)
    }

    /// Largest batch measured at this payload size.
    pub fn largest_measured(&self, row_bytes: u64) -> Option<u32> {
        self.nearest(row_bytes)?.points.last().map(|point| point.rows)
    }

    /// Largest batch of at most `limit` rows that rarely takes longer than `budget`. Zero if even one row would, `limit`
    /// while costs are unknown.
    pub fn largest_within(&self, budget: Nanos, row_bytes: u64, limit: u32) -> u32 {
        match self.nearest(row_bytes) {
            Some(bucket) => bucket.largest_within(budget.0, limit),
            None => limit,
        }
    }

    /// The same with the part of one more row for which there would be time, if costs are known.
    pub fn fractional_rows_within(&self, budget: Nanos, row_bytes: u64, limit: u32) -> f64 {
        let Some(bucket) = self.nearest(row_bytes) else { return f64::from(limit) };
        let whole = bucket.largest_within(budget.0, limit);
        if whole >= limit {
            return f64::from(limit);
        }
        let time = |rows: u32| bucket.time_of(rows).map_or(0, |time| bucket.cautious(time));
        let (below, above) = (if whole == 0 { 0 } else { time(whole) }, time(whole + 1));
        let part = budget.0.saturating_sub(below) as f64 / above.saturating_sub(below).max(1) as f64;
        f64::from(whole) + part.min(0.999)
    }

    fn bucket_mut(&mut self, size: u32) -> Option<&mut Bucket> {
        let position = match self.buckets.iter().position(|bucket| bucket.size == size) {
            Some(position) => position,
            None if self.buckets.len() < MAX_BUCKETS => {
                self.buckets.push(Bucket::new(size));
                self.buckets.len() - 1
            }
            None => {
                let nearest = self.buckets.iter().enumerate();
                nearest.min_by_key(|(_, bucket)| bucket.size.abs_diff(size))?.0
            }
        };
        self.buckets.get_mut(position)
    }

    /// A payload size never seen gets no estimate from other sizes: a model with free shapes may take a hundred times
    /// longer there.
    fn nearest(&self, row_bytes: u64) -> Option<&Bucket> {
        let own = self.buckets.iter().find(|bucket| bucket.bytes.contains(&row_bytes));
        let full = self.buckets.len() >= MAX_BUCKETS;
        let distance = |bucket: &&Bucket| bucket.size.abs_diff(bucket_of(row_bytes));
        own.or_else(|| self.buckets.iter().filter(|_| full).min_by_key(distance))
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
    fn a_profile_that_is_off_is_corrected_for_the_sizes_that_never_ran() {
        let mut cost = profile(&[(1, 100), (2, 110), (4, 130), (8, 170)]);
        for _ in 0..60 {
            cost.observe(2, 64, Nanos::from_micros(132));
            cost.observe(4, 64, Nanos::from_micros(156));
        }
        let (one, eight) = (cost.expected(1, 64).unwrap().0, cost.expected(8, 64).unwrap().0);
        assert!(one.abs_diff(120_000) < 2_000 && eight.abs_diff(204_000) < 3_000, "{one} {eight}");
    }

    #[test]
    fn steady_times_make_the_estimate_sure_for_every_size() {
        let mut cost = profile(&[(1, 100), (8, 240)]);
        assert_eq!(cost.cautious(8, 64), Nanos::from_micros(300));
        for _ in 0..200 {
            cost.observe(1, 64, Nanos::from_micros(100));
        }
        assert!(cost.cautious(8, 64) < Nanos::from_micros(245), "{}", cost.cautious(8, 64));
        assert_eq!(cost.largest_within(Nanos::from_micros(165), 64, 8), 4);
        assert_eq!(cost.largest_within(Nanos::from_micros(10), 64, 8), 0);
        assert_eq!(cost.largest_within(Nanos::from_micros(900), 64, 8), 8);
    }

    #[test]
    fn a_size_long_unmeasured_looks_cheaper_until_it_is_measured_again() {
        let mut cost = profile(&[(1, 100), (8, 1600)]);
        for _ in 0..FADE_BATCHES {
            cost.observe(1, 64, Nanos::from_micros(100));
        }
        assert_eq!(cost.hopeful(8, 64), Some(Nanos::from_micros(800)));
        for _ in 0..64 {
            cost.observe(8, 64, Nanos::from_micros(1600));
        }
        assert!(cost.hopeful(8, 64).unwrap() > Nanos::from_micros(1590));
    }

    #[test]
    fn lengths_that_requests_are_padded_to_are_told_apart() {
        let lengths = [8_u64, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];
        let mut cost = CostModel::default();
        for length in lengths {
            cost.observe(1, 24 * length, Nanos::from_micros(length));
        }
        for length in lengths {
            assert_eq!(cost.expected(1, 24 * length), Some(Nanos::from_micros(length)));
        }
        assert_eq!((bucket_of(0), bucket_of(1), bucket_of(12), bucket_of(15)), (0, 2, 9, 9));
        for row_bytes in (0..300).chain([u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX - 1, u64::MAX]) {
            let bytes = bytes_of(bucket_of(row_bytes));
            assert!(bytes.contains(&row_bytes), "{row_bytes} is not in {bytes:?}");
            assert_eq!([*bytes.start(), *bytes.end()].map(bucket_of), [bucket_of(row_bytes); 2]);
        }
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
