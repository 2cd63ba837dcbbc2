//! How long batches take, from what nodes say about their models.
//!
//! A batch takes a fixed time and a time for each row. Nodes say how long a batch of one row takes, and a row in the best batch; both
//! follow from these two.

use std::collections::BTreeMap;
use std::time::Duration;

use gpulet_core::profile::{BATCH_MAX, Profile, ProfileError};
use invariant::expected;

use crate::view::ModelView;

/// Measured times replace those in use if they differ by more than this part: plans must not follow noise.
const IGNORED: f64 = 0.1;
/// Shortest and longest batch that profiles describe.
const LIMITS: (Duration, Duration) = (Duration::from_micros(1), Duration::from_secs(3_600));

/// Times of the batches of a model on one device type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTimes {
    /// Time of every batch, however few rows it has.
    pub fixed: Duration,
    /// Time of each row in addition.
    pub per_row: Duration,
    /// Largest batch in rows, at least 1.
    pub max_batch: u32,
}

impl BatchTimes {
    /// What a node measured. `None`: the model is not ready, or never ran.
    #[must_use]
    pub fn measured(view: &ModelView) -> Option<Self> {
        if !view.ready || view.single_time.is_zero() || view.max_batch == 0 {
            return None;
        }
        let max_batch = view.max_batch.min(BATCH_MAX);
        let further = view.row_time.saturating_mul(max_batch).saturating_sub(view.single_time);
        // A row cannot take longer than a batch of one row.
        let per_row = further.checked_div(max_batch.saturating_sub(1)).unwrap_or(view.single_time);
        let per_row = per_row.min(view.single_time);
        Some(Self { fixed: view.single_time.saturating_sub(per_row), per_row, max_batch })
    }

    /// Time of a batch: a microsecond to an hour.
    #[must_use]
    pub fn of(&self, rows: u32) -> Duration {
        let (shortest, longest) = LIMITS;
        self.fixed.saturating_add(self.per_row.saturating_mul(rows)).clamp(shortest, longest)
    }

    /// The times as a profile of an undivided device. `bytes` is the memory of one copy.
    ///
    /// # Errors
    /// The name of the model or of the device type cannot be used in a profile.
    pub fn profile(&self, model: &str, device_type: &str, bytes: u64) -> Result<Profile, ProfileError> {
        let times = self.sizes().map(|(rows, time)| (rows, time.as_secs_f64() * 1e6));
        Profile::undivided(model, device_type, bytes, times)
    }

    /// Times of batches of 1, 2, 4 rows and so on, and of the largest batch.
    pub fn sizes(&self) -> impl Iterator<Item = (u32, Duration)> {
        let largest = self.max_batch.clamp(1, BATCH_MAX);
        let sizes = std::iter::successors(Some(1_u32), |size| size.checked_mul(2));
        sizes.take_while(move |size| *size < largest).chain([largest]).map(|rows| (rows, self.of(rows)))
    }

    fn differs(&self, other: &Self) -> bool {
        let differ = |rows: u32| {
            let (own, other) = (self.of(rows).as_secs_f64(), other.of(rows).as_secs_f64());
            (own - other).abs() > IGNORED * other
        };
        self.max_batch != other.max_batch || differ(1) || differ(self.max_batch)
    }
}

/// The times in use, by model and device type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    times: BTreeMap<String, BTreeMap<String, BatchTimes>>,
}

