//! Devices that a simulation partitions into gpulets, in place of identical lanes.
//!
//! The contents of other files are kept as text. `gpulet-core` reads profiles and plans; this crate does not depend on
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::document::{Document, PartitionSection};
use crate::files::Texts;
use crate::names::check_name;
use crate::spans::{SECOND, Span, show};
use device_sections::DeviceSection;
use units::Fault as WorkloadError;
use units::Lines;

/// Upper bound on the devices of a workload.
pub const DEVICES_MAX: u32 = 1_024;

/// Upper bound on the files that a workload names.
const FILES_MAX: usize = 256;

/// Shortest time between two ticks of the control loop, in nanoseconds.
const PERIOD_MIN: u64 = 10_000_000;

/// Longest time of an option, in nanoseconds: a day.
const TIME_MAX: u64 = 86_400 * SECOND;

/// The devices to partition, and the options of the control loop that does it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Partition {
    /// Devices by section, in the order of the file; at least one.
    pub devices: Vec<Devices>,
    /// Profile files.
    pub profiles: Vec<Named>,
    /// The plan of the whole run. `None` if plans follow the load.
    pub plan: Option<Named>,
    /// Name of the placement policy. Not checked here.
    pub policy: String,
    /// Most time of a gpulet with a time quota, as a part of its window. Not checked here.
    pub quota_limit: f64,
    /// Name of the scaler. Not checked here.
    pub scaling: String,
    /// Name of the policy for the variants of families; none if they are planned as separate models. Not checked here.
    pub variants: Option<String>,
    /// What plans assume about interference: `learned` or `none`. Not checked here.
    pub interference: String,
    /// Nanoseconds between two ticks of the control loop.
    pub period: u64,
    /// Nanoseconds that old gpulets stay open after a switch.
    pub bake_time: u64,
    /// Nanoseconds that loading one model on one gpulet may take.
    pub prepare_timeout: u64,
    /// Nanoseconds that opening a gpulet takes.
    pub open: u64,
    /// Default nanoseconds that loading a model onto a gpulet takes. A model can override it.
    pub load: u64,
}

/// A file that a workload names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Name of the file in the workload.
    pub name: String,
    /// Contents of the file.
    pub text: Arc<str>,
}

/// A group of identical devices.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Devices {
    /// Name of the section.
    pub name: String,
    /// Number of devices, at least 1.
    pub count: u32,
    /// The section. Sizes and interference are not checked here.
    pub section: DeviceSection,
}

impl Devices {
    /// Device type, as named in profiles.
    pub fn kind(&self) -> &str {
        self.section.kind.as_ref().unwrap_or(&self.name)
    }
}

impl Partition {
    /// Devices of all sections.
    pub fn count(&self) -> u32 {
        self.devices.iter().map(|devices| devices.count).fold(0, u32::saturating_add)
    }

    /// Reads `[devices.NAME]` and `[partition]`. Returns `None` if the workload has neither.
    pub(crate) fn read(
        document: &Document,
        lines: &Lines,
        files: &mut Texts<'_>,
    ) -> Result<Option<Self>, WorkloadError> {
        let section = match (&document.partition, document.devices.is_empty()) {
            (None, true) => return Ok(None),
            (Some(_), true) => {
                let problem = "expected at least one section of devices, like [devices.v100]";
                return Err(WorkloadError::new("devices", problem));
            }
            (None, false) => {
                let problem = "missing: devices need profiles, like `profiles = \"v100.jsonl\"`";
                return Err(WorkloadError::new("partition.profiles", problem));
            }
            (Some(section), false) => section,
        };
        check_others(document)?;
        let time = |key: &str, span: Option<Span>, default: u64, least: u64| {
            let time = span.map_or(default, |span| span.0);
            let problem = || format!("expected {} to {}, got {}", show(least), show(TIME_MAX), show(time));
            if (least..=TIME_MAX).contains(&time) {
                Ok(time)
            } else {
                Err(WorkloadError::new(format!("partition.{key}"), problem()))
            }
        };
        let word = |word: &Option<String>, default: &str| word.clone().unwrap_or_else(|| default.to_owned());
        Ok(Some(Self {
            devices: read_devices(&document.devices, lines)?,
            profiles: read_profiles(section, files)?,
            plan: section.plan.as_deref().map(|plan| named("partition.plan", plan, files)).transpose()?,
            policy: word(&section.policy, "tessera"),
            quota_limit: section.quota_limit.unwrap_or(1.0),
            scaling: word(&section.scaling, "attainment"),
            variants: section.variants.clone(),
            interference: word(&section.interference, "learned"),
            period: time("period", section.period, SECOND, PERIOD_MIN)?,
            bake_time: time("bake_time", section.bake_time, 3 * SECOND, 0)?,
            prepare_timeout: time("prepare_timeout", section.prepare_timeout, 120 * SECOND, 1_000)?,
            open: time("open", section.open, 1_000_000, 0)?,
            load: time("load", section.load, SECOND, 0)?,
        }))
    }
}

