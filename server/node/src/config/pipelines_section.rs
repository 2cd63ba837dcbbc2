//! `[pipelines.NAME]`: models that run as the stages of one.

use std::collections::BTreeMap;

use documented::DocumentedFields;
use models::TimeSpan;
use router_core::Split;
use serde::Deserialize;
use toml::{Table, Value};
use units::in_words;

use super::{Origin, Problem, fields};

/// Pipelines that there may be at most.
const PIPELINES_MAX: usize = 1_000;

/// One `[pipelines.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct PipelineSettings {
    /// Objective of the whole: time from the arrival of a request to its answer. Other settings of the pipeline go into
    /// `[models.NAME]`. Default: none. Example: `"300ms"`.
    pub slo: Option<TimeSpan>,
    /// Its stages, each after those that it follows: tables with `model`, and `name`, `from`, `inputs`, `fan_out` or `answer_if`
    /// ([guide](../pipelines.md)). Default: none, which is refused. Example: `[{ model = "det" }, { model = "rec", from = "det" }]`.
    pub stages: Vec<StageSettings>,
    /// What clients get, by name: `"STAGE.TENSOR"`, or a list of which the first that was written is taken. Default: the outputs of the
    /// stages that no other follows. Example: `{ text = "rec.text" }`.
    pub outputs: BTreeMap<String, OneOrMore>,
    /// Stage outputs that vote on the class of each row, as `"STAGE.TENSOR"`. Each output holds one class number per row, or one score
    /// per class. A vote is weighted by the measured accuracy of its model for that class. The pipeline returns the outputs `class` and
    /// `share`; in `outputs`, they are `"vote.class"` and `"vote.share"` ([guide](../choices.md#votes)). Default: there is no vote.
    /// Example: `["digits-s.scores", "digits-m.scores"]`.
    pub vote: Vec<String>,
    /// Share of the objective for each stage, as `tessera plan --explain` prints it; at most 1 along a path. Default: the same for each
    /// stage of a longest path. Example: `{ det = 0.4, rec = 0.6 }`.
    pub split: Option<BTreeMap<String, f64>>,
    /// What the shares are for: `end_to_end` (sizes of batches; the request has one deadline), `static` (a deadline for each stage,
    /// counted from the arrival) or `per_stage` (a deadline for each stage, counted from when it is queued). Default: `"end_to_end"`.
    /// Example: `"static"`.
    pub deadlines: Split,
}

/// A stage of a pipeline.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageSettings {
    /// Name in the pipeline. Default: the name of the model.
    pub name: Option<String>,
    /// The model that it runs.
    pub model: String,
    /// Version of the model. Default: the one that requests without a version get.
    pub version: Option<u64>,
    /// Earlier stages whose outputs it takes as inputs of the same name.
    #[serde(default)]
    pub from: OneOrMore,
    /// Inputs of the model: `"STAGE.TENSOR"`, or the name of an input of the pipeline.
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
    /// Rows that come of each row, in the mean.
    #[serde(default = "one")]
    pub fan_out: f64,
    /// A `BOOL` output: if it is true, the request is answered without the later stages.
    pub answer_if: Option<String>,
}

/// `"a"` or `["a", "b"]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a text, or a list of texts")]
pub enum OneOrMore {
    /// A single text.
    One(String),
    /// Several texts.
    More(Vec<String>),
}

impl Default for OneOrMore {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

impl OneOrMore {
    /// The texts, in their order.
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(all) => all,
        }
    }
}

fn one() -> f64 {
    1.0
}

/// Reports every mistake in every pipeline's table.
pub fn check(pipelines: &Table, origin: impl Fn(&str) -> Origin, problems: &mut Vec<Problem>) {
    if pipelines.len() > PIPELINES_MAX {
        let message = format!("{} pipelines: expected at most {PIPELINES_MAX}", pipelines.len());
        problems.push(Problem::new("pipelines", &message, &origin("pipelines")));
    }
    for (name, settings) in pipelines {
        let path = format!("pipelines.{name}");
        let mut report =
            |path: &str, message: &str| problems.push(Problem::new(path, message, &origin(path)));
        if let Err(error) = name.parse::<models::ModelName>() {
            report(&path, &error.to_string());
        }
        let Value::Table(settings) = settings else {
            report(&path, "expected a table like [pipelines.ocr]");
            continue;
        };
        if !settings.contains_key("stages") {
            report(&path, "stages: expected a list of stages");
        }
        for (key, value) in settings {
            if let Err(message) = check_key(key, value) {
                report(&format!("{path}.{key}"), &message);
            }
        }
    }
}

/// Whether a pipeline may have this key with this value.
///
/// # Errors
/// What would be right.
pub fn check_key(key: &str, value: &Value) -> Result<(), String> {
    let known = fields::of::<PipelineSettings>();
    if !known.contains(&key) {
        return Err(fields::unknown(key, known, "key"));
    }
    let one = Table::from_iter([(key.to_owned(), value.clone())]);
    let read = one.try_into::<PipelineSettings>().map_err(|error| in_words(error.message()))?;
    let is_share = |share: &f64| *share > 0.0 && *share <= 1.0;
    if let Some((stage, share)) = read.split.iter().flatten().find(|(_, share)| !is_share(share)) {
        return Err(format!("`{stage}`: expected a share above 0 and at most 1, got {share}"));
    }
    if key == "vote" && read.vote.len() < 2 {
        return Err(format!("expected 2 or more, each \"STAGE.TENSOR\", got {}", read.vote.len()));
    }
    match read.stages.iter().find(|stage| !(0.0..=1e6).contains(&stage.fan_out)) {
        Some(stage) => {
            Err(format!("`{}`: fan_out: expected 0 to 1000000, got {}", stage.model, stage.fan_out))
        }
        None => Ok(()),
    }
}
