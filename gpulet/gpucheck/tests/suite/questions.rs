//! Questions that need no engine, each in a process whose driver is the stand-in: no rule of the driver is broken, and
//! nothing is left behind.

use std::time::{Duration, Instant};

use cuda_standin::{Control, Driver, Shape, staged, with_driver};
use gpucheck::answer::Answers;
use gpucheck::bench::Bench;
use gpucheck::question::Question;
use gpulet_cuda::probe;

use crate::stage::{fact, facts, kernels_asked, wrong};

const TIME: Duration = Duration::from_secs(5);

#[test]
fn facts_are_read_off_the_device() {
    with_driver("questions::facts_are_read_off_the_device", Shape::default(), |control| {
        let facts = kernels_asked(Question::Facts, TIME);
        assert_eq!(fact(&facts, "facts.driver").value, "13.0");
        assert_eq!(fact(&facts, "facts.units").value, 16);
        assert_eq!(fact(&facts, "facts.remainder").value, 4);
        assert_eq!(fact(&facts, "facts.granted_as_asked").ok, Some(true));
        assert_eq!(fact(&facts, "facts.primary_event_on_green_stream").value, true);
        assert_eq!(fact(&facts, "facts.priorities").value, serde_json::json!([0, -5]));
        assert_eq!(fact(&facts, "facts.green_alive").value, 256);
        assert_eq!(fact(&facts, "facts.green_memory_left_behind").value, 0);
        assert_eq!(fact(&facts, "facts.green_create").detail["count"], 50);
        assert_eq!(control.calls("cuGreenCtxCreate"), 16 + 1 + 50 + 256);
        let active = fact(&facts, "facts.sm_active");
        assert_eq!(
            (active.value.as_f64(), &active.detail["read"]["sm_occupancy"]),
            (Some(0.42), &0.185.into())
        );
        // The test's process has not the variable that a child of the program has.
        let wrong: Vec<_> = wrong(&facts).iter().map(|fact| fact.fact.as_str()).collect();
        assert_eq!(wrong, ["facts.connections"]);
    });
}

#[test]
fn a_gpu_that_does_not_say_what_its_parts_do_is_no_failure() {
    let shape = Shape { capability: 80, ..Shape::default() };
    with_driver("questions::a_gpu_that_does_not_say_what_its_parts_do_is_no_failure", shape, |_| {
        let facts = kernels_asked(Question::Facts, TIME);
        let active = fact(&facts, "facts.sm_active");
        assert_eq!((&active.value, active.ok), (&serde_json::Value::Null, None));
        assert!(active.detail.as_str().unwrap().starts_with("no GPU performance monitoring"), "{active:?}");
    });
}

#[test]
fn events_that_need_the_green_context_are_told() {
    let shape = Shape { primary_events: false, ..Shape::default() };
    with_driver("questions::events_that_need_the_green_context_are_told", shape, |_| {
        let facts = kernels_asked(Question::Facts, TIME);
        let event = fact(&facts, "facts.primary_event_on_green_stream");
        assert_eq!((event.value.as_bool(), event.ok), (Some(false), Some(true)));
        assert_eq!(event.question, "gpu.md 4.2.6");
    });
}

#[test]
fn a_driver_that_gives_few_contexts_is_told() {
    let shape = Shape { greens_max: 20, ..Shape::default() };
    with_driver("questions::a_driver_that_gives_few_contexts_is_told", shape, |_| {
        let facts = kernels_asked(Question::Facts, TIME);
        let alive = fact(&facts, "facts.green_alive");
        assert_eq!((alive.value.as_u64(), alive.ok), (Some(20), Some(false)));
        assert!(alive.detail.as_str().unwrap().contains("CUDA_ERROR_OUT_OF_MEMORY"));
    });
}

#[test]
fn an_old_driver_is_asked_what_it_can_answer() {
    let shape = Shape { driver: 12_020, ..Shape::default() };
    with_driver("questions::an_old_driver_is_asked_what_it_can_answer", shape, |_| {
        let why = "driver 12.2 has no streams in green contexts: expected 12.5 or later";
        assert_eq!(fact(&kernels_asked(Question::Facts, TIME), "facts.units").detail, why);
        // Models may run without green contexts: what is missing for that is an engine.
        let others = [Question::Facts, Question::Libraries];
        for question in Question::ALL.into_iter().filter(|question| !others.contains(question)) {
            let facts = kernels_asked(question, TIME);
            assert_eq!(facts.len(), 1, "{facts:?}");
            assert_eq!((&facts[0].detail, facts[0].ok), (&why.into(), None));
        }
    });
}

