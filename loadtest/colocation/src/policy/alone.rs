//! The online model alone, which the others are compared with.

use super::queues::Queues;
use super::{Effect, Event, ONLINE, Policy};

/// Launches online kernels only.
#[derive(Debug)]
pub(super) struct Alone(Queues);

impl Alone {
    pub(super) fn new(clients: usize) -> Self {
        Self(Queues::new(clients))
    }
}

impl Policy for Alone {
    fn handle(&mut self, _now: u64, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Queued { client, kernel, last } => self.0.push(client, kernel, last),
            Event::Ended { client } => {
                self.0.ended(client);
            }
            Event::Evicted { .. } | Event::Woken => {}
        }
        while self.0.launch(ONLINE, effects).is_some() {}
    }

    fn online_priority(&self) -> bool {
        false
    }
}
