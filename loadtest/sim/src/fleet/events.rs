//! Events of a fleet in order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::rc::Rc;

use fleet_core::pick::{OwnerAnswer, Update};
use router_core::Gather;
use workload::FleetFault;

use crate::inflight::Request;

/// A request on its way to a node.
#[derive(Clone, Debug)]
pub(super) struct Travelling {
    pub key: u64,
    pub request: Request,
    pub picker: u32,
    /// The batch that it is part of.
    pub gather: Option<Gather>,
    /// The nodes to try, the next one last.
    pub nodes: Vec<u32>,
}

/// What a picker is told.
#[derive(Debug)]
pub(super) enum Message {
    /// What a node said.
    Seen { node: u32, update: Rc<Update> },
    /// A request was answered.
    Answered { node: u32, key: u64 },
    /// Another picker asks for a request.
    Asked(Asked),
    /// A request that another picker asked for ended.
    AskEnded { key: u64 },
    /// The owner answers for a request that it was asked for.
    OwnerAnswered { owner: u32, key: u64, answer: OwnerAnswer },
}

/// A request that a picker asks another one for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub asker: u32,
    pub key: u64,
    pub model: String,
    pub rows: u32,
    pub timeout: Option<u64>,
    pub class: u8,
}

#[derive(Debug)]
pub(super) enum What {
    Fault(FleetFault),
    FaultEnds(FleetFault),
    Node(u32),
    /// The leader knows which nodes are there.
    Noticed,
    /// The leader continues towards its plans.
    Approach,
    /// A node says what it has.
    Sample(u32),
    /// A model of a node is loaded.
    Loaded {
        node: u32,
        model: u32,
    },
    /// Requests reach a node. Those of a batch reach it together.
    Reach(Vec<Travelling>),
    /// A message reaches a picker.
    Message(u32, Message),
    /// All pickers that run give the others a sign of life.
    Signs,
    /// A gateway asks another picker, because the first did not answer.
    AskedAgain(Request),
    /// The timer of a picker.
    Picker(u32),
}

impl What {
    /// Which of several events at the same moment is first.
    fn rank(&self) -> u8 {
        match self {
            Self::Fault(_) | Self::FaultEnds(_) => 0,
            Self::Node(_) => 1,
            Self::Noticed | Self::Approach => 2,
            Self::Sample(_) => 3,
            Self::Message(_, Message::Seen { .. }) => 4,
            Self::Loaded { .. } => 5,
            Self::Reach(_) => 6,
            Self::Message(..) | Self::Signs => 7,
            Self::AskedAgain(_) => 8,
            Self::Picker(_) => 9,
        }
    }
}

struct Entry {
    at: u64,
    rank: u8,
    sequence: u64,
    what: What,
}

impl Entry {
    fn order(&self) -> (u64, u8, u64) {
        (self.at, self.rank, self.sequence)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// The events that are to come.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
}

impl Events {
    pub(super) fn push(&mut self, at: u64, what: What) {
        self.sequence += 1;
        self.heap.push(Reverse(Entry { at, rank: what.rank(), sequence: self.sequence, what }));
    }

    /// When the next event is.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    pub(super) fn pop(&mut self) -> Option<(u64, What)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}
