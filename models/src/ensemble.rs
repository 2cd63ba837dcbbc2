//! Ensembles: models that run other models, one step after the other. Triton's `ensemble_scheduling` and `[pipelines.NAME]` both
//! become one.

use std::collections::{BTreeMap, BTreeSet};

use oip::Datatype;
use serde::{Deserialize, Serialize};

use crate::{Dim, LoadError, ModelFiles, Signature, TensorSpec};

/// Most steps of an ensemble.
pub const STEPS_MAX: usize = 64;

/// Tensor that a vote writes: the class of each row.
pub const VOTE_CLASS: &str = "vote.class";
/// Tensor that a vote writes: for each row, the share of the weight that voted for its class.
pub const VOTE_SHARE: &str = "vote.share";

/// A tensor that clients send or get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnsembleTensor {
    /// Name, for clients and in the steps.
    pub name: String,
    /// Element type.
    pub datatype: Datatype,
    /// Dimensions without the batch; -1 is free.
    pub dims: Vec<i64>,
}

/// A model that an ensemble runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnsembleStep {
    /// Name of the step.
    pub name: String,
    /// Name of the model.
    pub model: String,
    /// Version of the model; `None`: the one that requests without a version get.
    pub version: Option<u64>,
    /// Tensors of the ensemble by input of the model.
    pub inputs: BTreeMap<String, String>,
    /// Tensors of the ensemble by output of the model.
    pub outputs: BTreeMap<String, String>,
    /// A `BOOL` output of the model. If all its values are true, the request is answered with the tensors that there are.
    pub answer_if: Option<String>,
    /// Rows that come of each row, in the mean. Only estimates depend on it.
    pub fan_out: f64,
}

/// The steps of an ensemble, each after those whose tensors it takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ensemble {
    /// What clients send.
    pub inputs: Vec<EnsembleTensor>,
    /// What clients get.
    pub outputs: Vec<EnsembleTensor>,
    /// Tensors of the steps that each output is taken from: the first that there is. Without an entry, the tensor of its name.
    pub sources: BTreeMap<String, Vec<String>>,
    /// Largest batch in rows; 0: requests have no batch dimension.
    pub max_batch: u32,
    /// Whether a step may have another number of rows than the request, as in pipelines. Requests are then divided for models with
    /// smaller batches.
    pub free_rows: bool,
    /// The steps.
    pub steps: Vec<EnsembleStep>,
    /// Outputs of steps that vote on the class of each row. If empty, the ensemble has no vote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vote: Vec<String>,
}

/// Why steps form no ensemble.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnsembleError {
    /// Too few or too many steps.
    #[error("expected 1 to {STEPS_MAX} steps, got {0}")]
    Steps(usize),
    /// A step takes a tensor that nothing produces.
    #[error(
        "step {step} (model `{model}`): takes `{tensor}`, which is neither an input nor an output of another step"
    )]
    Unknown {
        /// Number of the step.
        step: usize,
        /// Its model.
        model: String,
        /// The tensor.
        tensor: String,
    },
    /// Two steps produce one tensor, or a step produces an input.
    #[error(
        "step {step} (model `{model}`): writes `{tensor}`, which an input or another output has as its name"
    )]
    Twice {
        /// Number of the step.
        step: usize,
        /// Its model.
        model: String,
        /// The tensor.
        tensor: String,
    },
    /// Steps wait for each other.
    #[error("steps wait for each other: {0}")]
    Cycle(String),
    /// A step has no model, no inputs or no outputs.
    #[error("step {step}: {field} is missing")]
    Missing {
        /// Number of the step.
        step: usize,
        /// Field of the step.
        field: &'static str,
    },
    /// No step takes an input.
    #[error("input `{0}` is not used: expected a step that takes it")]
    UnusedInput(String),
    /// No step produces an output.
    #[error("output `{0}` is not written: expected a step that writes it")]
    UnwrittenOutput(String),
    /// An ensemble runs itself.
    #[error("step {0} runs the model itself")]
    Itself(usize),
}

