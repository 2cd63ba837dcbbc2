//! Reads and checks problem files and the profiles that they name. Errors name the file, the line and the key.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use device_sections::{DeviceSection, known_words};
use gpulet_core::id::DeviceId;
use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::problem::{DEVICES_MAX, Device, Problem, ProblemError, Workload};
use gpulet_core::profile::{BATCH_MAX, Profile, Quantile};
use node::files::read_text;
use node::profiles;
use variant_plan::Question;
use workload::{Lines, Paths, WorkloadError};

use super::arguments::Count;
use super::document::{Document, WorkloadSection};
use super::families;
use super::fields::{check_name, fault, slo_us};
use super::pipelines::PlannedPipeline;
use super::shapes;
use super::splitting::{SplitChoice, Splittable, Stages};

/// Largest problem file.
const FILE_BYTES: u64 = 16 << 20;
/// A problem, and what the report says about its inputs.
#[derive(Clone, Debug)]
pub struct PlanQuery {
    /// Name of the file without its extension.
    pub name: String,
    pub problem: Problem,
    /// The quantile of the measured times to plan with.
    pub quantile: Quantile,
    /// The profiles that it uses, in the order of the files.
    pub profiles: Vec<Profile>,
    /// Whether the file sets the interference model.
    pub interference_is_set: bool,
    /// Its families, with the devices and workloads. With them, `problem` has the workloads alone until a plan is chosen.
    pub question: Option<Question>,
    /// Its pipelines, whose stages are workloads of the problem.
    pub pipelines: Vec<PlannedPipeline>,
    /// How its workloads with `parallel = "auto"` are planned: those in stages are pipelines too.
    pub splits: Vec<SplitChoice>,
    /// What is wrong with the shapes of its profiles, and objectives that cannot be divided.
    pub warnings: Vec<String>,
}

/// Reads a problem. Paths of profiles are relative to its folder.
///
/// # Errors
/// The first error: the file, the line, the key, and what is expected.
pub fn read(path: &Path, counts: &[Count]) -> anyhow::Result<PlanQuery> {
    let text = read_text(path, FILE_BYTES)?;
    let shown = path.display().to_string();
    let mut document: Document = workload::parse_document(&text).map_err(|fault| fault.named(&shown))?;
    recount(&mut document, counts)?;
    let lines = Lines::of(&text);
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let query = build(&document, &lines, folder).map_err(|mut fault| {
        if fault.file.is_empty() {
            fault.line = lines.find(&fault.field);
            fault.file.clone_from(&shown);
        }
        fault
    })?;
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(PlanQuery { name, ..query })
}

/// Reads a problem with these stages of its workloads with `parallel = "auto"`.
#[cfg(test)]
pub(super) fn read_with(path: &Path, stages: &BTreeMap<&str, Stages>) -> anyhow::Result<PlanQuery> {
    let text = read_text(path, FILE_BYTES)?;
    let document: Document = workload::parse_document(&text)?;
    let (lines, folder) = (Lines::of(&text), path.parent().unwrap_or_else(|| Path::new("")));
    let all = read_profiles(&document.profiles, folder)?;
    let mut models = Vec::new();
    for (name, section) in &document.workloads {
        models.extend(Splittable::read(name, section, &all, folder)?);
    }
    let split: Vec<_> =
        models.iter().filter_map(|model| Some((model, stages.get(model.name.as_str())?))).collect();
    Ok(assemble(&document, (&lines, folder), &all, &split)?)
}

/// Replaces the numbers of devices in the file by those on the command line.
fn recount(document: &mut Document, counts: &[Count]) -> anyhow::Result<()> {
    for Count { section, devices } in counts {
        let names: Vec<String> = document.devices.keys().cloned().collect();
        let name = match (section, names.as_slice()) {
            (Some(name), _) => name,
            (None, [only]) => only,
            (None, names) => anyhow::bail!(
                "--devices: the file has {} sections of devices: expected NAME={devices} with one of {}",
                names.len(),
                names.join(", ")
            ),
        };
        let Some(found) = document.devices.get_mut(name) else {
            anyhow::bail!("--devices: no section [devices.{name}]: expected one of {}", names.join(", "));
        };
        found.count = u32::try_from(*devices).ok();
    }
    Ok(())
}

/// The profiles that a problem names; at least one.
fn read_profiles(paths: &Paths, folder: &Path) -> Result<Vec<Profile>, WorkloadError> {
    let profiles = profiles::named("profiles", &paths.0, folder)?;
    if profiles.is_empty() {
        return fault("profiles", "expected at least one profile, run `tessera profile`");
    }
    Ok(profiles)
}

