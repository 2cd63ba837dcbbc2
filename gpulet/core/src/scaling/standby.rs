//! Moves models without requests from the device to host memory, then unloads them. The first request brings them back.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Micros;

/// Where a model's weights are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standby {
    /// On a device.
    #[default]
    Ready,
    /// In host memory: ready within the time of a copy.
    Warm,
    /// Unloaded: they must be read and prepared again.
    Cold,
}

impl fmt::Display for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "on a device",
            Self::Warm => "weights in host memory",
            Self::Cold => "unloaded",
        })
    }
}

/// When models without requests leave memory, in microseconds since the last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandbyAfter {
    /// When they leave the device.
    pub warm_us: Micros,
    /// When they also leave host memory; no earlier than the device.
    pub cold_us: Micros,
}

/// How long a model has been without requests.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct IdleTimer {
    after: Option<StandbyAfter>,
    /// Time of its last request, or of its first observation.
    asked_us: Option<Micros>,
    standby: Standby,
}

impl IdleTimer {
    /// A timer; without `after`, the model is never unloaded.
    pub(super) fn new(after: Option<StandbyAfter>) -> Self {
        Self { after, asked_us: None, standby: Standby::Ready }
    }

    pub(super) fn standby(&self) -> Standby {
        self.standby
    }

    /// Takes in whether a request came since the last observation. Returns the time without requests.
    pub(super) fn observe(&mut self, now: Micros, is_asked: bool) -> Micros {
        let asked_us = if is_asked { now } else { self.asked_us.unwrap_or(now) };
        self.asked_us = Some(asked_us);
        let idle_us = now.since(asked_us);
        self.standby = match self.after {
            Some(after) if idle_us >= after.cold_us.max(after.warm_us) && idle_us > Micros::ZERO => {
                Standby::Cold
            }
            Some(after) if idle_us >= after.warm_us && idle_us > Micros::ZERO => Standby::Warm,
            Some(_) | None => Standby::Ready,
        };
        idle_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_model_leaves_step_by_step_and_the_first_request_wakes_it() {
        let mut rest = IdleTimer::new(Some(StandbyAfter { warm_us: Micros(60), cold_us: Micros(600) }));
        let timeline = [
            (0, false, Standby::Ready),
            (59, false, Standby::Ready),
            (60, false, Standby::Warm),
            (599, false, Standby::Warm),
            (600, false, Standby::Cold),
            (9_000, false, Standby::Cold),
            (9_001, true, Standby::Ready),
            (9_060, false, Standby::Ready),
            (9_061, false, Standby::Warm),
            (9_062, true, Standby::Ready),
        ];
        for (now, is_asked, standby) in timeline {
            rest.observe(Micros(now), is_asked);
            assert_eq!(rest.standby(), standby, "at {now}");
        }
    }

    #[test]
    fn without_a_limit_a_model_stays() {
        let mut rest = IdleTimer::new(None);
        assert_eq!(rest.observe(Micros::ZERO, false), Micros::ZERO);
        assert_eq!(rest.observe(Micros(u64::MAX), false), Micros(u64::MAX));
        assert_eq!(rest.standby(), Standby::Ready);
    }
}
