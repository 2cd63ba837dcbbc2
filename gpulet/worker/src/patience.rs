//! How long to wait for a run, learned from those before it and from what can be before it in the device's queue.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use models::engine::Batch;

use crate::limits::Limits;

/// How many times as long as the slowest seen a run may take, within the limits.
const SLOWER: u32 = 10;
/// A run may always take so many times as long as the slowest seen.
const ALWAYS: u32 = 3;
/// Runs of a size that are learned from. What comes later is measured against them: a process that slows down little
/// by little, or once took long because the machine did, is not to be waited for ever longer.
const LESSONS: u32 = 8;

/// What is known of the runs of one session.
pub(crate) struct Patience {
    limits: Limits,
    /// Whether the first extent of each input is the number of rows.
    batched: bool,
    /// Last used first. An engine that prepares itself for shapes forgets them in the same order.
    shapes: VecDeque<(u64, Known)>,
    shapes_max: usize,
    /// Whether the engine was told to forget its working memory.
    trimmed: bool,
}

/// What is known of the runs of some shapes.
#[derive(Default)]
struct Known {
    /// The first run, which may have taken much longer than those after it.
    first: Option<(u32, Duration)>,
    /// Runs after the first by rows, ascending.
    sizes: Vec<Size>,
}

struct Size {
    rows: u32,
    slowest: Duration,
    runs: u32,
}

/// How long a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub limit: Duration,
    /// Time of other gpulets' batches that can be before it.
    pub before: Duration,
    /// The slowest run of its size; none if there was none.
    pub expected: Option<Duration>,
    /// Whether it is like those that `expected` was learned from.
    pub usual: bool,
    /// Its shapes, by which it is remembered.
    shapes: u64,
}

impl Patience {
    pub fn new(limits: Limits, batched: bool, shapes_max: usize) -> Self {
        Self { limits, batched, shapes: VecDeque::new(), shapes_max: shapes_max.max(1), trimmed: false }
    }

    /// How long to wait for a run that batches of so long can be before. One that gives way is waited for as long as
    /// for any first one.
    pub fn allow(&mut self, batch: &Batch, gives_way: bool, before: Duration) -> Allowance {
        let shapes = self.shapes_of(batch);
        let known = self.shapes.iter().find(|(key, _)| *key == shapes);
        let expected = known.and_then(|(_, known)| known.slowest(batch.rows));
        let usual = expected.filter(|_| !gives_way && !self.trimmed);
        let limit = usual.map_or(self.limits.first_run, |slowest| {
            let all = slowest.saturating_add(before);
            let most = self.limits.run_most.max(all.saturating_mul(ALWAYS));
            all.saturating_mul(SLOWER).clamp(self.limits.run_least, most)
        });
        Allowance { limit, before, expected, usual: usual.is_some(), shapes }
    }

    /// A run ended.
    pub fn ran(&mut self, allowance: Allowance, rows: u32, took: Duration) {
        let at = self.shapes.iter().position(|(key, _)| *key == allowance.shapes);
        let (key, mut known) =
            at.and_then(|at| self.shapes.remove(at)).unwrap_or((allowance.shapes, Known::default()));
        // The run after working memory was given back says nothing of those after it.
        if !std::mem::take(&mut self.trimmed) || known.first.is_none() {
            known.learn(rows, took);
        }
        self.shapes.push_front((key, known));
        self.shapes.truncate(self.shapes_max);
    }

    /// The engine gives its working memory back at the next run.
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

impl Known {
    fn learn(&mut self, rows: u32, took: Duration) {
        if self.first.is_none() {
            self.first = Some((rows, took));
            return;
        }
        match self.sizes.binary_search_by_key(&rows, |size| size.rows) {
            Ok(at) => {
                if let Some(size) = self.sizes.get_mut(at).filter(|size| size.runs < LESSONS) {
                    size.slowest = size.slowest.max(took);
                    size.runs += 1;
                }
            }
            Err(at) => self.sizes.insert(at, Size { rows, slowest: took, runs: 1 }),
        }
    }

    /// The slowest run of so many rows: on the straight line between the sizes seen; beyond the largest one in
    /// proportion; below the smallest one as slow as that.
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
            (Some(largest), None) => Some(in_proportion(largest, rows)),
            (None, None) => self.first.map(|first| in_proportion(first, rows)),
        }
    }
}

