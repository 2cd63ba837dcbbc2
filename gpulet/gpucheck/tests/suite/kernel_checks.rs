//! Checks that need no engine, each in a process with the stand-in: no rule of the driver is violated, and nothing is left
//! behind.

use std::time::{Duration, Instant};

use cuda_standin::{Control, Driver, Shape, staged, with_driver};
use gpucheck::bench::Bench;
use gpucheck::check::Check;
use gpucheck::checks;
use gpucheck::report::Report;
use gpulet_cuda::probe;

use crate::stage::{checked_without_models, fact, facts, wrong};

const TIME: Duration = Duration::from_secs(5);

#[test]
fn facts_are_read_off_the_device() {
    with_driver("kernel_checks::facts_are_read_off_the_device", Shape::default(), |control| {
        let facts = checked_without_models(Check::Facts, TIME);
        assert_eq!(fact(&facts, "facts.driver").value, "13.0");
        assert_eq!(fact(&facts, "facts.units").value, 16);
        assert_eq!(fact(&facts, "facts.remainder").value, 4);
        assert_eq!(fact(&facts, "facts.granted_as_asked").ok, Some(true));
        assert_eq!(fact(&facts, "facts.primary_event_on_green_stream").value, true);
        assert_eq!(fact(&facts, "facts.green_alive").value, 256);
        assert_eq!(fact(&facts, "facts.green_memory_reserved").value, 0);
        assert_eq!(fact(&facts, "facts.green_memory_left_behind").value, 0);
        assert_eq!(fact(&facts, "facts.green_create").detail["count"], 50);
        assert_eq!(control.calls("cuGreenCtxCreate"), 16 + 1 + 50 + 2 * 256);
        let active = fact(&facts, "facts.sm_active");
        assert_eq!(
            (active.value.as_f64(), &active.detail["read"]["sm_occupancy"]),
            (Some(0.42), &0.185.into())
        );
        // The test's process lacks the variable that a child of the program has.
        let wrong: Vec<_> = wrong(&facts).iter().map(|fact| fact.fact.as_str()).collect();
        assert_eq!(wrong, ["facts.connections"]);
    });
}

#[test]
fn a_gpu_without_activity_readings_is_not_a_failure() {
    let shape = Shape { capability: 80, ..Shape::default() };
    with_driver("kernel_checks::a_gpu_without_activity_readings_is_not_a_failure", shape, |_| {
        let facts = checked_without_models(Check::Facts, TIME);
        let active = fact(&facts, "facts.sm_active");
        assert_eq!((&active.value, active.ok), (&serde_json::Value::Null, None));
        assert!(active.detail.as_str().unwrap().starts_with("no GPU performance monitoring"), "{active:?}");
    });
}

#[test]
fn events_that_need_the_green_context_are_reported() {
    let shape = Shape { primary_events: false, ..Shape::default() };
    with_driver("kernel_checks::events_that_need_the_green_context_are_reported", shape, |_| {
        let facts = checked_without_models(Check::Facts, TIME);
        let event = fact(&facts, "facts.primary_event_on_green_stream");
        assert_eq!((event.value.as_bool(), event.ok), (Some(false), Some(true)));
        assert_eq!(event.section, "gpu.md 4.2.6");
    });
}

#[test]
fn a_driver_that_allows_few_contexts_is_reported() {
    let shape = Shape { greens_max: 20, ..Shape::default() };
    with_driver("kernel_checks::a_driver_that_allows_few_contexts_is_reported", shape, |_| {
        let facts = checked_without_models(Check::Facts, TIME);
        let alive = fact(&facts, "facts.green_alive");
        assert_eq!((alive.value.as_u64(), alive.ok), (Some(20), Some(false)));
        assert!(alive.detail.as_str().unwrap().contains("CUDA_ERROR_OUT_OF_MEMORY"));
    });
}

#[test]
fn an_old_driver_is_checked_without_green_contexts() {
    let shape = Shape { driver: 12_020, ..Shape::default() };
    with_driver("kernel_checks::an_old_driver_is_checked_without_green_contexts", shape, |_| {
        let why = "driver 12.2 has no streams in green contexts: expected 12.5 or later";
        assert_eq!(fact(&checked_without_models(Check::Facts, TIME), "facts.units").detail, why);
        // Models may run without green contexts; there, the engine is missing.
        let others = [Check::Facts, Check::Libraries];
        for check in Check::ALL.into_iter().filter(|check| !others.contains(check)) {
            let facts = checked_without_models(check, TIME);
            assert_eq!(facts.len(), 1, "{facts:?}");
            assert_eq!((&facts[0].detail, facts[0].ok), (&why.into(), None));
        }
    });
}

