//! `[families.NAME]`: models that answer the same requests with different quality.

use documented::DocumentedFields;
use models::TimeSpan;
use serde::Deserialize;
use toml::{Table, Value};
use units::in_words;

use super::{Origin, Problem, fields};

/// Families that there may be at most.
const FAMILIES_MAX: usize = 1_000;
/// Variants of a family at most.
const VARIANTS_MAX: usize = 64;

/// One `[families.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct FamilySettings {
    /// Objective of its requests. Other settings of the family go into `[models.NAME]`. Default: none. Example: `"20ms"`.
    pub slo: Option<TimeSpan>,
    /// Models that answer its requests, with the same inputs and outputs. The quality of each is measured by `tessera variants measure`
    /// ([guide](../choices.md)). Default: none, which is refused. Example: `["digits-s", "digits-m", "digits-l"]`.
    pub variants: Vec<String>,
    /// Least quality that requests get, from 0 to 1, unless they ask for another one with the parameter `quality_min`. Default: `0.0`.
    /// Example: `0.95`.
    pub quality_min: f64,
    /// Least mean quality that plans aim for, from 0 to 1, if `partition.variants` chooses the variants. Where the devices do not suffice,
    /// `tessera` and `proteus` plan for less quality before they plan for fewer requests. Default: `0.0`. Example: `0.97`.
    pub quality_mean: f64,
}

/// Reports every mistake in every family's table.
pub fn check(families: &Table, origin: impl Fn(&str) -> Origin, problems: &mut Vec<Problem>) {
    if families.len() > FAMILIES_MAX {
        let message = format!("{} families: expected at most {FAMILIES_MAX}", families.len());
        problems.push(Problem::new("families", &message, &origin("families")));
    }
    for (name, settings) in families {
        let path = format!("families.{name}");
        let mut report =
            |path: &str, message: &str| problems.push(Problem::new(path, message, &origin(path)));
        if let Err(error) = name.parse::<models::ModelName>() {
            report(&path, &error.to_string());
        }
        let Value::Table(settings) = settings else {
            report(&path, "expected a table like [families.digits]");
            continue;
        };
        if !settings.contains_key("variants") {
            report(&path, "variants: expected a list of models");
        }
        for (key, value) in settings {
            if let Err(message) = check_key(key, value) {
                report(&format!("{path}.{key}"), &message);
            }
        }
    }
}

/// Whether a family may have this key with this value.
///
/// # Errors
/// What would be right.
pub fn check_key(key: &str, value: &Value) -> Result<(), String> {
    let known = fields::of::<FamilySettings>();
    if !known.contains(&key) {
        return Err(fields::unknown(key, known, "key"));
    }
    let one = Table::from_iter([(key.to_owned(), value.clone())]);
    let read = one.try_into::<FamilySettings>().map_err(|error| in_words(error.message()))?;
    if let Some(wrong) = [read.quality_min, read.quality_mean].iter().find(|one| !(0.0..=1.0).contains(*one))
    {
        return Err(format!("expected 0 to 1, got {wrong}"));
    }
    if key == "variants" && !(1..=VARIANTS_MAX).contains(&read.variants.len()) {
        return Err(format!("expected 1 to {VARIANTS_MAX} models, got {}", read.variants.len()));
    }
    let twice = read
        .variants
        .iter()
        .enumerate()
        .find(|(at, name)| read.variants.iter().take(*at).any(|one| one == *name));
    match twice {
        Some((_, name)) => Err(format!("`{name}` is there twice: expected each model once")),
        None => Ok(()),
    }
}
