//! What happens to a fault domain, and what is asked for.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Micros;

/// One life of a fault domain; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// The one that was there before anything died.
    pub const FIRST: Self = Self(0);

    /// The one after it.
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

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It can run nothing any more.
    Died {
        /// Which life ended.
        incarnation: Incarnation,
        /// How, in words.
        reason: String,
    },
    /// The restart that was asked for is done, and a batch ran.
    Restarted {
        /// The new life.
        incarnation: Incarnation,
    },
    /// The restart that was asked for came to nothing, and nothing of it is left.
    RestartFailed {
        /// The life that was to begin.
        incarnation: Incarnation,
        /// Why not, in words.
        reason: String,
    },
    /// An operator wants a disabled domain back: it is restarted at once, and its deaths are forgiven.
    Enable,
    /// Time passed.
    Tick,
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "effect")]
pub enum Effect {
    /// Its capacity is zero from now on.
    Down {
        /// The life that ended.
        incarnation: Incarnation,
        /// How it ended.
        reason: String,
    },
    /// Start it again, and answer with [`Event::Restarted`] or [`Event::RestartFailed`]. No other restart is asked
    /// for before the answer, unless it is heard that the new life ended.
    Restart {
        /// The life that is to begin.
        incarnation: Incarnation,
    },
    /// Its capacity counts again.
    Up {
        /// The life that began.
        incarnation: Incarnation,
    },
    /// It stays down until [`Event::Enable`].
    Disabled {
        /// Why, and what is expected.
        reason: String,
    },
}

/// Where a fault domain stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    /// It works.
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

/// What is known of a fault domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct View {
    /// Where it stands.
    pub state: State,
    /// Its last life.
    pub incarnation: Incarnation,
    /// Deaths that still count.
    pub deaths: usize,
    /// Why it died or could not be restarted, the last time.
    pub reason: Option<String>,
}
