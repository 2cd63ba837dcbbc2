//! REEF's rule as Orion's repository has it (`Scheduler::schedule_reef`): what the figures of Orion's paper compare with.

use super::queues::Queues;
use super::{Effect, Event, ONLINE, Policy, Setting};

/// Polls without an online kernel after which best-effort kernels start (`--reef_depth 12` in `artifact_evaluation`).
const DEPTH: u64 = 12;

/// With each online kernel, one best-effort kernel may start if it is at most as long and needs at least as many SMs. While no online
/// kernel waits, the next kernel of each best-effort client starts after every [`DEPTH`] polls. An online request that has been launched
/// and still runs is not waited for, and streams have equal priority: that is what the repository does.
#[derive(Debug)]
pub(super) struct ReefPolicy {
    queues: Queues,
    poll_ns: u64,
    /// Time of the last event.
    seen: u64,
    /// Time for which best-effort kernels have waited since the last ones started, once for each client that has one.
    waited_ns: u64,
}

impl ReefPolicy {
    pub(super) fn new(setting: &Setting) -> Self {
        Self { queues: Queues::new(setting.clients), poll_ns: setting.poll_ns.max(1), seen: 0, waited_ns: 0 }
    }

    fn waiting(&self) -> u64 {
        self.queues.best_effort().filter(|client| self.queues.head(*client).is_some()).count() as u64
    }
}

impl Policy for ReefPolicy {
    fn handle(&mut self, now: u64, event: Event, effects: &mut Vec<Effect>) {
        self.waited_ns += (now - self.seen) * self.waiting();
        self.seen = now;
        match event {
            Event::Queued { client, kernel, last } => self.queues.push(client, kernel, last),
            Event::Ended { client } => {
                self.queues.ended(client);
            }
            Event::Evicted { .. } | Event::Woken => {}
        }
        while let Some(online) = self.queues.launch(ONLINE, effects) {
            let suits = |client: &usize| {
                self.queues.head(*client).is_some_and(|kernel| {
                    kernel.duration_ns <= online.duration_ns && kernel.sms >= online.sms
                })
            };
            if let Some(client) = self.queues.best_effort().find(suits) {
                self.queues.launch(client, effects);
            }
        }
        if self.waited_ns >= DEPTH * self.poll_ns {
            for client in self.queues.best_effort() {
                self.queues.launch(client, effects);
            }
            self.waited_ns = 0;
        }
        let waiting = self.waiting();
        if waiting > 0 {
            let left = DEPTH * self.poll_ns - self.waited_ns;
            effects.push(Effect::WakeAt(now + left.div_ceil(waiting)));
        }
    }

    fn online_priority(&self) -> bool {
        false
    }
}
