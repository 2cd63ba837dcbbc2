//! The dynamic program against all choices.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use model_split::{BalanceError, CANDIDATES_MAX, Candidate, Choice, choose, without_noise};
use proptest::prelude::*;

fn candidates(points: &[(f64, u64)]) -> Vec<Candidate> {
    let point = |(index, &(time_before, bytes)): (usize, &(f64, u64))| Candidate {
        position: index + 1,
        time_before,
        bytes,
    };
    points.iter().enumerate().map(point).collect()
}

#[test]
fn the_slowest_stage_is_as_fast_as_possible() {
    let points = candidates(&[(10.0, 5), (40.0, 5), (55.0, 5), (90.0, 5)]);
    let two = choose(&points, 100.0, &[1.0, 1.0], 0.0).unwrap();
    assert_eq!(two, Choice { points: vec![2], slowest: 55.0, bytes: 5 });
    let three = choose(&points, 100.0, &[1.0; 3], 0.0).unwrap();
    assert_eq!((three.points.as_slice(), three.slowest), (&[0, 2][..], 45.0));
    assert_eq!(choose(&points, 100.0, &[1.0], 0.0).unwrap().points, [0; 0]);
}

#[test]
fn a_faster_device_gets_more() {
    let points = candidates(&[(25.0, 5), (50.0, 5), (75.0, 5)]);
    let unequal = choose(&points, 100.0, &[3.0, 1.0], 0.0).unwrap();
    assert_eq!((unequal.points.as_slice(), unequal.slowest), (&[2][..], 25.0));
}

#[test]
fn among_nearly_equal_choices_the_fewest_bytes_cross() {
    let points = candidates(&[(48.0, 10), (50.0, 1_000), (53.0, 8)]);
    assert_eq!(choose(&points, 100.0, &[1.0, 1.0], 0.0).unwrap().points, [1]);
    assert_eq!(choose(&points, 100.0, &[1.0, 1.0], 0.05).unwrap().points, [0]);
    assert_eq!(choose(&points, 100.0, &[1.0, 1.0], 0.10).unwrap().points, [2]);
}

#[test]
fn a_prefix_takes_no_longer_than_one_that_contains_it() {
    assert_eq!(without_noise(&[1.0, 5.0, 2.0, 3.0, 2.5]), [1.0, 2.0, 2.0, 2.5, 2.5]);
    assert!(without_noise(&[]).is_empty());
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let points = candidates(&[(1.0, 1), (2.0, 1)]);
    let error =
        |candidates: &[Candidate], total, speeds: &[f64]| choose(candidates, total, speeds, 0.0).unwrap_err();
    assert_eq!(
        error(&points, 3.0, &[1.0; 4]).to_string(),
        "4 stages need 3 split points: only 2 are possible"
    );
    assert_eq!(
        error(&points, 3.0, &[1.0, 0.0]).to_string(),
        "speed: expected a finite number above 0, got 0"
    );
    assert!(matches!(error(&points, f64::NAN, &[1.0, 1.0]), BalanceError::Number { .. }));
    assert!(matches!(error(&points, 3.0, &[]), BalanceError::TooFewPoints { .. }));
    let same = [points[0], points[0]];
    assert_eq!(error(&same, 3.0, &[1.0, 1.0]), BalanceError::Order(1));
    let many = vec![points[0]; CANDIDATES_MAX + 1];
    assert_eq!(
        error(&many, 3.0, &[1.0, 1.0]),
        BalanceError::TooManyCandidates { count: CANDIDATES_MAX + 1, max: CANDIDATES_MAX }
    );
}

/// All ways to choose `count` of `0..of`.
fn ways(of: usize, count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let first =
        (0..of).flat_map(|last| ways(last, count - 1).into_iter().map(move |way| [way, vec![last]].concat()));
    first.collect()
}

fn slowest(points: &[Candidate], total: f64, speeds: &[f64], way: &[usize]) -> f64 {
    let ends: Vec<f64> =
        [0.0].into_iter().chain(way.iter().map(|point| points[*point].time_before)).chain([total]).collect();
    ends.windows(2).zip(speeds).map(|(ends, speed)| (ends[1] - ends[0]) / speed).fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn no_other_choice_is_better(
        steps in prop::collection::vec((0_u32..50, 0_u64..9), 3..9),
        last in 0_u32..50,
        speeds in prop::collection::vec(1_u32..4, 1..5),
        slack in 0_u32..30,
    ) {
        let mut time = 0.0;
        let points: Vec<(f64, u64)> = steps.iter().map(|(step, bytes)| { time += f64::from(*step); (time, *bytes) }).collect();
        let (points, total) = (candidates(&points), time + f64::from(last));
        let speeds: Vec<f64> = speeds.into_iter().map(f64::from).collect();
        prop_assume!(points.len() >= speeds.len() - 1);
        let slack = f64::from(slack) / 100.0;
        let ways = ways(points.len(), speeds.len() - 1);
        let best = ways.iter().map(|way| slowest(&points, total, &speeds, way)).fold(f64::INFINITY, f64::min);
        let exact = choose(&points, total, &speeds, 0.0).unwrap();
        prop_assert!((exact.slowest - best).abs() < 1e-9);
        let chosen = choose(&points, total, &speeds, slack).unwrap();
        prop_assert!(chosen.slowest <= best * (1.0 + slack) + 1e-9);
        let bytes = |way: &[usize]| way.iter().map(|point| points[*point].bytes).sum::<u64>();
        prop_assert_eq!(chosen.bytes, bytes(&chosen.points));
        let fewest = ways.iter().filter(|way| slowest(&points, total, &speeds, way) <= best * (1.0 + slack) - 1e-9).map(|way| bytes(way)).min();
        prop_assert!(fewest.is_none_or(|fewest| chosen.bytes <= fewest));
    }
}