fn in_proportion((seen, slowest): (u32, Duration), rows: u32) -> Duration {
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

    struct Lesson(Patience);

    impl Lesson {
        fn new(shapes_max: usize) -> Self {
            Self(Patience::new(Limits::default(), true, shapes_max))
        }

        fn ran(&mut self, rows: u32, width: u64, took: u64) {
            let allowance = self.0.allow(&batch(rows, width), false, Duration::ZERO);
            self.0.ran(allowance, rows, millis(took));
        }

        fn limit(&mut self, rows: u32, width: u64) -> u64 {
            self.limit_behind(rows, width, 0)
        }

        fn limit_behind(&mut self, rows: u32, width: u64, before: u64) -> u64 {
            let allowance = self.0.allow(&batch(rows, width), false, millis(before));
            u64::try_from(allowance.limit.as_millis()).unwrap()
        }
    }

    const FIRST: u64 = 60_000;

    #[test]
    fn the_first_run_of_a_shape_has_time_and_does_not_make_those_after_it_slow() {
        let mut lesson = Lesson::new(4);
        assert_eq!(lesson.limit(1, 9), FIRST);
        lesson.ran(1, 9, 4000);
        assert_eq!(lesson.limit(1, 9), 12_000, "nothing better is known yet");
        lesson.ran(1, 9, 20);
        assert_eq!(lesson.limit(1, 9), 250);
        assert_eq!(lesson.limit(1, 10), FIRST, "of another shape nothing is known");
        assert_eq!(
            lesson.0.allow(&batch(1, 9), true, Duration::ZERO).limit,
            millis(FIRST),
            "what gives way can take any time"
        );
    }

    #[test]
    fn limits_are_ten_times_the_slowest_but_find_a_hang_within_a_second() {
        for (slowest, limit) in
            [(1, 250), (25, 250), (60, 600), (99, 990), (200, 1000), (333, 1000), (500, 1500)]
        {
            let mut lesson = Lesson::new(4);
            lesson.ran(4, 9, 1);
            lesson.ran(4, 9, slowest);
            lesson.ran(4, 9, 1);
            assert_eq!(lesson.limit(4, 9), limit, "slowest {slowest} ms");
        }
    }

    #[test]
    fn what_can_be_before_a_batch_is_waited_for_as_the_batch_itself_is() {
        let mut lesson = Lesson::new(4);
        assert_eq!(lesson.limit_behind(1, 9, 80), FIRST, "the first run has time for anything");
        lesson.ran(1, 9, 1);
        lesson.ran(1, 9, 2);
        let limits = [0, 23, 60, 400, 2_000].map(|before| lesson.limit_behind(1, 9, before));
        assert_eq!(limits, [250, 250, 620, 1206, 6006], "three times all of it is always allowed");
        assert_eq!(lesson.limit(1, 9), 250, "and nothing is learned from it");
    }

    #[test]
    fn other_rows_are_expected_to_take_their_share() {
        let mut lesson = Lesson::new(4);
        for (rows, took) in [(1, 1), (2, 40), (4, 60)] {
            lesson.ran(rows, 9, took);
        }
        let limits = [1, 2, 3, 4, 6].map(|rows| lesson.limit(rows, 9));
        assert_eq!(limits, [400, 400, 500, 600, 900]);
    }

    #[test]
    fn what_was_once_slow_in_service_is_not_the_measure() {
        let mut lesson = Lesson::new(4);
        for _ in 0..=LESSONS {
            lesson.ran(1, 9, 30);
        }
        lesson.ran(1, 9, 299);
        assert_eq!(lesson.limit(1, 9), 300);
    }

    #[test]
    fn shapes_are_forgotten_as_engines_forget_them() {
        let mut lesson = Lesson::new(2);
        for width in [1, 2, 1, 3] {
            lesson.ran(1, width, 30);
            lesson.ran(1, width, 30);
        }
        assert_eq!([1, 2, 3].map(|width| lesson.limit(1, width)), [300, FIRST, 300]);
        assert_eq!(lesson.0.shapes.len(), 2);
    }

    #[test]
    fn the_run_that_gives_memory_back_has_time_and_is_no_lesson() {
        let mut lesson = Lesson::new(2);
        lesson.ran(1, 9, 30);
        lesson.ran(1, 9, 30);
        lesson.0.trimmed();
        assert_eq!(lesson.limit(1, 9), FIRST);
        lesson.ran(1, 9, 900);
        assert_eq!(lesson.limit(1, 9), 300);
    }
}
