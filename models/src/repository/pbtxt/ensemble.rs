//! `ensemble_scheduling`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use oip::proto::model_config::SchedulingChoice;
use oip::proto::model_ensembling::Step;
use oip::proto::{self, ModelConfig, ModelEnsembling};

use super::problems::Problems;
use super::{Pbtxt, TensorDeclaration};
use crate::{ConfigError, Ensemble, EnsembleStep, EnsembleTensor, ModelName};

/// The word of `platform`.
const PLATFORM: &str = "ensemble";

/// Reads the steps, and refuses what an ensemble does not have. `None` for other models.
pub(super) fn read(
    problems: &mut Problems<'_>,
    source: &ModelConfig,
    (inputs, outputs, max_batch): (&[TensorDeclaration], &[TensorDeclaration], u32),
) -> Option<Ensemble> {
    let Some(SchedulingChoice::EnsembleScheduling(scheduling)) = &source.scheduling_choice else {
        if source.platform == PLATFORM {
            problems.add("platform", "is `ensemble`: expected `ensemble_scheduling` too".to_owned());
        }
        return None;
    };
    if source.platform != PLATFORM {
        let problem = format!("is `{}`: expected `ensemble`, with `ensemble_scheduling`", source.platform);
        problems.add("platform", problem);
    }
    if !source.backend.is_empty() {
        problems.add("backend", "is set: expected none for an ensemble".to_owned());
    }
    if !source.instance_group.is_empty() {
        problems.add(
            "instance_group",
            "is set: expected none for an ensemble, which has no instances".to_owned(),
        );
    }
    if !source.model_warmup.is_empty() {
        problems.add("model_warmup", "is set: expected none for an ensemble, warm up its models".to_owned());
    }
    for (kind, declared) in [("input", inputs), ("output", outputs)] {
        if declared.is_empty() {
            problems.add(kind, "is missing: expected one at least for an ensemble".to_owned());
        }
        for (number, tensor) in declared.iter().enumerate() {
            if tensor.reshape.is_some() {
                let problem = "is set: expected none for an ensemble, reshape in its models".to_owned();
                problems.add(&format!("{kind}[{number}].reshape"), problem);
            }
        }
    }
    let mut steps = Vec::with_capacity(scheduling.step.len());
    for (number, step) in scheduling.step.iter().enumerate() {
        let version = match step.model_version {
            // Proto3 cannot tell 0 from its absence, and Triton has no version 0.
            -1 | 0 => None,
            version => u64::try_from(version).ok(),
        };
        if step.model_version < -1 {
            let problem = format!("is {}: expected -1, or 1 and more", step.model_version);
            problems.add(&format!("ensemble_scheduling.step[{number}].model_version"), problem);
        }
        steps.push(EnsembleStep {
            name: step.model_name.clone(),
            model: step.model_name.clone(),
            version,
            inputs: step.input_map.clone(),
            outputs: step.output_map.clone(),
            answer_if: None,
            fan_out: 1.0,
        });
    }
    let tensor = |declared: &TensorDeclaration| EnsembleTensor {
        name: declared.name.clone(),
        datatype: declared.datatype,
        dims: declared.dims.clone(),
    };
    let ensemble = Ensemble {
        inputs: inputs.iter().map(tensor).collect(),
        outputs: outputs.iter().map(tensor).collect(),
        sources: BTreeMap::new(),
        max_batch,
        free_rows: false,
        steps,
        vote: Vec::new(),
    };
    match ensemble.ordered(problems.model()) {
        Ok(ensemble) => Some(ensemble),
        Err(error) => {
            problems.add("ensemble_scheduling", error.to_string());
            None
        }
    }
}

impl Pbtxt {
    /// Models that it runs, if it is an ensemble.
    pub fn members(&self) -> BTreeSet<String> {
        let ensemble = self.ensemble.iter();
        ensemble.flat_map(|ensemble| ensemble.models().into_iter().map(str::to_owned)).collect()
    }

    /// The configuration of an ensemble that has no file, as its file would have it.
    ///
    /// # Errors
    /// A name in it is not one of a configuration.
    pub fn of_ensemble(model: &ModelName, ensemble: Ensemble) -> Result<Self, ConfigError> {
        let mut file = Self::parse(model, "max_batch_size: 0", true)?;
        let source = Arc::make_mut(&mut file.source);
        PLATFORM.clone_into(&mut source.platform);
        source.input.extend(ensemble.inputs.iter().map(|tensor| proto::ModelInput {
            name: tensor.name.clone(),
            data_type: proto::DataType::from(tensor.datatype).into(),
            dims: tensor.dims.clone(),
            ..Default::default()
        }));
        source.output.extend(ensemble.outputs.iter().map(|tensor| proto::ModelOutput {
            name: tensor.name.clone(),
            data_type: proto::DataType::from(tensor.datatype).into(),
            dims: tensor.dims.clone(),
            ..Default::default()
        }));
        let step = |step: &EnsembleStep| Step {
            model_name: step.model.clone(),
            model_version: step.version.and_then(|version| i64::try_from(version).ok()).unwrap_or(-1),
            input_map: step.inputs.clone(),
            output_map: step.outputs.clone(),
            ..Default::default()
        };
        let step = ensemble.steps.iter().map(step).collect();
        let scheduling = ModelEnsembling { step, ..Default::default() };
        source.scheduling_choice = Some(SchedulingChoice::EnsembleScheduling(scheduling));
        file.ensemble = Some(ensemble);
        Ok(file)
    }
}
