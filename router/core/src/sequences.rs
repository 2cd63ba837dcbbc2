//! Sequences: requests that must run one after another, because each needs the state that the one before it left.
//!
//! [`Sequences`] stands before the router, one for each model. It holds requests back until it is their time, and the caller
//! hands those that it releases to [`Router::handle`](crate::Router::handle). As in Triton's sequence batcher, a sequence
//! starts with a request that says so, keeps a slot until its end, and waits in a backlog while all slots are taken.
//!
//! The machine takes the time and an event and appends effects; it has no clock and no I/O.
//!
//! | id | statement |
//! |---|---|
//! | S1 | requests of a sequence are released in the order of their arrival, and never two at a time |
//! | S2 | no more sequences have a slot than there are slots |
//! | S3 | every request that is held is released or refused, once |
//! | S4 | a sequence without requests loses its slot after the idle time |

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use invariant::expected;

use crate::{Nanos, Outcome, Reason, RequestId};

/// A client's name for a sequence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CorrelationId {
    /// A number, not 0.
    Number(u64),
    /// A text, not empty.
    Text(Arc<str>),
}

impl fmt::Display for CorrelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Bounds of the sequences of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceLimits {
    /// Sequences that may have a slot at a time, at least 1.
    pub slots: u32,
    /// Requests that may be held back.
    pub held: u32,
    /// A sequence without requests for this long ends.
    pub idle: Nanos,
}

/// A request of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceRequest {
    /// Its id, unique among unfinished requests.
    pub request: RequestId,
    /// Its sequence.
    pub id: CorrelationId,
    /// It is the first of the sequence.
    pub start: bool,
    /// It is the last of the sequence.
    pub end: bool,
    /// When it is refused if it is still held back.
    pub deadline: Option<Nanos>,
}

/// What the caller must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SequenceEffect {
    /// Hand this request to the router.
    Release(RequestId),
    /// Answer this request, which was never released, and forget it.
    Finish {
        /// Request that ends.
        request: RequestId,
        /// How it ended.
        outcome: Outcome,
        /// Why it ended this way.
        reason: Reason,
    },
    /// The sequence ended: forget its state.
    Ended(CorrelationId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    request: RequestId,
    start: bool,
    deadline: Nanos,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sequence {
    waiting: VecDeque<Held>,
    running: Option<RequestId>,
    has_slot: bool,
    /// Its end has arrived, or it was ended early: the next request must be a start.
    closed: bool,
    /// When it ends if no request arrives.
    idle_at: Option<Nanos>,
}

/// The sequences of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequences {
    limits: SequenceLimits,
    live: BTreeMap<CorrelationId, Sequence>,
    /// Sequences that wait for a slot, in the order of their first request.
    backlog: VecDeque<CorrelationId>,
    used: u32,
    held: u32,
    /// The sequence of each unfinished request.
    of: BTreeMap<RequestId, CorrelationId>,
    idle: BTreeSet<(Nanos, CorrelationId)>,
    deadlines: BTreeSet<(Nanos, RequestId)>,
    /// Why no request is taken any more.
    closed: Option<Reason>,
}

impl Sequences {
    /// No sequences yet.
    pub fn new(limits: SequenceLimits) -> Self {
        Self {
            limits: SequenceLimits { slots: limits.slots.max(1), ..limits },
            live: BTreeMap::new(),
            backlog: VecDeque::new(),
            used: 0,
            held: 0,
            of: BTreeMap::new(),
            idle: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            closed: None,
        }
    }

    /// Time by which [`Sequences::tick`] must be called.
    pub fn next_wake(&self) -> Option<Nanos> {
        let idle = self.idle.first().map(|(at, _)| *at);
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        idle.into_iter().chain(deadline).min()
    }

    /// Requests that are held back.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Sequences that have a slot.
    pub fn with_slot(&self) -> u32 {
        self.used
    }

