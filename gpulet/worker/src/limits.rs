//! Limits on the time and the memory of a worker process.

use std::time::Duration;

/// Limits on time and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For a process to start and make its device, and for opening a gpulet.
    pub start: Duration,
    /// For loading a model.
    pub load: Duration,
    /// For a batch whose time is unknown: the first one of its shapes, the first one after working memory was freed,
    /// and every batch at background priority, such as warm-up batches.
    pub first_run: Duration,
    /// Least time that a batch may take before its process is killed. Above it, a batch may take ten times as long as
    /// the slowest of its size. Where gpulets share units, the longest batch of each co-located gpulet is added.
    pub run_min: Duration,
    /// Most time that a batch may take, unless three times the slowest is more. Time without a core does not count. Nor
    /// does time in which a co-located session is prepared, up to ten times the limit.
    pub run_max: Duration,
    /// For closing a session or a gpulet, and for a process to end. A process that takes longer is killed.
    pub close: Duration,
    /// Upper bound on the bytes of the inputs of one batch, and on those of its outputs.
    pub tensor_bytes: usize,
}

/// The longest time limit.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// The shortest time limit: the kernel's timers are not more precise.
const TIME_MIN: Duration = Duration::from_millis(10);

impl Default for Limits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(30),
            load: Duration::from_secs(600),
            first_run: Duration::from_secs(60),
            run_min: Duration::from_millis(250),
            run_max: Duration::from_secs(1),
            close: Duration::from_secs(5),
            tensor_bytes: 4 << 30,
        }
    }
}

/// A limit is out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: expected {expected}, got `{got}`")]
pub struct LimitsError {
    /// The field, such as `run_min`.
    pub field: &'static str,
    /// The valid range.
    pub expected: String,
    /// The value.
    pub got: String,
}

impl Limits {
    /// Checks the limits.
    ///
    /// # Errors
    /// [`LimitsError`] for a time below 10 ms or above a day, a `run_max` below `run_min`, or zero bytes.
    pub fn validate(&self) -> Result<(), LimitsError> {
        let times = [
            ("start", self.start, TIME_MIN),
            ("load", self.load, TIME_MIN),
            ("first_run", self.first_run, TIME_MIN),
            ("run_min", self.run_min, TIME_MIN),
            ("run_max", self.run_max, self.run_min),
            ("close", self.close, TIME_MIN),
        ];
        for (field, got, least) in times {
            if !(least..=TIME_MAX).contains(&got) {
                let expected = format!("{least:?} to {TIME_MAX:?}");
                return Err(LimitsError { field, expected, got: format!("{got:?}") });
            }
        }
        if self.tensor_bytes == 0 {
            let expected = "at least 1".to_owned();
            return Err(LimitsError { field: "tensor_bytes", expected, got: "0".to_owned() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_an_error_names_the_field() {
        let defaults = Limits::default();
        assert_eq!(defaults.validate(), Ok(()));
        let wrong = Limits { run_max: Duration::from_millis(249), ..defaults };
        assert_eq!(
            wrong.validate().unwrap_err().to_string(),
            "`run_max`: expected 250ms to 86400s, got `249ms`"
        );
        for (wrong, field) in [
            (Limits { start: Duration::ZERO, ..defaults }, "start"),
            (Limits { load: TIME_MAX * 2, ..defaults }, "load"),
            (Limits { first_run: Duration::ZERO, ..defaults }, "first_run"),
            (Limits { run_min: Duration::ZERO, ..defaults }, "run_min"),
            (Limits { close: Duration::ZERO, ..defaults }, "close"),
            (Limits { tensor_bytes: 0, ..defaults }, "tensor_bytes"),
        ] {
            assert_eq!(wrong.validate().unwrap_err().field, field);
        }
    }
}
