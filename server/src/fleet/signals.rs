//! What each stream of signals says next, without I/O.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::proto::{ModelSignals, Signals};

/// Least and most of the time between two messages.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// A stream without changes says so this often.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The state of a node at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Epoch of the plan in force; 0 without one.
    pub epoch: u64,
    /// Whether the node refuses new requests soon.
    pub draining: bool,
    /// Its models, by name.
    pub models: BTreeMap<String, ModelSignals>,
}

/// What one stream has said so far.
#[derive(Debug)]
pub(super) struct Told {
    node: String,
    interval: Duration,
    sent: Option<Arc<Sample>>,
    sequence: u64,
    at: Duration,
}

/// The interval that a caller asked for in milliseconds.
///
/// # Errors
/// Says which values are accepted.
pub(super) fn interval(asked_ms: u32) -> Result<Duration, String> {
    let (least, most) = INTERVALS;
    let asked = if asked_ms == 0 { least } else { Duration::from_millis(asked_ms.into()) };
    if (least..=most).contains(&asked) {
        return Ok(asked);
    }
    Err(format!("interval_ms: expected {} to {}, got {asked_ms}", least.as_millis(), most.as_millis()))
}

impl Told {
    /// A stream that has said nothing yet.
    pub(super) fn new(node: String, interval: Duration) -> Self {
        Self { node, interval, sent: None, sequence: 0, at: Duration::ZERO }
    }

    /// The message to send now, if any. A drain and a new epoch do not wait for the interval.
    pub(super) fn next(&mut self, now: Duration, sample: &Arc<Sample>) -> Option<Signals> {
        let mut message = Signals { complete: self.sent.is_none(), ..Signals::default() };
        match &self.sent {
            None => message.models = sample.models.values().cloned().collect(),
            Some(sent) => {
                let since = now.saturating_sub(self.at);
                let urgent = (sent.draining, sent.epoch) != (sample.draining, sample.epoch);
                if !urgent && since < self.interval {
                    return None;
                }
                (message.models, message.removed) = difference(sent, sample);
                let quiet = message.models.is_empty() && message.removed.is_empty();
                if quiet && !urgent && since < KEEP_ALIVE {
                    return None;
                }
            }
        }
        self.sequence += 1;
        self.at = now;
        self.sent = Some(Arc::clone(sample));
        message.node.clone_from(&self.node);
        (message.epoch, message.draining) = (sample.epoch, sample.draining);
        message.sequence = self.sequence;
        Some(message)
    }
}

/// Models that are new or changed, and names of those that no longer exist.
fn difference(before: &Sample, after: &Sample) -> (Vec<ModelSignals>, Vec<String>) {
    let changed = after.models.iter().filter(|(name, model)| before.models.get(*name) != Some(*model));
    let removed = before.models.keys().filter(|name| !after.models.contains_key(*name));
    (changed.map(|(_, model)| model.clone()).collect(), removed.cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(models: &[(&str, u64)]) -> Arc<Sample> {
        let model = |&(name, queued): &(&str, u64)| {
            (
                name.to_owned(),
                ModelSignals { model: name.to_owned(), queued_rows: queued, ..Default::default() },
            )
        };
        Arc::new(Sample { models: models.iter().map(model).collect(), ..Sample::default() })
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn names(signals: &Signals) -> Vec<&str> {
        signals.models.iter().map(|model| model.model.as_str()).collect()
    }

    #[test]
    fn the_first_message_is_complete_and_later_ones_say_what_changed() {
        let mut told = Told::new("a".to_owned(), at(100));
        let first = told.next(at(7), &sample(&[("m", 0), ("n", 0), ("o", 0)])).unwrap();
        assert!(first.complete && first.sequence == 1 && first.node == "a");
        assert_eq!(names(&first), ["m", "n", "o"]);
        let second = told.next(at(107), &sample(&[("m", 0), ("n", 5), ("p", 0)])).unwrap();
        assert!(!second.complete && second.sequence == 2);
        assert_eq!(names(&second), ["n", "p"]);
        assert_eq!(second.removed, ["o"]);
    }

    #[test]
    fn changes_wait_for_the_interval_and_add_up() {
        let mut told = Told::new(String::new(), at(1000));
        told.next(at(0), &sample(&[("m", 0), ("n", 0)])).unwrap();
        assert_eq!(told.next(at(100), &sample(&[("m", 1), ("n", 0)])), None);
        assert_eq!(told.next(at(999), &sample(&[("m", 1), ("n", 1)])), None);
        let message = told.next(at(1000), &sample(&[("m", 0), ("n", 2)])).unwrap();
        assert_eq!(names(&message), ["n"], "m is what it was");
    }

    #[test]
    fn a_drain_and_an_epoch_are_told_at_once_and_once() {
        let mut told = Told::new(String::new(), at(10_000));
        let serving = sample(&[("m", 0)]);
        told.next(at(0), &serving).unwrap();
        let planned = Arc::new(Sample { epoch: 3, ..(*serving).clone() });
        let message = told.next(at(1), &planned).unwrap();
        assert!(message.epoch == 3 && !message.draining && message.models.is_empty());
        let draining = Arc::new(Sample { draining: true, ..(*planned).clone() });
        assert!(told.next(at(2), &draining).unwrap().draining);
        assert_eq!(told.next(at(3), &draining), None);
    }

    #[test]
    fn a_stream_without_changes_is_kept_alive() {
        let mut told = Told::new(String::new(), at(100));
        let same = sample(&[("m", 0)]);
        told.next(at(0), &same).unwrap();
        assert_eq!(told.next(at(4_999), &same), None);
        let message = told.next(at(5_000), &same).unwrap();
        assert!(message.models.is_empty() && message.removed.is_empty() && !message.complete);
        assert_eq!(told.next(at(5_100), &same), None);
    }

    #[test]
    fn intervals_are_bounded() {
        assert_eq!(interval(0), Ok(at(100)));
        assert_eq!(interval(10_000), Ok(at(10_000)));
        for asked in [1, 99, 10_001] {
            assert_eq!(interval(asked), Err(format!("interval_ms: expected 100 to 10000, got {asked}")));
        }
    }
}
