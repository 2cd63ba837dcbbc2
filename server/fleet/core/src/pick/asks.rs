//! Requests that the owners of their lanes were asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A request waits for a sign of life of the owner for a quarter of its time, and within these bounds. The longer one is what
/// gateways wait for a silent picker.
const SILENCE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));

/// Longest wait of a request without a deadline for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// How requests ended that other pickers were asked for, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskCounts {
    /// The owner chose a node.
    pub answered: u64,
    /// The owner refused the request.
    pub refused: u64,
    /// The picker that was asked did not own the lanes, or had too many requests.
    pub declined: u64,
    /// The owner gave no sign of life, or no answer, in time.
    pub silent: u64,
    /// The connection broke before the answer came.
    pub disconnected: u64,
    /// The owner could not be asked.
    pub unreachable: u64,
}

/// Why the rates of the plan decide, instead of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    Declined,
    Silent,
    Disconnected,
    Unreachable,
}

/// A request that another picker was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub picker: u32,
    pub model: u32,
    sent: Duration,
    /// Time that the owner may be silent.
    silence: Duration,
    /// When it is looked at next. `None`: it is answered.
    due: Option<Duration>,
    /// Without an answer, it waits no longer.
    until: Duration,
}

/// All of them, by the caller's key, until they end.
#[derive(Clone, Debug, Default)]
pub(super) struct Asks {
    open: BTreeMap<u64, Ask>,
    due: BTreeSet<(Duration, u64)>,
    pub counts: AskCounts,
}

impl Asks {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Begins to wait for an answer.
    pub(super) fn insert(
        &mut self,
        now: Duration,
        key: u64,
        (picker, model): (u32, u32),
        deadline: Option<Duration>,
    ) {
        let until = deadline.unwrap_or(now.saturating_add(ANSWER_MAX));
        let (shortest, longest) = SILENCE;
        let silence = (until.saturating_sub(now) / 4).clamp(shortest, longest);
        let due = now.saturating_add(silence).min(until);
        self.due.insert((due, key));
        self.open.insert(key, Ask { picker, model, sent: now, silence, due: Some(due), until });
    }

    fn is_waiting(&self, picker: u32, key: u64) -> bool {
        self.open.get(&key).is_some_and(|ask| ask.picker == picker && ask.due.is_some())
    }

    /// The owner chose nodes. Returns whether the request still waited for that.
    pub(super) fn answered(&mut self, picker: u32, key: u64) -> bool {
        let is_waiting = self.is_waiting(picker, key);
        if is_waiting && let Some(ask) = self.open.get_mut(&key) {
            if let Some(due) = ask.due.take() {
                self.due.remove(&(due, key));
            }
            self.counts.answered += 1;
        }
        is_waiting
    }

    /// Removes a request that waits for an answer of this picker.
    pub(super) fn remove_waiting(&mut self, picker: u32, key: u64) -> Option<Ask> {
        if self.is_waiting(picker, key) { self.remove(key) } else { None }
    }

    /// Removes a request, whether it was answered or not.
    pub(super) fn remove(&mut self, key: u64) -> Option<Ask> {
        let ask = self.open.remove(&key)?;
        if let Some(due) = ask.due {
            self.due.remove(&(due, key));
        }
        Some(ask)
    }

    /// The next request whose owner was silent for too long, or did not answer by the deadline; and whether it was silent. `heard`:
    /// when a picker last gave a sign of life.
    pub(super) fn next_silent(
        &mut self,
        now: Duration,
        heard: impl Fn(u32) -> Option<Duration>,
    ) -> Option<(u64, Ask, bool)> {
        while let Some(&(due, key)) = self.due.first() {
            if due > now {
                return None;
            }
            self.due.remove(&(due, key));
            let Some(ask) = self.open.get_mut(&key) else {
                invariant::violated!("pick.due_of_unknown_ask");
                continue;
            };
            let since = heard(ask.picker).unwrap_or_default().max(ask.sent);
            let silent_at = since.saturating_add(ask.silence);
            let next = silent_at.min(ask.until);
            if next > now {
                ask.due = Some(next);
                self.due.insert((next, key));
                continue;
            }
            return self.open.remove(&key).map(|ask| (key, ask, silent_at <= now));
        }
        None
    }

    /// Removes all requests of a picker. Those that waited for its answer are returned.
    pub(super) fn remove_picker(&mut self, picker: u32) -> Vec<(u64, Ask)> {
        let of_picker: Vec<u64> =
            self.open.iter().filter(|(_, ask)| ask.picker == picker).map(|(key, _)| *key).collect();
        let removed = of_picker.into_iter().filter_map(|key| Some((key, self.remove(key)?)));
        removed.filter(|(_, ask)| ask.due.is_some()).collect()
    }

    /// Counts a request that the rates of the plan decide on.
    pub(super) fn count(&mut self, why: Unanswered) {
        let counts = &mut self.counts;
        *match why {
            Unanswered::Declined => &mut counts.declined,
            Unanswered::Silent => &mut counts.silent,
            Unanswered::Disconnected => &mut counts.disconnected,
            Unanswered::Unreachable => &mut counts.unreachable,
        } += 1;
    }

    /// When the next request is to be looked at.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }
}
