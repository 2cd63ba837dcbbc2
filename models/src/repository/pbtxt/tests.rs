use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Pbtxt, ConfigError> {
    Pbtxt::parse(&ModelName::new("m").unwrap(), text, true)
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn a_usual_file_parses() {
    let file = parse(
        r#"
        # a comment with max_batch_size
        name: "m"
        platform: "onnxruntime_onnx"
        max_batch_size: 8
        input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] } ]
        output [ { name: "y" data_type: TYPE_STRING dims: [ 2 ] label_filename: "labels.txt" } ]
        version_policy: { specific { versions: [1, 3] } }
        instance_group [ { count: 2 kind: KIND_CPU }, { kind: KIND_AUTO } ]
        dynamic_batching {
          preferred_batch_size: [ 8, 4 ]
          max_queue_delay_microseconds: 500
          priority_levels: 3
          default_priority_level: 2
          default_queue_policy { max_queue_size: 100 default_timeout_microseconds: 20000 allow_timeout_override: true }
        }
        model_warmup [ { name: "w" batch_size: 2 count: 3
          inputs { key: "x" value { data_type: TYPE_FP32 dims: [3, 5] random_data: true } } } ]
        parameters { key: "note" value { string_value: "kept" } }
        "#,
    )
    .unwrap();
    assert_eq!((file.engine, file.max_batch), (Some(EngineChoice::Auto), Some(8)));
    assert_eq!(file.inputs[0].dims, [3, -1]);
    assert_eq!(file.outputs[0].label_filename.as_deref(), Some("labels.txt"));
    assert_eq!(file.versions, Some(VersionPolicy::Listed(vec![Version(1), Version(3)])));
    assert_eq!(file.instances.unwrap().get(), 3);
    assert_eq!(file.preferred.iter().map(|size| size.get()).collect::<Vec<_>>(), [4, 8]);
    assert_eq!(file.max_delay, Some(Duration::from_micros(500)));
    assert_eq!((file.classes.unwrap().get(), file.default_class.unwrap().get()), (3, 2));
    assert_eq!((file.queue.max_size.unwrap().get(), file.queue.timeout_override), (100, true));
    assert_eq!(file.queue.default_timeout, Some(Duration::from_millis(20)));
    assert_eq!(file.warm_ups[0].inputs["x"].values, WarmUpValues::Random);
    assert_eq!(file.source.parameters["note"].string_value, "kept");
}

#[test]
fn an_absent_batch_size_differs_from_none() {
    assert_eq!(parse("max_batch_size: 0").unwrap().max_batch, Some(0));
    assert_eq!(parse("# max_batch_size: 0\nname: \"m\"").unwrap().max_batch, None);
    assert_eq!(parse("parameters { key: \"max_batch_size\" value { } }").unwrap().max_batch, None);
}

