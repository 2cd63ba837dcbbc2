//! Votes and the models that take part in them: tables of the published rules, and properties.

use std::collections::BTreeMap;

use proptest::prelude::*;
use router_core::Nanos;
use router_core::voting::{Candidate, Change, Decision, Selection, Voter, decide};

/// Classes of ImageNet.
const TABBY: i64 = 281;
const TIGER_CAT: i64 = 282;
const EGYPTIAN_CAT: i64 = 285;

/// Right answers to 50 images of each class, and to all 50,000: the numbers that Cocktail's authors published (`class-weights.csv` of
/// jashwantraj92/cocktail, commit 07e2fdc).
const MODELS: [(&str, [u32; 3], u32); 5] = [
    ("MobileNet", [30, 13, 25], 34_180),
    ("DenseNet201", [24, 13, 27], 36_419),
    ("NASNetMobile", [30, 6, 22], 35_574),
    ("DenseNet121", [21, 7, 35], 34_976),
    ("InceptionResNetV2", [37, 10, 26], 36_801),
];

fn voter(name: &str) -> Voter {
    let found = MODELS.iter().find(|(model, ..)| *model == name);
    let Some((_, right, all)) = found else { return Voter::default() };
    let classes = [TABBY, TIGER_CAT, EGYPTIAN_CAT].into_iter().zip(right.map(|right| right * 20_000));
    Voter { quality: all * 20, classes: classes.collect() }
}

#[test]
fn published_class_weights_decide() {
    for (votes, class, weight, total) in [
        // Two against one, which knows its class better: 0.12 + 0.14 < 0.48.
        (
            vec![("NASNetMobile", TIGER_CAT), ("DenseNet121", TIGER_CAT), ("DenseNet201", TABBY)],
            TABBY,
            480_000,
            740_000,
        ),
        // Three against one: 0.26 + 0.26 + 0.20 > 0.60.
        (
            vec![
                ("MobileNet", TIGER_CAT),
                ("DenseNet201", TIGER_CAT),
                ("InceptionResNetV2", TIGER_CAT),
                ("NASNetMobile", TABBY),
            ],
            TIGER_CAT,
            720_000,
            1_320_000,
        ),
        // One model against another: the one that knows its class better.
        (vec![("DenseNet121", EGYPTIAN_CAT), ("NASNetMobile", TABBY)], EGYPTIAN_CAT, 700_000, 1_300_000),
        // A class without a measurement: 36,801 of 50,000 against 0.70.
        (vec![("DenseNet121", EGYPTIAN_CAT), ("InceptionResNetV2", 1)], 1, 736_020, 1_436_020),
        // All agree.
        (vec![("MobileNet", TABBY), ("NASNetMobile", TABBY)], TABBY, 1_200_000, 1_200_000),
    ] {
        let voters: Vec<(Voter, i64)> = votes.iter().map(|(name, class)| (voter(name), *class)).collect();
        let decision = decide(voters.iter().map(|(voter, class)| (voter, *class))).unwrap();
        assert_eq!(decision, Decision { class, weight, total }, "{votes:?}");
    }
}

#[test]
fn ties_go_to_the_best_voter() {
    let voter =
        |quality: u32| Voter { quality, classes: BTreeMap::from([(1, 500_000), (2, 500_000), (3, 0)]) };
    let (worse, better) = (voter(600_000), voter(700_000));
    let class = |votes: &[(&Voter, i64)]| decide(votes.iter().copied()).unwrap().class;
    assert_eq!(class(&[(&worse, 1), (&better, 2)]), 2);
    assert_eq!(class(&[(&better, 2), (&worse, 1)]), 2);
    assert_eq!(class(&[(&worse, 2), (&worse, 1)]), 1, "the smaller class of equally good voters");
    let nothing = decide([(&better, 3)].into_iter()).unwrap();
    assert_eq!((nothing.class, nothing.share()), (3, 0.0));
    assert_eq!(decide(std::iter::empty()), None);
}

fn voters() -> impl Strategy<Value = Vec<(Voter, i64)>> {
    let classes = prop::collection::btree_map(0..5_i64, 0..=4_u32, 0..5);
    let one = (0..=4_u32, classes, 0..6_i64).prop_map(|(quality, classes, class)| {
        let classes = classes.into_iter().map(|(class, weight)| (class, weight * 250_000)).collect();
        (Voter { quality: quality * 250_000, classes }, class)
    });
    prop::collection::vec(one, 1..9)
}

