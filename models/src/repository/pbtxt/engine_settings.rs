//! `optimization` and `parameters` that Triton's onnxruntime backend knows.

use std::num::NonZeroUsize;

use oip::proto::ModelConfig;
use oip::proto::model_optimization_policy::execution_accelerators::Accelerator as Source;

use super::IgnoredField;
use super::problems::Problems;
use crate::engine::ort::{Accelerator, GraphLevel, OrtSettings, Provider};

/// Bound on a number of threads: more than any machine has cores.
const THREADS_MAX: usize = 4096;

/// Parameters that Triton's backend knows and that change nothing here, with the reason.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    (
        "share_session_between_instances",
        "each lane has a session of its own, so that lanes do not wait for each other",
    ),
    (
        "cudnn_conv_algo_search",
        "the heuristic search is used: an exhaustive one would slow co-located gpulets down",
    ),
    ("gpu_mem_limit", "the plan sets the memory limit of a gpulet"),
    ("arena_extend_strategy", "arenas grow by what is needed, so that a plan can count their memory"),
    ("do_copy_in_default_stream", "copies run on the stream of the gpulet"),
];

const UNKNOWN: &str =
    "Triton's onnxruntime backend has no such parameter; it is kept for `GET /v2/models/NAME/config`";

/// Options of the CUDA provider that the plan sets.
const SET_BY_PLAN: &[&str] = &[
    "device_id",
    "user_compute_stream",
    "has_user_compute_stream",
    "gpu_mem_limit",
    "arena_extend_strategy",
];

/// Settings of ONNX Runtime, and parameters that have no effect. Problems are added to `problems`.
pub(super) fn engine_settings(
    source: &ModelConfig,
    strict: bool,
    problems: &mut Problems<'_>,
) -> (OrtSettings, Vec<IgnoredField>) {
    let mut settings = OrtSettings { accelerators_required: strict, ..OrtSettings::default() };
    if let Some(optimization) = &source.optimization {
        let level = optimization.graph.as_ref().map_or(0, |graph| graph.level);
        match GraphLevel::from_number(level) {
            Some(level) => settings.graph_level = level,
            None => problems.add(
                "optimization.graph.level",
                format!("is {level}: expected -1 (basic), 0 (all), 1 (extended) or 2 (none)"),
            ),
        }
    }
    let mut ignored = Vec::new();
    accelerators(source, &mut settings, &mut ignored, problems);
    let mut parameters: Vec<_> = source.parameters.iter().collect();
    parameters.sort_unstable_by_key(|(key, _)| key.as_str());
    for (key, value) in parameters {
        match parameter(&mut settings, key, value.string_value.trim()) {
            Ok(None) => {}
            Ok(Some(reason)) => {
                let field = problems.name_of_key("parameters", key);
                ignored.push(IgnoredField { field, reason, is_missed: false });
            }
            Err(reason) => problems.add_key("parameters", key, reason),
        }
    }
    if settings.shrink_arena && settings.arena == Some(false) {
        let reason =
            "asks to shrink the arena that `enable_mem_arena` switches off: expected one or the other";
        problems.add_key("parameters", ARENA_SHRINKAGE, reason.to_owned());
    }
    (settings, ignored)
}

/// Settings of ONNX Runtime in the file of a model that another backend runs.
pub(super) fn of_other_backends(source: &ModelConfig, problems: &Problems<'_>) -> Vec<IgnoredField> {
    let Some(optimization) = &source.optimization else { return Vec::new() };
    let graph = optimization.graph.iter().filter(|graph| graph.level != 0);
    let mut fields: Vec<_> = graph.map(|_| problems.name("optimization.graph.level")).collect();
    let accelerators = optimization.execution_accelerators.as_ref();
    let lists = accelerators.into_iter().flat_map(|lists| {
        [
            ("cpu_execution_accelerator", &lists.cpu_execution_accelerator),
            ("gpu_execution_accelerator", &lists.gpu_execution_accelerator),
        ]
    });
    for (list, accelerators) in lists {
        for (index, accelerator) in accelerators.iter().enumerate() {
            let path = format!("optimization.execution_accelerators.{list}[{index}].name");
            fields.push(format!("{}: `{}`", problems.name(&path), accelerator.name));
        }
    }
    let reason = "only ONNX Runtime uses it; a Python model finds it in its configuration";
    fields.into_iter().map(|field| IgnoredField { field, reason, is_missed: false }).collect()
}

const ARENA_SHRINKAGE: &str = "memory.enable_memory_arena_shrinkage";