impl Ensemble {
    /// Checks the steps of the ensemble `name`, and puts each after those that it follows.
    ///
    /// # Errors
    /// The first step or tensor that is wrong.
    pub fn ordered(mut self, name: &str) -> Result<Self, EnsembleError> {
        if !(1..=STEPS_MAX).contains(&self.steps.len()) {
            return Err(EnsembleError::Steps(self.steps.len()));
        }
        let mut written: BTreeSet<&str> = self.inputs.iter().map(|input| input.name.as_str()).collect();
        let inputs = written.clone();
        for (step, one) in self.steps.iter().enumerate() {
            let missing = |field| EnsembleError::Missing { step, field };
            if one.model.is_empty() {
                return Err(missing("model_name"));
            }
            if one.model == name {
                return Err(EnsembleError::Itself(step));
            }
            for (map, field) in [(&one.inputs, "input_map"), (&one.outputs, "output_map")] {
                if map.is_empty() || map.iter().any(|(own, tensor)| own.is_empty() || tensor.is_empty()) {
                    return Err(missing(field));
                }
            }
            for tensor in one.outputs.values() {
                if !written.insert(tensor) {
                    let (model, tensor) = (one.model.clone(), tensor.clone());
                    return Err(EnsembleError::Twice { step, model, tensor });
                }
            }
        }
        for (step, one) in self.steps.iter().enumerate() {
            if let Some(tensor) = one.inputs.values().find(|tensor| !written.contains(tensor.as_str())) {
                let (model, tensor) = (one.model.clone(), tensor.clone());
                return Err(EnsembleError::Unknown { step, model, tensor });
            }
        }
        let takes =
            |tensor: &str| self.steps.iter().any(|step| step.inputs.values().any(|own| own == tensor));
        if let Some(unused) = self.inputs.iter().find(|input| !takes(&input.name)) {
            return Err(EnsembleError::UnusedInput(unused.name.clone()));
        }
        if !self.vote.is_empty() {
            written.extend([VOTE_CLASS, VOTE_SHARE]);
        }
        let is_written =
            |tensor: &String| written.contains(tensor.as_str()) && !inputs.contains(tensor.as_str());
        for output in &self.outputs {
            let own = [output.name.clone()];
            let sources = self.sources.get(&output.name).map_or(&own[..], Vec::as_slice);
            if sources.is_empty() || !sources.iter().all(is_written) {
                return Err(EnsembleError::UnwrittenOutput(output.name.clone()));
            }
        }
        let mut known: BTreeSet<String> = self.inputs.iter().map(|input| input.name.clone()).collect();
        let mut left = std::mem::take(&mut self.steps);
        while !left.is_empty() {
            let ready =
                left.iter().position(|step| step.inputs.values().all(|tensor| known.contains(tensor)));
            let Some(ready) = ready else {
                let names: Vec<String> = left.iter().map(|step| format!("`{}`", step.model)).collect();
                return Err(EnsembleError::Cycle(names.join(", ")));
            };
            let step = left.remove(ready);
            known.extend(step.outputs.values().cloned());
            self.steps.push(step);
        }
        Ok(self)
    }

    /// For each step, the steps that it starts after: those whose tensors it takes, and earlier ones that may answer the request.
    pub fn after(&self) -> Vec<Vec<u32>> {
        let writer = |tensor: &String| {
            let step = self.steps.iter().position(|step| step.outputs.values().any(|own| own == tensor));
            step.and_then(|step| u32::try_from(step).ok())
        };
        let of = |(number, step): (usize, &EnsembleStep)| {
            let earlier = (0_u32..).zip(self.steps.iter().take(number));
            let may_answer = earlier.filter(|(_, step)| step.answer_if.is_some()).map(|(number, _)| number);
            let before: BTreeSet<u32> = step.inputs.values().filter_map(writer).chain(may_answer).collect();
            before.into_iter().collect()
        };
        self.steps.iter().enumerate().map(of).collect()
    }

    /// What clients send and get.
    pub fn signature(&self) -> Signature {
        let batch = usize::from(self.max_batch > 0);
        let spec = |tensor: &EnsembleTensor| {
            let rest = tensor.dims.iter().map(|&dim| u64::try_from(dim).map_or(Dim::Free, Dim::Fixed));
            TensorSpec {
                name: tensor.name.clone(),
                datatype: tensor.datatype,
                dims: std::iter::repeat_n(Dim::Free, batch).chain(rest).collect(),
                optional: false,
            }
        };
        Signature {
            inputs: self.inputs.iter().map(spec).collect(),
            outputs: self.outputs.iter().map(spec).collect(),
            max_batch: self.max_batch,
        }
    }

    /// The ensemble of a version's files.
    ///
    /// # Errors
    /// They are not those of an ensemble.
    pub fn of(files: &ModelFiles) -> Result<Self, LoadError> {
        serde_json::from_slice(&files.bytes)
            .map_err(|error| LoadError::Files { model: files.name.to_string(), reason: error.to_string() })
    }

