use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;

use super::*;

const BAKE: Duration = Duration::from_secs(600);

fn settings() -> Settings {
    Settings { canary: 0.1, bake: BAKE, samples: 200, compare: true, agreement: 0.99, tenants: 3 }
}

/// A canary, as it differs from a stable version that fails on nothing and misses 2 % of its deadlines.
#[derive(Clone, Copy, Debug, Default)]
struct Canary {
    misses: f64,
    failures: f64,
    disagreements: f64,
    /// Only requests of this tenant differ.
    tenant: Option<u16>,
}

/// Runs 100 requests a second of three tenants, one of which sends 2 % of them. Returns the verdict and when it was.
fn run(seed: u64, settings: Settings, canary: Canary, seconds: u64) -> Option<(Verdict, Duration, Rollout)> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut rollout = Rollout::new(settings, Duration::ZERO);
    for number in 0..seconds * 100 {
        let now = Duration::from_millis(number * 10);
        let tenant = if random.random::<f64>() < 0.02 { 2 } else { (number % 2) as u16 };
        let differs = canary.tenant.is_none_or(|only| only == tenant);
        let arm = rollout.route(tenant);
        let mut chance = |rate: f64| random.random::<f64>() < rate;
        let is_canary = arm == Arm::Canary && differs;
        let ending = match () {
            () if is_canary && chance(canary.failures) => Ending::Failed,
            () if chance(0.02) || is_canary && chance(canary.misses) => Ending::Late,
            () => Ending::InTime,
        };
        let mut verdict = rollout.handle(now, Event::Ended { arm, tenant, ending });
        if arm == Arm::Stable && rollout.mirrors(tenant) {
            let agrees = !(differs && chance(canary.disagreements));
            verdict = verdict.or(rollout.handle(now, Event::Compared { tenant, agrees }));
        }
        if let Some(verdict) = verdict {
            return Some((verdict, now, rollout));
        }
    }
    None
}

#[test]
fn a_good_version_is_promoted_when_its_bake_time_is_over() {
    for seed in 0..20 {
        let (verdict, at, rollout) = run(seed, settings(), Canary::default(), 700).unwrap();
        assert_eq!(
            (verdict, at),
            (Verdict::Promoted { cause: Cause::Baked }, BAKE),
            "{:?}",
            rollout.figures()
        );
        let share = rollout.figures().canary.requests as f64 / 60_000.0;
        assert!((share - 0.1).abs() < 0.001, "{share}");
    }
}

#[test]
fn a_bad_version_is_rolled_back_within_its_bake_time() {
    let cases = [
        (Canary { misses: 0.1, ..Canary::default() }, (Measure::Attainment, None)),
        (Canary { failures: 0.1, ..Canary::default() }, (Measure::Failures, None)),
        (Canary { disagreements: 0.2, ..Canary::default() }, (Measure::Agreement, None)),
        (Canary { failures: 1.0, tenant: Some(2), ..Canary::default() }, (Measure::Failures, Some(2))),
    ];
    for (canary, (worse_in, only)) in cases {
        for seed in 0..20 {
            let (verdict, at, rollout) = run(seed, settings(), canary, 600).expect("a verdict");
            let Verdict::RolledBack { cause: Cause::Worse { measure, tenant } } = verdict else {
                panic!("{canary:?}: {verdict:?}")
            };
            assert_eq!(measure, worse_in, "{canary:?} {:?}", rollout.figures());
            assert!(only.is_none() || tenant == only, "{tenant:?}");
            assert!(at < BAKE, "{at:?}");
        }
    }
}

#[test]
fn too_few_samples_never_promote() {
    let rare = Settings { samples: 100_000, ..settings() };
    assert!(run(1, rare, Canary::default(), 3_000).is_none());
    let uncompared = Settings { samples: 100, ..settings() };
    let mut rollout = Rollout::new(uncompared, Duration::ZERO);
    for number in 0..2_000 {
        let arm = rollout.route(0);
        let event = Event::Ended { arm, tenant: 0, ending: Ending::InTime };
        assert_eq!(rollout.handle(BAKE + Duration::from_secs(number), event), None, "nothing was compared");
    }
    assert_eq!((rollout.missing_samples(), rollout.next_tick()), (100, None));
}

