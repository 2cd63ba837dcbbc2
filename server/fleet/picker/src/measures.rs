//! Metrics of a picker.

use std::collections::HashMap;
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use fleet_core::pick::AskCounts;

use crate::chooser::{Answer, Choice, NodeCounts};
use crate::refusal::Refusal;

/// Time that requests wait at the picker.
pub const HOLD_SECONDS: &str = "tessera_picker_hold_seconds";
const PICKS: &str = "tessera_picker_picks_total";
const REFUSALS: &str = "tessera_picker_refusals_total";
const HELD: &str = "tessera_picker_held";
const ABANDONED: &str = "tessera_picker_abandoned_total";
const EXPIRED: &str = "tessera_picker_expired_tickets_total";
const DROPPED: &str = "tessera_picker_dropped_updates_total";
const OVERFLOWS: &str = "tessera_picker_overflows_total";
const NODES: &str = "tessera_picker_nodes";
const ASKED: &str = "tessera_picker_asked_total";
const PEERS: &str = "tessera_picker_peers";
const VIEW_AGE: &str = "tessera_picker_view_age_seconds";

/// The metrics of the task that owns the picker.
#[derive(Debug)]
pub struct Measures {
    batch: Counter,
    owner: Counter,
    weights: Counter,
    any: Counter,
    gateway: Counter,
    refusals: HashMap<&'static str, Counter>,
    held: Gauge,
    hold: Histogram,
    abandoned: Counter,
    expired: Counter,
    dropped: Counter,
    connected: Gauge,
    draining: Gauge,
    lost: Gauge,
    view_age: Gauge,
    asked: [Counter; 6],
    peers: [Gauge; 2],
}

impl Measures {
    /// Registers all of them.
    pub fn new() -> Self {
        describe_counter!(
            PICKS,
            "Requests that were sent, by what decided where: batch, owner, weights, any, or the gateway."
        );
        describe_counter!(REFUSALS, "Requests that were refused, by reason.");
        describe_gauge!(HELD, "Requests that wait at the picker.");
        describe_histogram!(HOLD_SECONDS, "Seconds that a request waited at the picker.");
        describe_counter!(ABANDONED, "Requests whose client left while they waited at the picker.");
        describe_counter!(EXPIRED, "Tickets whose end was not reported in time.");
        describe_counter!(
            DROPPED,
            "Messages of nodes or plans with more models or lanes than a picker may know."
        );
        describe_counter!(OVERFLOWS, "Requests that were left to the gateway because too many were open.");
        describe_gauge!(NODES, "Nodes by state: connected, draining, or lost.");
        describe_gauge!(
            VIEW_AGE,
            "Seconds since the last message of the connected node that was silent longest."
        );
        describe_counter!(ASKED, "Requests that other pickers were asked for, by how that ended.");
        describe_gauge!(PEERS, "Other pickers by state: connected or lost.");
        let asked = |result: &'static str| counter!(ASKED, "result" => result);
        let picks = |basis: &'static str| counter!(PICKS, "basis" => basis);
        let nodes = |state: &'static str| gauge!(NODES, "state" => state);
        Self {
            batch: picks("batch"),
            owner: picks("owner"),
            weights: picks("weights"),
            any: picks("any"),
            gateway: picks("gateway"),
            refusals: HashMap::new(),
            held: gauge!(HELD),
            hold: histogram!(HOLD_SECONDS),
            abandoned: counter!(ABANDONED),
            expired: counter!(EXPIRED),
            dropped: counter!(DROPPED),
            connected: nodes("connected"),
            draining: nodes("draining"),
            lost: nodes("lost"),
            view_age: gauge!(VIEW_AGE),
            asked: ["answered", "refused", "declined", "silent", "disconnected", "unreachable"].map(asked),
            peers: ["connected", "lost"].map(|state| gauge!(PEERS, "state" => state)),
        }
    }

    /// A request was answered after this time.
    pub fn answered(&mut self, answer: &Answer, waited: Duration) {
        self.hold.record(waited.as_secs_f64());
        match answer {
            Answer::Send { nodes, .. } if nodes.is_empty() => self.gateway.increment(1),
            Answer::Send { choice: Choice::Batch { .. }, .. } => self.batch.increment(1),
            Answer::Send { choice: Choice::Owner { .. }, .. } => self.owner.increment(1),
            Answer::Send { choice: Choice::Weights, .. } => self.weights.increment(1),
            Answer::Send { choice: Choice::Any, .. } => self.any.increment(1),
            Answer::Refuse(reason) => {
                let reason = Refusal::of(*reason, "").reason;
                let counter = self.refusals.entry(reason);
                counter.or_insert_with(|| counter!(REFUSALS, "reason" => reason)).increment(1);
            }
        }
    }

    /// A client left while its request waited.
    pub fn abandoned(&self) {
        self.abandoned.increment(1);
    }

    /// A message with more than the picker may know.
    pub fn dropped(&self) {
        self.dropped.increment(1);
    }

    /// What is measured once a second.
    pub fn report(&self, held: usize, expired: u64, nodes: NodeCounts) {
        self.held.set(held as f64);
        self.expired.increment(expired);
        self.connected.set(nodes.connected as f64);
        self.draining.set(nodes.draining as f64);
        self.lost.set(nodes.lost as f64);
        self.view_age.set(nodes.oldest_view.as_secs_f64());
    }

    /// What is measured of other pickers once a second. `peers`: how many are connected, and how many are not.
    pub fn report_peers(&self, counts: AskCounts, peers: [usize; 2]) {
        let AskCounts { answered, refused, declined, silent, disconnected, unreachable } = counts;
        let counts = [answered, refused, declined, silent, disconnected, unreachable];
        self.asked.iter().zip(counts).for_each(|(counter, count)| counter.absolute(count));
        self.peers.iter().zip(peers).for_each(|(gauge, count)| gauge.set(count as f64));
    }
}

/// A request was left to the gateway because too many were open.
pub fn overflowed() {
    counter!(OVERFLOWS).increment(1);
}

/// A request was refused for a header that cannot be read.
pub fn malformed() {
    counter!(REFUSALS, "reason" => "malformed").increment(1);
}
