//! Asks the owner of a request's lanes, at most once for each request.
//!
//! Lanes that serve the same models belong to one picker, so batches are formed in one place whichever picker a request reached. A
//! picker that another one asks never asks on. An owner that cannot be asked or gives no sign of life costs a batch, not a request:
//! the rates of the plan decide.

use std::time::Duration;

use router_core::Reason;

use super::asks::Unanswered;
use super::{AskCounts, Basis, Effect, Held, NodeNumber, NotPicked, PICKERS_MAX, Picker, Request, Ticket};

/// What a picker says about a request that it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerAnswer {
    /// The request is part of a batch.
    Send {
        /// Nodes, best first.
        nodes: Vec<NodeNumber>,
        /// The owner's name for the batch.
        id: u64,
        /// Rows of all requests of the batch.
        rows: u32,
    },
    /// The request cannot be answered in time, for example.
    Refuse(Reason),
    /// It does not own the lanes of this model.
    Decline,
}

impl Picker {
    /// Another picker is part of the fleet. Numbers from [`PICKERS_MAX`] are ignored.
    pub fn peer_listed(&mut self, now: Duration, picker: u32) {
        if picker < PICKERS_MAX {
            self.peers.list(now, picker);
            self.peers_changed(now);
        }
    }

    /// Another picker is not part of the fleet any more.
    pub fn peer_unlisted(&mut self, now: Duration, picker: u32) {
        self.peers.unlist(picker);
        self.peer_lost(now, picker);
    }

    /// Another picker gave a sign of life: it was connected, or sent a message.
    pub fn peer_heard(&mut self, now: Duration, picker: u32) {
        self.peers.hear(now, picker);
        self.peers_changed(now);
    }

    /// The connection to another picker broke. If it stays away, others own its lanes after [`super::AWAY_AFTER`].
    pub fn peer_lost(&mut self, now: Duration, picker: u32) {
        self.peers.lose(picker);
        for (key, ask) in self.asks.remove_picker(picker) {
            self.not_answered(key, ask.model, Unanswered::Disconnected);
        }
        self.peers_changed(now);
    }

    /// Another picker said that it stops. Others own its lanes at once.
    pub fn peer_stops(&mut self, now: Duration, picker: u32) {
        self.peers.leave(picker);
        self.peer_lost(now, picker);
    }

    /// A picker answered for a request that it was asked for.
    pub fn owner_answered(&mut self, now: Duration, picker: u32, key: u64, answer: OwnerAnswer) {
        self.peer_heard(now, picker);
        match answer {
            OwnerAnswer::Send { nodes, id, rows } if !nodes.is_empty() => {
                if self.asks.answered(picker, key) {
                    let basis = Basis::Owner { picker, id, rows };
                    self.effects.push(Effect::Send { key, nodes, basis });
                }
            }
            OwnerAnswer::Refuse(reason) => {
                if self.asks.remove_waiting(picker, key).is_some() {
                    self.asks.counts.refused += 1;
                    self.effects.push(Effect::Refuse { key, reason: NotPicked::Router(reason) });
                }
            }
            OwnerAnswer::Send { .. } => {
                // The owner counts on a request that goes elsewhere.
                if let Some(ask) = self.asks.remove_waiting(picker, key) {
                    self.effects.push(Effect::AskEnded { key, picker });
                    self.not_answered(key, ask.model, Unanswered::Declined);
                }
            }
            OwnerAnswer::Decline => {
                if let Some(ask) = self.asks.remove_waiting(picker, key) {
                    self.not_answered(key, ask.model, Unanswered::Declined);
                }
            }
        }
    }

    /// How requests ended that other pickers were asked for.
    pub fn ask_counts(&self) -> AskCounts {
        self.asks.counts
    }

    /// Asks another picker for a request of a model whose lanes it owns.
    pub(super) fn ask(
        &mut self,
        now: Duration,
        (model, owner): (u32, u32),
        request: &Request<'_>,
    ) -> Option<Ticket> {
        let Request { key, rows, deadline, class, .. } = *request;
        if !self.peers.may_be_asked(owner) || self.asks.len() >= self.settings.requests_max as usize {
            self.not_answered(key, model, Unanswered::Unreachable);
            return None;
        }
        self.asks.insert(now, key, (owner, model), deadline);
        self.effects.push(Effect::Ask {
            key,
            picker: owner,
            model: request.model.to_owned(),
            rows,
            timeout: deadline.map(|deadline| deadline.saturating_sub(now)),
            class,
        });
        Some(Ticket(Held::Asked(key)))
    }

    /// A request that another picker was asked for ended here.
    pub(super) fn ask_ended(&mut self, key: u64) {
        if let Some(ask) = self.asks.remove(key) {
            self.effects.push(Effect::AskEnded { key, picker: ask.picker });
        }
    }

    /// Stops to wait for owners that are silent.
    pub(super) fn tick_asks(&mut self, now: Duration) {
        while let Some((key, ask, is_silent)) = self.asks.next_silent(now, |picker| self.peers.heard(picker))
        {
            if is_silent {
                self.peers.silence(ask.picker);
            }
            self.effects.push(Effect::AskEnded { key, picker: ask.picker });
            self.not_answered(key, ask.model, Unanswered::Silent);
        }
        self.peers_changed(now);
    }

    fn not_answered(&mut self, key: u64, model: u32, why: Unanswered) {
        self.asks.count(why);
        self.send_by_weight(key, model);
    }

    fn peers_changed(&mut self, now: Duration) {
        if self.peers.refresh(now) {
            self.is_changed = true;
            self.redivide(now);
        }
    }
}

#[cfg(test)]
mod tests;
