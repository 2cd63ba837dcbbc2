//! The state machine of one candidate.

use std::fmt;
use std::time::Duration;

use super::{Holder, LEASE_DURATION_MAX, Record, Settings, Write, WriteReply};

/// What happened to a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The time that [`Election::wakeup`] returned is reached.
    Tick,
    /// Reply to [`Effect::Read`]. `None` within: the record does not exist. `Err`: it cannot be read.
    Read(Result<Option<Record>, Unreadable>),
    /// Reply to [`Effect::ReadEpochs`]: the highest epoch of all plans, 0 without plans.
    Epochs(Result<u64, Unreadable>),
    /// Reply to [`Effect::Write`].
    Written(WriteReply),
    /// The process is to end.
    Stop,
}

/// The store did not reply, or with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// What the shell must do. It sends one reply to each request, also if the request fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read the record.
    Read,
    /// Read the epochs of all plans from the store, not from a cache.
    ReadEpochs,
    /// Write the record.
    Write(Write),
    /// This candidate leads now, with this epoch.
    Lead {
        /// Epoch of its plans.
        epoch: u64,
    },
    /// This candidate leads no longer. Stop all that only a leader does before carrying out the next effect.
    StepDown(Reason),
    /// The candidate is stopped and sends nothing more.
    Stopped,
}

/// Why a leader stepped down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was told to stop.
    Stop,
    /// No renewal succeeded within the renew deadline.
    RenewDeadline,
    /// Another candidate took over, or the record was changed by something else.
    Replaced,
    /// The record was deleted.
    Deleted,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stop => "told to stop",
            Self::RenewDeadline => "no renewal succeeded within the renew deadline",
            Self::Replaced => "the lease has another holder or epoch",
            Self::Deleted => "the lease was deleted",
        })
    }
}

/// A request that was not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Read,
    ReadEpochs,
    Create,
    TakeOver { epoch: u64 },
    Renew,
    Release,
}

/// The term of a leader.
#[derive(Clone, Debug)]
struct Term {
    epoch: u64,
    until: Duration,
    transitions: u32,
    /// Version of the record; `None` after a write of which the result is unknown.
    version: Option<String>,
}

/// The record as it was last read, and when it was first read like this.
#[derive(Clone, Debug)]
struct Observed {
    record: Record,
    since: Duration,
}

/// One candidate: `(now, event)` in, effects out. `now` is any clock that never stands still, also while the machine is suspended.
#[derive(Clone, Debug)]
pub struct Election {
    settings: Settings,
    identity: String,
    term: Option<Term>,
    /// The term that ended because the candidate stops; its record is released.
    leaving: Option<Term>,
    observed: Option<Observed>,
    /// Highest epoch that was ever seen.
    highest: u64,
    request: Option<Request>,
    /// When the last request was sent.
    sent: Duration,
    /// When the next one is due.
    next: Duration,
    /// When stopping ends at the latest.
    stop_by: Option<Duration>,
    stopped: bool,
}

impl Election {
    /// A candidate that reads the record first. No other candidate, former ones included, may have the same identity.
    #[must_use]
    pub const fn new(settings: Settings, identity: String, now: Duration) -> Self {
        Self {
            settings,
            identity,
            term: None,
            leaving: None,
            observed: None,
            highest: 0,
            request: None,
            sent: now,
            next: now,
            stop_by: None,
            stopped: false,
        }
    }

    /// The epoch if this candidate leads now. A leader asks before everything that it does as one.
    #[must_use]
    pub fn leads(&self, now: Duration) -> Option<u64> {
        self.term.as_ref().filter(|term| now < term.until).map(|term| term.epoch)
    }

    /// When the term ends unless it is renewed, if this candidate leads.
    #[must_use]
    pub fn leads_until(&self) -> Option<Duration> {
        self.term.as_ref().map(|term| term.until)
    }

