//! GPUs of other sizes: each is split, opened at every size, and freed completely.

use cuda_standin::{Shape, with_driver};
use gpulet::Device;
use gpulet_cuda::CudaOptions;

use crate::stage::{serve, sms_of, take};

/// Opens a gpulet of every size and another one on all other units. No SM is in both, and every SM is in one of them or
/// in the remainder.
fn split(test: &str, shape: Shape, units: u32, unit_sms: u32, remainder: u32) {
    let total = shape.sms;
    with_driver(test, shape, |_| {
        let (device, _) = take(&CudaOptions { idle_contexts: 0, ..CudaOptions::default() });
        assert_eq!((device.info().units, device.grid().remainder()), (units, remainder));
        assert_eq!(units * unit_sms + remainder, total);
        for count in 1..=units {
            let (_first, mut first) = serve(&device, 0, 0, count);
            let mut seen = sms_of(&mut *first);
            let mut expected = count * unit_sms + if 2 * count > units { remainder } else { 0 };
            assert_eq!(u32::try_from(seen.len()).unwrap(), expected, "{count} units");
            if count < units {
                let (_second, mut second) = serve(&device, 1, count, units - count);
                seen.extend(sms_of(&mut *second));
                expected = if 2 * count == units { total - remainder } else { total };
            }
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(u32::try_from(seen.len()).unwrap(), expected, "{count} and {} units", units - count);
        }
    });
}

#[test]
fn of_132_sms_in_eights() {
    split("shapes::of_132_sms_in_eights", Shape::with_sms(132, 8, 8), 16, 8, 4);
}

#[test]
fn of_108_sms_in_fours() {
    let shape = Shape { capability: 80, ..Shape::with_sms(108, 4, 2) };
    split("shapes::of_108_sms_in_fours", shape, 27, 4, 0);
}

#[test]
fn of_142_sms_in_fours() {
    split("shapes::of_142_sms_in_fours", Shape { capability: 89, ..Shape::with_sms(142, 4, 2) }, 35, 4, 2);
}

#[test]
fn of_40_sms_in_twos() {
    split("shapes::of_40_sms_in_twos", Shape { capability: 75, ..Shape::with_sms(40, 2, 2) }, 20, 2, 0);
}

#[test]
fn of_an_odd_number_of_sms() {
    split("shapes::of_an_odd_number_of_sms", Shape::with_sms(37, 4, 2), 9, 4, 1);
}

#[test]
fn of_a_least_size_that_is_not_a_multiple() {
    split("shapes::of_a_least_size_that_is_not_a_multiple", Shape::with_sms(50, 5, 4), 6, 8, 2);
}

#[test]
fn of_a_single_unit() {
    split("shapes::of_a_single_unit", Shape::with_sms(14, 8, 8), 1, 8, 6);
}

#[test]
fn of_an_h200_as_it_was_measured() {
    split("shapes::of_an_h200_as_it_was_measured", Shape::h200(), 15, 8, 12);
}

#[test]
fn of_fragmented_clusters() {
    let shape = Shape { groups_max: 14, ..Shape::with_sms(132, 8, 8) };
    split("shapes::of_fragmented_clusters", shape, 14, 8, 20);
}
