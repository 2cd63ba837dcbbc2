//! The software queues of clients, and what has been launched from them.

use std::collections::VecDeque;

use invariant::expected;

use super::Effect;
use crate::kernel::Kernel;

/// A kernel in a queue, and whether it is the last one of its request.
type Queued = (Kernel, bool);

#[derive(Clone, Debug, Default)]
struct Queue {
    waiting: VecDeque<Queued>,
    launched: VecDeque<Queued>,
}

/// A software queue for each client.
#[derive(Clone, Debug)]
pub(super) struct Queues(Vec<Queue>);

impl Queues {
    pub(super) fn new(clients: usize) -> Self {
        Self(vec![Queue::default(); clients])
    }

    pub(super) fn push(&mut self, client: usize, kernel: Kernel, last: bool) {
        if let Some(queue) = self.0.get_mut(client) {
            queue.waiting.push_back((kernel, last));
        }
    }

    /// The next kernel of a client.
    pub(super) fn head(&self, client: usize) -> Option<Kernel> {
        self.0.get(client)?.waiting.front().map(|(kernel, _)| *kernel)
    }

    /// Launches the next kernel of a client.
    pub(super) fn launch(&mut self, client: usize, effects: &mut Vec<Effect>) -> Option<Kernel> {
        let queue = self.0.get_mut(client)?;
        let (kernel, last) = queue.waiting.pop_front()?;
        queue.launched.push_back((kernel, last));
        effects.push(Effect::Launch { client, kernel, last });
        Some(kernel)
    }

    /// The client's first launched kernel has ended; tells whether it was the last one of a request.
    pub(super) fn ended(&mut self, client: usize) -> bool {
        let ended = self.0.get_mut(client).and_then(|queue| queue.launched.pop_front());
        ended.is_some_and(|(_, last)| last)
    }

    /// Puts the latest launched kernels back to the head of the queue.
    pub(super) fn evicted(&mut self, client: usize, kernels: usize) {
        let queue = expected!(self.0.get_mut(client), "colocation.unknown_client");
        let Some(queue) = queue else { return };
        for _ in 0..kernels {
            let latest = expected!(queue.launched.pop_back(), "colocation.evicted_too_many");
            let Some(kernel) = latest else { return };
            queue.waiting.push_front(kernel);
        }
    }

    /// The first launched kernel that has not ended: the one that runs.
    pub(super) fn running(&self, client: usize) -> Option<Kernel> {
        self.0.get(client)?.launched.front().map(|(kernel, _)| *kernel)
    }

    /// Launched kernels of a client that have not ended.
    pub(super) fn outstanding(&self, client: usize) -> usize {
        self.0.get(client).map_or(0, |queue| queue.launched.len())
    }

    /// Clients of best effort.
    pub(super) fn best_effort(&self) -> std::ops::Range<usize> {
        1..self.0.len()
    }
}