/// Reads one parameter. Gives why it has no effect, if it has none.
fn parameter(settings: &mut OrtSettings, key: &str, value: &str) -> Result<Option<&'static str>, String> {
    match key {
        "intra_op_thread_count" => settings.intra_threads = threads(value)?,
        "inter_op_thread_count" => settings.inter_threads = threads(value)?,
        "execution_mode" => {
            settings.parallel = match value {
                "0" => false,
                "1" => true,
                _ => return Err(format!("is `{value}`: expected 0 (sequential) or 1 (parallel)")),
            }
        }
        "enable_mem_arena" => settings.arena = Some(switch(value)?),
        "enable_mem_pattern" => settings.memory_pattern = Some(switch(value)?),
        "session.use_device_allocator_for_initializers" => {
            settings.initializers_outside_arena = switch(value)?
        }
        ARENA_SHRINKAGE => {
            let devices: Vec<&str> =
                value.split(';').map(str::trim).filter(|device| !device.is_empty()).collect();
            let is_device = |device: &&str| {
                let number = device.strip_prefix("cpu:").or_else(|| device.strip_prefix("gpu:"));
                number.is_some_and(|number| number.parse::<u16>().is_ok())
            };
            if devices.is_empty() || !devices.iter().all(is_device) {
                return Err(format!("is `{value}`: expected devices such as `cpu:0` or `cpu:0;gpu:0`"));
            }
            settings.shrink_arena = devices.contains(&"cpu:0");
            if !settings.shrink_arena {
                return Ok(Some("only the CPU arena, `cpu:0`, can be shrunk after each run"));
            }
        }
        key => {
            let known = WITHOUT_EFFECT.iter().find(|(known, _)| *known == key);
            return Ok(Some(known.map_or(UNKNOWN, |(_, reason)| reason)));
        }
    }
    Ok(None)
}

/// 0 is the default, as in Triton.
fn threads(value: &str) -> Result<Option<NonZeroUsize>, String> {
    match value.parse::<usize>() {
        Ok(count) if count <= THREADS_MAX => Ok(NonZeroUsize::new(count)),
        _ => Err(format!(
            "is `{value}`: expected a number of threads, 0 (one for each core of the lane) to {THREADS_MAX}"
        )),
    }
}

fn switch(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "on" => Ok(true),
        "0" | "false" | "off" => Ok(false),
        _ => Err(format!("is `{value}`: expected 0 or 1")),
    }
}

fn accelerators(
    source: &ModelConfig,
    settings: &mut OrtSettings,
    ignored: &mut Vec<IgnoredField>,
    problems: &mut Problems<'_>,
) {
    let accelerators = source.optimization.as_ref().and_then(|it| it.execution_accelerators.as_ref());
    let Some(accelerators) = accelerators else { return };
    let lists: [(&str, &[Source], Provider); 2] = [
        ("cpu_execution_accelerator", &accelerators.cpu_execution_accelerator, Provider::OpenVino),
        ("gpu_execution_accelerator", &accelerators.gpu_execution_accelerator, Provider::Cuda),
    ];
    for (list, sources, provider) in lists {
        for (index, source) in sources.iter().enumerate() {
            let path = format!("optimization.execution_accelerators.{list}[{index}]");
            match accelerator(source, provider) {
                Ok(accelerator) => settings.accelerators.push(accelerator),
                Err((field, reason)) if settings.accelerators_required => {
                    problems.add(&format!("{path}.{field}"), reason);
                }
                Err((field, reason)) => {
                    let field = format!("{}: {reason}", problems.name(&format!("{path}.{field}")));
                    ignored.push(IgnoredField {
                        field,
                        reason: "the model runs without it",
                        is_missed: true,
                    });
                }
            }
        }
    }
}

/// The accelerator of a list that takes one provider; else the field that is wrong, and why.
fn accelerator(source: &Source, provider: Provider) -> Result<Accelerator, (&'static str, String)> {
    let name = source.name.as_str();
    if name == "tensorrt" {
        let reason = "is `tensorrt`, which is not supported: gpulets run batches with `cuda`, on a stream of their own";
        return Err(("name", reason.to_owned()));
    }
    if name != provider.as_str() {
        return Err(("name", format!("is `{name}`: expected `{}`", provider.as_str())));
    }
    if let Some(key) = source.parameters.keys().find(|key| SET_BY_PLAN.contains(&key.as_str())) {
        return Err(("parameters", format!("`{key}`: is set by the plan: remove it")));
    }
    let options = source.parameters.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    Ok(Accelerator { provider, options })
}

#[cfg(test)]
mod tests {
    use super::super::Pbtxt;
    use super::*;
    use crate::ModelName;

    fn parse(text: &str, strict: bool) -> Result<Pbtxt, String> {
        Pbtxt::parse(&ModelName::new("m").unwrap(), text, strict).map_err(|error| error.to_string())
    }

    fn parameters(pairs: &[(&str, &str)]) -> String {
        let one = |(key, value): &(&str, &str)| {
            format!("parameters {{ key: \"{key}\" value: {{ string_value: \"{value}\" }} }}\n")
        };
        pairs.iter().map(one).collect()
    }

