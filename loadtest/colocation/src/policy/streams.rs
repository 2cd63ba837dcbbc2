//! Plain CUDA streams: every client launches what it has.

use super::queues::Queues;
use super::{Effect, Event, Policy};

/// Launches every kernel at once. Orion's ablation (section 6.4) starts from equal priorities and adds them first.
#[derive(Debug)]
pub(super) struct Streams {
    queues: Queues,
    priority: bool,
}

impl Streams {
    pub(super) fn new(clients: usize, priority: bool) -> Self {
        Self { queues: Queues::new(clients), priority }
    }
}

impl Policy for Streams {
    fn handle(&mut self, _now: u64, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Queued { client, kernel, last } => {
                self.queues.push(client, kernel, last);
                self.queues.launch(client, effects);
            }
            Event::Ended { client } => {
                self.queues.ended(client);
            }
            Event::Evicted { .. } | Event::Woken => {}
        }
    }

    fn online_priority(&self) -> bool {
        self.priority
    }
}
