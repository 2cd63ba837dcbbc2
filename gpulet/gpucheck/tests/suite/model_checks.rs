//! Checks of models, with an engine that returns its inputs.

use std::path::Path;
use std::time::Duration;

use cuda_standin::{Shape, with_driver};
use gpucheck::check::Check;
use gpulet_core::profile::{Profile, Quantile};

use crate::engine::{Echo, engine, engine_that_refuses};
use crate::stage::{checked, fact, wrong};

const TIME: Duration = Duration::from_secs(8);

/// A folder with models, each with the echo of [1, 2, 3, 4] as reference.
fn models(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        let model = folder.path().join("models").join(name);
        std::fs::create_dir_all(&model).unwrap();
        std::fs::write(model.join("model.onnx"), vec![7; 1 << 20]).unwrap();
        let numbers: Vec<u8> =
            [1.0_f32, 2.0, 3.0, 4.0].iter().flat_map(|number| number.to_le_bytes()).collect();
        std::fs::write(model.join("numbers.bin"), numbers).unwrap();
        let tensor = |name: &str| serde_json::json!({"name": name, "datatype": "FP32", "shape": [1, 4], "file": "numbers.bin"});
        let reference = serde_json::json!({
            "rows": 1, "tolerance": 0.01, "inputs": [tensor("x")], "outputs": [tensor("y")],
        });
        std::fs::write(model.join("reference.json"), reference.to_string()).unwrap();
    }
    folder
}

fn slow() -> Echo {
    Echo { takes: (Duration::from_millis(16), Duration::from_millis(2)), ..Echo::default() }
}

#[test]
fn wrong_results_are_detected() {
    with_driver("model_checks::wrong_results_are_detected", Shape::default(), |_| {
        let folder = models(&["net"]);
        let facts = checked(Check::Libraries, engine(slow()), folder.path(), TIME);
        assert_eq!(fact(&facts, "libraries.net_difference").value, 0.0);
        assert_eq!(fact(&facts, "libraries.net_loads").detail["engine"], "echo");
        assert!(wrong(&facts).is_empty(), "{facts:#?}");
        let off = engine(Echo { wrong_by: 0.1, ..slow() });
        let facts = checked(Check::Libraries, off, folder.path(), TIME);
        assert_eq!(fact(&facts, "libraries.net_difference").ok, Some(false));
    });
}

#[test]
fn a_model_that_cudnn_refuses_is_tried_in_the_other_ways_in_order() {
    let test = "model_checks::a_model_that_cudnn_refuses_is_tried_in_the_other_ways_in_order";
    with_driver(test, Shape::default(), |_| {
        let folder = models(&["net"]);
        let ask =
            |green, cudnn| checked(Check::Libraries, engine_that_refuses(green, cudnn), folder.path(), TIME);
        let facts = ask(false, false);
        assert_eq!(fact(&facts, "libraries.way").value, "cuda-green");
        assert!(facts.iter().all(|fact| !fact.fact.contains("_without_cudnn")), "nothing else is tried");

        let facts = ask(false, true);
        let loads = fact(&facts, "libraries.net_loads");
        assert_eq!((loads.ok, loads.value.as_bool()), (Some(false), Some(false)));
        assert!(loads.detail.as_str().unwrap().contains("STREAM_MISMATCH"), "{loads:?}");
        assert_eq!(fact(&facts, "libraries.net_loads_without_cudnn").value, true);
        assert_eq!(fact(&facts, "libraries.net_difference_without_cudnn").value, 0.0);
        let way = fact(&facts, "libraries.way");
        assert_eq!((way.value.as_str(), way.ok), (Some("cuda-green without cuDNN"), Some(true)));
        assert!(facts.iter().all(|fact| !fact.fact.ends_with("_on_streams")), "nothing else is tried");

        let facts = ask(true, true);
        assert_eq!(fact(&facts, "libraries.net_loads_without_cudnn").value, false);
        let mps = fact(&facts, "libraries.models_under_mps").detail.as_str().unwrap();
        assert!(mps.starts_with("no MPS control daemon"), "{mps}");
        assert_eq!(fact(&facts, "libraries.net_loads_on_streams").value, true);
        assert_eq!(fact(&facts, "libraries.way").value, "cuda-stream");
        assert_eq!(fact(&facts, "libraries.way").detail["models"]["cuda-stream"][0], "net");
    });
}

#[test]
fn an_old_driver_still_has_streams() {
    let shape = Shape { driver: 12_020, ..Shape::default() };
    with_driver("model_checks::an_old_driver_still_has_streams", shape, |_| {
        let folder = models(&["net"]);
        let facts = checked(Check::Libraries, engine(slow()), folder.path(), TIME);
        let why = "driver 12.2 has no streams in green contexts: expected 12.5 or later";
        assert_eq!(fact(&facts, "libraries.models").detail, why);
        assert_eq!(fact(&facts, "libraries.way").value, "cuda-stream");
        assert_eq!(fact(&facts, "libraries.net_difference_on_streams").value, 0.0);
    });
}

