//! A fault domain under random deaths, answers, operators and clocks: whatever comes, restarts keep their distance.

use gpulet_core::supervision::{Effect, Event, Incarnation, State, Supervision, SupervisionOptions};
use gpulet_core::time::Micros;
use proptest::prelude::*;

/// What happens next; lives are told apart by how far back they lie.
#[derive(Clone, Debug)]
enum Chance {
    Died(u64),
    Restarted(u64),
    Failed(u64),
    Enable,
    Tick,
    /// The wake-up that was asked for.
    Wake,
}

fn chances() -> impl Strategy<Value = Vec<(u64, Chance)>> {
    let back = || prop_oneof![4 => Just(0_u64), 1 => 1_u64..3];
    let chance = prop_oneof![
        3 => back().prop_map(Chance::Died),
        3 => back().prop_map(Chance::Restarted),
        2 => back().prop_map(Chance::Failed),
        1 => Just(Chance::Enable),
        1 => Just(Chance::Tick),
        4 => Just(Chance::Wake),
    ];
    let passed = prop_oneof![Just(0_u64), 1_u64..200_000, 1_000_000_u64..90_000_000];
    prop::collection::vec((passed, chance), 1..200)
}

fn options() -> impl Strategy<Value = SupervisionOptions> {
    (1_u64..1_000_000, 0_u64..60_000_000, 1_u64..120_000_000, 1_u16..6, 1_u64..900_000_000).prop_map(
        |(backoff_us, more_us, healthy_us, deaths_max, deaths_within_us)| SupervisionOptions {
            backoff_us: Micros(backoff_us),
            backoff_max_us: Micros(backoff_us + more_us),
            healthy_us: Micros(healthy_us),
            deaths_max,
            deaths_within_us: Micros(deaths_within_us),
        },
    )
}

/// The state as derived from events and effects alone.
#[derive(Default)]
struct Witness {
    under_way: Option<Incarnation>,
    /// When it was lost, or its restart failed, last.
    down_us: Option<Micros>,
    deaths: Vec<Micros>,
    disabled: bool,
    up: bool,
}

impl Witness {
    fn sees(&mut self, now: Micros, enabled: bool, effects: &[Effect], options: &SupervisionOptions) {
        for effect in effects {
            match effect {
                Effect::Down { .. } => {
                    assert!(self.up || self.under_way.is_some(), "only what lives dies");
                    (self.up, self.under_way, self.down_us) = (false, None, Some(now));
                    self.deaths.push(now);
                }
                Effect::Restart { incarnation } => {
                    assert_eq!(self.under_way, None, "two restarts at once");
                    assert!(!self.up && (!self.disabled || enabled), "a restart while up or disabled");
                    let waited_us = now.since(self.down_us.unwrap());
                    assert!(waited_us >= options.backoff_us || enabled, "before its backoff");
                    if self.disabled {
                        self.deaths.clear();
                    }
                    (self.under_way, self.disabled) = (Some(*incarnation), false);
                }
                Effect::Up { incarnation } => {
                    assert_eq!(self.under_way.take(), Some(*incarnation));
                    self.up = true;
                }
                Effect::Disabled { .. } => {
                    let recent = |died: &&Micros| now.since(**died) < options.deaths_within_us;
                    let recent = self.deaths.iter().filter(recent).count();
                    assert!(recent >= usize::from(options.deaths_max), "disabled after {recent} deaths");
                    self.disabled = true;
                }
            }
        }
    }

    fn agrees(&self, now: Micros, supervision: &Supervision, options: &SupervisionOptions) {
        assert_eq!(supervision.is_up(), self.up, "capacity is there while it is up, and only then");
        match supervision.view().state {
            State::Up { .. } => assert!(self.up),
            State::Restarting => assert!(self.under_way.is_some()),
            State::Disabled => assert!(self.disabled),
            State::Waiting { until_us } => {
                assert!(!self.up && !self.disabled && self.under_way.is_none());
                assert!(until_us > now, "what is due is done");
                assert!(until_us.since(now) <= options.backoff_max_us, "longer than the longest wait");
                assert_eq!(supervision.next_wake(), Some(until_us), "the next wake is the end of the wait");
            }
        }
    }
}

fn event(chance: &Chance, supervision: &Supervision) -> Event {
    let life = |back: &u64| Incarnation(supervision.incarnation().0.saturating_sub(*back));
    match chance {
        Chance::Died(back) => Event::Died { incarnation: life(back), reason: "planted".to_owned() },
        Chance::Restarted(back) => Event::Restarted { incarnation: life(back) },
        Chance::Failed(back) => {
            Event::RestartFailed { incarnation: life(back), reason: "planted".to_owned() }
        }
        Chance::Enable => Event::Enable,
        Chance::Tick | Chance::Wake => Event::Tick,
    }
}

fn play(options: SupervisionOptions, script: &[(u64, Chance)]) -> Vec<(Micros, Effect)> {
    let mut supervision = Supervision::new(options).unwrap();
    let mut witness = Witness { up: true, ..Witness::default() };
    let (mut now, mut log) = (Micros::ZERO, Vec::new());
    for (passed_us, chance) in script {
        now = match (chance, supervision.next_wake()) {
            (Chance::Wake, Some(wake_us)) => wake_us.max(now),
            _ => now.after(Micros(*passed_us)),
        };
        let event = event(chance, &supervision);
        if let Event::RestartFailed { incarnation, .. } = &event
            && witness.under_way == Some(*incarnation)
        {
            (witness.under_way, witness.down_us) = (None, Some(now));
        }
        let enabled = event == Event::Enable && witness.disabled;
        let mut effects = Vec::new();
        supervision.handle(now, event, &mut effects);
        witness.sees(now, enabled, &effects, &options);
        witness.agrees(now, &supervision, &options);
        log.extend(effects.into_iter().map(|effect| (now, effect)));
    }
    log
}

proptest! {
    #[test]
    fn restarts_keep_their_distance_whatever_comes(options in options(), script in chances()) {
        let log = play(options, &script);
        prop_assert_eq!(&log, &play(options, &script), "the same events give the same effects");
    }

    #[test]
    fn a_domain_whose_restarts_go_well_comes_back_until_it_died_too_often(
        options in options(),
        lives in prop::collection::vec(0_u64..2_000_000_000, 1..30),
    ) {
        let mut supervision = Supervision::new(options).unwrap();
        let (mut now, mut effects) = (Micros::ZERO, Vec::new());
        for lived_us in lives {
            now = now.after(Micros(lived_us));
            let incarnation = supervision.incarnation();
            supervision.handle(now, Event::Died { incarnation, reason: String::new() }, &mut effects);
            if supervision.view().state == State::Disabled {
                supervision.handle(now, Event::Enable, &mut effects);
            } else {
                now = supervision.next_wake().unwrap();
                supervision.handle(now, Event::Tick, &mut effects);
            }
            let incarnation = supervision.incarnation();
            supervision.handle(now, Event::Restarted { incarnation }, &mut effects);
            prop_assert!(supervision.is_up());
        }
    }
}
