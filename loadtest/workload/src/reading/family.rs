//! The sections of families.

use std::collections::BTreeMap;

use crate::document::{FamilySection, ModelSection, Role};
use crate::family::{Family, FamilyVariant};
use crate::spans::show;
use crate::workload::Model;
use units::Fault as WorkloadError;

use super::pipeline::{UNKNOWN, check_known};

/// Most variants of a family.
const VARIANTS_MAX: usize = 64;

/// Marks the models that are variants. Those without an objective have the longest one of their families.
pub(super) fn mark_variants(
    models: &mut BTreeMap<String, ModelSection>,
    families: &BTreeMap<String, FamilySection>,
) {
    for family in families.values() {
        for name in family.variants.keys() {
            if let Some(model) = models.get_mut(name) {
                model.mark_part(family.slo);
            }
        }
    }
}

/// Checks the names of variants before models are read.
pub(super) fn check_variants(
    families: &BTreeMap<String, FamilySection>,
    models: &BTreeMap<String, ModelSection>,
) -> Result<(), WorkloadError> {
    for (name, family) in families {
        let wrong = |problem: String| WorkloadError::new(format!("families.{name}.variants"), problem);
        if !(1..=VARIANTS_MAX).contains(&family.variants.len()) {
            let count = family.variants.len();
            return Err(wrong(format!("expected 1 to {VARIANTS_MAX} variants, got {count}")));
        }
        for (variant, quality) in &family.variants {
            check_known(variant, models).map_err(wrong)?;
            if !(0.0..=1.0).contains(quality) {
                return Err(wrong(format!("`{variant}`: expected a quality from 0 to 1, got {quality}")));
            }
        }
        let best = family.variants.values().copied().fold(0.0, f64::max);
        for (key, quality) in [("quality_min", family.quality_min), ("quality_mean", family.quality_mean)] {
            if !(0.0..=best).contains(&quality) {
                let problem = format!("expected 0 to {best}, the best variant's, got {quality}");
                return Err(WorkloadError::new(format!("families.{name}.{key}"), problem));
            }
        }
    }
    Ok(())
}

/// The traffic of each family, as that of a model.
pub(super) fn traffic(families: &BTreeMap<String, FamilySection>) -> BTreeMap<String, ModelSection> {
    let of = |section: &FamilySection| ModelSection {
        rate: section.rate,
        arrivals: section.arrivals.clone(),
        rows: section.rows.clone(),
        row_bytes: section.row_bytes,
        priority: section.priority,
        tenants: section.tenants.clone(),
        deadline: section.deadline,
        overhead: section.overhead.clone(),
        ..ModelSection::of_traffic(Role::Family, section.slo)
    };
    families.iter().map(|(name, section)| (name.clone(), of(section))).collect()
}

/// Adds the variants to the models that are families. `own`: how many models come before pipelines and families.
pub(super) fn read(
    families: &BTreeMap<String, FamilySection>,
    models: &mut [Model],
    own: usize,
) -> Result<(), WorkloadError> {
    for (name, section) in families {
        let wrong =
            |key: &str, problem: String| Err(WorkloadError::new(format!("families.{name}.{key}"), problem));
        let Some(family) = models.iter().position(|model| model.name == *name) else { continue };
        let Some(traffic) = models.get(family).cloned() else { continue };
        let most = traffic.rows.iter().map(|(rows, _)| rows).max().unwrap_or(1);
        let mut found = Vec::new();
        for (variant, quality) in &section.variants {
            let number = models.iter().take(own).position(|model| model.name == *variant);
            let Some((number, model)) = number.and_then(|number| Some((number, models.get(number)?))) else {
                return wrong("variants", format!("`{variant}`: {UNKNOWN}"));
            };
            let largest = model.profile.as_ref().map_or(u32::MAX, crate::Profile::max_batch);
            if most > largest {
                return wrong(
                    "rows",
                    format!("expected at most {largest}, the largest batch of `{variant}`, got {most}"),
                );
            }
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            found.push(FamilyVariant { model: number, quality: *quality });
        }
        let (quality_min, quality_mean) = (section.quality_min, section.quality_mean);
        let read = Family { variants: found, quality_min, quality_mean };
        let alone = read.allowed().filter_map(|variant| {
            models.get(variant.model as usize)?.profile.as_ref().map(|profile| profile.time(most))
        });
        if let Some(alone) = alone.min().filter(|alone| traffic.slo < *alone) {
            let (slo, alone) = (show(traffic.slo), show(alone));
            return wrong("slo", format!("{slo} cannot be met: the fastest variant alone takes {alone}"));
        }
        if let Some(model) = models.get_mut(family) {
            model.family = Some(read);
        }
    }
    Ok(())
}
