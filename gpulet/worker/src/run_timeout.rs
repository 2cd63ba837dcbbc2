//! How long to wait for a batch, learned from earlier batches and from what can be ahead of it in the device's queue.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use models::engine::Batch;

use crate::limits::Limits;

/// A batch may take this many times as long as the slowest one seen, within the limits.
const SLOWEST_FACTOR: u32 = 10;
/// A batch may always take this many times as long as the slowest one seen.
const SLOWEST_FACTOR_MIN: u32 = 3;
/// Batches of a size to learn from. Later ones do not raise the limit, so that a process that gradually slows down, or
/// was once slow because the machine was, does not get more and more time.
const SAMPLES_MAX: u32 = 8;

/// The times of one session's batches.
pub(crate) struct RunTimeouts {
    limits: Limits,
    /// Whether the first extent of each input is the number of rows.
    batched: bool,
    /// Most recently used first. Engines evict what they prepared for shapes in the same order.
    shapes: VecDeque<(u64, Times)>,
    shapes_max: usize,
    /// Whether the engine frees its working memory at the next run.
    trimmed: bool,
}

/// The times of batches of the same shapes, apart from the number of rows.
#[derive(Default)]
struct Times {
    /// Rows and time of the first batch, which may be much slower than later ones.
    first: Option<(u32, Duration)>,
    /// Later batches by rows, ascending.
    sizes: Vec<Size>,
}

struct Size {
    rows: u32,
    slowest: Duration,
    runs: u32,
}

/// How long a batch may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunTimeout {
    pub limit: Duration,
    /// Time of other gpulets' batches that can be ahead of it.
    pub ahead: Duration,
    /// The time of the slowest batch of its size; none before the first one.
    pub expected: Option<Duration>,
    /// Whether `expected` applies: the batch is in the foreground and the engine is warm.
    pub typical: bool,
    /// Hash of its shapes.
    shapes: u64,
}

impl RunTimeouts {
    pub fn new(limits: Limits, batched: bool, shapes_max: usize) -> Self {
        Self { limits, batched, shapes: VecDeque::new(), shapes_max: shapes_max.max(1), trimmed: false }
    }

    /// The timeout of a batch, if other gpulets' batches can delay it by `ahead`. A background batch has the time of a
    /// first batch.
    pub fn timeout(&self, batch: &Batch, background: bool, ahead: Duration) -> RunTimeout {
        let shapes = self.shapes_of(batch);
        let times = self.shapes.iter().find(|(key, _)| *key == shapes);
        let expected = times.and_then(|(_, times)| times.slowest(batch.rows));
        let typical = expected.filter(|_| !background && !self.trimmed);
        let limit = typical.map_or(self.limits.first_run, |slowest| {
            let all = slowest.saturating_add(ahead);
            let max = self.limits.run_max.max(all.saturating_mul(SLOWEST_FACTOR_MIN));
            all.saturating_mul(SLOWEST_FACTOR).clamp(self.limits.run_min, max)
        });
        RunTimeout { limit, ahead, expected, typical: typical.is_some(), shapes }
    }

    /// Learns from a batch that ended.
    pub fn ran(&mut self, timeout: RunTimeout, rows: u32, took: Duration) {
        let at = self.shapes.iter().position(|(key, _)| *key == timeout.shapes);
        let (key, mut times) =
            at.and_then(|at| self.shapes.remove(at)).unwrap_or((timeout.shapes, Times::default()));
        // The batch after working memory was freed is not representative.
        if !std::mem::take(&mut self.trimmed) || times.first.is_none() {
            times.learn(rows, took);
        }
        self.shapes.push_front((key, times));
        self.shapes.truncate(self.shapes_max);
    }

    /// Records that the engine frees its working memory at the next run.
    pub fn trimmed(&mut self) {
        self.trimmed = true;
    }

    fn shapes_of(&self, batch: &Batch) -> u64 {
        let mut hasher = DefaultHasher::new();
        for input in &batch.inputs {
            let extents = input.as_ref().map(|tensor| tensor.shape.extents());
            extents.map(|extents| extents.get(usize::from(self.batched)..)).hash(&mut hasher);
        }
        hasher.finish()
    }
}

impl Times {
    fn learn(&mut self, rows: u32, took: Duration) {
        if self.first.is_none() {
            self.first = Some((rows, took));
            return;
        }
        match self.sizes.binary_search_by_key(&rows, |size| size.rows) {
            Ok(at) => {
                if let Some(size) = self.sizes.get_mut(at).filter(|size| size.runs < SAMPLES_MAX) {
                    size.slowest = size.slowest.max(took);
                    size.runs += 1;
                }
            }
            Err(at) => self.sizes.insert(at, Size { rows, slowest: took, runs: 1 }),
        }
    }

    /// The slowest time of `rows` rows: interpolated linearly between the sizes seen, in proportion beyond the largest
    /// one, and constant below the smallest one.
    fn slowest(&self, rows: u32) -> Option<Duration> {
        let after = self.sizes.partition_point(|size| size.rows < rows);
        let upper = self.sizes.get(after).map(|size| (size.rows, size.slowest));
        let lower = after.checked_sub(1).and_then(|before| self.sizes.get(before));
        let lower = lower.map(|size| (size.rows, size.slowest));
        match (lower, upper) {
            (None, Some((_, slowest))) => Some(slowest),
            (Some((few, quick)), Some((many, slow))) => {
                let share = f64::from(rows - few) / f64::from(many - few);
                let (quick, slow) = (quick.as_secs_f64(), slow.as_secs_f64());
                Some(Duration::from_secs_f64(quick + (slow - quick) * share))
            }
            (Some(largest), None) => Some(scaled(largest, rows)),
            (None, None) => self.first.map(|first| scaled(first, rows)),
        }
    }
}

