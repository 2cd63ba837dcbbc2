//! Roll-outs of new versions: good ones are promoted, bad ones rolled back within the bake time, at no cost to the old version.

use sim::Report;
use sim::report::RolloutFigures;

use crate::support::{checked, parse, run};

const GOOD: &str = include_str!("../../../rollout/good.toml");
const SLOW: &str = include_str!("../../../rollout/slow.toml");
const WRONG: &str = include_str!("../../../rollout/wrong.toml");
const FAILING: &str = include_str!("../../../rollout/failing.toml");
const TENANT: &str = include_str!("../../../rollout/tenant.toml");
const SEEDS: u64 = 5;

fn rollout(report: &Report) -> &RolloutFigures {
    report.rollouts.first().unwrap()
}

/// The state as reports write it.
fn word(rollout: &RolloutFigures) -> String {
    serde_json::to_value(rollout.state).unwrap().as_str().unwrap().to_owned()
}

fn runs(text: &str) -> impl Iterator<Item = Report> {
    (0..SEEDS).map(move |seed| run(&parse(text).with_seed(seed), &checked("deadline")))
}

#[test]
fn a_good_version_is_promoted_when_its_bake_time_is_over() {
    for report in runs(GOOD) {
        let rollout = rollout(&report);
        assert_eq!((word(rollout), rollout.ended_s), ("promoted".to_owned(), Some(250.0)), "{rollout:?}");
        assert!(rollout.figures.compared > 500 && rollout.figures.disagreed == 0);
        assert!(report.attainment > 0.999, "{}", report.attainment);
    }
}

#[test]
fn bad_versions_are_rolled_back_within_the_bake_time_and_fail_no_request_of_the_old_one() {
    for (text, causes, tenant) in [
        (SLOW, ["answered in time"].as_slice(), None),
        (WRONG, &["outputs differ"], None),
        (FAILING, &["requests fail", "outputs differ"], None),
        (TENANT, &["requests fail", "outputs differ"], Some("mail")),
    ] {
        for report in runs(text) {
            let rollout = rollout(&report);
            let cause = rollout.cause.as_deref().unwrap_or_default();
            assert_eq!(word(rollout), "rolled_back", "{rollout:?}");
            assert!(causes.iter().any(|known| cause.contains(known)), "{rollout:?}");
            assert!(tenant.is_none() || rollout.tenant.as_deref() == tenant, "{rollout:?}");
            assert!(rollout.ended_s.unwrap() < 250.0, "{rollout:?}");
            let figures = &rollout.figures;
            println!("{}: {cause} after {} requests", report.workload, figures.canary.requests);
            assert_eq!((figures.stable.missed, figures.stable.failed), (0, 0), "{figures:?}");
            let missed = report.requests.offered - report.requests.good;
            // Requests in flight on the new version when it is rolled back end after that.
            assert!(
                (figures.canary.missed..figures.canary.missed + 8).contains(&missed),
                "{missed} {figures:?}"
            );
        }
    }
}

#[test]
fn too_few_requests_never_promote() {
    for report in runs(&GOOD.replace("samples = 500", "samples = 100000")) {
        assert_eq!((word(rollout(&report)), rollout(&report).ended_s), ("baking".to_owned(), None));
    }
}

#[test]
fn before_its_roll_out_a_model_is_served_as_without() {
    let without = |text: &str| text.split("[models.ranker.rollout]").next().unwrap().to_owned();
    let report = run(&parse(&without(GOOD)), &checked("deadline"));
    assert_eq!(report.rollouts, []);
    let later = GOOD.replace("at = \"10s\"", "at = \"400s\"");
    let before = run(&parse(&later), &checked("deadline"));
    assert_eq!((before.requests, before.latency_ms), (report.requests, report.latency_ms));
}