#[test]
fn a_reshape_holds_the_elements_of_its_dims() {
    let file = |dims: &str, reshape: &str| {
        let text = format!("name: \"x\" data_type: TYPE_FP32 dims: {dims} reshape {{ shape: {reshape} }}");
        parse(&format!("input {{ {text} }} output {{ {text} }}"))
    };
    for (dims, reshape, shape) in [
        ("[1]", "[]", vec![]),
        ("[12]", "[3, 4]", vec![3, 4]),
        ("[-1, 4]", "[-1, 2, 2]", vec![-1, 2, 2]),
        ("[2, -1, 1]", "[1, 2, -1]", vec![1, 2, -1]),
    ] {
        let file = file(dims, reshape).unwrap();
        assert_eq!(file.inputs[0].reshape, Some(shape.clone()));
        assert_eq!(file.outputs[0].reshape, Some(shape));
    }
    for (dims, reshape, said) in [
        ("[4]", "[3]", "input.reshape: is [3]: expected a shape with as many elements as dims [4]"),
        ("[-1]", "[4]", "input.reshape: is [4]: expected a shape with as many elements as dims [-1]"),
        ("[-1, 4]", "[4, -1]", "input.reshape: is [4, -1]: expected a shape with as many"),
        ("[4]", "[0]", "input.reshape: has 0: expected -1 or 1 and more"),
    ] {
        let error = file(dims, reshape).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn fields_that_are_needed_and_not_supported_are_named_with_what_to_do() {
    for (text, path) in [
        ("sequence_batching { iterative_sequence: true }", "1:21: sequence_batching.iterative_sequence"),
        ("model_metrics { metric_control { } }", "1:1: model_metrics"),
    ] {
        let said = error(text);
        let start = format!("model `m`: config.pbtxt:{path}: is not supported: ");
        let todo = said.strip_prefix(&start).unwrap_or_else(|| panic!("{said}"));
        assert!(todo.len() > 10, "{said}");
    }
}

#[test]
fn only_python_models_are_decoupled() {
    let decoupled = "model_transaction_policy { decoupled: true }";
    assert!(parse(&format!("backend: \"python\" {decoupled}")).is_ok());
    assert_eq!(
        error(decoupled),
        "model `m`: config.pbtxt:1:28: model_transaction_policy.decoupled: is true: expected `backend: \"python\"`, other engines \
         give one response for each request"
    );
}

#[test]
fn default_values_and_fields_without_effect_are_accepted() {
    for (text, ignored) in [
        ("response_cache { enable: false }", vec![]),
        ("model_transaction_policy { decoupled: false }", vec![]),
        ("optimization { execution_accelerators { } }", vec![]),
        ("instance_group [ { count: 2 kind: KIND_CPU } ]", vec!["1:29: instance_group.kind"]),
        (
            "instance_group [ { count: 1 kind: KIND_GPU\n gpus: [0] } ]",
            vec!["1:29: instance_group.kind", "2:2: instance_group.gpus"],
        ),
        ("optimization { cuda { graphs: true } }", vec!["1:16: optimization.cuda"]),
        ("dynamic_batching { preserve_ordering: true }", vec!["1:20: dynamic_batching.preserve_ordering"]),
        ("input { name: \"x\" data_type: TYPE_FP32 format: FORMAT_NHWC }", vec!["1:40: input.format"]),
    ] {
        let file = parse(text).unwrap();
        let fields: Vec<_> = file.ignored.iter().map(|ignored| ignored.field.as_str()).collect();
        let expected: Vec<_> = ignored.iter().map(|field| format!("config.pbtxt:{field}")).collect();
        assert_eq!(fields, expected);
        assert!(file.ignored.iter().all(|ignored| !ignored.is_missed && !ignored.reason.is_empty()));
    }
}

#[test]
fn a_repository_that_is_not_strict_ignores_what_answers_do_not_need() {
    let text = "model_metrics { metric_control { } }";
    let said = error(text);
    assert!(said.starts_with("model `m`: config.pbtxt:1:1: model_metrics: is not supported"), "{said}");
    let file = Pbtxt::parse(&ModelName::new("m").unwrap(), text, false).unwrap();
    assert!(file.ignored.iter().all(|ignored| ignored.is_missed));
    assert_eq!(file.ignored.len(), 1);
    let iterative = "sequence_batching { iterative_sequence: true }";
    let iterative = Pbtxt::parse(&ModelName::new("m").unwrap(), iterative, false);
    assert!(iterative.is_err(), "without it answers would be wrong");
}

#[test]
fn all_problems_of_a_file_are_told_at_once() {
    let text = "max_batch_size: -1\ninput [ { name: \"x\" dims: [0] },\n  { data_type: TYPE_FP32 } ]\nensemble_scheduling { }";
    let error = parse(text).unwrap_err();
    let fields: Vec<_> = error.problems.iter().map(|problem| problem.field.as_str()).collect();
    let expected = [
        "config.pbtxt: platform",
        "config.pbtxt: output",
        "config.pbtxt:1:1: max_batch_size",
        "config.pbtxt:2:9: input.data_type",
        "config.pbtxt:2:21: input.dims",
        "config.pbtxt:3:3: input.name",
        "config.pbtxt:4:1: ensemble_scheduling",
    ];
    assert_eq!(fields, expected);
    let unknown = parse("max_batchsize: 1\ninput { nam: \"x\" }").unwrap_err().to_string();
    let expected = "model `m`: 2 problems: config.pbtxt:1:1: max_batchsize: is not a field of Triton's ModelConfig, did you mean \
        `max_batch_size`?; config.pbtxt:2:9: input.nam: is not a field of Triton's ModelConfig, did you mean `name`?";
    assert_eq!(unknown, expected);
}

#[test]
fn a_syntax_error_has_its_place_in_the_file_as_written() {
    for (text, place) in [
        ("input [ { dims: [1 } ]", "1:20"),
        ("input [ { } ]\ninstance_group [ { kind: KIND_TPU } ]", "2:26"),
        ("max_batch_size: ", "1:17"),
    ] {
        let said = error(text);
        assert!(
            said.starts_with(&format!("model `m`: config.pbtxt:{place}: is not a protobuf text")),
            "{said}"
        );
    }
}

#[test]
fn wrong_values_say_what_would_be_right() {
    for (text, part) in [
        ("max_batch_size: -1", "max_batch_size: is -1: expected 0 or more"),
        ("nonsense: 1", "nonsense"),
        ("max_batch_size: ", "is not a protobuf text"),
        ("name: \"other\"", "expected the folder's name"),
        ("platform: \"tensorrt_plan\"", "platform: `tensorrt_plan` is not supported"),
        ("platform: \"tract_onnx\" backend: \"onnxruntime\"", "contradicts"),
        ("input { name: \"x\" }", "input.data_type: is missing"),
        ("input { data_type: TYPE_FP32 }", "input.name: is missing"),
        ("input { name: \"x\" data_type: TYPE_FP32 dims: [0] }", "expected -1 or 1 and more"),
        ("default_model_filename: \"../x.onnx\"", "expected a file name without folders"),
        ("output { name: \"y\" data_type: TYPE_FP32 label_filename: \"/etc/passwd\" }", "without folders"),
        ("version_policy { specific { versions: [0] } }", "expected 1 or more"),
        ("dynamic_batching { preferred_batch_size: [0] }", "expected 1 or more"),
        (
            "dynamic_batching { priority_queue_policy { key: 1 value { } } }",
            "dynamic_batching.priority_queue_policy: has level 1: expected `priority_levels` to be set",
        ),
        (
            "dynamic_batching { priority_levels: 2 priority_queue_policy { key: 3 value { } } }",
            "priority_queue_policy: has level 3: expected 1 to 2",
        ),
        ("dynamic_batching { priority_levels: 1000000 }", "expected at most 64"),
        ("model_warmup { count: 4000000000 }", "expected at most 1000"),
        (
            "metric_tags { key: \"a b\" value: \"c\" }",
            "metric_tags: has `a b`: expected letters, digits and `_`",
        ),
        (
            "response_cache { enable: true } model_transaction_policy { decoupled: true }",
            "response_cache.enable: cannot be combined with `model_transaction_policy.decoupled`",
        ),
    ] {
        let said = error(text);
        assert!(said.contains(part), "{text}: {said}");
    }
}

#[test]
fn each_level_has_the_queue_policy_that_the_file_gives_it() {
    let file = parse(
        r#"dynamic_batching { priority_levels: 3
          default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1000 }
          priority_queue_policy { key: 2 value { max_queue_size: 5 } }
          priority_queue_policy { key: 3 value { default_timeout_microseconds: 9000 allow_timeout_override: true } } }"#,
    )
    .unwrap();
    let ms = Duration::from_millis;
    assert_eq!((file.queue.delays, file.queue.timeout(Some(ms(9)))), (true, Some(ms(1))));
    let [second, third] = [2, 3].map(|level| file.level_queues.get(&level).unwrap().clone());
    assert_eq!((second.max_size.unwrap().get(), second.delays, second.default_timeout), (5, false, None));
    assert_eq!(
        second.timeout(Some(ms(4))),
        Some(ms(4)),
        "without a default, the request's own timeout holds"
    );
    assert_eq!(third.timeout(Some(ms(4))), Some(ms(4)));
    assert_eq!(third.timeout(Some(ms(40))), Some(ms(9)), "a request cannot extend the default");
    assert_eq!(third.timeout(None), Some(ms(9)));
}

