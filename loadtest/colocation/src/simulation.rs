//! Clients, a policy and a GPU in virtual time.

mod client;
mod events;
mod report;

use invariant::expected;

use crate::arrivals::Arrivals;
use crate::figures::Figures;
use crate::gpu::{Finished, Gpu};
use crate::interference::Interference;
use crate::kernel::Program;
use crate::policy::{self, Effect, Event, ONLINE, Policy, Setting};

use client::Client;
use events::{Agenda, Due};
use report::{Shares, figures};

/// SMs of an NVIDIA V100, on which Orion's kernel lists were measured.
pub const V100_SMS: u32 = 80;
/// Time in which the host launches a kernel, in nanoseconds. Derived from Orion's settings: 2.5 % of MobileNetV2's latency are 100 us
/// (`artifact_evaluation/fig10/run_orion.py`), so 152 kernels take 4 ms, while they keep the GPU busy for 2.3 ms.
pub const LAUNCH_NS: u64 = 26_000;
/// Time between two polls of Orion's scheduler while nothing is to do, in nanoseconds (ours).
pub const POLL_NS: u64 = 1_000;
/// A run ends at this multiple of its duration even if online requests are left.
const DRAIN: u64 = 4;

/// A model on the GPU.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its kernels.
    pub program: Program,
    /// When its requests arrive.
    pub arrivals: Arrivals,
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The online model, whose latency counts.
    pub online: Job,
    /// Models of best effort.
    pub best_effort: Vec<Job>,
    /// Time in which online requests arrive, in nanoseconds.
    pub duration_ns: u64,
    /// Requests that arrive in this time, in nanoseconds, are served but not counted.
    pub warm_up_ns: u64,
    /// Seed of the arrivals.
    pub seed: u64,
    /// SMs of the GPU.
    pub sms: u32,
    /// How kernels slow each other down.
    pub interference: Interference,
    /// Time in which the host launches a kernel, in nanoseconds.
    pub launch_ns: u64,
    /// Time between two polls of the policy `reef-policy`, in nanoseconds.
    pub poll_ns: u64,
}

impl Scenario {
    /// Latency of an online request on an idle GPU, in nanoseconds.
    #[must_use]
    pub fn alone_ns(&self) -> u64 {
        let start = |(place, _): (usize, _)| (place as u64 + 1) * self.launch_ns;
        let kernels = self.online.program.kernels.iter();
        kernels
            .clone()
            .enumerate()
            .map(start)
            .zip(kernels)
            .fold(0, |end: u64, (start, kernel)| end.max(start) + kernel.duration_ns)
    }
}

