//! Quotas of tenants: an aggressor far over its quota next to a victim, whose attainment must not change.

use sim::Report;
use sim::report::TenantFigures;

use crate::support::{checked, every_policy, parse, run};

const AGGRESSOR: &str = include_str!("../../../tenants/aggressor.toml");
/// The rest of the file describes the aggressor's model.
const ITS_MODEL: &str = "[models.crawler]";
/// Attainment of the victim may change by so much.
const POINT: f64 = 0.01;

fn tenant<'a>(report: &'a Report, name: &str) -> &'a TenantFigures {
    report.tenants.iter().find(|tenant| tenant.name == name).unwrap()
}

fn alone() -> String {
    AGGRESSOR.split(ITS_MODEL).next().unwrap().to_owned()
}

#[test]
fn an_aggressor_at_ten_times_its_quota_does_not_change_the_attainment_of_its_victim() {
    for policy in ["deadline", "triton", "nexus", "shepherd"] {
        let before = run(&parse(&alone()), &checked(policy));
        let after = run(&parse(AGGRESSOR), &checked(policy));
        let (before, victim) = (tenant(&before, "search"), tenant(&after, "search"));
        assert_eq!(before.offered, victim.offered, "the same requests");
        let change = before.attainment - victim.attainment;
        println!("{policy}: {:.4} alone, {:.4} next to the aggressor", before.attainment, victim.attainment);
        assert!(change <= POINT, "{policy}: {} -> {}", before.attainment, victim.attainment);
        assert_eq!(victim.refused_by_quota, 0, "{policy}");
        let aggressor = tenant(&after, "crawler");
        let (used, quota) = (aggressor.device_seconds_per_second, aggressor.device_seconds_quota.unwrap());
        println!("{policy}: the aggressor used {used:.3} of {quota}");
        assert!(used <= quota * 1.02 + 0.1 / 27.0, "{policy}: {used} of {quota}");
        assert!(used >= quota * 0.8, "{policy}: {used} of {quota}");
        assert!(aggressor.refused_by_quota > aggressor.offered / 2, "{policy}");
    }
}

#[test]
fn an_aggressor_that_borrows_uses_idle_time_and_does_not_change_the_attainment_of_its_victim() {
    let borrows =
        AGGRESSOR.replace("device_seconds_burst = 0.1", "device_seconds_burst = 0.1\nborrow = true");
    let before = run(&parse(&alone()), &checked("deadline"));
    let after = run(&parse(&borrows), &checked("deadline"));
    let (before, victim) = (tenant(&before, "search"), tenant(&after, "search"));
    let aggressor = tenant(&after, "crawler");
    println!(
        "{:.4} alone, {:.4} next to the aggressor, which used {:.3} device seconds per second",
        before.attainment, victim.attainment, aggressor.device_seconds_per_second
    );
    assert!(before.attainment - victim.attainment <= POINT);
    assert!(aggressor.device_seconds_per_second > 3.0 * aggressor.device_seconds_quota.unwrap());
    assert!(after.lane_busy > 0.9, "{}", after.lane_busy);
}

#[test]
fn batches_that_are_longer_than_the_victim_can_wait_are_not_borrowed() {
    let (victim, aggressor) = AGGRESSOR.split_once(ITS_MODEL).unwrap();
    let victim = victim.replace("burst = 0.1", "burst = 0.1\nborrow = true").replace("100ms", "40ms");
    let aggressor = aggressor.replace("100ms", "600ms").replace("beta = \"10ms\"", "beta = \"90ms\"");
    let before = run(&parse(&victim), &checked("deadline"));
    let after = run(&parse(&format!("{victim}{ITS_MODEL}{aggressor}")), &checked("deadline"));
    let (before, victim) = (tenant(&before, "search"), tenant(&after, "search"));
    println!("{:.4} alone, {:.4} next to the aggressor", before.attainment, victim.attainment);
    assert!(before.attainment - victim.attainment <= POINT);
    let aggressor = tenant(&after, "crawler");
    let quota = aggressor.device_seconds_quota.unwrap();
    assert!(aggressor.device_seconds_per_second > 0.9 * quota, "it keeps its quota: {aggressor:?}");
}

#[test]
fn tenants_of_one_model_keep_their_quotas_too() {
    let text = |crawler: f64| {
        format!(
            r#"
            name = "shared"
            duration = "20s"
            warmup = "2s"
            seed = 3
            [lanes]
            count = 2
            [tenants]
            search = 1
            crawler = {{ requests_per_second = 90, requests_burst = 20 }}
            [models.m]
            slo = "100ms"
            profile = {{ alpha = "2ms", beta = "10ms", max_batch = 8 }}
            rate = {}
            tenants = {{ search = 60, crawler = {crawler} }}
            "#,
            60.0 + crawler
        )
    };
    for setup in [checked("deadline"), checked("triton")] {
        let before = run(&parse(&text(0.001)), &setup);
        let after = run(&parse(&text(900.0)), &setup);
        let (before, victim) = (tenant(&before, "search"), tenant(&after, "search"));
        assert!(before.attainment - victim.attainment <= POINT, "{before:?} {victim:?}");
        let aggressor = tenant(&after, "crawler");
        let admitted = aggressor.offered - aggressor.refused_by_quota;
        assert!((1_600..=1_660).contains(&admitted), "{aggressor:?}");
    }
}

#[test]
fn quotas_that_are_never_reached_change_no_decision() {
    let text =
        |quota: &str| AGGRESSOR.replace("device_seconds_per_second = 0.3\ndevice_seconds_burst = 0.1", quota);
    for setup in every_policy() {
        let without = run(&parse(&text("")), &setup);
        let wide = run(&parse(&text("device_seconds_per_second = 1000")), &setup);
        assert_eq!(without.hash, wide.hash, "{}", setup.label);
    }
}
