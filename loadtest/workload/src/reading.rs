//! From the text of a workload file to a [`Workload`]: everything is checked here, and every fault named.

mod arrivals;
mod family;
mod model;
mod pipeline;
mod tenants;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::document::{Document, ModelSection};
use crate::files::Texts;
use crate::fleet::Fleet;
use crate::lanes::Lanes;
use crate::limits::{DURATION_MAX, MODELS_MAX, REQUESTS_MAX};
use crate::names::check_name;
use crate::not_simulated::parse_document;
use crate::partition::Partition;
use crate::spans::show;
use crate::workload::{Extent, Model, Tenant, Workload};
pub use pipeline::read_stages;
use units::{Fault as WorkloadError, Lines};

impl Workload {
    /// Reads a workload file. `files` returns the text of a trace or profile by the name that the workload uses. It is
    /// called once for each name.
    pub fn parse(
        text: &str,
        files: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<Self, WorkloadError> {
        read(text, files)
    }
}

fn read(
    text: &str,
    files: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Workload, WorkloadError> {
    let document = parse_document(text)?;
    let lines = Lines::of(text);
    let mut known: BTreeMap<String, Arc<str>> = BTreeMap::new();
    let mut files = |name: &str| {
        if let Some(text) = known.get(name) {
            return Ok(Arc::clone(text));
        }
        let text: Arc<str> = files(name)?.into();
        known.insert(name.to_owned(), Arc::clone(&text));
        Ok(text)
    };
    build(document, &lines, &mut files).map_err(|mut error| {
        if error.is_in_main() {
            error.line = lines.find(&error.field);
        }
        error
    })
}

fn build(mut document: Document, lines: &Lines, files: &mut Texts<'_>) -> Result<Workload, WorkloadError> {
    if document.name.trim().is_empty() {
        return Err(WorkloadError::new("name", "expected a name"));
    }
    let extent = read_extent(&document)?;
    if let Extent::Time(time) = extent
        && document.warmup.0 >= time
    {
        let problem =
            format!("expected less than the duration of {}, got {}", show(time), show(document.warmup.0));
        return Err(WorkloadError::new("warmup", problem));
    }
    let partition = Partition::read(&document, lines, files)?;
    let lanes = Lanes::read(&document.lanes, partition.as_ref().map(Partition::count))?;
    let fleet = document
        .fleet
        .as_ref()
        .map(|section| Fleet::read(section, (lanes.count, !lanes.changes.is_empty())))
        .transpose()?;
    if fleet.is_some() && partition.is_some() {
        let problem = "a fleet is simulated with fixed lanes only: remove it, or [devices]";
        return Err(WorkloadError::new("fleet", problem));
    }
    let tenants = tenants::read(&document)?;
    pipeline::check_stages(&document.pipelines, &document.models)?;
    pipeline::mark_stage_models(&mut document.models, &document.pipelines);
    family::check_variants(&document.families, &document.models)?;
    family::mark_variants(&mut document.models, &document.families);
    let mut traffic = pipeline::traffic(&document.pipelines);
    if let Some(name) = document.families.keys().find(|name| traffic.contains_key(*name)) {
        let problem = format!("the name `{name}` is taken by a pipeline");
        return Err(WorkloadError::new(format!("families.{name}"), problem));
    }
    traffic.extend(family::traffic(&document.families));
    let mut models = read_models(&document, &traffic, lines, (&tenants, lanes.count), files)?;
    let own = models.len().saturating_sub(traffic.len());
    pipeline::read(&document.pipelines, &mut models, own)?;
    family::read(&document.families, &mut models, own)?;
    for (name, section) in &traffic {
        let roll_out = models.iter().any(|model| model.rollout.is_some());
        let other = [(fleet.is_some(), "[fleet]"), (roll_out, "roll-outs")];
        if let Some((_, other)) = other.into_iter().find(|(is, _)| *is) {
            let table = section.table();
            let problem = format!("{table} are simulated without {other}: remove one of them");
            return Err(WorkloadError::new(format!("{table}.{name}"), problem));
        }
    }
    if let Some(fleet) = &fleet {
        if let Some(model) = models.iter().find(|model| model.best_effort) {
            let problem = "expected `online`: a fleet is simulated without best effort".to_owned();
            return Err(WorkloadError::new(format!("models.{}.class", model.group), problem));
        }
        if document.best_effort.protect.is_some() {
            let problem = "a fleet is simulated without best effort: remove it, or [fleet]";
            return Err(WorkloadError::new("best_effort.protect", problem));
        }
        if lanes.idle_priority {
            let problem = "a fleet is simulated without best effort: remove it, or [fleet]";
            return Err(WorkloadError::new("lanes.idle_priority", problem));
        }
        fleet.check_models(&models.iter().map(|model| model.name.as_str()).collect::<Vec<_>>())?;
    }
    let protect = document.best_effort.protect;
    let Document { name, about, seed, warmup, .. } = document;
    let workload = Workload {
        name,
        about,
        seed,
        extent,
        warmup: warmup.0,
        lanes,
        protect,
        partition,
        fleet,
        tenants,
        models,
    };
    workload.check_load()?;
    Ok(workload)
}

fn read_extent(document: &Document) -> Result<Extent, WorkloadError> {
    match (document.duration, document.requests) {
        (Some(duration), None) if (1..=DURATION_MAX).contains(&duration.0) => Ok(Extent::Time(duration.0)),
        (None, Some(requests)) if (1..=REQUESTS_MAX).contains(&requests) => Ok(Extent::Requests(requests)),
        (Some(duration), None) => {
            let problem = format!("expected more than 0 and at most 400d, got {}", show(duration.0));
            Err(WorkloadError::new("duration", problem))
        }
        (None, Some(requests)) => {
            let problem = format!("expected 1 to {REQUESTS_MAX}, got {requests}");
            Err(WorkloadError::new("requests", problem))
        }
        (Some(_), Some(_)) => {
            Err(WorkloadError::new("requests", "expected `duration` or `requests`, got both"))
        }
        (None, None) => Err(WorkloadError::new("duration", "expected `duration` or `requests`, got neither")),
    }
}

fn read_models(
    document: &Document,
    more: &BTreeMap<String, ModelSection>,
    lines: &Lines,
    tenants_and_lanes: (&[Tenant], u32),
    files: &mut Texts<'_>,
) -> Result<Vec<Model>, WorkloadError> {
    let mut sections: Vec<_> = document.models.iter().collect();
    sections.sort_by_key(|(name, _)| lines.find(&format!("models.{name}")));
    if sections.is_empty() {
        return Err(WorkloadError::new("models", "expected at least one model, like [models.resnet]"));
    }
    let mut traffic: Vec<_> = more.iter().collect();
    traffic.sort_by_key(|(name, section)| lines.find(&format!("{}.{name}", section.table())));
    sections.extend(traffic);
    let mut copies = 0_usize;
    for (name, section) in &sections {
        let field = format!("{}.{name}", section.table());
        check_name(name).map_err(|problem| WorkloadError::new(&field, problem))?;
        let count = usize::try_from(section.count).unwrap_or(usize::MAX);
        copies = copies.saturating_add(count);
        if count == 0 || copies > MODELS_MAX {
            let problem = format!("expected 1 or more, and at most {MODELS_MAX} models in all, got {count}");
            return Err(WorkloadError::new(format!("{field}.count"), problem));
        }
    }
    if document.devices.is_empty() {
        let lost = |section: &ModelSection| match (&section.model, section.load) {
            (Some(_), _) => Some("model"),
            (None, Some(_)) => Some("load"),
            (None, None) => None,
        };
        if let Some((name, key)) = sections.iter().find_map(|(name, section)| Some((name, lost(section)?))) {
            let problem = "of use with [devices] only: expected it to be left out";
            return Err(WorkloadError::new(format!("models.{name}.{key}"), problem));
        }
    }
    if (!document.devices.is_empty() || document.fleet.is_some())
        && let Some((name, _)) = sections.iter().find(|(_, section)| section.lanes.is_some())
    {
        let problem =
            "models choose among fixed lanes of one machine only: remove it, or [devices] and [fleet]";
        return Err(WorkloadError::new(format!("models.{name}.lanes"), problem));
    }
    if !document.devices.is_empty()
        && let Some((name, _)) = sections.iter().find(|(_, section)| section.rollout.is_some())
    {
        let problem = "roll-outs are simulated on fixed lanes only: remove it, or [devices]";
        return Err(WorkloadError::new(format!("models.{name}.rollout"), problem));
    }
    let names = expand(&sections)?;
    let processes = arrivals::read(&sections, &names, lines, files)?;
    let mut expanded = names.into_iter().zip(processes);
    let mut models = Vec::with_capacity(copies);
    for (group, section) in sections {
        let Some((first, process)) = expanded.next() else { continue };
        let model =
            Model { name: first.name, ..model::read(group, section, process, tenants_and_lanes, files)? };
        let copies = expanded.by_ref().take(usize::try_from(section.count).unwrap_or(usize::MAX) - 1);
        let copies = copies.map(|(name, process)| Model { name: name.name, process, ..model.clone() });
        let copies: Vec<Model> = copies.collect();
        models.push(model);
        models.extend(copies);
    }
    Ok(models)
}

/// A model of the expanded list.
struct Name {
    name: String,
    group: String,
}

/// Names of all copies, in order of number.
fn expand(sections: &[(&String, &ModelSection)]) -> Result<Vec<Name>, WorkloadError> {
    let mut names: Vec<Name> = Vec::new();
    let mut taken = BTreeSet::new();
    for &(group, section) in sections {
        for copy in 0..section.count {
            let name = if section.count == 1 { group.clone() } else { format!("{group}-{copy}") };
            if !taken.insert(name.clone()) {
                let problem = format!("the name `{name}` is taken by another model, or a copy of one");
                return Err(WorkloadError::new(format!("{}.{group}", section.table()), problem));
            }
            names.push(Name { name, group: group.clone() });
        }
    }
    Ok(names)
}
