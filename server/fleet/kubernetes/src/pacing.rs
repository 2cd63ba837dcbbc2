//! When to write to the API server: only what changed, and not often.

use std::time::Duration;

/// When something is due to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It is written already.
    Never,
    /// It is due now.
    Now,
    /// At this time, unless it changes back.
    At(Duration),
}

/// What was last written, and when the next write may follow.
#[derive(Clone, Debug)]
pub struct Pacer<T> {
    written: Option<T>,
    at: Duration,
    /// Time between two writes.
    period: Duration,
    /// Time between two writes if the second one is urgent.
    urgent_period: Duration,
}

impl<T: PartialEq> Pacer<T> {
    /// Nothing is written yet.
    #[must_use]
    pub const fn new(period: Duration, urgent_period: Duration) -> Self {
        Self { written: None, at: Duration::ZERO, period, urgent_period }
    }

    /// What was last written.
    #[must_use]
    pub const fn written(&self) -> Option<&T> {
        self.written.as_ref()
    }

    /// When to write this, if the API server has `stored`. The first write is due now.
    #[must_use]
    pub fn due(&self, now: Duration, stored: Option<&T>, wanted: &T, urgent: bool) -> Due {
        if stored == Some(wanted) {
            return Due::Never;
        }
        let Some(written) = &self.written else { return Due::Now };
        // What was written and is not stored is on its way, or was changed by someone else.
        let soon = urgent && written != wanted;
        let at = self.at.saturating_add(if soon { self.urgent_period } else { self.period });
        if now >= at { Due::Now } else { Due::At(at) }
    }

    /// It was written.
    pub fn wrote(&mut self, now: Duration, written: T) {
        self.written = Some(written);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_written_and_urgent_ones_soon() {
        let seconds = Duration::from_secs;
        let mut pacer = Pacer::new(seconds(15), seconds(1));
        assert_eq!(pacer.due(seconds(100), None, &"a", false), Due::Now);
        assert_eq!(pacer.due(seconds(100), Some(&"a"), &"a", true), Due::Never);
        pacer.wrote(seconds(100), "a");
        assert_eq!(pacer.due(seconds(200), Some(&"a"), &"a", true), Due::Never);
        assert_eq!(pacer.due(seconds(101), Some(&"a"), &"b", false), Due::At(seconds(115)));
        assert_eq!(pacer.due(seconds(101), Some(&"a"), &"b", true), Due::Now);
        assert_eq!(pacer.due(seconds(115), Some(&"a"), &"b", false), Due::Now);
        assert_eq!(
            pacer.due(seconds(101), Some(&"x"), &"a", true),
            Due::At(seconds(115)),
            "changed by someone else"
        );
    }
}
