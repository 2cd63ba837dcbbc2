//! `config.pbtxt` of stages, and of the ensemble that chains them.

use model_split::STAGES_MAX;
use oip::proto::model_config::SchedulingChoice;
use oip::proto::model_ensembling::Step;
use oip::proto::{DataType, ModelConfig, ModelEnsembling, ModelInput, ModelOutput, ModelTensorReshape};

use super::SplitModelError;
use crate::repository::config_text;
use crate::{EngineChoice, ModelName, Signature, TensorSpec, engine};

/// What the configurations of a split model are made from.
#[derive(Clone, Copy, Debug)]
pub struct PipelineConfig<'a> {
    /// Name of the model, which the ensemble gets.
    pub name: &'a ModelName,
    /// The model's `config.pbtxt`, if it has one.
    pub source: Option<&'a ModelConfig>,
    /// The engine that the model's settings name.
    pub engine: EngineChoice,
    /// Inputs and outputs of the whole, as its graph has them.
    pub whole: &'a Signature,
    /// Inputs and outputs of each stage by its name.
    pub stages: &'a [(ModelName, Signature)],
}

impl PipelineConfig<'_> {
    /// Finds a setting that stages cannot keep.
    ///
    /// # Errors
    /// The field, and why.
    pub fn check(&self) -> Result<(), SplitModelError> {
        let Some(source) = self.source else { return Ok(()) };
        let ragged = source.input.iter().find(|input| input.allow_ragged_batch);
        let decoupled = source.model_transaction_policy.as_ref().is_some_and(|policy| policy.decoupled);
        let scheduling = source.scheduling_choice.as_ref();
        let refusal = match scheduling {
            Some(SchedulingChoice::SequenceBatching(_)) => {
                Some(("sequence_batching", "state between requests cannot be split over stages"))
            }
            Some(SchedulingChoice::EnsembleScheduling(_)) => Some((
                "ensemble_scheduling",
                "an ensemble is a pipeline already: expected a model with a graph",
            )),
            _ if decoupled => Some(("model_transaction_policy", "a decoupled model cannot be a stage")),
            _ if !source.batch_input.is_empty() || !source.batch_output.is_empty() => {
                Some(("batch_input", "inputs that the batcher makes cannot be split over stages"))
            }
            _ => ragged.map(|_| ("allow_ragged_batch", "ragged batches cannot be split over stages")),
        };
        refusal.map_or(Ok(()), |(field, reason)| Err(self.refuse(format!("{field}: {reason}"))))
    }

    /// Settings that neither the stages nor the ensemble have, each with the reason.
    pub fn left_out(&self) -> Vec<String> {
        let Some(source) = self.source else { return Vec::new() };
        let note = |is_set: bool, text: &str| is_set.then(|| format!("config.pbtxt: {text}"));
        let notes = [
            note(
                !source.model_warmup.is_empty(),
                "`model_warmup` is left out: its inputs are those of the whole",
            ),
            note(
                source.response_cache.is_some(),
                "`response_cache` is left out: stages give parts of responses",
            ),
            note(
                source.version_policy.is_some(),
                "`version_policy` is left out: each stage has version 1 only",
            ),
        ];
        notes.into_iter().flatten().collect()
    }

    /// The text of a stage's `config.pbtxt`: the model's, with the stage's inputs and outputs.
    ///
    /// # Errors
    /// A stage that does not exist.
    pub fn stage_text(&self, index: usize) -> Result<String, SplitModelError> {
        let stage = self.stages.get(index);
        let (name, signature) = stage.ok_or_else(|| {
            self.refuse(format!(
                "stage {index}: expected one of {} (at most {STAGES_MAX})",
                self.stages.len()
            ))
        })?;
        let is_batched = signature.max_batch > 0;
        let source = self.source.cloned().unwrap_or_default();
        let backend = match (self.engine, source.backend.is_empty() && source.platform.is_empty()) {
            (EngineChoice::Named(engine::ort::NAME), true) => "onnxruntime".to_owned(),
            (EngineChoice::Named(engine), true) => engine.to_owned(),
            _ => source.backend.clone(),
        };
        let input = signature.inputs.iter().map(|spec| self.declared_input(spec, is_batched));
        let output = signature.outputs.iter().map(|spec| {
            let declared = self.declared_output(spec, is_batched);
            ModelOutput { label_filename: String::new(), ..declared }
        });
        let config = ModelConfig {
            name: name.to_string(),
            backend,
            max_batch_size: batch(signature),
            input: input.collect(),
            output: output.collect(),
            version_policy: None,
            default_model_filename: String::new(),
            model_warmup: Vec::new(),
            response_cache: None,
            ..source
        };
        self.text(&config)
    }

    /// The text of the ensemble's `config.pbtxt`. Tensors have the same names in the ensemble and in its stages.
    ///
    /// # Errors
    /// The program lacks the schema of the file.
    pub fn ensemble_text(&self) -> Result<String, SplitModelError> {
        let is_batched = self.whole.max_batch > 0;
        let input = self.whole.inputs.iter();
        let input = input.map(|spec| ModelInput { reshape: None, ..self.declared_input(spec, is_batched) });
        let output = self.whole.outputs.iter();
        let output =
            output.map(|spec| ModelOutput { reshape: None, ..self.declared_output(spec, is_batched) });
        let same =
            |specs: &[TensorSpec]| specs.iter().map(|spec| (spec.name.clone(), spec.name.clone())).collect();
        let step = self.stages.iter().map(|(name, signature)| Step {
            model_name: name.to_string(),
            model_version: -1,
            input_map: same(&signature.inputs),
            output_map: same(&signature.outputs),
            ..Step::default()
        });
        let ensemble = ModelEnsembling { step: step.collect(), ..ModelEnsembling::default() };
        let config = ModelConfig {
            name: self.name.to_string(),
            platform: "ensemble".to_owned(),
            max_batch_size: batch(self.whole),
            input: input.collect(),
            output: output.collect(),
            scheduling_choice: Some(SchedulingChoice::EnsembleScheduling(ensemble)),
            ..ModelConfig::default()
        };
        self.text(&config)
    }

    /// An input as the source declares it, or as the graph has it.
    fn declared_input(&self, spec: &TensorSpec, is_batched: bool) -> ModelInput {
        let declared =
            self.source.and_then(|source| source.input.iter().find(|input| input.name == spec.name));
        declared.cloned().unwrap_or_else(|| {
            let (dims, reshape) = dims(spec, is_batched);
            let data_type = DataType::from(spec.datatype).into();
            ModelInput { name: spec.name.clone(), data_type, dims, reshape, ..ModelInput::default() }
        })
    }

    /// An output as the source declares it, or as the graph has it.
    fn declared_output(&self, spec: &TensorSpec, is_batched: bool) -> ModelOutput {
        let declared =
            self.source.and_then(|source| source.output.iter().find(|output| output.name == spec.name));
        declared.cloned().unwrap_or_else(|| {
            let (dims, reshape) = dims(spec, is_batched);
            let data_type = DataType::from(spec.datatype).into();
            ModelOutput { name: spec.name.clone(), data_type, dims, reshape, ..ModelOutput::default() }
        })
    }

    fn text(&self, config: &ModelConfig) -> Result<String, SplitModelError> {
        config_text(config).map_err(|reason| self.refuse(reason))
    }

    fn refuse(&self, reason: String) -> SplitModelError {
        SplitModelError::Config { model: self.name.to_string(), reason }
    }
}

fn batch(signature: &Signature) -> i32 {
    i32::try_from(signature.max_batch).unwrap_or(i32::MAX)
}

/// Dimensions without the batch. A configuration cannot have an empty list, but it can remove one dimension of 1.
fn dims(spec: &TensorSpec, is_batched: bool) -> (Vec<i64>, Option<ModelTensorReshape>) {
    let dims: Vec<i64> = spec.dims.iter().skip(usize::from(is_batched)).map(|dim| dim.to_wire()).collect();
    match dims.is_empty() {
        true => (vec![1], Some(ModelTensorReshape { shape: Vec::new() })),
        false => (dims, None),
    }
}