    /// Sequences that wait for a slot.
    pub fn backlog(&self) -> usize {
        self.backlog.len()
    }

    /// A request arrived.
    pub fn arrive(&mut self, now: Nanos, arrival: SequenceRequest, effects: &mut Vec<SequenceEffect>) {
        let SequenceRequest { request, id, start, end, deadline } = arrival;
        let deadline = deadline.unwrap_or(Nanos::NEVER);
        let is_open = self.live.get(&id).is_some_and(|sequence| !sequence.closed);
        let refusal = match self.closed {
            Some(reason) => Some((Outcome::Refused, reason)),
            None if !start && !is_open => Some((Outcome::Refused, Reason::SequenceNotStarted)),
            None if deadline <= now => Some((Outcome::Expired, Reason::DeadlinePassed)),
            None if self.held >= self.limits.held => Some((Outcome::Refused, Reason::QueueFull)),
            None => None,
        };
        if let Some((outcome, reason)) = refusal {
            effects.push(SequenceEffect::Finish { request, outcome, reason });
            return;
        }
        let is_new = !self.live.contains_key(&id);
        let sequence = self.live.entry(id.clone()).or_default();
        sequence.closed = end;
        sequence.waiting.push_back(Held { request, start, deadline });
        if let Some(at) = sequence.idle_at.take() {
            self.idle.remove(&(at, id.clone()));
        }
        self.held += 1;
        self.of.insert(request, id.clone());
        if deadline != Nanos::NEVER {
            self.deadlines.insert((deadline, request));
        }
        if is_new && self.used < self.limits.slots {
            self.used += 1;
            sequence.has_slot = true;
        } else if is_new {
            self.backlog.push_back(id.clone());
        }
        self.advance(now, &id, effects);
    }

    /// A released request ended. If it did not run, the sequence cannot go on.
    pub fn ended(&mut self, now: Nanos, request: RequestId, ran: bool, effects: &mut Vec<SequenceEffect>) {
        let Some(id) = expected!(self.of.remove(&request), "sequences.ended_request_unknown") else { return };
        let Some(sequence) = expected!(self.live.get_mut(&id), "sequences.request_of_unknown_sequence")
        else {
            return;
        };
        if sequence.running == Some(request) {
            sequence.running = None;
        }
        if !ran {
            self.refuse_from(&id, 0, effects);
        }
        self.advance(now, &id, effects);
    }

    /// The client of a request left. False if the request is not held back: then the router must be told.
    ///
    /// The rest of its sequence is refused, because it would run without this request.
    pub fn cancel(&mut self, now: Nanos, request: RequestId, effects: &mut Vec<SequenceEffect>) -> bool {
        let end = (Outcome::Cancelled, Reason::ClientDisconnected);
        self.drop_held(now, request, end, effects)
    }

    /// Time passed.
    pub fn tick(&mut self, now: Nanos, effects: &mut Vec<SequenceEffect>) {
        while let Some(&(_, request)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            let end = (Outcome::Expired, Reason::DeadlinePassed);
            if !self.drop_held(now, request, end, effects) {
                self.deadlines.pop_first();
            }
        }
        while let Some((_, id)) = self.idle.first().filter(|(at, _)| *at <= now).cloned() {
            self.idle.pop_first();
            if let Some(sequence) = self.live.get_mut(&id) {
                (sequence.idle_at, sequence.closed) = (None, true);
            }
            self.advance(now, &id, effects);
        }
    }

    /// Refuses all requests that are held back, and those that come later, with this reason. Sequences end.
    pub fn close(&mut self, now: Nanos, reason: Reason, effects: &mut Vec<SequenceEffect>) {
        self.closed = Some(reason);
        self.backlog.clear();
        let ids: Vec<CorrelationId> = self.live.keys().cloned().collect();
        for id in ids {
            let Some(sequence) = expected!(self.live.get_mut(&id), "sequences.live_sequence_unknown") else {
                continue;
            };
            sequence.closed = true;
            for held in std::mem::take(&mut sequence.waiting) {
                self.refuse(&held, reason, effects);
            }
            self.advance(now, &id, effects);
        }
    }