fn scaled((seen, slowest): (u32, Duration), rows: u32) -> Duration {
    slowest.mul_f64(f64::from(rows.max(seen)) / f64::from(seen.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oip::{Datatype, Shape, Tensor};

    fn batch(rows: u32, width: u64) -> Batch {
        let shape = Shape::from_extents(&[u64::from(rows), width]);
        let tensor =
            Tensor { name: "x".to_owned(), datatype: Datatype::Uint8, shape, data: Vec::new().into() };
        Batch { inputs: vec![Some(tensor)], rows }
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    struct Learned(RunTimeouts);

    impl Learned {
        fn new(shapes_max: usize) -> Self {
            Self(RunTimeouts::new(Limits::default(), true, shapes_max))
        }

        fn ran(&mut self, rows: u32, width: u64, took: u64) {
            let timeout = self.0.timeout(&batch(rows, width), false, Duration::ZERO);
            self.0.ran(timeout, rows, millis(took));
        }

        fn limit(&self, rows: u32, width: u64) -> u64 {
            self.limit_behind(rows, width, 0)
        }

        fn limit_behind(&self, rows: u32, width: u64, ahead: u64) -> u64 {
            let timeout = self.0.timeout(&batch(rows, width), false, millis(ahead));
            u64::try_from(timeout.limit.as_millis()).unwrap()
        }
    }

    const FIRST: u64 = 60_000;

    #[test]
    fn the_first_batch_of_a_shape_has_more_time_and_does_not_raise_later_limits() {
        let mut learned = Learned::new(4);
        assert_eq!(learned.limit(1, 9), FIRST);
        learned.ran(1, 9, 4000);
        assert_eq!(learned.limit(1, 9), 12_000, "only the first batch is known");
        learned.ran(1, 9, 20);
        assert_eq!(learned.limit(1, 9), 250);
        assert_eq!(learned.limit(1, 10), FIRST, "another shape is unknown");
        assert_eq!(
            learned.0.timeout(&batch(1, 9), true, Duration::ZERO).limit,
            millis(FIRST),
            "a background batch may wait for cores"
        );
    }

    #[test]
    fn limits_are_ten_times_the_slowest_and_mostly_within_a_second() {
        for (slowest, limit) in
            [(1, 250), (25, 250), (60, 600), (99, 990), (200, 1000), (333, 1000), (500, 1500)]
        {
            let mut learned = Learned::new(4);
            learned.ran(4, 9, 1);
            learned.ran(4, 9, slowest);
            learned.ran(4, 9, 1);
            assert_eq!(learned.limit(4, 9), limit, "slowest {slowest} ms");
        }
    }

    #[test]
    fn batches_ahead_raise_the_limit_like_the_batch_itself() {
        let mut learned = Learned::new(4);
        assert_eq!(learned.limit_behind(1, 9, 80), FIRST, "the first batch has enough time");
        learned.ran(1, 9, 1);
        learned.ran(1, 9, 2);
        let limits = [0, 23, 60, 400, 2_000].map(|ahead| learned.limit_behind(1, 9, ahead));
        assert_eq!(limits, [250, 250, 620, 1206, 6006], "three times the sum is always allowed");
        assert_eq!(learned.limit(1, 9), 250, "a timeout changes no state");
    }

    #[test]
    fn times_of_other_row_counts_are_interpolated() {
        let mut learned = Learned::new(4);
        for (rows, took) in [(1, 1), (2, 40), (4, 60)] {
            learned.ran(rows, 9, took);
        }
        let limits = [1, 2, 3, 4, 6].map(|rows| learned.limit(rows, 9));
        assert_eq!(limits, [400, 400, 500, 600, 900]);
    }

    #[test]
    fn a_slow_batch_after_the_first_samples_does_not_raise_the_limit() {
        let mut learned = Learned::new(4);
        for _ in 0..=SAMPLES_MAX {
            learned.ran(1, 9, 30);
        }
        learned.ran(1, 9, 299);
        assert_eq!(learned.limit(1, 9), 300);
    }

    #[test]
    fn the_least_recently_used_shapes_are_evicted() {
        let mut learned = Learned::new(2);
        for width in [1, 2, 1, 3] {
            learned.ran(1, width, 30);
            learned.ran(1, width, 30);
        }
        assert_eq!([1, 2, 3].map(|width| learned.limit(1, width)), [300, FIRST, 300]);
        assert_eq!(learned.0.shapes.len(), 2);
    }

    #[test]
    fn the_batch_that_frees_memory_has_more_time_and_is_not_a_sample() {
        let mut learned = Learned::new(2);
        learned.ran(1, 9, 30);
        learned.ran(1, 9, 30);
        learned.0.trimmed();
        assert_eq!(learned.limit(1, 9), FIRST);
        learned.ran(1, 9, 900);
        assert_eq!(learned.limit(1, 9), 300);
    }
}
