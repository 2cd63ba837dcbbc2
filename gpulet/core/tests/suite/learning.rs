//! The interference learner: accurate on average, bounded for any input, and always able to follow a change.

use gpulet_core::interference::{Contention, Interference, Learned, Learner, Load, Runner};
use gpulet_core::profile::Line;
use gpulet_core::profile::{Profile, Utilisation, UtilisationLine};
use proptest::prelude::*;

use crate::support::{header, igniter_profile, table};

/// 10 ms per batch on half of the device, 5 ms on all of it, with its memory bandwidth utilisation if known.
fn profile(bandwidth: Option<f64>) -> Profile {
    let mut lines = table(header("m", 2), [(1, 1, 10e3), (8, 1, 10e3), (1, 2, 5e3), (8, 2, 5e3)]).lines();
    if let Some(bandwidth) = bandwidth {
        let used = Utilisation { cache: 0.0, bandwidth };
        lines.push(Line::Utilisation(UtilisationLine { batch: 1, used }));
    }
    Profile::of_lines(lines).unwrap().remove(0)
}

fn half(profile: &Profile) -> Runner<'_> {
    Runner { profile, batch: 4, units: 1 }
}

fn believed(profile: &Profile, learner: &Learner) -> Interference {
    Interference::Learned(Learned::of([(profile.device().to_owned(), learner.estimate())]))
}

#[test]
fn without_utilisation_in_the_profile_the_mean_slowdown_is_learned() {
    let profile = profile(None);
    let (own, load) = (half(&profile), Load::of(&half(&profile)));
    let mut learner = Learner::new(&Contention::NONE, 0.9);
    for _ in 0..40 {
        // Half of the batches are co-located, and take 1.4 times as long.
        learner.observe_mean(&learner.exposure(&own, &[(load, 0.5)]), 1.2);
    }
    let expected = learner.expected(&own, &[load]);
    assert!((expected - 1.4).abs() < 0.04, "{expected}");
    let [constant, others @ ..] = learner.weights();
    assert!(constant > 1.3 && others == [0.0; 3], "{:?}", learner.weights());
    assert!(believed(&profile, &learner).lacks(&profile).is_none());
    assert!(learner.errors().unwrap().mean_pct < 5.0 && learner.errors_of_none().unwrap().mean_pct > 15.0);
}

/// Terms that are always 0 must neither wind up nor stop the others from learning.
#[test]
fn it_follows_a_change_after_a_long_time_of_the_same() {
    let profile = profile(None);
    let (own, load) = (half(&profile), Load::of(&half(&profile)));
    let mut learner = Learner::new(&Contention::NONE, 0.9);
    (0..50_000).for_each(|_| learner.observe(&own, &[load], 1.2));
    assert!((learner.expected(&own, &[load]) - 1.2).abs() < 1e-6);
    (0..2_000).for_each(|_| learner.observe(&own, &[load], 1.5));
    let followed = learner.expected(&own, &[load]);
    assert!(followed > 1.45, "{followed}");
    // Once profiles know the utilisation, terms that were 0 for a long time are learned as at the start.
    let known = self::profile(Some(0.8));
    let (own, load) = (half(&known), Load::of(&half(&known)));
    (0..2_000).for_each(|_| learner.observe(&own, &[load], 1.8));
    let followed = learner.expected(&own, &[load]);
    assert!((followed - 1.8).abs() < 0.02, "{followed}");
}