fn build(document: &Document, lines: &Lines, folder: &Path) -> Result<PlanQuery, WorkloadError> {
    let all = read_profiles(&document.profiles, folder)?;
    let mut models = Vec::new();
    for (name, section) in in_order("workloads", &document.workloads, lines) {
        models.extend(Splittable::read(name, section, &all, folder)?);
    }
    let mut stages: BTreeMap<&str, Stages> = BTreeMap::new();
    let assembled = |stages: &BTreeMap<&str, Stages>| {
        let split: Vec<(&Splittable, &Stages)> =
            models.iter().filter_map(|model| Some((model, stages.get(model.name.as_str())?))).collect();
        assemble(document, (lines, folder), &all, &split)
    };
    let Some(first) = models.first() else { return assembled(&stages) };
    if !document.families.is_empty() {
        let problem = "is not planned with [families.NAME]: expected one of the two";
        return fault(format!("workloads.{}.parallel", first.name), problem);
    }
    let (devices, _) = read_all_devices(document, lines, &all)?;
    let mut splits = Vec::new();
    for model in &models {
        splits.push(model.splits(&devices, document.quantile)?);
    }
    // Models that no device holds begin in the stages whose work costs the least, so that there are plans to compare.
    for (model, splits) in models.iter().zip(&splits).filter(|(model, _)| model.too_large(&devices).is_some())
    {
        let found = splits.iter().flatten().min_by(|one, other| one.cost.total_cmp(&other.cost));
        if let Some(found) = found {
            stages.insert(&model.name, found.stages.iter().map(|stage| (stage.from, stage.to)).collect());
        }
    }
    let mut choices = Vec::new();
    for (model, splits) in models.iter().zip(&splits) {
        let with = |own: &Stages| {
            let mut stages = stages.clone();
            stages.insert(&model.name, own.clone());
            assembled(&stages)
        };
        let (own, choice) = model.choose(splits, &devices, |own| Ok(with(own)?.problem))?;
        stages.insert(&model.name, own);
        choices.push(choice);
    }
    Ok(PlanQuery { splits: choices, ..assembled(&stages)? })
}

/// The problem with the stages of these models. Those with one stage are whole.
fn assemble(
    document: &Document,
    (lines, folder): (&Lines, &Path),
    profiles: &[Profile],
    split: &[(&Splittable, &Stages)],
) -> Result<PlanQuery, WorkloadError> {
    let split: Vec<_> = split.iter().filter(|(_, stages)| stages.len() > 1).collect();
    let mut all = profiles.to_vec();
    for (model, stages) in &split {
        all.extend(model.stage_profiles(stages)?);
    }
    let interference = match &document.interference {
        Some(said) => device_sections::interference("interference", said)?,
        None => Interference::NoInterference(NoInterference),
    };
    let (devices, sections) = read_all_devices(document, lines, &all)?;
    let (mut workloads, mut sections_of_stages) = (Vec::new(), Vec::new());
    for (name, section) in in_order("workloads", &document.workloads, lines) {
        match split.iter().find(|(model, _)| model.name == name) {
            Some(_) if document.pipelines.contains_key(name) => {
                let problem = "a pipeline has this name: expected another one, because the model may be one";
                return fault(format!("workloads.{name}"), problem);
            }
            Some((model, stages)) => sections_of_stages.push((name, model.pipeline(section, stages)?)),
            None => workloads.push(read_workload(name, section, &all)?),
        }
    }
    let (mut pipelines, mut stages_of) = (Vec::new(), Vec::new());
    let of_file = in_order("pipelines", &document.pipelines, lines);
    let of_models = sections_of_stages.iter().map(|(name, section)| (*name, section));
    for (name, section) in of_file.into_iter().chain(of_models) {
        let (pipeline, stages) = PlannedPipeline::read(name, section, &all)?;
        if let Some(stage) = stages.iter().find(|stage| document.workloads.contains_key(&stage.name)) {
            let problem = format!("a workload has the name `{}`: expected another one", stage.name);
            return fault(format!("pipelines.{name}"), problem);
        }
        stages_of.extend(stages.iter().map(|stage| (stage.name.clone(), name.to_owned())));
        pipelines.push(pipeline);
        workloads.extend(stages);
    }
    let families = families::read(&in_order("families", &document.families, lines), &all, folder)?;
    if workloads.is_empty() && families.is_empty() {
        return fault(
            "workloads",
            "expected at least one section, like [workloads.resnet50], [pipelines.ocr] or [families.digits]",
        );
    }
    let kinds: BTreeSet<&str> = devices.iter().map(|device| device.device_type.name.as_str()).collect();
    let mut models: BTreeSet<&str> = workloads.iter().map(|workload| workload.model.as_str()).collect();
    models.extend(families.iter().flat_map(|family| &family.variants).map(|variant| variant.model.as_str()));
    let used = |profile: &Profile| kinds.contains(profile.device()) && models.contains(profile.model());
    let profiles: Vec<Profile> = all.iter().filter(|profile| used(profile)).cloned().collect();
    let mut warnings = shapes::warnings(&workloads, &document.workloads, &profiles);
    let problem = |devices, workloads| {
        let problem = Problem::new(devices, workloads, profiles.clone(), interference.clone());
        problem
            .map(|problem| problem.at_quantile(document.quantile))
            .map_err(|error| translated(error, &sections, &stages_of))
    };
    let mut made = problem(devices.clone(), workloads.clone())?;
    if !pipelines.is_empty() {
        let divided = pipelines.iter_mut().filter_map(|pipeline| pipeline.divide(&made, &mut workloads));
        warnings.extend(divided.collect::<Vec<_>>());
        made = problem(devices, workloads)?;
    }
    let question = if families.is_empty() {
        families::unused(document)?;
        None
    } else {
        let spot = families::spot(document, &sections)?;
        let question = Question::new(made.clone(), families, spot);
        Some(question.map_err(|error| translated(error, &sections, &stages_of))?)
    };
    Ok(PlanQuery {
        name: String::new(),
        question,
        problem: made,
        quantile: document.quantile,
        profiles: profiles.clone(),
        pipelines,
        splits: Vec::new(),
        interference_is_set: document.interference.is_some(),
        warnings,
    })
}

