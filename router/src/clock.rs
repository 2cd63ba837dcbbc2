//! Conversion between the clock of the process and that of the core.

use std::time::{Duration, Instant};

use router_core::Nanos;

/// Nanoseconds since the start of the router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    pub(crate) fn now(self) -> Nanos {
        self.at(Instant::now())
    }

    pub(crate) fn at(self, instant: Instant) -> Nanos {
        Nanos::from(instant.saturating_duration_since(self.origin))
    }

    /// A time that the clock of the process cannot represent becomes a day from now.
    pub(crate) fn instant(self, at: Nanos) -> Instant {
        let far = || Instant::now() + Duration::from_secs(86_400);
        self.origin.checked_add(Duration::from(at)).unwrap_or_else(far)
    }
}
