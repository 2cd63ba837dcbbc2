//! Settings of a picker.

use std::time::Duration;

/// Settings of a picker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Pickers that are active, this one included. They divide the nodes of every pool among themselves.
    pub pickers: u32,
    /// Which of them this one is, from 0.
    pub number: u32,
    /// Time without a word from a node after which its lanes are not used. Nodes that change nothing still say so.
    pub stale_after: Duration,
    /// Time from a pick until the node has the request, and from the node's answer until the picker knows of it, together. The
    /// next batch is sent this long before a lane is expected to be free.
    pub travel: Duration,
    /// Requests that wait or are not answered yet, at most. Others are sent at once, by the rates of the plan.
    pub requests_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pickers: 1,
            number: 0,
            stale_after: Duration::from_secs(15),
            travel: Duration::from_micros(500),
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
        if !(1..=64).contains(&self.pickers) {
            return fault("pickers", format!("expected 1 to 64, got {}", self.pickers));
        }
        if self.number >= self.pickers {
            return fault("number", format!("expected 0 to {}, got {}", self.pickers - 1, self.number));
        }
        if self.stale_after < Duration::from_millis(100) || self.stale_after > Duration::from_secs(600) {
            return fault("stale_after", format!("expected 100ms to 600s, got {:?}", self.stale_after));
        }
        if self.travel > Duration::from_secs(1) {
            return fault("travel", format!("expected at most 1s, got {:?}", self.travel));
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
            (Settings { pickers: 0, ..sound }, "pickers"),
            (Settings { number: 1, ..sound }, "number"),
            (Settings { stale_after: Duration::ZERO, ..sound }, "stale_after"),
            (Settings { travel: Duration::from_secs(2), ..sound }, "travel"),
            (Settings { requests_max: 0, ..sound }, "requests_max"),
        ] {
            assert_eq!(settings.validate().unwrap_err().setting, name);
        }
    }
}
