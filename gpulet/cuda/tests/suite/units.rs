//! Units as numbers, on GPUs of any size.

use gpulet_cuda::{Granularity, Grid, UnitRange};
use proptest::prelude::*;

fn grids() -> impl Strategy<Value = Grid> {
    (1_u32..300, 1_u32..12, 1_u32..10)
        .prop_filter_map("too small", |(sms, min, align)| Grid::planned(sms, Granularity { min, align }).ok())
}

/// Ranges beside each other that fill a grid, by weights for their sizes.
fn fill(grid: &Grid, weights: &[u32]) -> Vec<UnitRange> {
    let mut ranges = Vec::new();
    let mut first = 0;
    for weight in weights {
        let count = (*weight).min(grid.units() - first);
        if count > 0 {
            ranges.push(grid.range(first, count).unwrap());
            first += count;
        }
    }
    ranges
}

proptest! {
    #[test]
    fn no_sm_is_given_twice_and_none_is_made_up(
        grid in grids(),
        weights in prop::collection::vec(1_u32..40, 1..20),
    ) {
        let ranges = fill(&grid, &weights);
        let given: u32 = ranges.iter().map(|range| grid.sms(*range)).sum();
        let all: u32 = grid.sms(grid.whole());
        prop_assert!(given <= all);
        let holders: Vec<_> = ranges.iter().filter(|range| grid.takes_remainder(**range)).collect();
        prop_assert!(holders.len() <= 1);
        if let Some(holder) = holders.first() {
            prop_assert!(ranges.iter().all(|range| range.count() <= holder.count()), "only the largest has it");
        }
    }

    #[test]
    fn more_units_are_never_fewer_sms(grid in grids()) {
        let sms: Vec<u32> = grid.sizes().iter().map(|&count| grid.sms(grid.range(0, count).unwrap())).collect();
        prop_assert!(sms.is_sorted());
        prop_assert_eq!(sms.last().copied().unwrap(), grid.sms(grid.whole()));
    }

    #[test]
    fn a_place_is_free_and_found_if_there_is_one(
        grid in grids(),
        taken in prop::collection::vec((0_u32..60, 1_u32..8), 0..12),
        count in 1_u32..20,
    ) {
        let taken: Vec<_> = taken.iter().filter_map(|&(first, count)| grid.range(first, count).ok()).collect();
        let free = |range: &UnitRange| !taken.iter().any(|other| other.overlaps(*range));
        let there_is = (0..grid.units()).filter_map(|first| grid.range(first, count).ok()).any(|range| free(&range));
        let place = grid.place(count, &taken);
        prop_assert_eq!(place.is_some(), there_is);
        if let Some(place) = place {
            prop_assert_eq!(place.count(), count);
            prop_assert!(free(&place) && place.end() <= grid.units());
        }
    }
}

fn grid() -> Grid {
    Grid::planned(132, Granularity { min: 8, align: 8 }).unwrap()
}

#[test]
fn blocks_are_aligned_and_large_ones_stay_whole() {
    let grid = grid();
    let at = |count, taken: &[(u32, u32)]| {
        let taken: Vec<_> = taken.iter().map(|&(first, count)| grid.range(first, count).unwrap()).collect();
        grid.place(count, &taken).map(UnitRange::first)
    };
    assert_eq!(at(8, &[(0, 1)]), Some(8));
    assert_eq!(at(4, &[(0, 1)]), Some(4), "beside what is taken, so that the upper half stays whole");
    assert_eq!(at(1, &[(0, 1)]), Some(1));
    assert_eq!(at(2, &[(0, 3), (8, 1)]), Some(10), "where four are broken already");
    assert_eq!(at(3, &[(0, 2), (4, 2), (8, 2), (12, 2)]), None);
    assert_eq!(at(6, &[(0, 3), (9, 7)]), Some(3), "where no block is free, whatever is");
    assert_eq!(at(17, &[]), None);
    assert_eq!(at(0, &[]), None);
}

#[test]
fn generations_have_their_units_where_the_driver_says_nothing() {
    let unit = |major| Granularity::of(0, 0, (major, 0)).unit_sms();
    assert_eq!([6, 7, 8, 9, 10, 12].map(unit), [1, 2, 4, 8, 8, 8]);
    assert_eq!(Granularity::of(4, 2, (9, 0)).unit_sms(), 4, "the driver's word is taken first");
    assert_eq!(Granularity { min: 5, align: 4 }.unit_sms(), 8);
}