    /// The bytes of its files.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Names of the models that it runs.
    pub fn models(&self) -> BTreeSet<&str> {
        self.steps.iter().map(|step| step.model.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str) -> EnsembleTensor {
        EnsembleTensor { name: name.to_owned(), datatype: Datatype::Fp32, dims: vec![-1] }
    }

    fn step(model: &str, inputs: &[(&str, &str)], outputs: &[(&str, &str)]) -> EnsembleStep {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(own, tensor)| ((*own).to_owned(), (*tensor).to_owned())).collect()
        };
        EnsembleStep {
            name: model.to_owned(),
            model: model.to_owned(),
            version: None,
            inputs: map(inputs),
            outputs: map(outputs),
            answer_if: None,
            fan_out: 1.0,
        }
    }

    fn ensemble(steps: Vec<EnsembleStep>) -> Ensemble {
        Ensemble {
            inputs: vec![tensor("in")],
            outputs: vec![tensor("out")],
            sources: BTreeMap::new(),
            max_batch: 8,
            free_rows: false,
            steps,
            vote: Vec::new(),
        }
    }

    #[test]
    fn steps_come_after_those_that_they_follow() {
        let steps = vec![
            step("join", &[("a", "left"), ("b", "right")], &[("y", "out")]),
            step("right", &[("x", "middle")], &[("y", "right")]),
            step("left", &[("x", "in")], &[("y", "left"), ("z", "middle")]),
        ];
        let ordered = ensemble(steps).ordered("e").unwrap();
        let mut early = ordered.clone();
        early.steps[0].answer_if = Some("z".to_owned());
        assert_eq!(early.after(), [vec![], vec![0], vec![0, 1]]);
        early.steps[1].answer_if = Some("z".to_owned());
        early.steps[2].inputs.remove("b");
        assert_eq!(
            early.after(),
            [vec![], vec![0], vec![0, 1]],
            "it waits for both, one of which may answer"
        );
        let names: Vec<&str> = ordered.steps.iter().map(|step| step.model.as_str()).collect();
        assert_eq!(names, ["left", "right", "join"]);
        assert_eq!(ordered.after(), [vec![], vec![0], vec![0, 1]]);
        assert_eq!(ordered.signature().inputs[0].dims, [Dim::Free, Dim::Free]);
        let files = ModelFiles::from_bytes(
            crate::ModelName::new("e").unwrap(),
            crate::Version(1),
            crate::Format::Ensemble,
            ordered.to_bytes(),
        );
        assert_eq!(Ensemble::of(&files).unwrap(), ordered);
    }

    #[test]
    fn steps_that_form_no_ensemble_are_named() {
        let one = |inputs: &[(&str, &str)], outputs: &[(&str, &str)]| vec![step("m", inputs, outputs)];
        let two = |first: EnsembleStep, second: EnsembleStep| vec![first, second];
        for (steps, expected) in [
            (vec![], "expected 1 to 64 steps, got 0"),
            (one(&[], &[("y", "out")]), "step 0: input_map is missing"),
            (one(&[("x", "in")], &[]), "step 0: output_map is missing"),
            (one(&[("x", "")], &[("y", "out")]), "step 0: input_map is missing"),
            (vec![step("", &[("x", "in")], &[("y", "out")])], "step 0: model_name is missing"),
            (vec![step("e", &[("x", "in")], &[("y", "out")])], "step 0 runs the model itself"),
            (
                one(&[("x", "im")], &[("y", "out")]),
                "step 0 (model `m`): takes `im`, which is neither an input nor",
            ),
            (
                one(&[("x", "in")], &[("y", "in")]),
                "step 0 (model `m`): writes `in`, which an input or another",
            ),
            (one(&[("x", "in")], &[("y", "end")]), "output `out` is not written"),
            (
                two(step("a", &[("x", "t")], &[("y", "out")]), step("b", &[("x", "out")], &[("y", "t")])),
                "input `in` is not used",
            ),
            (
                two(
                    step("a", &[("x", "t"), ("z", "in")], &[("y", "out")]),
                    step("b", &[("x", "out")], &[("y", "t")]),
                ),
                "steps wait for each other: `a`, `b`",
            ),
            (
                two(step("a", &[("x", "in")], &[("y", "out")]), step("b", &[("x", "in")], &[("y", "out")])),
                "step 1 (model `b`): writes `out`",
            ),
        ] {
            let error = ensemble(steps).ordered("e").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
