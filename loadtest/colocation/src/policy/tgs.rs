//! TGS (Wu et al., NSDI 2023): limits the rate of blocks of best-effort kernels.

use super::queues::Queues;
use super::tgs_limit::TgsLimit;
use super::{Effect, Event, ONLINE, Policy, Setting};

/// Window of the limit, in nanoseconds.
const WINDOW_NS: u64 = 50_000_000;
/// Time between two reports of the online rate, in nanoseconds.
const REPORT_NS: u64 = 5_000_000_000;

/// Launches online kernels at once, on a stream of higher priority, and best-effort kernels while the window's blocks are within the
/// limit. Kernel lists give SMs instead of blocks, so an SM's worth of blocks counts as one block here.
#[derive(Debug)]
pub(super) struct Tgs {
    queues: Queues,
    limit: TgsLimit,
    window: u64,
    window_blocks: f64,
    report: u64,
    online_blocks: f64,
}

impl Tgs {
    pub(super) fn new(setting: &Setting) -> Self {
        Self {
            queues: Queues::new(setting.clients),
            limit: TgsLimit::default(),
            window: 0,
            window_blocks: 0.0,
            report: 0,
            online_blocks: 0.0,
        }
    }

    fn start_best_effort(&mut self, effects: &mut Vec<Effect>) {
        let mut launched = true;
        while launched {
            launched = false;
            for client in self.queues.best_effort() {
                if self.window_blocks > self.limit.limit() {
                    return;
                }
                if let Some(kernel) = self.queues.launch(client, effects) {
                    self.window_blocks += f64::from(kernel.sms);
                    launched = true;
                }
            }
        }
    }
}

impl Policy for Tgs {
    fn handle(&mut self, now: u64, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Queued { client, kernel, last } => self.queues.push(client, kernel, last),
            Event::Ended { client } => {
                self.queues.ended(client);
            }
            Event::Evicted { .. } | Event::Woken => {}
        }
        while now >= self.report + REPORT_NS {
            self.report += REPORT_NS;
            self.limit.report(self.online_blocks);
            self.online_blocks = 0.0;
        }
        if now >= self.window + WINDOW_NS {
            self.window = now - now % WINDOW_NS;
            self.window_blocks = 0.0;
        }
        while let Some(kernel) = self.queues.launch(ONLINE, effects) {
            self.online_blocks += f64::from(kernel.sms);
        }
        self.start_best_effort(effects);
        if self.queues.best_effort().any(|client| self.queues.head(client).is_some()) {
            effects.push(Effect::WakeAt(self.window + WINDOW_NS));
        }
    }

    fn online_priority(&self) -> bool {
        true
    }
}