impl Measured {
    /// Takes what nodes measured: model, device type and times, once for each node. Of several nodes of a device type, the median
    /// counts. Models that no node has keep their last times.
    pub fn observe<'a>(&mut self, measured: impl IntoIterator<Item = (&'a str, &'a str, BatchTimes)>) {
        let mut by_type: BTreeMap<(&str, &str), Vec<BatchTimes>> = BTreeMap::new();
        for (model, device_type, times) in measured {
            by_type.entry((model, device_type)).or_default().push(times);
        }
        for ((model, device_type), mut times) in by_type {
            times.sort_by_key(|times| times.of(times.max_batch));
            let median = expected!(times.get(times.len() / 2), "batch_times.no_median");
            let Some(median) = median.copied() else { continue };
            let types = self.times.entry(model.to_owned()).or_default();
            match types.get_mut(device_type) {
                Some(known) if median.differs(known) => *known = median,
                Some(_) => {}
                None => drop(types.insert(device_type.to_owned(), median)),
            }
        }
    }

    /// The times of a model by device type. `None`: it was never measured.
    #[must_use]
    pub fn of(&self, model: &str) -> Option<&BTreeMap<String, BatchTimes>> {
        self.times.get(model)
    }

    /// Drops models that do not exist any more.
    pub fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.times.retain(|model, _| is_kept(model));
    }
}

#[cfg(test)]
mod tests {
    use gpulet_core::profile::Quantile;
    use proptest::prelude::*;

    use super::*;

    const US: fn(u64) -> Duration = Duration::from_micros;

    fn view(single_us: u64, row_us: u64, max_batch: u32) -> ModelView {
        let (single_time, row_time) = (US(single_us), US(row_us));
        ModelView { ready: true, lanes: 1, single_time, row_time, max_batch, ..ModelView::default() }
    }

    #[test]
    fn fixed_and_row_time_follow_from_the_signals() {
        // 2 ms and 0.3 ms for each row, in batches of 32.
        let times = BatchTimes::measured(&view(2_300, (2_000 + 32 * 300) / 32, 32)).unwrap();
        assert!(
            times.per_row.abs_diff(US(300)) < US(2) && times.fixed.abs_diff(US(2_000)) < US(3),
            "{times:?}"
        );
        let profile = times.profile("m", "cpu", 7).unwrap();
        let at = |rows| profile.latency_us(Quantile::P99, rows, 1).unwrap();
        assert!((at(1) - 2_300.0).abs() < 3.0 && (at(24) - 9_200.0).abs() < 30.0);
        assert_eq!((profile.batches(), profile.weights_bytes()), ((1, 32), Some(7)));
        assert_eq!(BatchTimes::measured(&view(0, 0, 8)), None, "it never ran");
        assert_eq!(BatchTimes::measured(&ModelView { ready: false, ..view(1, 1, 1) }), None);
        let one = BatchTimes::measured(&view(500, 500, 1)).unwrap();
        assert_eq!((one.fixed, one.per_row), (US(0), US(500)));
    }

    #[test]
    fn the_median_counts_and_noise_does_not() {
        let times = |fixed| BatchTimes { fixed: US(fixed), per_row: US(10), max_batch: 4 };
        let mut measured = Measured::default();
        measured.observe([("m", "gpu", times(900)), ("m", "gpu", times(1_000)), ("m", "gpu", times(9_000))]);
        assert_eq!(measured.of("m").unwrap()["gpu"], times(1_000));
        measured.observe([("m", "gpu", times(1_050))]);
        measured.observe([]);
        assert_eq!(measured.of("m").unwrap()["gpu"], times(1_000));
        measured.observe([("m", "gpu", times(2_000)), ("m", "cpu", times(5_000))]);
        assert_eq!(measured.of("m").unwrap()["gpu"], times(2_000));
        assert_eq!(measured.of("m").unwrap().len(), 2);
        measured.retain(|_| false);
        assert_eq!(measured.of("m"), None);
    }

    proptest! {
        /// Whatever nodes say, there is a profile, and its times grow with the batch.
        #[test]
        fn every_measured_model_has_a_profile(single in 1_u64..100_000_000, row in 0_u64..100_000_000, batch in 1_u32..5_000) {
            let times = BatchTimes::measured(&view(single, row, batch)).unwrap();
            prop_assert!(times.profile("m", "gpu", 0).is_ok());
            prop_assert!(times.of(1) <= times.of(times.max_batch));
        }
    }
}