#[test]
fn what_is_learned_of_parts_of_the_time_holds_for_all_of_it() {
    let (light, heavy) = (profile(Some(0.1)), profile(Some(0.9)));
    let own = half(&light);
    let loads = [&light, &heavy].map(|profile| Load::of(&half(profile)));
    let truth = |load: &Load| 1.05 + 0.6 * load.cache_pct / 100.0;
    let mut learner = Learner::new(&Contention::NONE, 0.9);
    for at in 0..200_u32 {
        let busy = [0.1 + f64::from(at % 7) / 10.0, 0.1 + f64::from(at % 4) / 20.0];
        let cycle = [(loads[0], busy[0]), (loads[1], busy[1])];
        // One co-located gpulet that runs either model, or is idle.
        let factor = 1.0 + cycle.iter().map(|(load, busy)| busy * (truth(load) - 1.0)).sum::<f64>();
        let co_located = (Load::mean(&cycle), busy[0] + busy[1]);
        learner.observe_mean(&learner.exposure(&own, &[co_located]), factor);
    }
    for load in &loads {
        let (expected, truth) = (learner.expected(&own, &[*load]), truth(load));
        assert!((expected - truth).abs() < 0.02 * truth, "{expected} for {truth}");
    }
    assert!(learner.margin() < 0.02, "{}", learner.margin());
}

#[test]
fn exposure_to_two_co_located_gpulets_combines_their_busy_shares() {
    let profile = igniter_profile("vgg19");
    let own = Runner { profile: &profile, batch: 4, units: 10 };
    let load = Load::of(&own);
    let learner = Learner::new(&Contention::NONE, 0.9);
    let met = learner.exposure(&own, &[(load, 0.5), (load, 0.5)]);
    assert!((met.share - 0.75).abs() < 1e-12, "{met:?}");
    assert_eq!(learner.exposure(&own, &[]).share, 0.0);
    assert_eq!(learner.exposure(&own, &[(load, 0.0)]).share, 0.0);
    let all = learner.exposure(&own, &[(load, f64::INFINITY), (load, 7.0), (load, f64::NAN)]);
    assert_eq!(all.share, 1.0, "the share is at most 1, and invalid shares count as 0");
}

fn figure() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.0_f64..3.0, 1 => proptest::num::f64::ANY, 1 => prop_oneof![
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(0.0),
        Just(f64::MIN_POSITIVE),
        Just(1e12),
    ]]
}

fn any_load() -> impl Strategy<Value = Load> {
    (figure(), figure(), figure(), figure()).prop_map(
        |(cache_scaled, bandwidth_scaled, cache_pct, power_w)| Load {
            cache_scaled,
            bandwidth_scaled,
            cache_pct,
            power_w,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_observed_factors_stay_finite_and_weights_bounded(
        seen in prop::collection::vec((prop::collection::vec((any_load(), figure()), 0..4), figure()), 0..200),
        co_located in prop::collection::vec(any_load(), 1..4),
        quantile in figure(),
    ) {
        let profile = igniter_profile("resnet50");
        let own = Runner { profile: &profile, batch: 8, units: 20 };
        let learned = || {
            let mut learner = Learner::new(&Contention::V100, quantile);
            for (loads, factor) in &seen {
                learner.observe_mean(&learner.exposure(&own, loads), *factor);
                let loads: Vec<Load> = loads.iter().map(|(load, _)| *load).collect();
                learner.observe(&own, &loads, *factor);
            }
            learner
        };
        let learner = learned();
        for weight in learner.weights() {
            prop_assert!((-10.0..=10.0).contains(&weight), "{:?}", learner);
        }
        prop_assert!((0.0..=10.0).contains(&learner.margin()), "{:?}", learner);
        let slowdown = believed(&profile, &learner).slowdown(&own, &[&co_located]);
        prop_assert!((1.0..=10.0).contains(&slowdown), "{slowdown}");
        prop_assert!(learner.errors().is_none_or(|errors| errors.max_pct.is_finite()));
        prop_assert_eq!(format!("{learner:?}"), format!("{:?}", learned()), "the same gives the same bytes");
        // And it goes on learning.
        let (mut learner, load) = (learner, Load::of(&own));
        (0..5_000).for_each(|_| learner.observe(&own, &[load], 1.5));
        let expected = learner.expected(&own, &[load]);
        prop_assert!((expected - 1.5).abs() < 0.05, "{expected}");
    }
}