/// The devices of a file, and the section of each.
type Placed = (Vec<Device>, Vec<(DeviceId, String)>);

/// The devices of a file, with the section of each.
fn read_all_devices(
    document: &Document,
    lines: &Lines,
    profiles: &[Profile],
) -> Result<Placed, WorkloadError> {
    let mut devices = Vec::new();
    let mut sections = Vec::new();
    for (name, section) in in_order("devices", &document.devices, lines) {
        let more = read_devices(name, section, profiles)?;
        if devices.len().saturating_add(more.len()) > DEVICES_MAX {
            let problem = format!("expected at most {DEVICES_MAX} devices in all");
            return fault(format!("devices.{name}.count"), problem);
        }
        sections.extend(more.iter().map(|device| (device.name.clone(), name.to_owned())));
        devices.extend(more);
    }
    if devices.is_empty() {
        return fault("devices", "expected at least one section, like [devices.v100]");
    }
    Ok((devices, sections))
}

/// Sections in the order of the file.
fn in_order<'a, T>(table: &str, sections: &'a BTreeMap<String, T>, lines: &Lines) -> Vec<(&'a str, &'a T)> {
    let mut sections: Vec<_> = sections.iter().map(|(name, section)| (name.as_str(), section)).collect();
    sections.sort_by_key(|(name, _)| lines.find(&format!("{table}.{name}")));
    sections
}

fn read_devices(
    name: &str,
    section: &DeviceSection,
    profiles: &[Profile],
) -> Result<Vec<Device>, WorkloadError> {
    let field = |key: &str| format!("devices.{name}.{key}");
    check_name(&format!("devices.{name}"), name)?;
    let count = section.count.unwrap_or(1);
    if !(1..=DEVICES_MAX).contains(&(count as usize)) {
        return fault(field("count"), format!("expected 1 to {DEVICES_MAX}, got {count}"));
    }
    if section.interference.is_some() {
        return fault(
            field("interference"),
            "of use in workload files only: set `interference` for all devices",
        );
    }
    section.devices(name, profiles)
}

fn read_workload(
    name: &str,
    section: &WorkloadSection,
    profiles: &[Profile],
) -> Result<Workload, WorkloadError> {
    let field = |key: &str| format!("workloads.{name}.{key}");
    check_name(&format!("workloads.{name}"), name)?;
    let model = section.model.as_deref().unwrap_or(name);
    if profiles.iter().all(|profile| profile.model() != model) {
        let known = known_words(model, profiles.iter().map(Profile::model));
        return fault(field("model"), format!("no profile of `{model}`{known}"));
    }
    let slo_us = slo_us(&field("slo"), section.slo)?;
    Ok(Workload {
        name: name.to_owned(),
        model: model.to_owned(),
        tenant: section.tenant.clone(),
        not_with: section.not_with.clone(),
        slo_us,
        rate: section.rate,
        headroom: section.headroom.unwrap_or(1.0),
        replicas_min: section.replicas_min.unwrap_or(1),
        batch_max: section.batch_max.unwrap_or(BATCH_MAX),
    })
}

/// Translates an error of the problem to the keys of the file.
fn translated(
    error: ProblemError,
    sections: &[(DeviceId, String)],
    stages: &[(String, String)],
) -> WorkloadError {
    let ProblemError { field, problem } = error;
    let of_device = field.strip_prefix("devices.").and_then(|rest| {
        sections.iter().find_map(|(device, section)| {
            let key = rest.strip_prefix(device.as_str())?;
            let whole = key.is_empty() || key.starts_with('.');
            let key = match key {
                ".device_type" => ".kind".to_owned(),
                _ => key.replace(".device_type.", "."),
            };
            whole.then(|| format!("devices.{section}{key}"))
        })
    });
    let of_stage = field.strip_prefix("workloads.").and_then(|rest| {
        let (stage, pipeline) = stages.iter().find(|(stage, _)| rest.starts_with(&format!("{stage}.")))?;
        Some(format!("pipelines.{pipeline}{}", rest.get(stage.len()..)?.replace(".slo_us", ".slo")))
    });
    let of_objective = field.strip_suffix(".slo_us").map(|workload| format!("{workload}.slo"));
    let field = of_device.or(of_stage).or(of_objective).unwrap_or(field);
    WorkloadError { file: String::new(), line: None, field, problem }
}