    /// Removes a held request and refuses the rest of its sequence.
    fn drop_held(
        &mut self,
        now: Nanos,
        request: RequestId,
        (outcome, reason): (Outcome, Reason),
        effects: &mut Vec<SequenceEffect>,
    ) -> bool {
        let Some(id) = self.of.get(&request).cloned() else { return false };
        let Some(sequence) = expected!(self.live.get_mut(&id), "sequences.request_of_unknown_sequence")
        else {
            return false;
        };
        let Some(position) = sequence.waiting.iter().position(|held| held.request == request) else {
            return false;
        };
        if let Some(held) = sequence.waiting.remove(position) {
            self.no_longer_held(&held);
            self.of.remove(&request);
            effects.push(SequenceEffect::Finish { request, outcome, reason });
        }
        self.refuse_from(&id, position, effects);
        self.advance(now, &id, effects);
        true
    }

    fn no_longer_held(&mut self, held: &Held) {
        self.held = self.held.saturating_sub(1);
        self.deadlines.remove(&(held.deadline, held.request));
    }

    fn refuse(&mut self, held: &Held, reason: Reason, effects: &mut Vec<SequenceEffect>) {
        self.no_longer_held(held);
        self.of.remove(&held.request);
        effects.push(SequenceEffect::Finish { request: held.request, outcome: Outcome::Refused, reason });
    }

    /// Refuses the held requests from a position to the next start, because one before them did not run.
    fn refuse_from(&mut self, id: &CorrelationId, position: usize, effects: &mut Vec<SequenceEffect>) {
        let Some(sequence) = expected!(self.live.get_mut(id), "sequences.live_sequence_unknown") else {
            return;
        };
        let mut from = sequence.waiting.split_off(position.min(sequence.waiting.len()));
        let starts = from.iter().position(|held| held.start).unwrap_or(from.len());
        let mut kept = from.split_off(starts);
        sequence.closed |= kept.is_empty();
        sequence.waiting.append(&mut kept);
        for held in from {
            self.refuse(&held, Reason::SequenceEnded, effects);
        }
    }

    /// Releases the next request of a sequence, ends the sequence, or waits for its next request.
    fn advance(&mut self, now: Nanos, id: &CorrelationId, effects: &mut Vec<SequenceEffect>) {
        let Some(sequence) = expected!(self.live.get_mut(id), "sequences.live_sequence_unknown") else {
            return;
        };
        if sequence.running.is_some() || (!sequence.has_slot && !sequence.waiting.is_empty()) {
            return;
        }
        if let Some(held) = sequence.waiting.pop_front() {
            sequence.running = Some(held.request);
            self.no_longer_held(&held);
            effects.push(SequenceEffect::Release(held.request));
            return;
        }
        if !sequence.closed {
            if sequence.idle_at.is_none() {
                let at = now.after(self.limits.idle);
                sequence.idle_at = Some(at);
                self.idle.insert((at, id.clone()));
            }
            return;
        }
        let Some(ended) = expected!(self.live.remove(id), "sequences.live_sequence_unknown") else { return };
        if let Some(at) = ended.idle_at {
            self.idle.remove(&(at, id.clone()));
        }
        effects.push(SequenceEffect::Ended(id.clone()));
        if !ended.has_slot {
            self.backlog.retain(|waiting| waiting != id);
            return;
        }
        self.used = self.used.saturating_sub(1);
        if let Some(next) = self.backlog.pop_front() {
            if let Some(sequence) = expected!(self.live.get_mut(&next), "sequences.unknown_in_backlog") {
                sequence.has_slot = true;
                self.used += 1;
            }
            self.advance(now, &next, effects);
        }
    }
}
