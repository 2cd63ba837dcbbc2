use std::num::NonZeroUsize;

use oip::Datatype;

use super::*;
use crate::engine::ort::GraphLevel;
use crate::{Dim, TensorSpec};

fn name() -> ModelName {
    ModelName::new("m").unwrap()
}

fn tensor(name: &str, dims: Vec<Dim>) -> TensorSpec {
    TensorSpec { name: name.into(), datatype: Datatype::Fp32, dims, optional: false }
}

fn batched() -> Signature {
    let dims = || vec![Dim::Free, Dim::Fixed(4)];
    Signature { inputs: vec![tensor("x", dims())], outputs: vec![tensor("y", dims())], max_batch: 64 }
}

fn stateful() -> Signature {
    let state = tensor("state", vec![Dim::Fixed(2), Dim::Free]);
    Signature { inputs: vec![state], outputs: vec![], max_batch: 0 }
}

fn resolve(pbtxt: &str, toml: &str, signature: &Signature) -> Result<EffectiveConfig, ConfigError> {
    let pbtxt = (!pbtxt.is_empty()).then(|| Pbtxt::parse(&name(), pbtxt, true).unwrap());
    EffectiveConfig::resolve(&name(), pbtxt.as_ref(), &toml::from_str(toml).unwrap(), signature)
}

#[test]
fn nothing_said_gives_the_defaults() {
    let config = resolve("", "", &batched()).unwrap();
    assert_eq!(
        (config.engine, config.max_batch, config.policy.as_str()),
        (EngineChoice::Auto, None, "deadline")
    );
    assert_eq!((config.slo, config.classes.get(), config.default_class.get()), (None, 64, 1));
    assert_eq!((config.versions, config.lanes), (VersionPolicy::default(), LaneChoice::All));
    assert!(config.queue.timeout_override);
}

#[test]
fn tessera_toml_wins_over_config_pbtxt() {
    let pbtxt = r#"
        backend: "tract" max_batch_size: 8 version_policy { all { } }
        dynamic_batching { preferred_batch_size: [4] max_queue_delay_microseconds: 100
          priority_levels: 5 default_priority_level: 2 default_queue_policy { max_queue_size: 7 } }
    "#;
    let alone = resolve(pbtxt, "", &batched()).unwrap();
    assert_eq!((alone.engine, alone.max_batch), (EngineChoice::Named("tract"), Some(8)));
    assert_eq!((alone.policy.as_str(), alone.max_delay.as_micros()), ("triton", 100));
    assert_eq!((alone.classes.get(), alone.default_class.get()), (5, 2));
    let toml = r#"
        engine = "ort"
        max_batch = 16
        versions = 2
        slo = "20ms"
        queue_limit = 9
        default_class = 5
        batching = { policy = "aimd", max_delay = "2ms", preferred = [16, 2] }
    "#;
    let both = resolve(pbtxt, toml, &batched()).unwrap();
    assert_eq!((both.engine, both.max_batch), (EngineChoice::Named("ort"), Some(16)));
    assert_eq!((both.policy.as_str(), both.max_delay.as_millis()), ("aimd", 2));
    assert_eq!(both.preferred.iter().map(|size| size.get()).collect::<Vec<_>>(), [2, 16]);
    assert_eq!((both.queue.max_size.unwrap().get(), both.default_class.get()), (9, 5));
    assert_eq!(both.versions, VersionPolicy::Latest(NonZeroU32::new(2).unwrap()));
    assert_eq!(both.load_options(&[0, 1, 2], false).threads, 3);
}

#[test]
fn settings_of_onnx_runtime_in_tessera_toml_win_and_choose_the_engine() {
    let pbtxt = r#"
        optimization { graph { level: 1 } }
        parameters { key: "intra_op_thread_count" value: { string_value: "4" } }
    "#;
    let both = resolve(pbtxt, "ort = { graph_level = \"disable\", spinning = true }", &batched()).unwrap();
    assert_eq!((both.ort.graph_level, both.ort.spinning), (GraphLevel::Disabled, true));
    assert_eq!((both.ort.intra_threads, both.engine), (NonZeroUsize::new(4), EngineChoice::Named("ort")));
    let alone = resolve(pbtxt, "ort = {}", &batched()).unwrap();
    assert_eq!((alone.ort.graph_level, alone.engine), (GraphLevel::Extended, EngineChoice::Auto));
    let changes = alone.changes(&both, 64);
    assert!(
        changes.iter().any(|change| change.setting == "onnxruntime" && change.needs_sessions),
        "{changes:?}"
    );
}