#[test]
fn a_broken_reference_is_named() {
    with_driver("model_checks::a_broken_reference_is_named", Shape::default(), |_| {
        let folder = models(&["net"]);
        std::fs::write(folder.path().join("models/net/numbers.bin"), [0; 7]).unwrap();
        let facts = checked(Check::Libraries, engine(slow()), folder.path(), TIME);
        let why = fact(&facts, "libraries.models").detail.as_str().unwrap();
        assert!(why.ends_with("`x`: numbers.bin: expected 16 bytes, got 7"), "{why}");
    });
}

#[test]
fn a_second_session_with_weights_of_its_own_is_found() {
    with_driver("model_checks::a_second_session_with_weights_of_its_own_is_found", Shape::default(), |_| {
        let folder = models(&["net", "small"]);
        std::fs::write(folder.path().join("models/net/model.onnx"), vec![7; 32 << 20]).unwrap();
        let shared = engine(Echo { memory: (32 << 20, 1 << 20), ..Echo::default() });
        let facts = checked(Check::Sharing, shared, folder.path(), TIME);
        let name = "sharing.net_second_over_weights";
        assert_eq!(fact(&facts, name).detail["weights_bytes"], 32 << 20);
        let apart = engine(Echo { memory: (32 << 20, 32 << 20), ..Echo::default() });
        let facts = checked(Check::Sharing, apart, folder.path(), TIME);
        assert_eq!((fact(&facts, name).value.as_f64(), fact(&facts, name).ok), (Some(1.0), Some(false)));
        assert_eq!(fact(&facts, name).detail["counted_as_unshared"], true);
        let small = fact(&facts, "sharing.small_second_over_weights");
        assert_eq!(small.ok, None, "a tenth of its weights is below the granularity of device memory");
    });
}

#[test]
fn models_are_profiled() {
    with_driver("model_checks::models_are_profiled", Shape::default(), |_| {
        let folder = models(&["one", "two"]);
        let facts = checked(Check::Profile, engine(slow()), folder.path(), TIME);
        assert!(wrong(&facts).is_empty(), "{facts:#?}");
        for co_located in ["compute_at_100", "stream_at_50", "stream_at_100"] {
            let measured = fact(&facts, &format!("profile.one_with_{co_located}"));
            assert_eq!((&measured.detail["units"], &measured.detail["rows"]), (&8.into(), &8.into()));
            assert!(measured.detail["other_batches"].as_u64().unwrap() > 0, "{measured:?}");
        }
        // The stand-in's power is capped.
        let doubt = &fact(&facts, "profile.one_cells").detail["lines"][1]["cell"]["doubt"];
        assert!(
            doubt.as_str().unwrap().contains("SW_POWER_CAP") || doubt.as_str().unwrap().contains("runs"),
            "{doubt}"
        );
        profile_is_sound(&folder.path().join("profiles.jsonl"));
        pairs_are_sound(&folder.path().join("profiles.pairs.jsonl"));
        assert_eq!(fact(&facts, "profile.two_on_8_with_one").detail.as_array().unwrap().len(), 8);
        for regression in ["gpulet", "contention"] {
            let fit = fact(&facts, &format!("profile.interference_{regression}"));
            // Sleeping sessions do not interfere, so the values are arbitrary.
            let samples = fit.detail["samples"].as_u64();
            assert!(samples.is_some_and(|samples| samples >= 14) || fit.value.is_null(), "{fit:?}");
        }
    });
}

/// Checks that both models were measured with three kernels, and with each other on halves in four sizes.
fn pairs_are_sound(file: &Path) {
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |own: &str, kind: &str| {
        let halves = lines.iter().filter(|line| line["own"]["units"] == 8);
        halves.filter(|line| line["own"]["model"] == own && !line["other"][kind].is_null()).count()
    };
    for model in ["one", "two"] {
        assert_eq!(count(model, "kernel"), 3, "{text}");
        assert!(count(model, "batch") >= 4, "{text}");
    }
}

/// A profile with the echo's times, so that the plan does not depend on the load of the machine.
fn written_profile(model: &str, echo: &Echo) -> String {
    let header = serde_json::json!({"profile": {
        "version": 1, "model": model, "device": "Stand-in GPU (16 units)", "engine": "echo", "source": "typed_in",
        "units_total": 16, "weights_bytes": 1 << 20,
    }});
    let mut text = header.to_string() + "\n";
    for units in [1, 2, 4, 8, 16] {
        for rows in [1, 2, 4, 8, 16, 32] {
            let us = (echo.takes.0 + echo.takes.1 * rows).as_secs_f64() * 1e6 / f64::from(units);
            let cell = serde_json::json!({"cell": {
                "batch": rows, "units": units, "p50_us": us, "p95_us": us * 1.1, "p99_us": us * 1.2, "count": 100,
            }});
            text += &(cell.to_string() + "\n");
        }
    }
    text
}

