//! Settings of a picker.

use std::time::Duration;

use super::PICKERS_MAX;

/// Settings of a picker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Which of the pickers of the fleet this one is, from 0.
    pub number: u32,
    /// Time without a word from a node after which its lanes are not used. Nodes that change nothing still say so.
    pub stale_after: Duration,
    /// Time from a pick until the node has the request, and from the node's answer until the picker knows of it, together. The
    /// next batch is sent this long before a lane is expected to be free.
    pub travel: Duration,
    /// Time of a message between two pickers. Where there are others, lanes get their next batch earlier by this time there and back.
    pub hop: Duration,
    /// Requests that wait or are not answered yet, at most. Others are sent at once, by the rates of the plan.
    pub requests_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            number: 0,
            stale_after: Duration::from_secs(15),
            travel: Duration::from_micros(500),
            hop: Duration::from_micros(200),
            requests_max: 65_536,
        }
    }
}

/// A setting out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {problem}")]
pub struct SettingsError {
    /// Name of the setting.
    pub setting: &'static str,
    /// What would be right.
    pub problem: String,
}

impl Settings {
    /// Checks the ranges.
    ///
    /// # Errors
    /// The first setting that is out of range.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let fault = |setting, problem| Err(SettingsError { setting, problem });
        if self.number >= PICKERS_MAX {
            return fault("number", format!("expected 0 to {}, got {}", PICKERS_MAX - 1, self.number));
        }
        if self.stale_after < Duration::from_millis(100) || self.stale_after > Duration::from_secs(600) {
            return fault("stale_after", format!("expected 100ms to 600s, got {:?}", self.stale_after));
        }
        for (name, time) in [("travel", self.travel), ("hop", self.hop)] {
            if time > Duration::from_secs(1) {
                return fault(name, format!("expected at most 1s, got {time:?}"));
            }
        }
        if !(1..=1 << 20).contains(&self.requests_max) {
            return fault("requests_max", format!("expected 1 to {}, got {}", 1 << 20, self.requests_max));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_is_checked_by_name() {
        let sound = Settings::default();
        assert_eq!(sound.validate(), Ok(()));
        for (settings, name) in [
            (Settings { number: 64, ..sound }, "number"),
            (Settings { stale_after: Duration::ZERO, ..sound }, "stale_after"),
            (Settings { travel: Duration::from_secs(2), ..sound }, "travel"),
            (Settings { hop: Duration::from_secs(2), ..sound }, "hop"),
            (Settings { requests_max: 0, ..sound }, "requests_max"),
        ] {
            assert_eq!(settings.validate().unwrap_err().setting, name);
        }
    }
}
