//! Policies that decide which kernel may start: pure state machines from events to effects.
//!
//! A policy holds the software queue of each client. Client 0 is the online model; the others are of best effort.

mod alone;
mod muxflow_share;
mod orion;
mod queues;
mod reef;
mod reef_policy;
mod streams;
mod tgs;
mod tgs_limit;

use crate::kernel::Kernel;

pub use muxflow_share::sms_left as muxflow_sms;
pub use orion::Orion;
pub use tgs_limit::TgsLimit;

/// The client whose latency counts.
pub const ONLINE: usize = 0;

/// What happens to a policy.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A client asks to launch a kernel, behind its others.
    Queued {
        /// Its place in the list of clients.
        client: usize,
        /// What it wants to run.
        kernel: Kernel,
        /// Whether it is the last one of a request or an iteration.
        last: bool,
    },
    /// A launched kernel of a client has ended; they end in the order of their launch.
    Ended {
        /// Its place in the list of clients.
        client: usize,
    },
    /// Launched kernels of which no block had started have left the GPU, the latest ones first.
    Evicted {
        /// Its place in the list of clients.
        client: usize,
        /// How many there were.
        kernels: usize,
    },
    /// The time that the policy asked for has come.
    Woken,
}

/// What a policy wants to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Launch a kernel into the stream of its client.
    Launch {
        /// Its place in the list of clients.
        client: usize,
        /// The kernel that has left the client's queue.
        kernel: Kernel,
        /// Whether it is the last one of a request or an iteration.
        last: bool,
    },
    /// Remove the client's launched kernels of which no block has started; [`Event::Evicted`] follows at once.
    Evict {
        /// Its place in the list of clients.
        client: usize,
    },
    /// Limit the SMs that the stream of a client may hold.
    LimitSms {
        /// Its place in the list of clients.
        client: usize,
        /// SMs, at least 1.
        sms: u32,
    },
    /// Send [`Event::Woken`] at this time, in nanoseconds; replaces an earlier wish.
    WakeAt(u64),
}

/// Decides which kernel may start.
pub trait Policy {
    /// Takes an event at a time in nanoseconds and adds what has to be done.
    fn handle(&mut self, now: u64, event: Event, effects: &mut Vec<Effect>);

    /// Whether the stream of the online model has high priority.
    fn online_priority(&self) -> bool;
}

/// What policies know when they start.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Number of clients, the online one included.
    pub clients: usize,
    /// SMs of the GPU.
    pub sms: u32,
    /// Latency of an online request on an idle GPU, in nanoseconds: what Orion's profiling phase measures.
    pub alone_ns: u64,
    /// Time between two polls of REEF's rule in Orion's scheduler, in nanoseconds, at least 1.
    pub poll_ns: u64,
}

type Make = fn(&Setting) -> Box<dyn Policy>;

/// The policies: the word, what it selects, and its constructor.
pub const POLICIES: &[(&str, &str, Make)] = &[
    ("alone", "the online model alone: best-effort kernels never start", |setting| {
        Box::new(alone::Alone::new(setting.clients))
    }),
    (
        "orion",
        "Orion: opposite class, few enough SMs, and a cap on outstanding best-effort time",
        |setting| Box::new(Orion::new(setting)),
    ),
    (
        "reef",
        "REEF on NVIDIA GPUs: online requests evict queued best-effort kernels, and pad their own with short ones",
        |setting| Box::new(reef::Reef::new(setting)),
    ),
    (
        "reef-policy",
        "REEF's rule as Orion's authors implemented it to compare with: no eviction, no priority",
        |setting| Box::new(reef_policy::ReefPolicy::new(setting)),
    ),
    ("streams", "a stream for each model, of equal priority; no policy", |setting| {
        Box::new(streams::Streams::new(setting.clients, false))
    }),
    ("streams-priority", "a stream for each model; the online one has high priority", |setting| {
        Box::new(streams::Streams::new(setting.clients, true))
    }),
    (
        "tgs",
        "TGS: limits the blocks of best-effort kernels by the online model's rate of blocks",
        |setting| Box::new(tgs::Tgs::new(setting)),
    ),
    (
        "muxflow",
        "MuxFlow's SM allocation: best-effort kernels get the SMs that the online model leaves",
        |setting| Box::new(muxflow_share::MuxFlowShare::new(setting)),
    ),
];

/// Makes the policy of a word.
///
/// # Errors
/// The words that would be right.
pub fn make(word: &str, setting: &Setting) -> Result<Box<dyn Policy>, String> {
    check(word)?;
    let found = POLICIES.iter().find(|(name, ..)| *name == word);
    found.map(|(.., make)| make(setting)).ok_or_else(|| format!("unknown policy `{word}`"))
}

/// Checks the word of a policy.
///
/// # Errors
/// The words that would be right.
pub fn check(word: &str) -> Result<(), String> {
    if POLICIES.iter().any(|(name, ..)| *name == word) {
        return Ok(());
    }
    let names: Vec<&str> = POLICIES.iter().map(|(name, ..)| *name).collect();
    Err(format!("expected one of {}, all, got `{word}`", names.join(", ")))
}
