//! Policies on a few literal kernels: what each of them starts, and when.

use colocation::kernel::{Class, Kernel};
use colocation::policy::{self, Effect, Event, ONLINE, Policy, Setting};
use colocation::simulation::simulate;

use crate::fixtures::{inference, kernel, scenario, training};

const SETTING: Setting = Setting { clients: 2, sms: 80, alone_ns: 4_000_000, poll_ns: 1_000 };

const NOTHING: [usize; 0] = [];

/// The clients whose kernels the policy launches at an event.
fn launches(policy: &mut dyn Policy, now: u64, event: Event) -> Vec<usize> {
    let mut effects = Vec::new();
    policy.handle(now, event, &mut effects);
    let launch = |effect: &Effect| match effect {
        Effect::Launch { client, .. } => Some(*client),
        Effect::Evict { .. } | Effect::LimitSms { .. } | Effect::WakeAt(_) => None,
    };
    effects.iter().filter_map(launch).collect()
}

fn queued(client: usize, kernel: Kernel) -> Event {
    Event::Queued { client, kernel, last: client == ONLINE }
}

#[test]
fn orion_starts_the_opposite_class_on_few_sms() {
    for (class, sms, starts) in [
        (Class::Memory, 80, true),
        (Class::Unknown, 80, true),
        (Class::Compute, 10, false),
        (Class::Memory, 81, false),
    ] {
        let mut orion = policy::make("orion", &SETTING).unwrap();
        assert_eq!(launches(&mut *orion, 0, queued(ONLINE, kernel(Class::Compute, 98, 50_000))), [ONLINE]);
        let launched = launches(&mut *orion, 1, queued(1, kernel(class, sms, 20_000)));
        assert_eq!(!launched.is_empty(), starts, "{class:?} on {sms} SMs");
        // After the online request, everything may start.
        let ended = launches(&mut *orion, 50_000, Event::Ended { client: ONLINE });
        assert_eq!(ended.len(), usize::from(!starts));
    }
}

#[test]
fn orion_waits_when_its_time_is_used() {
    let mut orion = policy::make("orion", &SETTING).unwrap();
    let short = kernel(Class::Memory, 10, 60_000);
    assert_eq!(launches(&mut *orion, 0, queued(1, short)), [1]);
    assert_eq!(launches(&mut *orion, 1, queued(1, short)), [1]);
    // 120 us are outstanding, more than 2.5 % of 4 ms.
    assert_eq!(launches(&mut *orion, 2, queued(1, short)), NOTHING);
    assert_eq!(launches(&mut *orion, 60_000, Event::Ended { client: 1 }), NOTHING);
    assert_eq!(launches(&mut *orion, 120_000, Event::Ended { client: 1 }), [1]);
}

#[test]
fn reef_pads_online_kernels_with_shorter_ones() {
    let online = kernel(Class::Compute, 30, 100_000);
    for (sms, duration_ns, starts) in
        [(30, 99_000, true), (29, 10_000, false), (30, 100_000, false), (60, 60_000, false)]
    {
        let mut reef = policy::make("reef", &SETTING).unwrap();
        assert_eq!(launches(&mut *reef, 0, queued(ONLINE, online)), [ONLINE]);
        assert_eq!(launches(&mut *reef, 1, queued(1, kernel(Class::Memory, sms, duration_ns))), NOTHING);
        // It pads the next kernel, if at all: the first one has started without it.
        assert_eq!(
            launches(&mut *reef, 2, Event::Queued { client: ONLINE, kernel: online, last: true }),
            NOTHING
        );
        let mut reef = policy::make("reef", &SETTING).unwrap();
        for _ in 0..5 {
            launches(&mut *reef, 0, queued(1, kernel(Class::Memory, sms, duration_ns)));
        }
        let mut effects = Vec::new();
        reef.handle(1, queued(ONLINE, online), &mut effects);
        assert_eq!(effects, [Effect::Evict { client: 1 }]);
        launches(&mut *reef, 1, Event::Evicted { client: 1, kernels: 3 });
        let launched = launches(&mut *reef, 2, Event::Ended { client: 1 });
        assert_eq!(
            launched,
            if starts { vec![ONLINE, 1] } else { vec![ONLINE] },
            "{sms} SMs, {duration_ns} ns"
        );
    }
}

#[test]
fn the_rule_in_orions_repository_waits_twelve_polls() {
    let mut reef = policy::make("reef-policy", &SETTING).unwrap();
    let long = kernel(Class::Memory, 100, 500_000);
    assert_eq!(launches(&mut *reef, 0, queued(1, long)), NOTHING);
    assert_eq!(launches(&mut *reef, 11_999, Event::Woken), NOTHING);
    assert_eq!(launches(&mut *reef, 12_000, Event::Woken), [1]);
    // A shorter kernel with enough SMs comes with an online kernel.
    assert_eq!(launches(&mut *reef, 12_001, queued(1, kernel(Class::Memory, 98, 40_000))), NOTHING);
    assert_eq!(launches(&mut *reef, 12_002, queued(ONLINE, kernel(Class::Compute, 98, 40_000))), [ONLINE, 1]);
}

#[test]
fn unknown_words_name_the_known_ones() {
    let problem = policy::make("orian", &SETTING).err().unwrap();
    assert_eq!(
        problem,
        "expected one of alone, orion, reef, reef-policy, streams, streams-priority, tgs, muxflow, all, got `orian`"
    );
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let scenario = scenario(inference(), 40.0, training(), 201);
    for word in ["orion", "reef", "streams"] {
        assert_eq!(simulate(&scenario, word), simulate(&scenario, word));
    }
}

#[test]
fn a_request_alone_takes_as_long_as_is_worked_out() {
    let mut scenario = scenario(inference(), 1.0, training(), 202);
    scenario.best_effort.clear();
    let figures = simulate(&scenario, "alone").unwrap();
    // Waves end at whole nanoseconds.
    assert!((figures.p50_ms * 1e6 - scenario.alone_ns() as f64).abs() < 1_000.0);
    assert_eq!(figures.kernels_issued, figures.kernels_ended);
}