/// Rejects keys that contradict `[devices]`.
fn check_others(document: &Document) -> Result<(), WorkloadError> {
    let together = |field: String, problem: &str| Err(WorkloadError::new(field, problem));
    if document.lanes.count.is_some() {
        let problem = "set together with [devices], whose gpulets are the lanes: expected one of them";
        return together("lanes.count".to_owned(), problem);
    }
    if document.lanes.idle_priority {
        let problem = "set together with [devices], whose gpulets have one priority: expected one of them";
        return together("lanes.idle_priority".to_owned(), problem);
    }
    if !document.lanes.failures.is_empty() {
        let problem = "set together with [devices], whose gpulets are the lanes: expected none";
        return together("lanes.failures".to_owned(), problem);
    }
    match document.models.iter().find(|(_, section)| section.profile.is_some()) {
        Some((name, _)) => together(
            format!("models.{name}.profile"),
            "set together with [devices], whose times are those of partition.profiles: expected one of them",
        ),
        None => Ok(()),
    }
}

fn named(field: &str, name: &str, files: &mut Texts<'_>) -> Result<Named, WorkloadError> {
    let text =
        files(name).map_err(|why| WorkloadError::new(field, format!("cannot read `{name}`: {why}")))?;
    Ok(Named { name: name.to_owned(), text })
}

fn read_profiles(section: &PartitionSection, files: &mut Texts<'_>) -> Result<Vec<Named>, WorkloadError> {
    let names = &section.profiles.0;
    if names.is_empty() || names.len() > FILES_MAX {
        let problem = format!("expected 1 to {FILES_MAX} files, got {}", names.len());
        return Err(WorkloadError::new("partition.profiles", problem));
    }
    names.iter().map(|name| named("partition.profiles", name, files)).collect()
}

fn read_devices(
    sections: &BTreeMap<String, DeviceSection>,
    lines: &Lines,
) -> Result<Vec<Devices>, WorkloadError> {
    let mut ordered: Vec<_> = sections.iter().collect();
    ordered.sort_by_key(|(name, _)| lines.find(&format!("devices.{name}")));
    let (mut all, mut count) = (Vec::with_capacity(ordered.len()), 0_u32);
    let mut names = BTreeSet::new();
    for (name, section) in ordered {
        let field = |key: &str| format!("devices.{name}.{key}");
        check_name(name).map_err(|problem| WorkloadError::new(format!("devices.{name}"), problem))?;
        let own = section.count.unwrap_or(1);
        count = count.saturating_add(own);
        if own == 0 || count > DEVICES_MAX {
            let problem = format!("expected 1 or more, and at most {DEVICES_MAX} devices in all, got {own}");
            return Err(WorkloadError::new(field("count"), problem));
        }
        let cost = section.cost.unwrap_or(1.0);
        if !(0.0..=1e9).contains(&cost) {
            return Err(WorkloadError::new(field("cost"), format!("expected 0 to 1e9, got {cost}")));
        }
        if section.loss_per_hour.is_some() || section.replace.is_some() {
            let key = if section.loss_per_hour.is_some() { "loss_per_hour" } else { "replace" };
            let problem = "of use in problem files only: a `[[faults]]` section loses a device".to_owned();
            return Err(WorkloadError::new(field(key), problem));
        }
        if let Some(taken) = section.names(name).find(|name| !names.insert(name.clone())) {
            let problem = format!("the name `{taken}` is taken by a device of another section");
            return Err(WorkloadError::new(format!("devices.{name}"), problem));
        }
        all.push(Devices { name: name.clone(), count: own, section: section.clone() });
    }
    Ok(all)
}