proptest! {
    #[test]
    fn the_order_of_the_voters_changes_nothing(voters in voters(), seed in any::<prop::sample::Index>()) {
        let decision = decide(voters.iter().map(|(voter, class)| (voter, *class)));
        let mut other = voters.clone();
        other.rotate_left(seed.index(voters.len()));
        prop_assert_eq!(decision, decide(other.iter().map(|(voter, class)| (voter, *class))));
        other.reverse();
        prop_assert_eq!(decision, decide(other.iter().map(|(voter, class)| (voter, *class))));
    }

    #[test]
    fn the_decision_has_the_largest_sum(voters in voters()) {
        let decision = decide(voters.iter().map(|(voter, class)| (voter, *class))).unwrap();
        let sum = |class: i64| -> u64 {
            voters.iter().filter(|(_, vote)| *vote == class).map(|(voter, _)| u64::from(voter.weight(class))).sum()
        };
        prop_assert_eq!(decision.weight, sum(decision.class));
        prop_assert!(voters.iter().all(|(_, class)| sum(*class) <= decision.weight));
        prop_assert!((0.0..=1.0).contains(&decision.share()));
    }

    #[test]
    fn equal_weights_are_a_plain_majority(classes in prop::collection::vec(0..4_i64, 1..9)) {
        let voter = Voter { quality: 800_000, classes: BTreeMap::new() };
        let decision = decide(classes.iter().map(|class| (&voter, *class))).unwrap();
        let count = |wanted: i64| classes.iter().filter(|class| **class == wanted).count();
        let most = classes.iter().map(|class| count(*class)).max().unwrap();
        let first = classes.iter().copied().filter(|class| count(*class) == most).min().unwrap();
        prop_assert_eq!(decision.class, first);
        prop_assert_eq!(decision.share(), (most as f64 / classes.len() as f64) as f32);
    }
}

/// Five models, the third of which is too slow.
fn selection() -> Selection {
    let candidates = [(700_000, 10), (900_000, 40), (950_000, 90), (800_000, 30), (850_000, 35)];
    let candidate = |(quality, millis)| Candidate { quality, latency: Nanos::from_millis(millis) };
    Selection::new(candidates.map(candidate).to_vec(), Nanos::from_millis(50), 800_000)
}

/// An interval of 100 rows. `agreed`: for how many of them each member voted for the decision. `right`: decisions that are the label.
fn interval(selection: &mut Selection, agreed: &[u64], right: u64) -> Change {
    for row in 0..100 {
        let votes: Vec<i64> = agreed.iter().map(|agreed| i64::from(row >= *agreed)).collect();
        let decision = Decision { class: 0, weight: 1, total: 1 };
        selection.observe(&votes, decision, i64::from(row >= right));
    }
    selection.end_interval()
}

#[test]
fn models_leave_and_join_by_the_published_rule() {
    let mut selection = selection();
    for (agreed, right, change, members) in [
        // Four models vote, ceil(0.51 * 4) = 3. Target 0.80, so a model leaves from 0.82.
        (&[80, 90, 70, 60][..], 82, Change::Kept, &[0, 1, 3, 4][..]), // 3.00 votes on average: not more than 3
        (&[90, 90, 80, 70], 81, Change::Kept, &[0, 1, 3, 4]),         // accurate enough, not by 2 points
        (&[90, 90, 80, 70], 82, Change::Left(4), &[0, 1, 3]),         // 3.30 votes
        // Three models, ceil(1.53) = 2.
        (&[90, 80, 80], 90, Change::Left(3), &[0, 1]), // as many votes as the second one, and the worse quality
        // Two models, ceil(1.02) = 2: more than two votes cannot be.
        (&[100, 100], 100, Change::Kept, &[0, 1]),
        (&[90, 90], 80, Change::Kept, &[0, 1]), // at the target
        (&[90, 90], 79, Change::Joined(4), &[0, 1, 4]),
        (&[90, 90, 90], 79, Change::Joined(3), &[0, 1, 3, 4]),
        (&[90, 90, 90, 90], 10, Change::Kept, &[0, 1, 3, 4]), // the other one is too slow
    ] {
        assert_eq!(interval(&mut selection, agreed, right), change, "{agreed:?} {right}");
        assert_eq!(selection.members().collect::<Vec<_>>(), members);
    }
    assert_eq!(selection.end_interval(), Change::Kept, "an interval without rows changes nothing");
}

#[test]
fn no_model_votes_if_all_are_too_slow() {
    let candidate = Candidate { quality: 900_000, latency: Nanos::from_millis(60) };
    let mut selection = Selection::new(vec![candidate], Nanos::from_millis(50), 800_000);
    assert_eq!(selection.members().count(), 0);
    assert_eq!(interval(&mut selection, &[], 0), Change::Kept);
}
