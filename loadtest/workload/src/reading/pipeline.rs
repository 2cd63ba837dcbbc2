//! The sections of pipelines.

use std::collections::BTreeMap;

use crate::document::{
    FanOutSection, ModelSection, PipelineSection, Role, SplitSection, SplitWord, StageSection,
};
use crate::pipeline::{ObjectiveSplit, Pipeline, PipelineStage};
use crate::shares::Shares;
use crate::spans::show;
use crate::workload::Model;
use units::{Fault as WorkloadError, nearest};

/// Most stages of a pipeline.
const STAGES_MAX: usize = 64;
/// What is wrong with the name of a model that the workload does not have.
pub(super) const UNKNOWN: &str = "no such model in [models]";
/// Most rows that come of one row.
const FAN_OUT_MAX: u32 = 10_000;

/// Marks the models that are stages. Those without an objective have the longest one of their pipelines.
pub(super) fn mark_stage_models(
    models: &mut BTreeMap<String, ModelSection>,
    pipelines: &BTreeMap<String, PipelineSection>,
) {
    for pipeline in pipelines.values() {
        for stage in &pipeline.stages {
            if let Some(model) = models.get_mut(&stage.model) {
                model.mark_part(pipeline.slo);
            }
        }
    }
}

/// Checks the stages' models, of which models without traffic are known, before models are read.
pub(super) fn check_stages(
    pipelines: &BTreeMap<String, PipelineSection>,
    models: &BTreeMap<String, ModelSection>,
) -> Result<(), WorkloadError> {
    for (name, pipeline) in pipelines {
        let wrong = |problem: String| WorkloadError::new(format!("pipelines.{name}.stages"), problem);
        check_count(&pipeline.stages).map_err(wrong)?;
        for stage in &pipeline.stages {
            check_known(&stage.model, models).map_err(wrong)?;
        }
    }
    Ok(())
}

/// Whether a model, or a copy of one, is in the file.
pub(super) fn check_known(name: &str, models: &BTreeMap<String, ModelSection>) -> Result<(), String> {
    let copy_of = name.rsplit_once('-').map_or("", |(group, _)| group);
    if models.contains_key(name) || models.contains_key(copy_of) {
        return Ok(());
    }
    let known: Vec<&str> = models.keys().map(String::as_str).collect();
    let hint = nearest(name, &known).map(|near| format!(", did you mean `{near}`?"));
    Err(format!("`{name}`: {UNKNOWN}{}", hint.unwrap_or_default()))
}

/// The traffic of each pipeline, as that of a model.
pub(super) fn traffic(pipelines: &BTreeMap<String, PipelineSection>) -> BTreeMap<String, ModelSection> {
    let of = |section: &PipelineSection| ModelSection {
        rate: section.rate,
        arrivals: section.arrivals.clone(),
        row_bytes: section.row_bytes,
        priority: section.priority,
        tenants: section.tenants.clone(),
        deadline: section.deadline,
        overhead: section.overhead.clone(),
        ..ModelSection::of_traffic(Role::Pipeline, section.slo)
    };
    pipelines.iter().map(|(name, section)| (name.clone(), of(section))).collect()
}

/// Adds the stages to the models that are pipelines. `own`: how many models come before pipelines and families.
pub(super) fn read(
    pipelines: &BTreeMap<String, PipelineSection>,
    models: &mut [Model],
    own: usize,
) -> Result<(), WorkloadError> {
    for (name, section) in pipelines {
        let pipeline = read_one(name, section, (models, own))?;
        if let Some(model) = models.iter_mut().find(|model| model.name == *name) {
            model.pipeline = Some(pipeline);
        }
    }
    Ok(())
}

fn read_one(
    name: &str,
    section: &PipelineSection,
    (models, own): (&[Model], usize),
) -> Result<Pipeline, WorkloadError> {
    let wrong = |key: &str, problem: String| WorkloadError::new(format!("pipelines.{name}.{key}"), problem);
    // Pipelines and families are in the list too, and no stage of another one.
    let names = models.iter().take(own);
    let names: Vec<&str> = names.map(|model| model.name.as_str()).collect();
    let (stages, split) = read_stages(&section.stages, &section.split, (&names, UNKNOWN))
        .map_err(|(key, problem)| wrong(key, problem))?;
    if split == ObjectiveSplit::Plan && section.deadlines.is_some() {
        let problem = "is chosen by `split = \"plan\"`: remove one of the two";
        return Err(wrong("deadlines", problem.to_owned()));
    }
    let pipeline = Pipeline { stages, split, deadlines: section.deadlines.unwrap_or_default() };
    let mut longest: Vec<u64> = Vec::new();
    for stage in &pipeline.stages {
        let model = models.get(stage.model as usize);
        let alone = model.and_then(|model| model.profile.as_ref()).map_or(0, |profile| profile.time(1));
        let before = stage.after.iter().filter_map(|&before| longest.get(before as usize)).max();
        longest.push(before.copied().unwrap_or(0).saturating_add(alone));
    }
    let alone = longest.into_iter().max().unwrap_or(0);
    if section.slo.0 < alone {
        let (slo, alone) = (show(section.slo.0), show(alone));
        return Err(wrong("slo", format!("{slo} cannot be met: the stages alone take {alone}")));
    }
    Ok(pipeline)
}

