//! Reads and checks the devices, models and planning inputs of a workload.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gpulet_core::control::{
    ControlOptions, Family, FamilyVariant, InitialGpulet, Model, PlanningInputs, Targets, VariantPolicy,
};
use gpulet_core::id::DeviceId;
use gpulet_core::interference::{Interference, NoInterference, Runner};
use gpulet_core::placement::Policy;
use gpulet_core::plan::Plan;
use gpulet_core::problem::{Device, DeviceType};
use gpulet_core::profile::{Profile, Quantile};
use gpulet_core::rollout::RolloutOptions;
use gpulet_core::scaling::SCALERS;
use gpulet_core::time::Micros;
use variant_plan::{LivePolicy, live_policies};
use workload::{Devices, Named, Partition, Workload, WorkloadError};

use super::stages;
use crate::objectives::Divided;
use crate::setup::Setup;
use crate::units::MICROSECOND;

/// The inputs of the control loop.
#[derive(Debug)]
pub(crate) struct ControlInputs {
    pub inputs: PlanningInputs,
    pub options: ControlOptions,
    /// Models, in the order of the workload.
    pub models: Vec<Model>,
    /// Families, whose variants are among the models.
    pub families: Vec<Family>,
    /// True interference by name of the device. A device without an entry has none.
    pub interference: BTreeMap<DeviceId, Interference>,
    /// The plan of the whole run. `None` if plans follow the load.
    pub plan: Option<Plan>,
    /// Name of the plan's file.
    pub plan_name: Option<String>,
    /// Nanoseconds to open a gpulet.
    pub open: u64,
    /// Nanoseconds to load each model, by its name in profiles.
    pub load: BTreeMap<String, u64>,
    /// How the objectives of pipelines are divided, by their numbers in the list of models.
    pub divided: BTreeMap<u32, Divided>,
}

/// The error of a workload, or of a file that it names.
pub(crate) fn fault(field: impl Into<String>, problem: impl Into<String>) -> WorkloadError {
    WorkloadError { file: String::new(), line: None, field: field.into(), problem: problem.into() }
}

impl ControlInputs {
    pub(super) fn new(workload: &Workload, setup: &Setup) -> Result<Option<Self>, WorkloadError> {
        let Some(partition) = &workload.partition else { return Ok(None) };
        let profiles = read_profiles(&partition.profiles)?;
        let mut devices = Vec::new();
        for section in &partition.devices {
            devices.extend(section.section.devices(&section.name, &profiles)?);
        }
        let mut models = read_models(workload, &devices, &profiles)?;
        let divided = stages::divide(workload, &devices, &mut models)?;
        let mut interference = BTreeMap::new();
        for section in &partition.devices {
            if let Some(found) = read_interference(section, &models)? {
                interference
                    .extend(section.section.names(&section.name).map(|name| (name.into(), found.clone())));
            }
        }
        let start = |device: &Device| InitialGpulet {
            device: device.name.clone(),
            first_unit: 0,
            units: device.device_type.sizes.last().copied().unwrap_or(device.device_type.units),
        };
        let inputs = PlanningInputs {
            start: devices.iter().map(start).collect(),
            devices,
            policy: read_policy(
                setup.placement.as_deref().unwrap_or(&partition.policy),
                partition.quota_limit,
            )?,
            variants: read_variants(workload, setup.variants.as_ref().or(partition.variants.as_ref()))?,
            interference: Interference::NoInterference(NoInterference),
            quantile: Quantile::default(),
        };
        inputs.initial_plan(&models, &Targets::default()).map_err(|problem| fault("devices", problem))?;
        let load = workload.models.iter().rev().map(|model| {
            let time = model.load.unwrap_or(partition.load);
            (model.model.clone(), time)
        });
        Ok(Some(Self {
            inputs,
            options: options(partition, setup)?,
            families: workload.families().map(|named| family_of(workload, named)).collect(),
            models,
            interference,
            plan: partition.plan.as_ref().map(read_plan).transpose()?,
            open: partition.open,
            load: load.collect(),
            divided,
            plan_name: partition.plan.as_ref().map(|plan| plan.name.clone()),
        }))
    }

    /// A profile with the least device time of each batch size: time multiplied by share, over all device types.
    pub(super) fn cheapest(&self, model: usize) -> Result<workload::Profile, WorkloadError> {
        let largest = self.models.get(model).map_or(1, |model| model.batch_max);
        let mut points: Vec<(u32, u64)> = Vec::new();
        for rows in 1..=largest {
            // A profile must not fall: a larger batch costs at least as much as a smaller one.
            let least = self.device_times(model, rows, u64::MAX).min().unwrap_or(1).max(1);
            points.push((rows, least.max(points.last().map_or(1, |(_, before)| *before))));
        }
        workload::Profile::from_points(&points)
    }

