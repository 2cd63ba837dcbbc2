//! Grids of units, for GPUs of any size.

use gpulet_cuda::{Granularity, Grid, UnitRange};
use proptest::prelude::*;

fn grids() -> impl Strategy<Value = Grid> {
    (1_u32..300, 1_u32..12, 1_u32..10).prop_filter_map("too small", |(sms, min, align)| {
        let unit = Granularity { min, align }.unit_sms();
        Grid::new(&vec![unit; (sms / unit) as usize], sms % unit)
    })
}

/// Consecutive ranges that fill a grid; the weights are their sizes.
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
    fn no_sm_is_assigned_twice(
        grid in grids(),
        weights in prop::collection::vec(1_u32..40, 1..20),
    ) {
        let ranges = fill(&grid, &weights);
        let given: u32 = ranges.iter().map(|range| grid.sms(*range)).sum();
        let all: u32 = grid.sms(grid.range(0, grid.units()).unwrap());
        prop_assert!(given <= all);
        let holders: Vec<_> = ranges.iter().filter(|range| grid.takes_remainder(**range)).collect();
        prop_assert!(holders.len() <= 1);
        if let Some(holder) = holders.first() {
            prop_assert!(ranges.iter().all(|range| range.count() <= holder.count()), "only the largest has it");
        }
    }

    #[test]
    fn more_units_never_have_fewer_sms(grid in grids()) {
        let sms: Vec<u32> = grid.sizes().iter().map(|&count| grid.sms(grid.range(0, count).unwrap())).collect();
        prop_assert!(sms.is_sorted());
        prop_assert_eq!(sms.last().copied().unwrap(), grid.sms(grid.range(0, grid.units()).unwrap()));
    }
}

#[test]
fn without_the_drivers_granularity_that_of_the_generation_is_used() {
    let unit = |major| Granularity::of(0, 0, (major, 0)).unit_sms();
    assert_eq!([6, 7, 8, 9, 10, 12].map(unit), [1, 2, 4, 8, 8, 8]);
    assert_eq!(Granularity::of(4, 2, (9, 0)).unit_sms(), 4, "the driver's values take precedence");
    assert_eq!(Granularity { min: 5, align: 4 }.unit_sms(), 8);
}
