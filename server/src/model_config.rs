//! Model configuration extension: a model as Triton's `ModelConfig`: what `config.pbtxt` says, and what is inferred where it
//! says nothing, with the defaults that Triton shows.

use models::{Dim, TensorSpec, VersionPolicy};
use node::catalog::ENSEMBLE;
use oip::proto::model_config::SchedulingChoice;
use oip::proto::model_instance_group::Kind;
use oip::proto::model_optimization_policy::PinnedMemoryBuffer;
use oip::proto::model_version_policy::{All, Latest, PolicyChoice, Specific};
use oip::proto::{
    DataType, ModelConfig, ModelDynamicBatching, ModelInput, ModelInstanceGroup, ModelOptimizationPolicy,
    ModelOutput, ModelParameter, ModelVersionPolicy,
};

use crate::service::ModelView;

/// Triton's default for a sequence that sends nothing, in microseconds.
const SEQUENCE_IDLE: u64 = 1_000_000;
/// Words that Triton fills in for a backend: backend, platform, file.
const BACKENDS: [(&str, &str, &str); 3] = [
    ("onnxruntime", "onnxruntime_onnx", "model.onnx"),
    ("tract", "tract_onnx", "model.onnx"),
    ("python", "", "model.py"),
];

/// The configuration of a model. `dims` omit the batch dimension of a batched model, as in `config.pbtxt`. What only Tessera
/// has (engine, objective, policy) is in `parameters`.
pub fn model_config(view: &ModelView) -> ModelConfig {
    let written = view.written.as_deref();
    let mut config = written.cloned().unwrap_or_default();
    config.name.clone_from(&view.name);
    if view.engine != ENSEMBLE {
        fill_engine(&mut config, view);
    }
    config.version_policy = Some(version_policy(&view.version_policy));
    let batch_is_written = config.max_batch_size > 0;
    config.max_batch_size = i32::try_from(view.signature.max_batch).unwrap_or(i32::MAX);
    fill_tensors(&mut config, view);
    if view.decoupled {
        config.model_transaction_policy.get_or_insert_default().decoupled = true;
    }
    fill_scheduling(&mut config, batch_is_written);
    if config.scheduling_choice.as_ref().is_some_and(is_ensemble) {
        config.model_transaction_policy.get_or_insert_default();
    } else {
        let optimization = config.optimization.get_or_insert_with(ModelOptimizationPolicy::default);
        optimization.input_pinned_memory.get_or_insert(PinnedMemoryBuffer { enable: true });
        optimization.output_pinned_memory.get_or_insert(PinnedMemoryBuffer { enable: true });
        fill_instances(&mut config, view);
    }
    add_parameters(&mut config, view);
    config
}

fn is_ensemble(choice: &SchedulingChoice) -> bool {
    matches!(choice, SchedulingChoice::EnsembleScheduling(_))
}

fn fill_engine(config: &mut ModelConfig, view: &ModelView) {
    if config.backend.is_empty() {
        let by_platform = BACKENDS.iter().find(|(_, platform, _)| *platform == config.platform);
        let platform = by_platform.filter(|_| !config.platform.is_empty());
        config.backend = match (platform, view.engine) {
            (Some((backend, ..)), _) => (*backend).to_owned(),
            (None, "ort") => "onnxruntime".to_owned(),
            (None, engine) => engine.to_owned(),
        };
    }
    let Some((_, platform, file)) = BACKENDS.iter().find(|(backend, ..)| *backend == config.backend) else {
        return;
    };
    if config.platform.is_empty() {
        (*platform).clone_into(&mut config.platform);
    }
    if config.default_model_filename.is_empty() {
        (*file).clone_into(&mut config.default_model_filename);
    }
}

fn version_policy(policy: &VersionPolicy) -> ModelVersionPolicy {
    let choice = match policy {
        VersionPolicy::All => PolicyChoice::All(All {}),
        VersionPolicy::Latest(count) => PolicyChoice::Latest(Latest { num_versions: count.get() }),
        VersionPolicy::Listed(versions) => {
            let numbers = versions.iter().filter_map(|version| i64::try_from(version.0).ok());
            PolicyChoice::Specific(Specific { versions: numbers.collect() })
        }
    };
    ModelVersionPolicy { policy_choice: Some(choice) }
}

/// Tensors that the file leaves out come from the graph.
fn fill_tensors(config: &mut ModelConfig, view: &ModelView) {
    let batched = view.signature.max_batch > 0;
    for spec in &view.signature.inputs {
        if !config.input.iter().any(|input| input.name == spec.name) {
            config.input.push(input(spec, batched));
        }
    }
    for spec in &view.signature.outputs {
        if !config.output.iter().any(|output| output.name == spec.name) {
            config.output.push(output(spec, batched));
        }
    }
}

/// As Triton, which gives a model whose batch it inferred the dynamic batcher.
fn fill_scheduling(config: &mut ModelConfig, batch_is_written: bool) {
    let batch = config.max_batch_size;
    if config.scheduling_choice.is_none() && batch > 1 && !batch_is_written {
        config.scheduling_choice = Some(SchedulingChoice::DynamicBatching(ModelDynamicBatching::default()));
    }
    match &mut config.scheduling_choice {
        Some(SchedulingChoice::DynamicBatching(batching)) if batching.preferred_batch_size.is_empty() => {
            batching.preferred_batch_size.push(batch);
        }
        Some(SchedulingChoice::SequenceBatching(sequences))
            if sequences.max_sequence_idle_microseconds == 0 =>
        {
            sequences.max_sequence_idle_microseconds = SEQUENCE_IDLE;
        }
        _ => {}
    }
}

fn fill_instances(config: &mut ModelConfig, view: &ModelView) {
    let lanes = i32::try_from(view.lanes.max(1)).unwrap_or(i32::MAX);
    if config.instance_group.is_empty() {
        config.instance_group.push(ModelInstanceGroup { name: view.name.clone(), ..Default::default() });
    }
    for (index, group) in config.instance_group.iter_mut().enumerate() {
        if group.name.is_empty() {
            group.name = format!("{}_{index}", view.name);
        }
        if group.kind == i32::from(Kind::Auto) {
            group.kind = if view.on_gpus { Kind::Gpu } else { Kind::Cpu }.into();
        }
        if group.count == 0 {
            group.count = lanes;
        }
    }
}

fn add_parameters(config: &mut ModelConfig, view: &ModelView) {
    let mut insert = |name: &str, value: String| {
        config.parameters.insert(name.to_owned(), ModelParameter { string_value: value });
    };
    insert("tessera.engine", view.engine.to_owned());
    insert("tessera.policy", view.policy.clone());
    if let Some(slo) = view.slo {
        insert("tessera.slo_us", slo.as_micros().to_string());
    }
}

fn input(spec: &TensorSpec, batched: bool) -> ModelInput {
    ModelInput {
        name: spec.name.clone(),
        data_type: DataType::from(spec.datatype).into(),
        dims: dims(spec, batched),
        optional: spec.optional,
        ..ModelInput::default()
    }
}

fn output(spec: &TensorSpec, batched: bool) -> ModelOutput {
    ModelOutput {
        name: spec.name.clone(),
        data_type: DataType::from(spec.datatype).into(),
        dims: dims(spec, batched),
        ..ModelOutput::default()
    }
}

fn dims(spec: &TensorSpec, batched: bool) -> Vec<i64> {
    spec.dims.iter().skip(usize::from(batched)).map(|dim: &Dim| dim.to_wire()).collect()
}
