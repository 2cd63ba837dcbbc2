//! Models that run on some of the lanes.

use crate::support::{checked, every_policy, parse, run};

fn two_models(of_left: &str, of_right: &str) -> String {
    format!(
        r#"
        name = "two"
        seed = 7
        duration = "60s"
        [lanes]
        count = 2
        [models.left]
        slo = "100ms"
        rate = 60.0
        profile = {{ points = [[1, "10ms"]] }}
        {of_left}
        [models.right]
        slo = "100ms"
        rate = 30.0
        profile = {{ points = [[1, "10ms"]] }}
        {of_right}
        "#
    )
}

#[test]
fn each_lane_runs_only_its_models() {
    let apart = run(&parse(&two_models("lanes = [1]", "lanes = [0]")), &checked("deadline"));
    // Each model has one lane, as if it were alone.
    let utilisation = [&apart.models[0], &apart.models[1]].map(|model| model.offered as f64 * 0.010 / 60.0);
    assert!((utilisation[0] - 0.6).abs() < 0.05 && (utilisation[1] - 0.3).abs() < 0.05, "{utilisation:?}");
    let alone = |of_left: &str| {
        let text = two_models(of_left, "").split("[models.right]").next().unwrap().to_owned();
        run(&parse(&text), &checked("deadline")).models[0].p99_ms.unwrap()
    };
    let one_lane = alone("lanes = [1]");
    let both_lanes = alone("");
    let p99 = apart.models[0].p99_ms.unwrap();
    assert!((p99 / one_lane - 1.0).abs() < 0.2, "{p99} ms with another model, {one_lane} ms without");
    assert!(both_lanes < 0.7 * one_lane, "{both_lanes} ms on two lanes, {one_lane} ms on one");
}

#[test]
fn a_model_without_lanes_that_are_up_is_not_served() {
    let down = "[[lanes.failures]]\nlane = 1\nfrom = \"0s\"\n[models.left]";
    let text = two_models("lanes = [1]", "lanes = [0]").replace("[models.left]", down);
    let report = run(&parse(&text), &checked("deadline"));
    assert_eq!(report.models[0].good, 0, "{:?}", report.models[0]);
    assert!(report.models[1].good as f64 > 0.99 * report.models[1].offered as f64, "{:?}", report.models[1]);
}

#[test]
fn no_policy_breaks_an_invariant() {
    for setup in every_policy() {
        let text = two_models("lanes = [1]", "").replace("60s", "5s");
        let report = run(&parse(&text), &setup.checked());
        assert!(report.requests.good > 0, "{report:?}");
    }
}

#[test]
fn models_of_best_effort_run_at_idle_priority_on_their_lanes() {
    let best_effort = "class = \"best_effort\"\nlanes = [0]";
    let text = two_models("lanes = [1]", best_effort).replace("count = 2", "count = 2\nidle_priority = true");
    let report = run(&parse(&text), &checked("deadline"));
    let with = report.models[0].p99_ms.unwrap();
    let text = text.replace(best_effort, "class = \"best_effort\"\nlanes = [1]");
    let together = run(&parse(&text), &checked("deadline"));
    assert_eq!(with, together.models[0].p99_ms.unwrap(), "idle priority delays no other request");
    let (apart, together) = (report.models[1].p99_ms.unwrap(), together.models[1].p99_ms.unwrap());
    assert!(
        together > 1.5 * apart,
        "{together} ms on the lane of the other model, {apart} ms on an idle one"
    );
}
