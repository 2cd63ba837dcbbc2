//! Export to the collector, the same for every signal: a bounded queue, batches, attempts.

mod backoff;
mod client;
mod codec;
mod delivery;
mod failure;
mod worker;

use tokio::time::Instant;

use crate::signal::SignalName;

pub(crate) use client::Client;
pub use client::{InvalidEndpoint, check_connection};
pub(crate) use delivery::Delivery;
pub(crate) use worker::{Flush, Worker};

/// What the collector did not take of a batch that it accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rejected {
    count: u64,
    message: String,
}

impl Rejected {
    /// `None` if everything was taken and the collector has nothing to say.
    pub(crate) fn new(count: i64, message: String) -> Option<Self> {
        let count = u64::try_from(count).unwrap_or_default();
        (count > 0 || !message.is_empty()).then_some(Self { count, message })
    }
}

/// How the items of a signal become messages.
pub(crate) trait Signal: Send + 'static {
    /// What waits in the queue.
    type Item: Send + 'static;
    const NAME: SignalName;

    /// When there is something to export even if no item arrives.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// The encoded export request, and how many spans, data points or records it has. `all`: export what would wait for more, too.
    fn encode(&mut self, items: Vec<Self::Item>, all: bool) -> (u64, Vec<u8>);

    /// What the response says about records that were not taken.
    fn rejected(response: &[u8]) -> Option<Rejected>;
}