#[test]
fn a_rate_limiter_holds_for_all_groups() {
    let group = |count: u32| {
        format!(
            "{{ count: 1 rate_limiter {{ priority: 2 resources [ {{ name: \"R1\" count: {count} }}, \
             {{ name: \"R2\" global: true count: 1 }} ] }} }}"
        )
    };
    let file = parse(&format!("instance_group [ {}, {} ]", group(4), group(4))).unwrap();
    let resources: Vec<_> =
        file.rate_limiter.resources.iter().map(|(name, count)| (name.as_str(), count.get())).collect();
    assert_eq!((resources, file.rate_limiter.priority), (vec![("R1", 4), ("R2", 1)], 2));
    let said = error(&format!("instance_group [ {}, {} ]", group(4), group(3)));
    assert!(said.contains("instance_group.rate_limiter: differs from that of the first group"), "{said}");
}

const SEQUENCES: &str = r#"
    max_batch_size: 4
    output { name: "y" data_type: TYPE_FP32 dims: [1] }
    sequence_batching {
      max_sequence_idle_microseconds: 5000000
      oldest { max_candidate_sequences: 6 preferred_batch_size: [2] max_queue_delay_microseconds: 100 }
      control_input [
        { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } ] },
        { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [0, -1] } ] },
        { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } ] }
      ]
      state [ { input_name: "S" output_name: "S_OUT" data_type: TYPE_FP32 dims: [-1, 2]
                initial_state { data_type: TYPE_FP32 dims: [1, 2] zero_data: true name: "zeros" } } ]
    }"#;

