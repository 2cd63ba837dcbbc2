//! Orion (Strati, Ma and Klimovic, EuroSys 2024), algorithm 1 and `src/scheduler/scheduler_eval.cpp`.

use super::queues::Queues;
use super::{Effect, Event, ONLINE, Policy, Setting};
use crate::kernel::{Class, Kernel};

/// `DUR_THRESHOLD` as a share of the latency of an online request (section 5.1.1, and the settings of figure 10).
const DURATION_SHARE: f64 = 0.025;

/// Launches online kernels at once, on a stream of high priority. A best-effort kernel starts while no online request runs, or
/// next to an online kernel of the opposite class if it needs few enough SMs. Best-effort work that has been launched is
/// bounded in time: beyond the bound, nothing starts until all of it has ended.
#[derive(Debug)]
pub struct Orion {
    queues: Queues,
    /// From the launch of the first kernel of a request to the end of its last one.
    online_runs: bool,
    /// Class of the latest online kernel.
    online_class: Class,
    sms_max: u32,
    duration_ns_max: u64,
    /// Best-effort time launched since the count started.
    launched_ns: u64,
    /// SMs of the best-effort kernels that have not ended.
    outstanding_sms: u32,
    /// Whether the bound has been exceeded, so that the outstanding kernels must end first.
    waits: bool,
    /// The client after the one that launched last: clients take places in a circle.
    next: usize,
}

impl Orion {
    /// For an online model that serves requests: the bound on SMs is all SMs. For online training, Orion searches it; we do not.
    #[must_use]
    pub fn new(setting: &Setting) -> Self {
        Self {
            queues: Queues::new(setting.clients),
            online_runs: false,
            online_class: Class::Unknown,
            sms_max: setting.sms,
            duration_ns_max: (setting.alone_ns as f64 * DURATION_SHARE) as u64,
            launched_ns: 0,
            outstanding_sms: 0,
            waits: false,
            next: 1,
        }
    }

    /// Bound on best-effort time that has been launched and has not ended, in nanoseconds. The kernel that exceeds it still starts.
    #[must_use]
    pub fn duration_ns_max(&self) -> u64 {
        self.duration_ns_max
    }

    fn may_start(&mut self, kernel: Kernel) -> bool {
        let running = self.queues.running(ONLINE).map_or(self.online_class, |kernel| kernel.class);
        let fits = self.outstanding_sms.saturating_add(kernel.sms) <= self.sms_max;
        let suits = !self.online_runs || (fits && kernel.class.complements(running));
        if suits && self.waits && self.outstanding() == 0 {
            self.waits = false;
            self.launched_ns = 0;
        }
        suits && !self.waits
    }

    fn outstanding(&self) -> usize {
        self.queues.best_effort().map(|client| self.queues.outstanding(client)).sum()
    }

    fn start_best_effort(&mut self, effects: &mut Vec<Effect>) {
        let clients = self.queues.best_effort().len();
        let mut refused = 0;
        while refused < clients {
            let client = 1 + (self.next - 1) % clients;
            self.next = 1 + client % clients;
            let Some(kernel) = self.queues.head(client).filter(|kernel| self.may_start(*kernel)) else {
                refused += 1;
                continue;
            };
            refused = 0;
            self.queues.launch(client, effects);
            self.outstanding_sms = self.outstanding_sms.saturating_add(kernel.sms);
            self.launched_ns += kernel.duration_ns;
            self.waits = self.launched_ns > self.duration_ns_max;
        }
    }
}

impl Policy for Orion {
    fn handle(&mut self, _now: u64, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Queued { client, kernel, last } => self.queues.push(client, kernel, last),
            Event::Ended { client: ONLINE } => {
                let last = self.queues.ended(ONLINE);
                if last && self.queues.outstanding(ONLINE) == 0 {
                    self.online_runs = false;
                }
            }
            Event::Ended { client } => {
                let sms = self.queues.running(client).map_or(0, |kernel| kernel.sms);
                self.outstanding_sms = self.outstanding_sms.saturating_sub(sms);
                self.queues.ended(client);
            }
            Event::Evicted { .. } | Event::Woken => {}
        }
        while let Some(kernel) = self.queues.launch(ONLINE, effects) {
            self.online_runs = true;
            self.online_class = kernel.class;
        }
        self.start_best_effort(effects);
    }

    fn online_priority(&self) -> bool {
        true
    }
}