    #[test]
    fn every_documented_parameter_is_read() {
        let text = parameters(&[
            ("intra_op_thread_count", "2"),
            ("inter_op_thread_count", "3"),
            ("execution_mode", "1"),
            ("enable_mem_arena", "1"),
            ("enable_mem_pattern", "False"),
            ("memory.enable_memory_arena_shrinkage", "cpu:0;gpu:0"),
            ("session.use_device_allocator_for_initializers", "1"),
        ]);
        let file = parse(&format!("{text} optimization {{ graph: {{ level: 1 }} }}"), true).unwrap();
        let expected = OrtSettings {
            graph_level: GraphLevel::Extended,
            intra_threads: NonZeroUsize::new(2),
            inter_threads: NonZeroUsize::new(3),
            parallel: true,
            spinning: false,
            arena: Some(true),
            memory_pattern: Some(false),
            shrink_arena: true,
            initializers_outside_arena: true,
            accelerators: Vec::new(),
            accelerators_required: true,
        };
        assert_eq!((file.ort, file.ignored), (expected, Vec::new()));
        let zero = parse(&parameters(&[("intra_op_thread_count", "0")]), true).unwrap();
        assert_eq!(zero.ort.intra_threads, None, "0 is the default");
    }

    #[test]
    fn settings_of_onnx_runtime_are_named_in_files_of_other_backends() {
        let text = "backend: \"python\" max_batch_size: 1\noptimization { graph { level: 1 } execution_accelerators {\n\
                    gpu_execution_accelerator { name: \"tensorrt\" } } }";
        let ignored = parse(text, true).unwrap().ignored;
        let fields: Vec<&str> = ignored.iter().map(|field| field.field.as_str()).collect();
        assert_eq!(fields.len(), 2, "{fields:?}");
        assert!(fields[0].ends_with("optimization.graph.level"), "{fields:?}");
        assert!(
            fields[1].contains("gpu_execution_accelerator") && fields[1].ends_with("`tensorrt`"),
            "{fields:?}"
        );
    }

    #[test]
    fn parameters_without_effect_are_named_with_their_line_and_the_reason() {
        let text = parameters(&[("gpu_mem_limit", "1"), ("tokenizer", "bert"), ("execution_mode", "0")]);
        let file = parse(&text, true).unwrap();
        let said: Vec<_> = file.ignored.iter().map(|one| (one.field.as_str(), one.reason)).collect();
        assert_eq!(said[0].0, "config.pbtxt:1:19: parameters: `gpu_mem_limit`");
        assert!(said[0].1.contains("plan"), "{said:?}");
        assert_eq!(said[1], ("config.pbtxt:2:19: parameters: `tokenizer`", UNKNOWN));
        assert_eq!(file.source.parameters["tokenizer"].string_value, "bert");
    }

    #[test]
    fn mistakes_name_the_parameter_and_what_would_be_right() {
        for (text, said) in [
            (
                parameters(&[("x", "1"), ("execution_mode", "2")]),
                "config.pbtxt:2:19: parameters: `execution_mode`: is `2`: expected 0",
            ),
            (
                parameters(&[("intra_op_thread_count", "many")]),
                "`intra_op_thread_count`: is `many`: expected a number",
            ),
            (
                parameters(&[("inter_op_thread_count", "-1")]),
                "`inter_op_thread_count`: is `-1`: expected a number",
            ),
            (parameters(&[("enable_mem_arena", "yes")]), "`enable_mem_arena`: is `yes`: expected 0 or 1"),
            (parameters(&[(ARENA_SHRINKAGE, "all")]), "is `all`: expected devices such as `cpu:0`"),
            (
                parameters(&[(ARENA_SHRINKAGE, "cpu:0"), ("enable_mem_arena", "0")]),
                "asks to shrink the arena that `enable_mem_arena` switches off",
            ),
            (
                "optimization { graph { level: 3 } }".to_owned(),
                "1:24: optimization.graph.level: is 3: expected -1 (basic)",
            ),
        ] {
            let error = parse(&text, true).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    fn accelerated(list: &str, rest: &str) -> String {
        format!(
            "optimization {{ execution_accelerators {{ {list}_execution_accelerator : [ {{ {rest} }} ] }} }}"
        )
    }

    #[test]
    fn accelerators_are_read_or_refused_by_name() {
        let text = accelerated("cpu", "name: \"openvino\" parameters { key: \"precision\" value: \"FP32\" }");
        let openvino = parse(&text, true).unwrap().ort.accelerators;
        let options = [("precision".to_owned(), "FP32".to_owned())].into();
        assert_eq!(openvino, [Accelerator { provider: Provider::OpenVino, options }]);
        for (text, said) in [
            (
                accelerated("gpu", "name: \"tensorrt\""),
                "gpu_execution_accelerator.name: is `tensorrt`, which is not supported",
            ),
            (
                accelerated("cpu", "name: \"dnnl\""),
                "cpu_execution_accelerator.name: is `dnnl`: expected `openvino`",
            ),
            (
                accelerated("gpu", "name: \"cuda\" parameters { key: \"gpu_mem_limit\" value: \"1\" }"),
                "`gpu_mem_limit`: is set by the plan",
            ),
        ] {
            let error = parse(&text, true).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
            let lenient = parse(&text, false).unwrap();
            assert!(
                lenient.ignored[0].is_missed && lenient.ignored[0].field.contains(said),
                "{:?}",
                lenient.ignored
            );
            assert_eq!(lenient.ort.accelerators, []);
        }
    }
}
