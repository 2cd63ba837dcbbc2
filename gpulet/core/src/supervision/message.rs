//! Events and effects of a fault domain.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Micros;

/// Number of one life of a fault domain; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// The incarnation before the first death.
    pub const FIRST: Self = Self(0);

    /// The next incarnation.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the supervision is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The domain died and cannot run batches.
    Died {
        /// The life that ended.
        incarnation: Incarnation,
        /// How it ended.
        reason: String,
    },
    /// The requested restart succeeded, and a batch ran.
    Restarted {
        /// The new life.
        incarnation: Incarnation,
    },
    /// The requested restart failed and left nothing behind.
    RestartFailed {
        /// The life that was to begin.
        incarnation: Incarnation,
        /// Why it failed.
        reason: String,
    },
    /// An operator enables a disabled domain. It is restarted at once, and its deaths no longer count.
    Enable,
    /// Time passed.
    Tick,
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "effect")]
pub enum Effect {
    /// The domain is down. Its capacity is zero from now on.
    Down {
        /// The life that ended.
        incarnation: Incarnation,
        /// How it ended.
        reason: String,
    },
    /// Restart the domain, then send [`Event::Restarted`] or [`Event::RestartFailed`]. No other restart is requested
    /// before the answer, unless the new life is reported dead.
    Restart {
        /// The life that is to begin.
        incarnation: Incarnation,
    },
    /// The domain is up. Its capacity counts again.
    Up {
        /// The life that began.
        incarnation: Incarnation,
    },
    /// The domain stays down until [`Event::Enable`].
    Disabled {
        /// Why, and what the operator should do.
        reason: String,
    },
}

/// The state of a fault domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    /// It is up.
    Up {
        /// Since when, in microseconds.
        since_us: Micros,
    },
    /// It is down and will be restarted.
    Waiting {
        /// When, in microseconds.
        until_us: Micros,
    },
    /// A restart is under way.
    Restarting,
    /// It is down until an operator enables it.
    Disabled,
}

/// A report about a fault domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct View {
    /// Its state.
    pub state: State,
    /// Its last life.
    pub incarnation: Incarnation,
    /// Deaths that still count.
    pub deaths: usize,
    /// Why it died or could not be restarted, the last time.
    pub reason: Option<String>,
}