#[test]
fn gpulets_keep_to_their_sms() {
    with_driver("questions::gpulets_keep_to_their_sms", Shape::default(), |_| {
        let facts = kernels_asked(Question::Isolation, TIME);
        assert_eq!(fact(&facts, "isolation.sms_left").value, 64);
        assert_eq!(fact(&facts, "isolation.sms_right").value, 64);
        assert_eq!(fact(&facts, "isolation.sms_common").value, 0);
        assert_eq!(fact(&facts, "isolation.sms_together").value, 128);
        assert_eq!(fact(&facts, "isolation.sms_shared_by_units").ok, Some(true));
        assert!(fact(&facts, "isolation.compute_p99_beside_stream_over_alone").value.as_f64().unwrap() > 0.0);
        assert_eq!(wrong(&facts), Vec::<&gpucheck::answer::Fact>::new());
    });
}

#[test]
fn a_plan_change_loses_nothing_and_leaves_nothing() {
    with_driver(
        "questions::a_plan_change_loses_nothing_and_leaves_nothing",
        Shape::cut(132, 8, 8),
        |control| {
            let facts = kernels_asked(Question::Resize, Duration::from_secs(40));
            assert_eq!(fact(&facts, "resize.changes").value, 1_000);
            assert_eq!(fact(&facts, "resize.batches_lost").value, 0);
            assert_eq!(fact(&facts, "resize.batches_wrong").value, 0);
            assert!(fact(&facts, "resize.batches_wrong").detail["batches"].as_u64().unwrap() > 1_000);
            assert_eq!(fact(&facts, "resize.memory_left_behind").value, 0);
            for phase in ["prepare", "switch", "close"] {
                assert_eq!(fact(&facts, &format!("resize.{phase}")).detail["count"], 1_000, "{phase}");
            }
            // Two sessions a change, a copy of the answer for each batch that was counted or warmed one up.
            assert!(control.calls("cuLaunchKernel") > 3_000);
        },
    );
}

#[test]
fn a_gpu_lost_in_a_plan_change_is_told() {
    let name = "questions::a_gpu_lost_in_a_plan_change_is_told";
    staged(name, &Driver::Standin(Shape::default()), || {
        let control = Control::open().unwrap();
        let mut lines: Vec<u8> = Vec::new();
        let mut bench = Bench {
            found: probe().unwrap().remove(0),
            answers: Answers::new(&mut lines),
            until: Instant::now() + TIME,
            engine: Err("none".to_owned()),
            models: "models".into(),
            profiles: "profiles".into(),
            onnxruntime: None,
        };
        control.fail("cuLaunchKernel", 400, 700);
        assert!(Question::Resize.ask(&mut bench).is_err());
        let facts = facts(&lines);
        assert_eq!(fact(&facts, "resize.changes").ok, Some(false));
        assert_eq!(fact(&facts, "resize.batches_lost").ok, Some(false));
        assert_eq!(control.violations(), Vec::<String>::new());
    });
}

#[test]
fn neighbours_are_measured_at_half_and_at_full_load() {
    with_driver("questions::neighbours_are_measured_at_half_and_at_full_load", Shape::cut(40, 2, 2), |_| {
        let facts = kernels_asked(Question::Interference, TIME);
        for (own, units) in [("compute", 10), ("stream", 10)] {
            for (other, duty) in [("compute", 50), ("compute", 100), ("stream", 50), ("stream", 100)] {
                let name = format!("interference.{own}_{units}_beside_{other}_10_at_{duty}");
                assert!(fact(&facts, &name).value.as_f64().unwrap() > 0.0, "{name}");
                assert!(fact(&facts, &name).detail["neighbour_batches"].as_u64().unwrap() > 0, "{name}");
            }
        }
        assert!(fact(&facts, "interference.bandwidth_20_units").unit.as_deref() == Some("GB/s"));
    });
}
