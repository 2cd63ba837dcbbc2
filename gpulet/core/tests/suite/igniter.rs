//! iGniter's published plans from iGniter's published coefficients.

use crate::support::{igniter_problem, igniter_three, igniter_twelve, place_soundly, shares};

/// 10, 30 and 37.5 % of one V100 in batches of 4, 8 and 6.
#[test]
fn three_workloads_share_one_gpu_as_published() {
    let problem = igniter_problem(igniter_three(), 3);
    let (plan, validation) = place_soundly("igniter", &problem);
    assert_eq!(validation.devices_used, 1);
    assert_eq!(shares(&problem, &plan), [(4, 4), (12, 8), (15, 6)]);
    for (workload, published) in problem.workloads().iter().zip([599.0, 434.0, 211.5]) {
        let slot = validation.slots.iter().find(|slot| slot.workload == workload.name).unwrap();
        assert!((slot.capacity - published).abs() < 0.5, "{slot:?}, the released code says {published}");
    }
}

/// Five shared and one for SSD alone; the remaining 13 SSD requests a second live with others.
#[test]
fn twelve_workloads_take_six_gpus_as_published() {
    let problem = igniter_problem(igniter_twelve(), 12);
    let (plan, validation) = place_soundly("igniter", &problem);
    assert_eq!(validation.devices_used, 6, "{plan:#?}");
    let ssd: Vec<_> =
        plan.slots_of("ssd-50").map(|(gpulet, slot)| (gpulet.units, slot.batch, slot.rate.round())).collect();
    assert!(ssd.contains(&(40, 7, 287.0)) && ssd.len() == 2, "{ssd:?}");
}
