//! Nexus' worked example, and light models.

use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::plan::Plan;
use gpulet_core::problem::{Problem, Workload};
use gpulet_core::profile::Profile;

use crate::support::{devices, header, place_soundly, table, whole_only, workload};

/// Times of Nexus' tables 2 and 3 (SOSP 2019), as published notes quote them; the tables start at batch 4, so smaller
/// batches take as long.
fn models() -> Vec<Profile> {
    let times = [("a", [50.0, 75.0, 100.0]), ("b", [50.0, 90.0, 125.0]), ("c", [60.0, 95.0, 125.0])];
    let of = |(model, [four, eight, sixteen]): (&str, [f64; 3])| {
        let cells = [(1, four), (4, four), (8, eight), (16, sixteen)];
        table(header(model, 1), cells.map(|(batch, ms)| (batch, 1, 1e3 * ms)))
    };
    times.into_iter().map(of).collect()
}

fn problem(workloads: Vec<Workload>) -> Problem {
    let none = Interference::NoInterference(NoInterference);
    Problem::new(devices(&whole_only(), 8), workloads, models(), none).unwrap()
}

/// Milliseconds of a cycle, if there is one, with workloads and batches.
type Cycle<'a> = (Option<f64>, Vec<(&'a str, u32)>);

fn cycles(plan: &Plan) -> Vec<Cycle<'_>> {
    let of = |gpulet: &gpulet_core::plan::Gpulet| gpulet.duty_us.map(|duty| duty / 1e3);
    plan.gpulets
        .iter()
        .map(|gpulet| {
            (of(gpulet), gpulet.slots.iter().map(|slot| (slot.workload.as_str(), slot.batch)).collect())
        })
        .collect()
}

#[test]
fn a_and_b_share_a_cycle_of_125_ms_and_c_does_not_fit() {
    let a = workload("a", 200.0, 64.0);
    let (plan, _) = place_soundly("temporal", &problem(vec![a.clone(), workload("b", 250.0, 32.0)]));
    assert_eq!(cycles(&plan), [(Some(125.0), vec![("a-200", 8), ("b-250", 4)])]);
    let (plan, validation) = place_soundly("temporal", &problem(vec![a, workload("c", 250.0, 32.0)]));
    assert_eq!(validation.devices_used, 2, "{plan:#?}");
}

#[test]
fn saturated_models_get_devices_of_their_own() {
    let both = vec![workload("a", 200.0, 160.0 + 64.0), workload("b", 250.0, 128.0 + 32.0)];
    let (plan, validation) = place_soundly("temporal", &problem(both));
    assert_eq!(validation.devices_used, 3);
    let expected = [
        (None, vec![("a-200", 16)]),
        (None, vec![("b-250", 16)]),
        (Some(125.0), vec![("a-200", 8), ("b-250", 4)]),
    ];
    assert_eq!(cycles(&plan), expected);
}

#[test]
fn light_models_share_a_device() {
    let light = ["a", "b", "c"].map(|model| workload(model, 250.0, 2.0));
    let (plan, validation) = place_soundly("temporal", &problem(light.to_vec()));
    assert_eq!(validation.devices_used, 1);
    assert!(plan.gpulets[0].slots.iter().all(|slot| slot.batch == 1), "{plan:#?}");
}

#[test]
fn an_objective_below_two_batches_of_one_is_refused_with_the_number() {
    let hasty = problem(vec![workload("c", 119.0, 1.0)]);
    let refused = gpulet_core::placement::Policy::named("temporal").unwrap().place(&hasty).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "workload `c-119`: answered after 120000 us at best (two batches of one on the largest share), \
         its objective is 119000 us; set its slo to at least 120000 us"
    );
}

#[test]
fn missing_devices_are_counted() {
    let none = Interference::NoInterference(NoInterference);
    let wanted = vec![workload("a", 200.0, 700.0)];
    let short = Problem::new(devices(&whole_only(), 2), wanted, models(), none).unwrap();
    let refused = gpulet_core::placement::Policy::named("temporal").unwrap().place(&short).unwrap_err();
    assert_eq!(refused.to_string(), "workload `a-200`: does not fit on 2 devices; add 3 of `whole`");
}