    /// The least device time per row, in nanoseconds, in batches that take at most `longest` nanoseconds.
    pub(super) fn least_time_per_row(&self, model: usize, longest: u64) -> f64 {
        let largest = self.models.get(model).map_or(1, |model| model.batch_max);
        let per_row = |rows: u32| {
            self.device_times(model, rows, longest).map(move |time| time as f64 / f64::from(rows))
        };
        (1..=largest).flat_map(per_row).fold(f64::INFINITY, f64::min)
    }

    /// Time of a batch multiplied by its share of the device, for every share on which it takes at most `longest`.
    fn device_times(&self, model: usize, rows: u32, longest: u64) -> impl Iterator<Item = u64> {
        let kinds: BTreeMap<&str, &DeviceType> = self
            .inputs
            .devices
            .iter()
            .map(|device| (device.device_type.name.as_str(), device.device_type.as_ref()))
            .collect();
        let shares = kinds.into_values().flat_map(|kind| kind.sizes.iter().map(move |units| (kind, *units)));
        shares.filter_map(move |(kind, units)| {
            let time = self.time(model, &kind.name, units, rows).filter(|time| *time <= longest)?;
            Some((time as f64 * f64::from(units) / f64::from(kind.units)) as u64)
        })
    }

    /// The device type of a device, by name.
    pub(crate) fn kind_of(&self, device: &DeviceId) -> Option<&DeviceType> {
        let found = self.inputs.devices.iter().find(|known| known.name == *device);
        found.map(|device| device.device_type.as_ref())
    }

    /// A batch of a model on `units` units of a device type, as input to interference. `None` without a profile.
    pub(crate) fn runner(&self, model: usize, kind: &str, units: u32, rows: u32) -> Option<Runner<'_>> {
        let profiles = self.models.get(model)?.profiles.as_deref().ok()?;
        let profile = profiles.iter().find(|profile| profile.device() == kind)?;
        Some(Runner { profile, batch: rows, units })
    }

    /// Median nanoseconds of a batch of a model on `units` units of a device type. A batch larger than the profile's
    /// largest counts as several. `None` without a profile.
    pub(crate) fn time(&self, model: usize, kind: &str, units: u32, rows: u32) -> Option<u64> {
        let profiles = self.models.get(model)?.profiles.as_deref().ok()?;
        let profile = profiles.iter().find(|profile| profile.device() == kind)?;
        lane_plan::batch_time(profile, rows, units).map(|time| time.0)
    }
}

fn options(partition: &Partition, setup: &Setup) -> Result<ControlOptions, WorkloadError> {
    let scaling = setup.scaling.as_deref().unwrap_or(&partition.scaling);
    if SCALERS.iter().all(|(word, _)| *word != scaling) {
        let words: Vec<&str> = SCALERS.iter().map(|(word, _)| *word).collect();
        return Err(fault(
            "partition.scaling",
            format!("expected one of {}, got `{scaling}`", words.join(", ")),
        ));
    }
    let micros = |nanos: u64| Micros(nanos / MICROSECOND);
    Ok(ControlOptions {
        scaling: scaling.to_owned(),
        idle_us: None,
        period_us: micros(partition.period),
        uses_learned: read_belief(&partition.interference)?,
        rollout: RolloutOptions {
            prepare_us: micros(partition.prepare_timeout),
            bake_us: micros(partition.bake_time),
            ..RolloutOptions::default()
        },
    })
}

/// Whether plans use the interference that was learned.
fn read_belief(word: &str) -> Result<bool, WorkloadError> {
    match word {
        "learned" => Ok(true),
        "none" => Ok(false),
        _ => Err(fault("partition.interference", format!("expected `learned` or `none`, got `{word}`"))),
    }
}

fn read_policy(name: &str, quota_limit: f64) -> Result<Policy, WorkloadError> {
    let policy = Policy::named(name).ok_or_else(|| {
        fault("partition.policy", format!("expected one of {}, got `{name}`", Policy::NAMES.join(", ")))
    })?;
    if !(0.0..=1.0).contains(&quota_limit) {
        return Err(fault("partition.quota_limit", format!("expected 0 to 1, got {quota_limit}")));
    }
    Ok(policy.with_quota_limit(quota_limit))
}

/// The policy for the variants of families.
fn read_variants(workload: &Workload, name: Option<&String>) -> Result<VariantPolicy, WorkloadError> {
    let Some(name) = name else { return Ok(VariantPolicy::default()) };
    let field = "partition.variants";
    if workload.families().next().is_none() {
        return Err(fault(field, "expected a workload with [families.NAME]"));
    }
    let mut seen = BTreeSet::new();
    for (.., family) in workload.families() {
        for variant in &family.variants {
            let model = workload.models.get(variant.model as usize).map_or("", |model| &model.name);
            if !seen.insert(variant.model) {
                return Err(fault(
                    field,
                    format!("`{model}` is in two families: expected each model in one"),
                ));
            }
        }
    }
    let policy = LivePolicy::named(name).ok_or_else(|| {
        let words: Vec<&str> = live_policies().collect();
        fault(field, format!("expected one of {}, got `{name}`", words.join(", ")))
    })?;
    Ok(VariantPolicy(Some(Arc::new(policy))))
}

