//! REEF on GPUs whose running kernels cannot be ended (Han et al., OSDI 2022: REEF-N), after REEF's own paper.

use super::queues::Queues;
use super::{Effect, Event, ONLINE, Policy, Setting};
use crate::kernel::Kernel;

/// Best-effort kernels on the GPU, over which no more are launched (section 4.2: capacity of the device queues).
const DEPTH: usize = 4;

/// An online request evicts best-effort kernels of which no block has started, and starts when those that run have ended. While it
/// runs, each of its kernels may be padded with one best-effort kernel that ends earlier on the SMs that the online kernel leaves, and
/// that needs at least as many SMs (section 5, rules 1 and 2). Both are one kernel to the GPU, so the next online kernel starts when
/// both have ended. Without online requests, best-effort kernels start up to [`DEPTH`].
#[derive(Debug)]
pub(super) struct Reef {
    queues: Queues,
    sms: u32,
    online_runs: bool,
}

impl Reef {
    pub(super) fn new(setting: &Setting) -> Self {
        Self { queues: Queues::new(setting.clients), sms: setting.sms, online_runs: false }
    }

    fn outstanding(&self) -> usize {
        self.queues.best_effort().map(|client| self.queues.outstanding(client)).sum()
    }

    /// Whether a best-effort kernel ends before the online kernel on the SMs that this one leaves.
    fn pads(&self, kernel: Kernel, online: Kernel) -> bool {
        let left = self.sms - online.sms.min(self.sms);
        if left == 0 || kernel.sms < online.sms {
            return false;
        }
        let waves = |sms: u32| u64::from(kernel.sms.div_ceil(sms));
        kernel.duration_ns * waves(left) / waves(self.sms) < online.duration_ns
    }

    fn start_online(&mut self, effects: &mut Vec<Effect>) {
        if self.outstanding() > 0 || self.queues.outstanding(ONLINE) > 0 {
            return;
        }
        let Some(online) = self.queues.launch(ONLINE, effects) else { return };
        let suits =
            |client: &usize| self.queues.head(*client).is_some_and(|kernel| self.pads(kernel, online));
        if let Some(client) = self.queues.best_effort().find(suits) {
            self.queues.launch(client, effects);
        }
    }

    fn fill(&mut self, effects: &mut Vec<Effect>) {
        let mut launched = true;
        while launched {
            launched = false;
            for client in self.queues.best_effort() {
                if self.outstanding() < DEPTH && self.queues.launch(client, effects).is_some() {
                    launched = true;
                }
            }
        }
    }
}

impl Policy for Reef {
    fn handle(&mut self, _now: u64, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Queued { client, kernel, last } => self.queues.push(client, kernel, last),
            Event::Ended { client } => {
                let last = self.queues.ended(client);
                if client == ONLINE && last {
                    self.online_runs = false;
                }
            }
            Event::Evicted { client, kernels } => self.queues.evicted(client, kernels),
            Event::Woken => {}
        }
        if self.queues.head(ONLINE).is_some() && !self.online_runs {
            self.online_runs = true;
            effects.extend(self.queues.best_effort().map(|client| Effect::Evict { client }));
        }
        if self.online_runs {
            self.start_online(effects);
        } else {
            self.fill(effects);
        }
    }

    fn online_priority(&self) -> bool {
        true
    }
}
