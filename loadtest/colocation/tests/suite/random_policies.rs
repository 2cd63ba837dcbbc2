//! Every policy with random kernels on a GPU: none is lost, each is launched in order, and Orion's bounds hold.

use std::collections::VecDeque;

use colocation::gpu::Gpu;
use colocation::interference::Interference;
use colocation::kernel::{Class, Kernel};
use colocation::policy::{self, Effect, Event, ONLINE, Orion, POLICIES, Policy, Setting};
use proptest::prelude::*;

use crate::fixtures::kernel;

const CLIENTS: usize = 3;
const SETTING: Setting = Setting { clients: CLIENTS, sms: 80, alone_ns: 4_000_000, poll_ns: 1_000 };

/// A kernel that a client asks for at a time.
type Asked = (u64, usize, Kernel, bool);

struct Bench {
    policy: Box<dyn Policy>,
    gpu: Gpu,
    wake_at: Option<u64>,
    /// Kernels on the GPU, by client.
    launched: Vec<VecDeque<Kernel>>,
    ended: Vec<Vec<Kernel>>,
    /// Best-effort time on the GPU at the moment before each launch of best effort, in nanoseconds.
    outstanding_ns: Vec<u64>,
    /// Whether an online request runs, and its running class, at each launch of best effort.
    next_to: Vec<(Option<Class>, Kernel)>,
}

impl Bench {
    fn new(policy: Box<dyn Policy>) -> Self {
        let priorities = [policy.online_priority(), false, false];
        Self {
            policy,
            gpu: Gpu::new(80, Interference::Fitted, &priorities),
            wake_at: None,
            launched: vec![VecDeque::new(); CLIENTS],
            ended: vec![Vec::new(); CLIENTS],
            outstanding_ns: Vec::new(),
            next_to: Vec::new(),
        }
    }

    fn tell(&mut self, now: u64, event: Event) {
        let mut effects = Vec::new();
        self.policy.handle(now, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Launch { client, kernel, last } => {
                    if client != ONLINE {
                        self.outstanding_ns
                            .push(self.launched[1..].iter().flatten().map(|one| one.duration_ns).sum());
                        self.next_to.push((self.launched[ONLINE].front().map(|one| one.class), kernel));
                    }
                    self.launched[client].push_back(kernel);
                    self.gpu.launch(client, kernel, last);
                }
                Effect::Evict { client } => {
                    let kernels = self.gpu.evict(client);
                    let left = self.launched[client].len() - kernels;
                    self.launched[client].truncate(left);
                    self.tell(now, Event::Evicted { client, kernels });
                }
                Effect::LimitSms { client, sms } => self.gpu.limit(client, sms),
                Effect::WakeAt(at) => self.wake_at = Some(at),
            }
        }
    }

    fn run(&mut self, asked: &[Asked]) {
        let mut asked: VecDeque<Asked> = asked.iter().copied().collect();
        let mut finished = Vec::new();
        loop {
            let times = [asked.front().map(|ask| ask.0), self.gpu.next_end(), self.wake_at];
            let Some(now) = times.into_iter().flatten().min() else { return };
            self.gpu.run(now, &mut finished);
            for kernel in std::mem::take(&mut finished) {
                let ended = self.launched[kernel.stream].pop_front().unwrap();
                self.ended[kernel.stream].push(ended);
                self.tell(now, Event::Ended { client: kernel.stream });
            }
            while let Some((_, client, kernel, last)) = asked.front().copied().filter(|ask| ask.0 == now) {
                asked.pop_front();
                self.tell(now, Event::Queued { client, kernel, last });
            }
            if self.wake_at == Some(now) {
                self.wake_at = None;
                self.tell(now, Event::Woken);
            }
        }
    }
}

fn any_asked() -> impl Strategy<Value = Vec<Asked>> {
    let class = prop_oneof![Just(Class::Compute), Just(Class::Memory), Just(Class::Unknown)];
    let one = (0_u64..60_000, 0_usize..CLIENTS, class, 1_u32..300, 1_u64..150_000, any::<bool>());
    proptest::collection::vec(one, 1..80).prop_map(|drawn| {
        let mut now = 0;
        let mut asked: Vec<Asked> = Vec::new();
        for (gap, client, class, sms, duration_ns, last) in drawn {
            now += gap;
            asked.push((now, client, kernel(class, sms, duration_ns), last));
        }
        // A request that has begun ends.
        asked.push((now + 1, ONLINE, kernel(Class::Unknown, 1, 1_000), true));
        asked
    })
}

fn of_client(asked: &[Asked], client: usize) -> Vec<Kernel> {
    asked.iter().filter(|ask| ask.1 == client).map(|ask| ask.2).collect()
}

proptest! {
    #[test]
    fn no_kernel_is_lost_or_overtaken(asked in any_asked()) {
        for (word, ..) in POLICIES {
            let mut bench = Bench::new(policy::make(word, &SETTING).unwrap());
            bench.run(&asked);
            for client in 0..CLIENTS {
                let expected = if *word == "alone" && client != ONLINE { Vec::new() } else { of_client(&asked, client) };
                prop_assert_eq!(&bench.ended[client], &expected, "{} client {}", word, client);
            }
        }
    }

    #[test]
    fn the_bounds_of_orion_hold(asked in any_asked()) {
        let duration_ns_max = Orion::new(&SETTING).duration_ns_max();
        prop_assert_eq!(duration_ns_max, 100_000);
        let mut bench = Bench::new(policy::make("orion", &SETTING).unwrap());
        bench.run(&asked);
        for outstanding in &bench.outstanding_ns {
            prop_assert!(*outstanding <= duration_ns_max, "{} ns were outstanding", outstanding);
        }
        for (online, kernel) in &bench.next_to {
            let Some(online) = online else { continue };
            prop_assert!(kernel.class.complements(*online) && kernel.sms <= SETTING.sms, "{kernel:?} next to {online:?}");
        }
    }
}
