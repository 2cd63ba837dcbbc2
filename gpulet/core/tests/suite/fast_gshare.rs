//! FaST-GShare's heuristic autoscaling: replicas are added and removed by requests per second per area.

use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::plan::{Gpulet, Plan};
use gpulet_core::problem::{DeviceType, Problem};
use gpulet_core::profile::Profile;
use gpulet_core::validate::validate;
use proptest::prelude::*;

use crate::support::{devices, header, place, place_soundly, table, workload};

/// Ten units. A batch of one takes 10 ms on two of them, and hardly less on more: as in the authors' figure, where a
/// quarter of the SMs is as good as all.
fn profile(model: &str) -> Profile {
    let cells = [(1, 1, 30e3), (1, 2, 10e3), (1, 5, 9e3), (1, 10, 9e3)];
    table(header(model, 10), cells)
}

fn problem(models: &[(&str, f64)], count: usize) -> Problem {
    let device_type = DeviceType {
        name: "cpu".to_owned(),
        units: 10,
        sizes: vec![1, 2, 5, 10],
        gpulets_max: 48,
        base_bytes: 0,
        gpulet_bytes: 0,
    };
    let device_type = DeviceType { name: profile("a").device().to_owned(), ..device_type };
    let workloads = models.iter().map(|(model, rate)| workload(model, 80.0, *rate)).collect();
    let profiles = models.iter().map(|(model, _)| profile(model)).collect();
    let none = Interference::NoInterference(NoInterference);
    Problem::new(devices(&std::sync::Arc::new(device_type), count), workloads, profiles, none).unwrap()
}

/// Units, percent of the time, and rate, the largest first.
fn replicas(plan: &Plan) -> Vec<(u32, u32, u32)> {
    let of = |gpulet: &Gpulet| {
        let window = gpulet.window.unwrap();
        let percent = (100.0 * window.length_us / window.period_us).round() as u32;
        (gpulet.units, percent, gpulet.slots[0].rate.round() as u32)
    };
    let mut all: Vec<_> = plan.gpulets.iter().map(of).collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    all
}

fn places(plan: &Plan) -> Vec<(String, u32, u32, u64)> {
    let of = |gpulet: &Gpulet| {
        let offset = gpulet.window.unwrap().offset_us as u64;
        (gpulet.device.as_str().to_owned(), gpulet.first_unit, gpulet.units, offset)
    };
    plan.gpulets.iter().map(of).collect()
}

#[test]
fn the_most_efficient_replica_serves_most_and_the_smallest_sufficient_one_the_rest() {
    let (plan, _) = place_soundly("fast-gshare", &problem(&[("a", 220.0)], 2));
    assert_eq!(replicas(&plan), [(2, 100, 100), (2, 100, 100), (2, 30, 20)]);
}

#[test]
fn the_least_efficient_replicas_leave_first_and_the_others_keep_their_places() {
    let first = place("fast-gshare", &problem(&[("a", 220.0)], 2));
    let low = problem(&[("a", 100.0)], 2).from_current(first.clone());
    let (second, _) = place_soundly("fast-gshare", &low);
    assert_eq!(replicas(&second), [(2, 100, 100)]);
    assert!(places(&second).iter().all(|place| places(&first).contains(place)), "{second:?}");
    let high = problem(&[("a", 320.0)], 2).from_current(second.clone());
    let (third, _) = place_soundly("fast-gshare", &high);
    // 325 a second are running, and each replica gets its share of 320.
    assert_eq!(replicas(&third), [(2, 100, 98), (2, 100, 98), (2, 100, 98), (2, 30, 25)]);
    assert!(places(&second).iter().all(|place| places(&third).contains(place)), "{third:?}");
}

#[test]
fn a_plan_of_another_policy_is_replaced() {
    let other = place("tessera", &problem(&[("a", 150.0)], 2).without_time_windows());
    let (plan, _) = place_soundly("fast-gshare", &problem(&[("a", 150.0)], 2).from_current(other));
    assert!(plan.gpulets.iter().all(|gpulet| gpulet.window.is_some()), "{plan:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the loads before, the plan serves the load and keeps the objectives.
    #[test]
    fn plans_that_follow_the_load_are_sound(loads in prop::collection::vec((0.0..600.0_f64, 0.0..600.0_f64), 1..8)) {
        let mut current: Option<Plan> = None;
        for (a, b) in loads {
            let wanted = problem(&[("a", a), ("b", b)], 4);
            let asked = match current.take() {
                Some(plan) => wanted.clone().from_current(plan),
                None => wanted.clone(),
            };
            let plan = place("fast-gshare", &asked);
            let validation = validate(&wanted, &plan);
            prop_assert!(validation.is_sound(), "{:?} of {plan:?}", validation.violations);
            current = Some(plan);
        }
    }
}