/// A family as the control loop knows it.
fn family_of(workload: &Workload, (_, model, family): (u32, &workload::Model, &workload::Family)) -> Family {
    let variants = family.variants.iter().filter_map(|variant| {
        let name = workload.models.get(variant.model as usize)?.name.clone();
        Some(FamilyVariant { name, quality: variant.quality })
    });
    Family {
        name: model.name.clone(),
        slo_us: model.slo as f64 / 1e3,
        quality_min: family.quality_min,
        quality_mean: family.quality_mean,
        variants: variants.collect(),
    }
}

fn read_profiles(files: &[Named]) -> Result<Vec<Profile>, WorkloadError> {
    let mut profiles = Vec::new();
    for file in files {
        let found = Profile::read(&file.text).map_err(|error| WorkloadError {
            file: file.name.clone(),
            line: error.line.and_then(|line| u32::try_from(line).ok()),
            field: error.field,
            problem: error.problem,
        })?;
        profiles.extend(found);
    }
    Ok(profiles)
}

/// What batches do to each other on the devices of a section, of all models that may run there.
fn read_interference(section: &Devices, models: &[Model]) -> Result<Option<Interference>, WorkloadError> {
    let field = format!("devices.{}.interference", section.name);
    let Some(wanted) = &section.section.interference else { return Ok(None) };
    let profiles = models.iter().flat_map(|model| model.profiles.as_deref().unwrap_or_default());
    device_sections::interference_on(&field, wanted, section.kind(), profiles).map(Some)
}

fn read_models(
    workload: &Workload,
    devices: &[Device],
    profiles: &[Profile],
) -> Result<Vec<Model>, WorkloadError> {
    let kinds: BTreeMap<&str, &DeviceType> = devices
        .iter()
        .map(|device| (device.device_type.name.as_str(), device.device_type.as_ref()))
        .collect();
    let mut models: Vec<Model> = Vec::with_capacity(workload.models.len());
    let variants: BTreeSet<u32> =
        workload.families().flat_map(|(.., family)| &family.variants).map(|variant| variant.model).collect();
    // Pipelines and families come after the models that run on lanes, so numbers stay.
    for (number, model) in (0..).zip(&workload.models).filter(|(_, model)| model.is_single()) {
        let field = |key: &str| format!("models.{}.{key}", model.group);
        let of = |kind: &&str| {
            let same = |profile: &&Profile| profile.model() == model.model && profile.device() == *kind;
            profiles.iter().rfind(same).cloned()
        };
        let known: Vec<Profile> = kinds.keys().filter_map(of).collect();
        let Some(largest) = known.iter().map(|profile| profile.batches().1).min() else {
            let named: Vec<&str> = kinds.keys().copied().collect();
            let problem = format!(
                "no profile of `{}` on {}: expected one in partition.profiles",
                model.model,
                named.join(" or ")
            );
            return Err(fault(field("model"), problem));
        };
        let rows = model.rows.iter().map(|(rows, _)| rows).max().unwrap_or(1);
        if rows > largest {
            let problem = format!("expected 1 to {largest} rows, as the profiles go, got {rows}");
            return Err(fault(field("rows"), problem));
        }
        let alone = |profile: &Profile| {
            let units = kinds.get(profile.device()).and_then(|kind| kind.sizes.last().copied());
            lane_plan::batch_time(profile, rows, units?).map(|time| time.0)
        };
        let fastest = known.iter().filter_map(alone).min();
        if fastest.is_none_or(|fastest| fastest > model.slo) {
            let fastest = fastest.map_or_else(String::new, |ns| format!(", {:.3} ms", ns as f64 / 1e6));
            let problem = format!(
                "cannot be met: a request of {rows} row(s) alone takes longer on the fastest whole device{fastest}"
            );
            return Err(fault(field("slo"), problem));
        }
        models.push(Model {
            name: model.name.clone(),
            model: model.model.clone(),
            slo_us: model.slo as f64 / 1e3,
            batch_max: largest,
            profiles: Ok(known.into()),
            load_us: Micros::ZERO,
            // The others of its family can serve without it.
            may_leave: variants.contains(&number),
            is_waited_for: false,
            replicas_min: 1,
            has_place: true,
            stages: Vec::new(),
        });
    }
    Ok(models)
}

/// A plan by itself, or the best of those that `tessera plan --json` answers with.
fn read_plan(file: &Named) -> Result<Plan, WorkloadError> {
    let wrong = |error: serde_json::Error| WorkloadError {
        file: file.name.clone(),
        line: u32::try_from(error.line()).ok().filter(|line| *line > 0),
        field: "gpulets".to_owned(),
        problem: format!(
            "{error}: expected `{{\"gpulets\": [...]}}`, or the answer of `tessera plan --json`"
        ),
    };
    let whole: serde_json::Value = serde_json::from_str(&file.text).map_err(wrong)?;
    let best = whole.pointer("/policies/0/plan").cloned();
    match best {
        Some(plan) => serde_json::from_value(plan).map_err(wrong),
        None => serde_json::from_str(&file.text).map_err(wrong),
    }
}