    /// Who held the record when it was last read, if a candidate did.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        match self.observed.as_ref().map(|observed| &observed.record.holder) {
            Some(Holder::Candidate(holder)) => Some(holder),
            _ => None,
        }
    }

    /// When the next [`Event::Tick`] is due at the latest. `None`: never.
    #[must_use]
    pub fn wakeup(&self) -> Option<Duration> {
        if self.stopped {
            return None;
        }
        let poll = (self.request.is_none() && self.stop_by.is_none()).then_some(self.next);
        let end = self.term.as_ref().map(|term| term.until);
        [poll, end, self.stop_by].into_iter().flatten().min()
    }

    /// Decides what to do after an event.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.stopped {
            return effects;
        }
        if self.term.as_ref().is_some_and(|term| now >= term.until) {
            self.step_down(Reason::RenewDeadline, &mut effects);
        }
        match event {
            Event::Tick => {}
            Event::Read(read) => self.read(now, read, &mut effects),
            Event::Epochs(read) => self.epochs(now, read, &mut effects),
            Event::Written(reply) => self.written(now, reply, &mut effects),
            Event::Stop => {
                self.stop_by.get_or_insert(now.saturating_add(self.settings.renew_deadline));
            }
        }
        if let Some(by) = self.stop_by {
            self.stop(now, by, &mut effects);
        } else if self.request.is_none() && now >= self.next {
            self.poll(now, &mut effects);
        }
        effects
    }

    /// Starts the next request: a leader renews, another candidate reads.
    fn poll(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let version = self.term.as_ref().and_then(|term| term.version.clone());
        match (&self.term, version) {
            (Some(term), Some(version)) => {
                let write = Write {
                    expected: Some(version),
                    takeover: false,
                    holder: Holder::Candidate(self.identity.clone()),
                    duration: self.settings.lease_duration,
                    transitions: term.transitions,
                    epoch: term.epoch,
                };
                self.ask(now, Request::Renew);
                effects.push(Effect::Write(write));
            }
            _ => {
                self.ask(now, Request::Read);
                effects.push(Effect::Read);
            }
        }
    }

    const fn ask(&mut self, now: Duration, request: Request) {
        self.request = Some(request);
        self.sent = now;
    }

    /// The next request is due a retry period after the last one was sent, so one that timed out is repeated at once.
    fn retry(&mut self, now: Duration) {
        self.next = self.sent.saturating_add(self.settings.retry_period).max(now);
    }

    fn step_down(&mut self, reason: Reason, effects: &mut Vec<Effect>) {
        if self.term.take().is_some() {
            effects.push(Effect::StepDown(reason));
        }
    }

    fn read(&mut self, now: Duration, read: Result<Option<Record>, Unreadable>, effects: &mut Vec<Effect>) {
        if self.request.take_if(|request| *request == Request::Read).is_none() {
            return;
        }
        self.retry(now);
        let Ok(found) = read else { return };
        let Some(record) = found else {
            self.observed = None;
            self.step_down(Reason::Deleted, effects);
            return self.create(now, effects);
        };
        self.highest = self.highest.max(record.epoch);
        let unchanged = self.observed.as_ref().filter(|observed| observed.record == record);
        let since = unchanged.map_or(now, |observed| observed.since);
        let mine = record.holder == Holder::Candidate(self.identity.clone());
        if let Some(term) = &mut self.term {
            if mine && record.epoch == term.epoch {
                // The write of which no reply came was stored. Only the next write extends the term.
                term.version = Some(record.version.clone());
                self.next = now;
            } else {
                self.step_down(Reason::Replaced, effects);
            }
        }
        let wait = record.duration.clamp(self.settings.lease_duration, LEASE_DURATION_MAX);
        let free = mine || record.holder == Holder::Released || now.saturating_sub(since) >= wait;
        self.observed = Some(Observed { record, since });
        if free && self.term.is_none() && self.stop_by.is_none() {
            self.ask(now, Request::ReadEpochs);
            effects.push(Effect::ReadEpochs);
        }
    }

    /// Creates the record, so that a full lease duration can be waited for with compare-and-swap.
    fn create(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        if self.stop_by.is_some() {
            return;
        }
        self.ask(now, Request::Create);
        effects.push(Effect::Write(Write {
            expected: None,
            takeover: false,
            holder: Holder::Vacant,
            duration: self.settings.lease_duration,
            transitions: 0,
            epoch: self.highest,
        }));
    }

    fn epochs(&mut self, now: Duration, read: Result<u64, Unreadable>, effects: &mut Vec<Effect>) {
        if self.request.take_if(|request| *request == Request::ReadEpochs).is_none() {
            return;
        }
        self.retry(now);
        let (Ok(highest), Some(observed), None) = (read, &self.observed, self.stop_by) else { return };
        self.highest = self.highest.max(highest);
        let epoch = self.highest.saturating_add(1);
        effects.push(Effect::Write(Write {
            expected: Some(observed.record.version.clone()),
            takeover: true,
            holder: Holder::Candidate(self.identity.clone()),
            duration: self.settings.lease_duration,
            transitions: observed.record.transitions.saturating_add(1),
            epoch,
        }));
        self.ask(now, Request::TakeOver { epoch });
    }

    fn written(&mut self, now: Duration, reply: WriteReply, effects: &mut Vec<Effect>) {
        let writes = |request: &mut Request| !matches!(request, Request::Read | Request::ReadEpochs);
        let Some(request) = self.request.take_if(writes) else { return };
        self.retry(now);
        match request {
            Request::TakeOver { epoch } => {
                self.highest = self.highest.max(epoch);
                self.taken_over(now, epoch, reply, effects);
            }
            Request::Renew => self.renewed(now, reply),
            Request::Release => self.finish(effects),
            // Every candidate waits for a lease duration from its own first read of the new record.
            Request::Create | Request::Read | Request::ReadEpochs => {}
        }
    }

    fn taken_over(&mut self, now: Duration, epoch: u64, reply: WriteReply, effects: &mut Vec<Effect>) {
        let transitions = self.observed.as_ref().map_or(0, |observed| observed.record.transitions);
        let until = self.sent.saturating_add(self.settings.renew_deadline);
        match reply {
            // A reply that comes too late does not count: the next read finds this candidate as the holder, and takes over again.
            WriteReply::Stored(version) if now < until => {
                let transitions = transitions.saturating_add(1);
                self.term = Some(Term { epoch, until, transitions, version: Some(version) });
                if self.stop_by.is_some() {
                    self.leaving = self.term.take();
                } else {
                    effects.push(Effect::Lead { epoch });
                }
            }
            WriteReply::Stored(_) | WriteReply::Conflict | WriteReply::Unknown => {}
        }
    }

    fn renewed(&mut self, now: Duration, reply: WriteReply) {
        // Without a term, it ended before the reply came. It stays ended: the shell was told so.
        let Some(term) = self.term.as_mut().or(self.leaving.as_mut()) else { return };
        match reply {
            WriteReply::Stored(version) => {
                term.until = self.sent.saturating_add(self.settings.renew_deadline);
                term.version = Some(version);
            }
            WriteReply::Conflict => {
                term.version = None;
                self.next = now;
            }
            WriteReply::Unknown => term.version = None,
        }
    }

    /// Steps down at once, and releases the record as soon as the request in flight is answered.
    fn stop(&mut self, now: Duration, by: Duration, effects: &mut Vec<Effect>) {
        if let Some(term) = self.term.take() {
            effects.push(Effect::StepDown(Reason::Stop));
            self.leaving = Some(term);
        }
        if now >= by {
            return self.finish(effects);
        }
        if self.request.is_some() {
            return;
        }
        let Some(term) = self.leaving.take() else { return self.finish(effects) };
        let Some(version) = term.version else { return self.finish(effects) };
        self.ask(now, Request::Release);
        effects.push(Effect::Write(Write {
            expected: Some(version),
            takeover: false,
            holder: Holder::Released,
            duration: self.settings.lease_duration,
            transitions: term.transitions,
            epoch: term.epoch,
        }));
    }

    fn finish(&mut self, effects: &mut Vec<Effect>) {
        if !self.stopped {
            self.stopped = true;
            effects.push(Effect::Stopped);
        }
    }
}