#[test]
fn capacity_is_measured_in_every_arm() {
    with_driver("model_checks::capacity_is_measured_in_every_arm", Shape::default(), |_| {
        let folder = models(&["one", "two"]);
        let echo = Echo { takes: (Duration::from_millis(80), Duration::from_millis(8)), ..Echo::default() };
        let profiles = written_profile("one", &echo) + &written_profile("two", &echo);
        std::fs::write(folder.path().join("profiles.jsonl"), profiles).unwrap();
        let facts = checked(Check::Mix, engine(echo), folder.path(), Duration::from_secs(16));
        for arm in ["plan", "time_sharing", "streams", "equal_split"] {
            let capacity = fact(&facts, &format!("mix.capacity_{arm}"));
            assert_eq!(capacity.unit.as_deref(), Some("requests/s"), "{capacity:?}");
            let trials = capacity.detail["trials"].as_array().unwrap();
            // The attainment depends on this machine.
            let shares = trials.iter().map(|trial| trial["attainment"].as_f64().unwrap());
            assert!(
                !trials.is_empty() && shares.clone().all(|share| (0.0..=1.0).contains(&share)),
                "{capacity:?}"
            );
        }
        assert!(fact(&facts, "mix.capacity_plan").detail["planned_for_load"].as_f64().unwrap() > 0.0);
        assert_eq!(fact(&facts, "mix.interference").value, "none", "no pair was measured");
        let paper = fact(&facts, "mix.gpulet_paper_capacity").detail.as_str().unwrap();
        assert!(paper.ends_with("also needs: lenet, googlenet, resnet50, ssd_mobilenet, vgg16"), "{paper}");
    });
}

#[test]
fn the_gpulet_papers_table_is_measured_if_its_models_exist() {
    let test = "model_checks::the_gpulet_papers_table_is_measured_if_its_models_exist";
    with_driver(test, Shape::default(), |_| {
        let names = ["lenet", "googlenet", "resnet50", "ssd_mobilenet", "vgg16"];
        let folder = models(&names);
        let echo = Echo { takes: (Duration::from_millis(8), Duration::from_micros(800)), ..Echo::default() };
        let profiles: String = names.iter().map(|name| with_use(written_profile(name, &echo))).collect();
        std::fs::write(folder.path().join("profiles.jsonl"), profiles).unwrap();
        let pairs: String = names.iter().flat_map(|own| names.iter().map(|other| pair(own, other))).collect();
        std::fs::write(folder.path().join("profiles.pairs.jsonl"), pairs).unwrap();
        let facts = checked(Check::Mix, engine(echo), folder.path(), Duration::from_secs(12));
        let fitted = fact(&facts, "mix.interference");
        assert_ne!(fitted.value, "none", "every pair is 10 % slower: {fitted:?}");
        assert!(fitted.detail["pairs_of_models_left_out"]["mean_pct"].as_f64().unwrap() < 0.1);
        for arm in ["plan", "time_sharing"] {
            let capacity = fact(&facts, &format!("mix.gpulet_paper_capacity_{arm}"));
            assert_eq!(capacity.unit.as_deref(), Some("requests/s"), "{capacity:?}");
            assert!(capacity.detail["trials"].as_array().unwrap().len() <= 5);
        }
        let planned = &fact(&facts, "mix.gpulet_paper_capacity_plan").detail["planned_for_load"];
        assert!(planned.as_f64().unwrap() > 0.0);
    });
}

fn with_use(profile: String) -> String {
    profile + "{\"utilisation\":{\"batch\":8,\"cache\":0.5,\"bandwidth\":0.25}}\n"
}

fn pair(own: &str, other: &str) -> String {
    let side = |model: &str| serde_json::json!({"model": model, "rows": 8, "units": 8});
    let pair = serde_json::json!({
        "device": "Stand-in GPU (16 units)", "units_total": 16, "own": side(own), "other": {"batch": side(other)},
        "factor": 1.1, "p99_factor": 1.1, "runs": 50,
    });
    pair.to_string() + "\n"
}

fn profile_is_sound(file: &Path) {
    let profiles = Profile::read(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(profiles.iter().map(Profile::model).collect::<Vec<_>>(), ["one", "two"]);
    for profile in &profiles {
        let header = profile.header();
        assert_eq!(
            (header.device.as_str(), header.engine.as_str(), header.units_total),
            ("Stand-in GPU (16 units)", "echo", 16)
        );
        assert!(header.note.contains("driver 13.0"), "{}", header.note);
        let time = |rows, units| profile.latency_us(Quantile::P50, rows, units).unwrap();
        assert!(time(32, 16) >= 80_000.0 / 16.0, "the least time of the echo");
        // Finer shares are measured as time allows, which depends on this machine.
        assert!(time(1, 8) > time(1, 16) && time(32, 8) > time(1, 8));
        assert_eq!(profile.weights_bytes(), Some(1 << 20));
        assert!(profile.utilisation(8).is_some(), "its use of shared resources was measured");
    }
}

#[test]
fn a_mix_without_profiles_says_how_to_measure_them() {
    with_driver("model_checks::a_mix_without_profiles_says_how_to_measure_them", Shape::default(), |_| {
        let folder = models(&["one"]);
        let facts = checked(Check::Mix, engine(slow()), folder.path(), TIME);
        assert!(
            fact(&facts, "mix.capacity")
                .detail
                .as_str()
                .unwrap()
                .ends_with("`gpucheck profile` measures them")
        );
    });
}
