//! Devices that may be lost.

use gpulet_core::placement::Policy;
use variant_plan::{losses, plan, without_each};

use crate::fixture::World;

/// Spot devices like the others at a third of the cost, lost once in two hours for 72 seconds: one hundredth of the time.
fn world(lost_max: f64) -> World<'static> {
    World {
        kinds: vec![("spot", 4, 1.0, 0.3, 8), ("kept", 4, 1.0, 1.0, 8)],
        spot: vec![("spot", 0.5, 72.0)],
        rate: 2_000.0,
        lost_max,
        ..World::default()
    }
}

#[test]
fn spot_devices_are_used_as_far_as_little_enough_is_lost() {
    let cost = |lost_max: f64| {
        let question = world(lost_max).question().unwrap();
        let found = plan(&question, &Policy::default()).unwrap();
        let lost = losses(&question, &found.plan)[0];
        assert!(lost <= lost_max + 1e-9, "{lost} of at most {lost_max}");
        assert_eq!(
            found.problem.devices().len(),
            16,
            "the problem keeps the devices that the plan goes without"
        );
        found.validation.cost
    };
    let (all, half, none) = (cost(0.01), cost(0.005), cost(0.0));
    assert!(all < half && half < none, "{all}, {half}, {none}");
}

#[test]
fn the_loss_of_a_spot_device_names_what_the_others_cannot_serve() {
    let question = world(0.01).question().unwrap();
    let policy = Policy::default();
    let found = plan(&question, &policy).unwrap();
    let lost = without_each(&question, &policy, &found);
    assert_eq!(lost.len(), 1);
    let only = lost.first().expect("one");
    assert!(only.device.as_str().starts_with("spot-"));
    assert_eq!(only.unserved.len(), 1, "the family: {:?}", only.unserved);
    assert!(only.cost.expect("the others suffice") > 0.0);
}
