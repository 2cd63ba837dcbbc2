//! Reads families and spot devices.

use std::path::Path;

use device_sections::{REPLACE, known_words};
use gpulet_core::id::DeviceId;
use gpulet_core::problem::Workload;
use gpulet_core::profile::{BATCH_MAX, Profile};
use node::catalog::Quality;
use node::files::read_text;
use variant_plan::{Family, Spot, SpotRules, Variant};
use workload::WorkloadError;

use super::super::document::{Document, FamilySection, QualitySection};
use super::super::fields::{check_name, fault, slo_us};

/// Largest file of a quality.
const QUALITY_BYTES: u64 = 1 << 20;
/// Default for `spot_lost_max`: a tenth of what an attainment of 99 % leaves.
const SPOT_LOST_MAX: f64 = 0.001;

/// The families of a file. Paths of qualities are relative to its folder.
///
/// # Errors
/// The key, and what is wrong with it.
pub fn read(
    sections: &[(&str, &FamilySection)],
    profiles: &[Profile],
    folder: &Path,
) -> Result<Vec<Family>, WorkloadError> {
    sections.iter().map(|(name, section)| family(name, section, profiles, folder)).collect()
}

fn family(
    name: &str,
    section: &FamilySection,
    profiles: &[Profile],
    folder: &Path,
) -> Result<Family, WorkloadError> {
    check_name(&format!("families.{name}"), name)?;
    let mut variants = Vec::new();
    for (model, quality) in &section.variants {
        let field = || format!("families.{name}.variants.{model}");
        if profiles.iter().all(|profile| profile.model() != model) {
            let known = known_words(model, profiles.iter().map(Profile::model));
            return fault(field(), format!("no profile of `{model}`{known}"));
        }
        let quality = match quality {
            QualitySection::Number(number) => *number,
            QualitySection::File(path) => {
                measured(&folder.join(path)).or_else(|problem| fault(field(), problem))?
            }
        };
        variants.push(Variant::of_model(model.clone(), quality));
    }
    let demand = Workload {
        name: name.to_owned(),
        model: name.to_owned(),
        tenant: section.tenant.clone(),
        not_with: section.not_with.clone(),
        slo_us: slo_us(&format!("families.{name}.slo"), section.slo)?,
        rate: section.rate,
        headroom: section.headroom.unwrap_or(1.0),
        replicas_min: 1,
        batch_max: section.batch_max.unwrap_or(BATCH_MAX),
    };
    let (quality_min, quality_mean) = (section.quality_min, section.quality_mean);
    Ok(Family { name: name.to_owned(), demand, quality_min, quality_mean, variants })
}

fn measured(path: &Path) -> Result<f64, String> {
    let text = read_text(path, QUALITY_BYTES).map_err(|error| format!("{error:#}"))?;
    let quality = Quality::parse(&text).map_err(|problem| format!("`{}`: {problem}", path.display()))?;
    Ok(quality.value)
}

/// The spot devices of a file. `sections`: the section of each device.
///
/// # Errors
/// The key, and what is wrong with it.
pub fn spot(document: &Document, sections: &[(DeviceId, String)]) -> Result<SpotRules, WorkloadError> {
    let mut devices = Vec::new();
    for (device, name) in sections {
        let Some(section) = document.devices.get(name) else { continue };
        match (section.loss_per_hour, section.replace) {
            (None, None) => {}
            (None, Some(_)) => {
                let problem = "of use with `loss_per_hour` only: expected both, or neither";
                return fault(format!("devices.{name}.replace"), problem);
            }
            (Some(loss_per_hour), replace) => {
                let replace_s = replace.unwrap_or(REPLACE).0.as_secs_f64();
                devices.push(Spot { device: device.clone(), loss_per_hour, replace_s });
            }
        }
    }
    if devices.is_empty() && document.spot_lost_max.is_some() {
        return fault(
            "spot_lost_max",
            "of use with spot devices only: expected `loss_per_hour` in a section of devices",
        );
    }
    Ok(SpotRules { devices, lost_max: document.spot_lost_max.unwrap_or(SPOT_LOST_MAX) })
}

/// Refuses keys that are of use with families only.
///
/// # Errors
/// The key.
pub fn unused(document: &Document) -> Result<(), WorkloadError> {
    let only = "of use with [families.NAME] only";
    for (name, section) in &document.devices {
        let set =
            [("loss_per_hour", section.loss_per_hour.is_some()), ("replace", section.replace.is_some())];
        if let Some((key, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
            return fault(format!("devices.{name}.{key}"), only);
        }
    }
    if document.spot_lost_max.is_some() {
        return fault("spot_lost_max", only);
    }
    Ok(())
}