/// Runs a scenario under the policy of a word.
///
/// # Errors
/// The words that would be right.
pub fn simulate(scenario: &Scenario, word: &str) -> Result<Figures, String> {
    let setting = Setting {
        clients: scenario.best_effort.len() + 1,
        sms: scenario.sms,
        alone_ns: scenario.alone_ns(),
        poll_ns: scenario.poll_ns,
    };
    let policy = policy::make(word, &setting)?;
    Ok(Simulation::new(scenario, policy).run())
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    policy: Box<dyn Policy>,
    gpu: Gpu,
    clients: Vec<Client>,
    agenda: Agenda,
    effects: Vec<Effect>,
    /// The wake-up that the policy asked for last.
    wake_at: u64,
    at_warm_up: Option<Meter>,
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario, policy: Box<dyn Policy>) -> Self {
        let jobs = std::iter::once(&scenario.online).chain(&scenario.best_effort);
        let mut priorities = vec![false; scenario.best_effort.len() + 1];
        if let Some(online) = priorities.get_mut(ONLINE) {
            *online = policy.online_priority();
        }
        Self {
            scenario,
            policy,
            gpu: Gpu::new(scenario.sms, scenario.interference, &priorities),
            clients: jobs.enumerate().map(|(index, job)| Client::new(job, scenario.seed, index)).collect(),
            agenda: Agenda::default(),
            effects: Vec::new(),
            wake_at: u64::MAX,
            at_warm_up: None,
        }
    }

    fn run(mut self) -> Figures {
        for index in 0..self.clients.len() {
            self.next_arrival(index, 0);
        }
        let mut finished = Vec::new();
        let mut now = 0;
        loop {
            let due = self.agenda.next_at().unwrap_or(u64::MAX);
            let end = self.gpu.next_end().unwrap_or(u64::MAX);
            let next = due.min(end);
            if next == u64::MAX || next > self.scenario.duration_ns * DRAIN || self.is_done(next) {
                break;
            }
            if next >= self.scenario.warm_up_ns && self.at_warm_up.is_none() {
                self.at_warm_up = Some(self.meter(now));
            }
            now = next;
            self.gpu.run(now, &mut finished);
            for kernel in finished.drain(..) {
                self.ended(now, kernel);
            }
            while self.agenda.next_at() == Some(now) {
                let Some(due) = self.agenda.pop() else { break };
                self.due(now, due);
            }
        }
        self.report(now)
    }

    /// Whether all online requests that arrived have ended and no more arrive. Best-effort work is not waited for.
    fn is_done(&self, next: u64) -> bool {
        next > self.scenario.duration_ns && self.clients.get(ONLINE).is_none_or(Client::is_idle)
    }

    fn meter(&self, now: u64) -> Meter {
        let streams = 0..self.clients.len();
        Meter {
            now,
            busy_ns: self.gpu.busy_ns(),
            held_ns: streams.map(|stream| self.gpu.held_ns(stream)).sum(),
            online_ns: self.gpu.held_ns(ONLINE),
        }
    }

    fn next_arrival(&mut self, index: usize, now: u64) {
        let duration_ns = self.scenario.duration_ns;
        let client = expected!(self.clients.get_mut(index), "colocation.unknown_client");
        let Some(client) = client else { return };
        let at = client.next_arrival(now);
        if index != ONLINE || at <= duration_ns {
            self.agenda.push(at, Due::Arrival(index));
        }
    }

    fn due(&mut self, now: u64, due: Due) {
        match due {
            Due::Arrival(index) => {
                let client = expected!(self.clients.get_mut(index), "colocation.unknown_client");
                let Some(client) = client else { return };
                client.arrive(now);
                if !client.is_back_to_back() {
                    self.next_arrival(index, now);
                }
                self.begin(now, index);
            }
            Due::Kernel(index) => {
                let issued = self.clients.get_mut(index).and_then(Client::issue);
                let Some((kernel, last)) = expected!(issued, "colocation.no_kernel_left") else { return };
                if !last {
                    self.agenda.push(now + self.scenario.launch_ns, Due::Kernel(index));
                }
                self.tell(now, Event::Queued { client: index, kernel, last });
            }
            Due::Wake(at) => {
                if at == self.wake_at {
                    self.wake_at = u64::MAX;
                    self.tell(now, Event::Woken);
                }
            }
        }
    }

    /// Starts the next request of a client if it has one and runs none.
    fn begin(&mut self, now: u64, index: usize) {
        if self.clients.get_mut(index).is_some_and(Client::begin) {
            self.agenda.push(now + self.scenario.launch_ns, Due::Kernel(index));
        }
    }

    fn ended(&mut self, now: u64, kernel: Finished) {
        self.tell(now, Event::Ended { client: kernel.stream });
        let client = expected!(self.clients.get_mut(kernel.stream), "colocation.unknown_client");
        let Some(client) = client else { return };
        client.kernel_ended();
        if kernel.last {
            client.request_ended(now);
            if client.is_back_to_back() {
                self.next_arrival(kernel.stream, now);
            }
            self.begin(now, kernel.stream);
        }
    }

    fn tell(&mut self, now: u64, event: Event) {
        let mut effects = std::mem::take(&mut self.effects);
        self.policy.handle(now, event, &mut effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Launch { client, kernel, last } => self.gpu.launch(client, kernel, last),
                Effect::Evict { client } => {
                    let kernels = self.gpu.evict(client);
                    self.tell(now, Event::Evicted { client, kernels });
                }
                Effect::LimitSms { client, sms } => self.gpu.limit(client, sms),
                Effect::WakeAt(at) => {
                    if at != self.wake_at {
                        self.wake_at = at;
                        self.agenda.push(at, Due::Wake(at));
                    }
                }
            }
        }
        self.effects = effects;
    }

    fn report(self, now: u64) -> Figures {
        let (before, after) = (self.at_warm_up.unwrap_or_default(), self.meter(now));
        let passed_ns = (after.now - before.now).max(1) as f64;
        let sms_ns = passed_ns * f64::from(self.scenario.sms);
        let shares = Shares {
            busy: (after.busy_ns - before.busy_ns) as f64 / passed_ns,
            sms: (after.held_ns - before.held_ns) / sms_ns,
            online_sms: (after.online_ns - before.online_ns) / sms_ns,
        };
        figures(self.scenario.warm_up_ns, &self.clients, now, &shares)
    }
}

/// What the GPU has measured up to a time.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    now: u64,
    busy_ns: u64,
    held_ns: f64,
    online_ns: f64,
}
