//! The history of a rollout: messages with times, bounded, oldest forgotten first.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::id::ProposalId;
use crate::time::Micros;

/// Characters that are kept of a reason from outside.
const REASON_MAX: usize = 512;

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A plan was proposed.
    Proposed,
    /// A plan was refused.
    Refused,
    /// A wave of a plan began.
    Wave,
    /// A step was carried out.
    Step,
    /// A step or a switch failed.
    Failed,
    /// A table is in force.
    Switched,
    /// A gpulet finished its last batch.
    Drained,
    /// An incident that an operator should know.
    Incident,
    /// A plan was rolled back.
    RolledBack,
    /// A gpulet was closed.
    Closed,
    /// A device was removed.
    DeviceRemoved,
    /// An operator sent a command.
    Operator,
    /// A proposal ended.
    Ended,
}

/// One entry of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Microseconds on the caller's clock.
    pub at_us: Micros,
    /// Number of the proposal that it is part of; 0 for none.
    pub proposal: ProposalId,
    /// What it is about.
    pub kind: EntryKind,
    /// Message for operators.
    pub message: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct History {
    entries: VecDeque<Entry>,
    limit: usize,
    forgotten: u64,
}

impl History {
    pub fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), limit: limit.max(1), forgotten: 0 }
    }

    pub fn push(&mut self, entry: Entry) {
        while self.entries.len() >= self.limit {
            self.entries.pop_front();
            self.forgotten = self.forgotten.saturating_add(1);
        }
        self.entries.push_back(entry);
    }

    pub fn entries(&self) -> &VecDeque<Entry> {
        &self.entries
    }

    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    pub fn is_bounded(&self) -> bool {
        self.entries.len() <= self.limit
    }
}

/// Truncates a reason from outside to [`REASON_MAX`] characters.
pub(super) fn bounded(mut reason: String) -> String {
    if let Some((end, _)) = reason.char_indices().nth(REASON_MAX) {
        reason.truncate(end);
        reason.push_str("...");
    }
    reason
}

/// Formats a time for messages.
pub(super) fn span(time: Micros) -> String {
    format!("{:?}", std::time::Duration::from(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_oldest_and_counts_them() {
        let mut history = History::new(2);
        for at_us in 0..5 {
            history.push(Entry {
                at_us: Micros(at_us),
                proposal: ProposalId::default(),
                kind: EntryKind::Step,
                message: String::new(),
            });
        }
        let times: Vec<u64> = history.entries().iter().map(|entry| entry.at_us.0).collect();
        assert_eq!((times, history.forgotten(), history.is_bounded()), (vec![3, 4], 3, true));
    }

    #[test]
    fn long_reasons_are_truncated_between_characters() {
        assert_eq!(bounded("short".to_owned()), "short");
        let truncated = bounded("ü".repeat(2_000));
        assert_eq!(truncated.chars().count(), REASON_MAX + 3);
        assert!(truncated.ends_with("ü..."));
    }
}
