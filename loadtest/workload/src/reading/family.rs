//! The sections of families.

use std::collections::BTreeMap;

use crate::document::{ClassSection, FamilySection, ModelSection, Role};
use crate::family::{Family, FamilyVariant};
use crate::spans::show;
use crate::workload::Model;
use units::{Fault as WorkloadError, nearest};

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
        let wrong = |problem: String| Err(WorkloadError::new(format!("families.{name}.variants"), problem));
        if !(1..=VARIANTS_MAX).contains(&family.variants.len()) {
            return wrong(format!("expected 1 to {VARIANTS_MAX} variants, got {}", family.variants.len()));
        }
        for (variant, quality) in &family.variants {
            let copy_of = variant.rsplit_once('-').map_or("", |(group, _)| group);
            if !models.contains_key(variant) && !models.contains_key(copy_of) {
                let known: Vec<&str> = models.keys().map(String::as_str).collect();
                let hint = nearest(variant, &known).map(|near| format!(", did you mean `{near}`?"));
                return wrong(format!("`{variant}`: no such model in [models]{}", hint.unwrap_or_default()));
            }
            if !(0.0..=1.0).contains(quality) {
                return wrong(format!("`{variant}`: expected a quality from 0 to 1, got {quality}"));
            }
        }
        let best = family.variants.values().copied().fold(0.0, f64::max);
        if !(0.0..=best).contains(&family.quality_min) {
            let problem = format!("expected 0 to {best}, the best variant's, got {}", family.quality_min);
            return Err(WorkloadError::new(format!("families.{name}.quality_min"), problem));
        }
    }
    Ok(())
}

/// The traffic of each family, as that of a model.
pub(super) fn traffic(families: BTreeMap<String, FamilySection>) -> BTreeMap<String, ModelSection> {
    let of = |section: FamilySection| ModelSection {
        role: Role::Family,
        count: 1,
        slo: Some(section.slo),
        model: None,
        load: None,
        lanes: None,
        profile: None,
        rate: section.rate,
        arrivals: section.arrivals,
        rows: section.rows,
        row_bytes: section.row_bytes,
        priority: section.priority,
        class: ClassSection::Online,
        tenants: section.tenants,
        deadline: section.deadline,
        overhead: section.overhead,
        rollout: None,
    };
    families.into_iter().map(|(name, section)| (name, of(section))).collect()
}

/// What is left of the section of a family when its traffic is read: its variants and their qualities, and the least quality.
pub(super) type Variants = (Vec<(String, f64)>, f64);

/// Adds the variants to the models that are families. `own`: how many models come before pipelines and families.
pub(super) fn read(
    families: &BTreeMap<String, Variants>,
    models: &mut [Model],
    own: usize,
) -> Result<(), WorkloadError> {
    for (name, (variants, quality_min)) in families {
        let wrong =
            |key: &str, problem: String| Err(WorkloadError::new(format!("families.{name}.{key}"), problem));
        let Some(family) = models.iter().position(|model| model.name == *name) else { continue };
        let Some(traffic) = models.get(family).cloned() else { continue };
        let most = traffic.rows.iter().map(|(rows, _)| rows).max().unwrap_or(1);
        let mut found = Vec::new();
        for (variant, quality) in variants {
            let number = models.iter().take(own).position(|model| model.name == *variant);
            let Some((number, model)) = number.and_then(|number| Some((number, models.get(number)?))) else {
                return wrong("variants", format!("`{variant}`: no such model in [models]"));
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
        let read = Family { variants: found, quality_min: *quality_min };
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