#[test]
fn control_inputs_and_states_of_sequences_are_read() {
    let file = parse(SEQUENCES).unwrap();
    let sequences = file.sequences.unwrap();
    assert_eq!((sequences.idle, sequences.per_lane.unwrap().get()), (Duration::from_secs(5), 6));
    assert_eq!((file.dynamic_batching, file.max_delay), (true, Some(Duration::from_micros(100))));
    let controls: Vec<_> =
        sequences.controls.iter().map(|input| (input.input.as_str(), input.datatype)).collect();
    assert_eq!(controls, [("START", Datatype::Fp32), ("READY", Datatype::Int32), ("ID", Datatype::Bytes)]);
    let Signal::Ready(FalseTrue(off, on)) = &sequences.controls[1].signal else { panic!("{sequences:?}") };
    assert_eq!((off.as_slice(), on.as_slice()), ([0; 4].as_slice(), [255; 4].as_slice()));
    let state = &sequences.states[0];
    assert_eq!((state.input.as_str(), state.output.as_str(), state.is_returned), ("S", "S_OUT", false));
    assert_eq!(state.initial, [1, 2]);
    assert_eq!(parse("sequence_batching { }").unwrap().sequences.unwrap().idle, Duration::from_secs(1));
}

#[test]
fn mistakes_in_sequences_are_named() {
    for (from, to, part) in [
        (
            "fp32_false_true: [0, 1]",
            "fp32_false_true: [0]",
            "control_input.control: expected two values in one of",
        ),
        ("data_type: TYPE_STRING", "data_type: TYPE_FP32", "control.data_type: expected TYPE_UINT64"),
        ("CONTROL_SEQUENCE_READY", "CONTROL_SEQUENCE_START", "has a kind that another input has"),
        ("dims: [1, 2]", "dims: [0, 2]", "state.dims: has 0"),
        ("max_candidate_sequences: 6", "max_candidate_sequences: -6", "is -6: expected 0 or more"),
    ] {
        let said = error(&SEQUENCES.replace(from, to));
        assert!(said.contains(part), "{to}: {said}");
    }
}

#[test]
fn colons_are_added_only_before_lists() {
    assert_eq!(with_colons("input [ { } ]"), ("input :[ { } ]".to_owned(), vec![6]));
    for unchanged in ["dims: [1]", "# input [", "name: \"input [\"", "name: 'a\\' input ['"] {
        assert_eq!(with_colons(unchanged), (unchanged.to_owned(), vec![]));
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "[a-z_:{}\\[\\]\"#,0-9\\-. \\n]{0,200}") {
        let _ = parse(&text);
    }
}
