//! How long a process may take for what, and how much it may be given.

use std::time::Duration;

/// Bounds on time and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For a process to start and to find its device, and for opening a gpulet.
    pub start: Duration,
    /// For loading a model.
    pub load: Duration,
    /// For a run of which nothing can be expected yet: the first of its shapes, the first after working memory was
    /// given back, and every one that gives way to others, as those that warm a session up do.
    pub first_run: Duration,
    /// A run may take ten times as long as the slowest of its size did, but never ends a process sooner than this. Where
    /// gpulets share units, the longest batch of each other gpulet of the device is added to the slowest.
    pub run_least: Duration,
    /// Nor later than this, unless even three times the slowest is more. Time for which the machine had no core for the
    /// process does not count, nor that in which its device is held up by a session of another gpulet that is made
    /// ready, up to ten times as much.
    pub run_most: Duration,
    /// For closing a session or a gpulet, and for a process to end when it is not needed any more. One that takes
    /// longer is ended.
    pub close: Duration,
    /// Bytes that the inputs of one batch may take, and its outputs.
    pub tensor_bytes: usize,
}

/// The longest time that a limit may give.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// The shortest: what the kernel tells apart.
const TIME_MIN: Duration = Duration::from_millis(10);

impl Default for Limits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(30),
            load: Duration::from_secs(600),
            first_run: Duration::from_secs(60),
            run_least: Duration::from_millis(250),
            run_most: Duration::from_secs(1),
            close: Duration::from_secs(5),
            tensor_bytes: 4 << 30,
        }
    }
}

/// A limit that makes no sense: the field, and what would.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: expected {expected}, got {got}")]
pub struct LimitsError {
    /// The field, like `run_least`.
    pub field: &'static str,
    /// What would be right.
    pub expected: String,
    /// What it was.
    pub got: String,
}

impl Limits {
    /// Checks the limits.
    ///
    /// # Errors
    /// [`LimitsError`] for a time below 10 ms or above a day, a `run_most` below `run_least`, or no bytes at all.
    pub fn validate(&self) -> Result<(), LimitsError> {
        let times = [
            ("start", self.start, TIME_MIN),
            ("load", self.load, TIME_MIN),
            ("first_run", self.first_run, TIME_MIN),
            ("run_least", self.run_least, TIME_MIN),
            ("run_most", self.run_most, self.run_least),
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
    fn defaults_are_valid_and_nonsense_is_named() {
        let defaults = Limits::default();
        assert_eq!(defaults.validate(), Ok(()));
        let wrong = Limits { run_most: Duration::from_millis(249), ..defaults };
        assert_eq!(
            wrong.validate().unwrap_err().to_string(),
            "run_most: expected 250ms to 86400s, got 249ms"
        );
        for (wrong, field) in [
            (Limits { start: Duration::ZERO, ..defaults }, "start"),
            (Limits { load: TIME_MAX * 2, ..defaults }, "load"),
            (Limits { first_run: Duration::ZERO, ..defaults }, "first_run"),
            (Limits { run_least: Duration::ZERO, ..defaults }, "run_least"),
            (Limits { close: Duration::ZERO, ..defaults }, "close"),
            (Limits { tensor_bytes: 0, ..defaults }, "tensor_bytes"),
        ] {
            assert_eq!(wrong.validate().unwrap_err().field, field);
        }
    }
}
