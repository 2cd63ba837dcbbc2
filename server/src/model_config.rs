//! Model configuration extension: a model as Triton's `ModelConfig`, which `perf_analyzer` needs.

use std::collections::BTreeMap;

use models::{Dim, TensorSpec};
use oip::Datatype;
use oip::proto::model_config::SchedulingChoice;
use oip::proto::model_version_policy::{Latest, PolicyChoice};
use oip::proto::{
    DataType, ModelConfig, ModelDynamicBatching, ModelInput, ModelOptimizationPolicy, ModelOutput,
    ModelParameter, ModelVersionPolicy,
};

use crate::service::ModelView;

/// The effective configuration of a model. `dims` omit the batch dimension of a batched model, as in `config.pbtxt`. Options
/// that only Tessera has (objective, policy) are in `parameters`.
pub fn model_config(view: &ModelView) -> ModelConfig {
    let batched = view.signature.max_batch > 0;
    let scheduling_choice =
        batched.then(|| SchedulingChoice::DynamicBatching(ModelDynamicBatching::default()));
    let version_policy = ModelVersionPolicy {
        policy_choice: Some(PolicyChoice::Latest(Latest {
            num_versions: u32::try_from(view.versions.len().max(1)).unwrap_or(u32::MAX),
        })),
    };
    ModelConfig {
        name: view.name.clone(),
        platform: view.platform.to_owned(),
        backend: view.engine.to_owned(),
        version_policy: Some(version_policy),
        max_batch_size: i32::try_from(view.signature.max_batch).unwrap_or(i32::MAX),
        input: view.signature.inputs.iter().map(|spec| input(spec, batched)).collect(),
        output: view.signature.outputs.iter().map(|spec| output(spec, batched, view)).collect(),
        optimization: Some(ModelOptimizationPolicy::default()),
        parameters: parameters(view),
        scheduling_choice,
        ..ModelConfig::default()
    }
}

fn parameters(view: &ModelView) -> BTreeMap<String, ModelParameter> {
    let mut parameters = BTreeMap::new();
    let mut insert = |name: &str, value: String| {
        parameters.insert(name.to_owned(), ModelParameter { string_value: value });
    };
    insert("tessera.policy", view.policy.clone());
    if let Some(slo) = view.slo {
        insert("tessera.slo_us", slo.as_micros().to_string());
    }
    parameters
}

fn input(spec: &TensorSpec, batched: bool) -> ModelInput {
    ModelInput {
        name: spec.name.clone(),
        data_type: data_type(spec.datatype).into(),
        dims: dims(spec, batched),
        optional: spec.optional,
        ..ModelInput::default()
    }
}

fn output(spec: &TensorSpec, batched: bool, view: &ModelView) -> ModelOutput {
    let label_filename = if view.labels.contains_key(&spec.name) { "labels.txt" } else { "" };
    ModelOutput {
        name: spec.name.clone(),
        data_type: data_type(spec.datatype).into(),
        dims: dims(spec, batched),
        label_filename: label_filename.to_owned(),
        ..ModelOutput::default()
    }
}

fn dims(spec: &TensorSpec, batched: bool) -> Vec<i64> {
    spec.dims.iter().skip(usize::from(batched)).map(|dim: &Dim| dim.to_wire()).collect()
}

/// Protobuf calls datatypes `TYPE_FP32` and the like, and `BYTES` a string.
fn data_type(datatype: Datatype) -> DataType {
    let name = if datatype == Datatype::Bytes { "STRING" } else { datatype.as_str() };
    DataType::from_str_name(&format!("TYPE_{name}")).unwrap_or_default()
}