#[test]
fn what_cannot_hold_together_is_refused() {
    let cases = [
        ("", "max_batch = 0\nfree_batch = true", "models.m.max_batch: is 0, but `free_batch`"),
        ("", "slo = \"0s\"", "models.m.slo: is 0"),
        (
            "",
            "engine = \"tract\"\nort.spinning = true",
            "models.m.ort.spinning: exists only on ONNX Runtime: expected engine `ort`, got `tract`",
        ),
        ("backend: \"tract\" max_batch_size: 8", "ort.threads = 2", "models.m.ort.threads: exists only on"),
        ("", "slo = \"2s\"\ntimeout_max = \"1s\"", "models.m.timeout_max: is 1s, shorter than the slo of 2s"),
        (
            "",
            "batching = { preferred = [65] }",
            "batching.preferred: has 65: expected at most the largest batch, 64",
        ),
        (
            "max_batch_size: 4 dynamic_batching { preferred_batch_size: [8] }",
            "",
            "preferred_batch_size: has 8",
        ),
        (
            "dynamic_batching { priority_levels: 2 }",
            "default_class = 3",
            "default_class: is 3: expected 1 to 2",
        ),
        (
            "input { name: \"z\" data_type: TYPE_FP32 dims: [4] }",
            "",
            "input `z`: is not in the graph: expected `x`",
        ),
        (
            "input { name: \"x\" data_type: TYPE_INT8 dims: [4] }",
            "",
            "data_type: is INT8: the graph has FP32",
        ),
        (
            "max_batch_size: 4 input { name: \"x\" data_type: TYPE_FP32 dims: [-1, 4] }",
            "",
            "dims: is [-1, 4]: the graph has [4] without the batch",
        ),
        ("max_batch_size: 4 output { name: \"y\" data_type: TYPE_FP32 dims: [5] }", "", "the graph has [4]"),
    ];
    for (pbtxt, toml, part) in cases {
        let said = resolve(pbtxt, toml, &batched()).unwrap_err().to_string();
        assert!(said.contains(part), "{pbtxt} {toml}: {said}");
    }
}

#[test]
fn a_batch_for_a_stateful_model_is_refused_by_tensor() {
    let said = resolve("", "max_batch = 8", &stateful()).unwrap_err().to_string();
    assert!(said.contains("max_batch: is 8, but input `state` has a first dimension fixed at 2"), "{said}");
    let said = resolve("max_batch_size: 8", "", &stateful()).unwrap_err().to_string();
    assert!(said.starts_with("model `m`: config.pbtxt: max_batch_size: is 8"), "{said}");
    assert_eq!(resolve("max_batch_size: 0", "", &stateful()).unwrap().max_batch, Some(0));
}

#[test]
fn unbatched_declarations_have_all_dimensions() {
    let pbtxt = "max_batch_size: 0 input { name: \"x\" data_type: TYPE_FP32 dims: [-1, 4] }";
    assert!(resolve(pbtxt, "", &batched()).is_ok());
    let narrower = "max_batch_size: 0 input { name: \"x\" data_type: TYPE_FP32 dims: [2, 4] }";
    assert!(resolve(narrower, "", &batched()).is_ok(), "a free dimension may be declared narrower");
}

#[test]
fn a_file_that_appears_needs_new_sessions_only_for_what_sessions_read() {
    let before = resolve("", "", &batched()).unwrap();
    let after = |pbtxt: &str| {
        let changes = before.changes(&resolve(pbtxt, "", &batched()).unwrap(), 64);
        let told: Vec<String> = changes.iter().map(ToString::to_string).collect();
        (told, changes.iter().any(|change| change.needs_sessions))
    };
    let declared = r#"name: "m" max_batch_size: 64 input { name: "x" data_type: TYPE_FP32 dims: [4] }"#;
    assert_eq!(after(declared), (vec!["config.pbtxt: added".to_owned()], false));
    let (told, sessions) =
        after(&format!("{declared} dynamic_batching {{ max_queue_delay_microseconds: 3000 }}"));
    assert!(!sessions && told.contains(&"batching.max_delay: 0s -> 3ms".to_owned()), "{told:?}");
    assert_eq!(after("max_batch_size: 8"), (vec!["max_batch: default -> 8".to_owned()], true));
    for pbtxt in [
        "response_cache { enable: true }",
        "metric_tags { key: \"a\" value: \"b\" }",
        "instance_group { count: 1 }",
        "backend: \"tract\"",
        "backend: \"python\"",
    ] {
        assert!(after(pbtxt).1, "{pbtxt}: {:?}", after(pbtxt).0);
    }
    assert_eq!(before.changes(&before, 64), []);
}

#[test]
fn a_file_that_changes_or_goes_is_told() {
    let config = |pbtxt: &str| resolve(pbtxt, "", &batched()).unwrap();
    let told = |from: &str, to: &str| {
        let changes = config(from).changes(&config(to), 64);
        let [change] = changes.as_slice() else { panic!("{changes:?}") };
        (change.to_string(), change.needs_sessions)
    };
    let parameter = "parameters { key: \"note\" value { string_value: \"a\" } }";
    assert_eq!(told("name: \"m\"", parameter), ("config.pbtxt: other fields changed".to_owned(), false));
    assert_eq!(told("name: \"m\"", ""), ("config.pbtxt: removed".to_owned(), false));
    let python = |more: &str| format!("backend: \"python\" {more}");
    assert_eq!(
        told(&python(""), &python(parameter)),
        ("config.pbtxt: other fields changed".to_owned(), true)
    );
}