/// The stages of a pipeline and the split of its objective. `models` are the names that stages may have as `model`, and a stage's
/// [`PipelineStage::model`] is the place in this list. `unknown` says what is wrong with another name.
///
/// # Errors
/// The key, and what is wrong with it.
pub fn read_stages(
    sections: &[StageSection],
    split: &SplitSection,
    (models, unknown): (&[&str], &str),
) -> Result<(Vec<PipelineStage>, ObjectiveSplit), (&'static str, String)> {
    check_count(sections).map_err(|problem| ("stages", problem))?;
    let mut stages: Vec<PipelineStage> = Vec::new();
    for section in sections {
        stages.push(read_stage(section, &stages, (models, unknown)).map_err(|problem| ("stages", problem))?);
    }
    let split = read_split(split, &stages).map_err(|problem| ("split", problem))?;
    Ok((stages, split))
}

fn check_count(stages: &[StageSection]) -> Result<(), String> {
    if (1..=STAGES_MAX).contains(&stages.len()) {
        return Ok(());
    }
    Err(format!("expected 1 to {STAGES_MAX} stages, got {}", stages.len()))
}

fn read_stage(
    section: &StageSection,
    earlier: &[PipelineStage],
    (models, unknown): (&[&str], &str),
) -> Result<PipelineStage, String> {
    let name = section.name.clone().unwrap_or_else(|| section.model.clone());
    if earlier.iter().any(|stage| stage.name == name) {
        return Err(format!(
            "`{name}`: two stages have this name: expected `name = \"...\"` for one of them"
        ));
    }
    let Some(model) = models.iter().position(|model| *model == section.model) else {
        let hint = nearest(&section.model, models).map(|near| format!(", did you mean `{near}`?"));
        return Err(format!("`{}`: {unknown}{}", section.model, hint.unwrap_or_default()));
    };
    let after = section.from.names().iter().map(|from| {
        let number = earlier.iter().position(|stage| stage.name == *from);
        let number = number.and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| format!("`{name}`: from: `{from}`: expected the name of an earlier stage"))
    });
    let after = after.collect::<Result<Vec<u32>, String>>()?;
    let fan_out = match &section.fan_out {
        None => Shares::only(1),
        Some(fan_out) => read_fan_out(fan_out).map_err(|problem| format!("`{name}`: fan_out: {problem}"))?,
    };
    if !(0.0..1.0).contains(&section.answers) {
        return Err(format!(
            "`{name}`: answers: expected a share from 0 to less than 1, got {}",
            section.answers
        ));
    }
    let model = u32::try_from(model).unwrap_or(u32::MAX);
    Ok(PipelineStage { name, model, after, fan_out, answers: section.answers })
}

/// A mean is drawn as the whole number below it or the one above.
fn read_fan_out(section: &FanOutSection) -> Result<Shares<u32>, String> {
    let expected = || format!("expected rows from 0 to {FAN_OUT_MAX}, with weights above 0");
    match section {
        FanOutSection::Mean(mean) if (0.0..=f64::from(FAN_OUT_MAX)).contains(mean) => {
            let (below, part) = (mean.floor() as u32, mean.fract());
            match part > 0.0 {
                true => Shares::weighted(&[(below, 1.0 - part), (below + 1, part)]).ok_or_else(expected),
                false => Ok(Shares::only(below)),
            }
        }
        FanOutSection::Weighted(weights) if weights.iter().all(|(rows, _)| *rows <= FAN_OUT_MAX) => {
            Shares::weighted(weights).ok_or_else(expected)
        }
        FanOutSection::Mean(_) | FanOutSection::Weighted(_) => Err(expected()),
    }
}

fn read_split(section: &SplitSection, stages: &[PipelineStage]) -> Result<ObjectiveSplit, String> {
    let shares = match section {
        SplitSection::Word(SplitWord::Plan) => return Ok(ObjectiveSplit::Plan),
        SplitSection::Word(SplitWord::Nexus) => return Ok(ObjectiveSplit::Nexus),
        SplitSection::Word(SplitWord::Even) => return Ok(ObjectiveSplit::Even),
        SplitSection::Shares(shares) => shares,
    };
    let share = |stage: &PipelineStage| {
        let share = shares.get(&stage.name).copied().filter(|share| *share > 0.0 && *share <= 1.0);
        share.ok_or_else(|| format!("expected a share above 0 and at most 1 for stage `{}`", stage.name))
    };
    let list = stages.iter().map(share).collect::<Result<Vec<f64>, String>>()?;
    if let Some(unknown) = shares.keys().find(|name| !stages.iter().any(|stage| stage.name == **name)) {
        return Err(format!("`{unknown}`: no stage has this name"));
    }
    let mut longest: Vec<f64> = Vec::new();
    for (stage, share) in stages.iter().zip(&list) {
        let before = stage.after.iter().filter_map(|&before| longest.get(before as usize).copied());
        longest.push(before.fold(0.0, f64::max) + share);
    }
    let most = longest.into_iter().fold(0.0, f64::max);
    if most > 1.0 + 1e-9 {
        return Err(format!("the shares along a path add up to {most:.3}: expected at most 1"));
    }
    Ok(ObjectiveSplit::Shares(list))
}