#[test]
fn enough_samples_promote_with_the_next_tick_after_the_bake_time() {
    let mut rollout =
        Rollout::new(Settings { samples: 1, compare: false, ..settings() }, Duration::from_secs(5));
    let event = Event::Ended { arm: Arm::Canary, tenant: 0, ending: Ending::InTime };
    assert_eq!(rollout.handle(Duration::from_secs(6), event), None);
    let tick = rollout.next_tick().unwrap();
    assert_eq!(tick, Duration::from_secs(5) + BAKE);
    assert_eq!(rollout.handle(tick - Duration::from_nanos(1), Event::Tick), None);
    assert!(rollout.handle(tick, Event::Tick).unwrap().is_promotion());
    assert_eq!(rollout.next_tick(), None);
}

#[test]
fn crashes_and_operators_decide_at_once_and_for_good() {
    for (event, verdict) in [
        (Event::Crashed, Verdict::RolledBack { cause: Cause::Crashed }),
        (Event::RollBack, Verdict::RolledBack { cause: Cause::Operator }),
        (Event::Promote, Verdict::Promoted { cause: Cause::Operator }),
    ] {
        let mut rollout = Rollout::new(settings(), Duration::ZERO);
        assert_eq!(rollout.handle(Duration::from_secs(1), event), Some(verdict));
        let arm = if verdict.is_promotion() { Arm::Canary } else { Arm::Stable };
        assert!((0..100).all(|_| rollout.route(0) == arm && !rollout.mirrors(0)));
        assert_eq!(rollout.handle(Duration::from_secs(2), Event::Promote), None);
        assert_eq!(rollout.verdict(), Some(verdict));
    }
}

#[test]
fn few_requests_run_on_both_versions_at_once() {
    let mut rollout = Rollout::new(settings(), Duration::ZERO);
    let mirrored = |rollout: &mut Rollout| (0..200).filter(|_| rollout.mirrors(0)).count();
    assert_eq!(mirrored(&mut rollout), MIRRORS);
    rollout.handle(Duration::ZERO, Event::NotCompared);
    rollout.handle(Duration::ZERO, Event::Compared { tenant: 0, agrees: true });
    assert_eq!(mirrored(&mut rollout), 2);
    assert_eq!(rollout.figures().compared, 1);
}

fn events() -> impl Strategy<Value = Event> {
    let ending = prop_oneof![Just(Ending::InTime), Just(Ending::Late), Just(Ending::Failed)];
    let arm = prop_oneof![Just(Arm::Stable), Just(Arm::Canary)];
    prop_oneof![
        20 => (arm, 0..4_u16, ending).prop_map(|(arm, tenant, ending)| Event::Ended { arm, tenant, ending }),
        5 => (0..4_u16, any::<bool>()).prop_map(|(tenant, agrees)| Event::Compared { tenant, agrees }),
        2 => Just(Event::Tick),
        1 => Just(Event::NotCompared),
    ]
}

proptest! {
    /// Whatever happens: one verdict at most, no promotion before its time or without its samples, and figures that add up.
    #[test]
    fn verdicts_keep_the_rules(
        events in prop::collection::vec((events(), 0..20_000_u64), 0..400),
        samples in 0..60_u64,
        compare in any::<bool>(),
    ) {
        let settings = Settings { samples, compare, ..settings() };
        let (mut rollout, mut now, mut verdicts) = (Rollout::new(settings, Duration::ZERO), Duration::ZERO, Vec::new());
        for (event, passes) in events {
            now += Duration::from_millis(passes);
            let before = rollout.clone();
            match rollout.handle(now, event) {
                Some(verdict) if verdict.is_promotion() => {
                    prop_assert!(now >= BAKE && rollout.figures().canary.requests >= samples);
                    prop_assert!(!compare || rollout.figures().compared >= samples);
                    verdicts.push(verdict);
                }
                Some(verdict) => verdicts.push(verdict),
                None if !verdicts.is_empty() => prop_assert_eq!(before.figures(), rollout.figures()),
                None => {}
            }
            let figures = rollout.figures();
            for endings in [figures.stable, figures.canary] {
                prop_assert!(endings.failed <= endings.missed && endings.missed <= endings.requests);
            }
        }
        prop_assert!(verdicts.len() <= 1);
    }
}