#[test]
fn gpulets_stay_on_their_sms() {
    with_driver("kernel_checks::gpulets_stay_on_their_sms", Shape::default(), |_| {
        let facts = checked_without_models(Check::Isolation, TIME);
        assert_eq!(fact(&facts, "isolation.sms_left").value, 64);
        assert_eq!(fact(&facts, "isolation.sms_right").value, 64);
        assert_eq!(fact(&facts, "isolation.sms_common").value, 0);
        assert_eq!(fact(&facts, "isolation.sms_together").value, 128);
        assert_eq!(fact(&facts, "isolation.sms_shared_by_units").ok, Some(true));
        assert!(fact(&facts, "isolation.compute_p99_with_stream_over_solo").value.as_f64().unwrap() > 0.0);
        assert_eq!(wrong(&facts), Vec::<&gpucheck::report::Fact>::new());
    });
}

#[test]
fn a_plan_change_loses_nothing_and_leaves_nothing() {
    with_driver(
        "kernel_checks::a_plan_change_loses_nothing_and_leaves_nothing",
        Shape::with_sms(132, 8, 8),
        |control| {
            let facts = checked_without_models(Check::Resize, Duration::from_secs(40));
            assert_eq!(fact(&facts, "resize.changes").value, 1_000);
            assert_eq!(fact(&facts, "resize.batches_lost").value, 0);
            assert_eq!(fact(&facts, "resize.batches_wrong").value, 0);
            assert!(fact(&facts, "resize.batches_wrong").detail["batches"].as_u64().unwrap() > 1_000);
            assert_eq!(fact(&facts, "resize.memory_left_behind").value, 0);
            for phase in ["prepare", "switch", "close"] {
                assert_eq!(fact(&facts, &format!("resize.{phase}")).detail["count"], 1_000, "{phase}");
            }
            // At least one batch for each of the two sessions of a change, and those of the lanes.
            assert!(control.calls("cuLaunchKernel") > 3_000);
        },
    );
}

#[test]
fn a_gpu_that_fails_in_a_plan_change_is_reported() {
    let name = "kernel_checks::a_gpu_that_fails_in_a_plan_change_is_reported";
    staged(name, &Driver::Standin(Shape::default()), || {
        let control = Control::open().unwrap();
        let mut lines: Vec<u8> = Vec::new();
        let mut bench = Bench {
            found: probe().unwrap().remove(0),
            report: Report::new(&mut lines),
            until: Instant::now() + TIME,
            engine: Err("none".to_owned()),
            models: "models".into(),
            profiles: "profiles".into(),
            onnxruntime: None,
        };
        control.fail("cuLaunchKernel", 400, 700);
        assert!(checks::run(Check::Resize, &mut bench).is_err());
        let facts = facts(&lines);
        assert_eq!(fact(&facts, "resize.changes").ok, Some(false));
        assert_eq!(fact(&facts, "resize.batches_lost").ok, Some(false));
        assert_eq!(control.violations(), Vec::<String>::new());
    });
}

#[test]
fn contention_is_measured_at_half_and_at_full_load() {
    with_driver(
        "kernel_checks::contention_is_measured_at_half_and_at_full_load",
        Shape::with_sms(40, 2, 2),
        |_| {
            let facts = checked_without_models(Check::Interference, TIME);
            for (own, units) in [("compute", 10), ("stream", 10)] {
                for (other, duty) in [("compute", 50), ("compute", 100), ("stream", 50), ("stream", 100)] {
                    let name = format!("interference.{own}_{units}_with_{other}_10_at_{duty}");
                    assert!(fact(&facts, &name).value.as_f64().unwrap() > 0.0, "{name}");
                    assert!(fact(&facts, &name).detail["other_batches"].as_u64().unwrap() > 0, "{name}");
                }
            }
            assert!(fact(&facts, "interference.bandwidth_20_units").unit.as_deref() == Some("GB/s"));
        },
    );
}
