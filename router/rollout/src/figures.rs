//! What is known about the two versions.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Arm, Ending};

/// How the requests of one version ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endings {
    /// Requests that ended.
    pub requests: u64,
    /// Those that were not answered in time, failures included.
    pub missed: u64,
    /// Those that the version failed on.
    pub failed: u64,
}

/// The figures on which a verdict is based.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Time since the canary got its first requests.
    #[serde(rename = "elapsed_s", with = "in_seconds")]
    pub elapsed: Duration,
    /// The version that served before.
    pub stable: Endings,
    /// The new version.
    pub canary: Endings,
    /// Requests that both versions ran.
    pub compared: u64,
    /// Those of which the outputs differ, or that only the canary failed on.
    pub disagreed: u64,
}

impl Endings {
    /// Share that was answered in time; 1 without requests.
    pub fn attainment(&self) -> f64 {
        1.0 - self.missed as f64 / self.requests.max(1) as f64
    }

    pub(crate) fn count(&mut self, ending: Ending) {
        self.requests += 1;
        self.missed += u64::from(ending != Ending::InTime);
        self.failed += u64::from(ending == Ending::Failed);
    }
}

impl Figures {
    pub(crate) fn of_mut(&mut self, arm: Arm) -> &mut Endings {
        match arm {
            Arm::Stable => &mut self.stable,
            Arm::Canary => &mut self.canary,
        }
    }
}

mod in_seconds {
    use std::time::Duration;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}
