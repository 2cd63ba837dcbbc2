//! The families of a workload on the server of a comparison, and what their variants answered.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use models::repository::Repository;
use models::{ModelName, TimeSpan, Version};
use node::catalog::{QUALITY_FILE, Quality};
use toml::{Table, Value};
use workload::{Family, Model, Workload};

/// The qualities of the workload as if they had been measured of the models in this folder.
///
/// # Errors
/// A file cannot be read or written.
pub fn write_qualities(workload: &Workload, models: &Path) -> anyhow::Result<()> {
    let variants = workload.families().flat_map(|(.., family)| &family.variants);
    let qualities: BTreeMap<u32, f64> = variants.map(|variant| (variant.model, variant.quality)).collect();
    if qualities.is_empty() {
        return Ok(());
    }
    let repository = Repository::open(models)?;
    for (number, value) in qualities {
        let Some(model) = workload.models.get(number as usize) else { continue };
        let name: ModelName = model.name.parse()?;
        let files = repository.read(&name, Version(1), None)?;
        let quality = Quality { value, rows: 1, digest: files.hash.to_string(), ..Quality::default() };
        let path = models.join(&model.name).join(QUALITY_FILE);
        fs::write(path, serde_json::to_string(&quality)?).context("cannot write a quality")?;
    }
    Ok(())
}

/// Gives the variants of a workload the qualities that `tessera variants measure` stored next to the models in this folder. Returns a
/// line for each family. `served`: the name of a model in the folder.
///
/// # Errors
/// A quality is missing or not valid, or no variant has the quality that requests ask for.
pub fn read_qualities(
    workload: &mut Workload,
    models: &Path,
    served: impl Fn(&Model) -> String,
) -> anyhow::Result<Vec<String>> {
    if workload.families().next().is_none() {
        return Ok(Vec::new());
    }
    let repository = Repository::open(models)?;
    let names: Vec<String> = workload.models.iter().map(served).collect();
    let mut found = Vec::new();
    for model in &mut workload.models {
        let Some(family) = &mut model.family else { continue };
        let field = format!("families.{}", model.name);
        let mut qualities = Vec::new();
        for variant in &mut family.variants {
            let Some(name) = names.get(variant.model as usize) else { continue };
            let text = repository.text(&name.parse()?, QUALITY_FILE).with_context(|| {
                format!("{field}.variants: expected the quality of `{name}`, as `tessera variants measure` stores it")
            })?;
            let quality = Quality::parse(&text).map_err(anyhow::Error::msg);
            variant.quality = quality.with_context(|| format!("{name}/{QUALITY_FILE}"))?.value;
            qualities.push(format!("{name} {}", variant.quality));
        }
        anyhow::ensure!(
            family.allowed().next().is_some(),
            "{field}.quality_min: expected at most the quality of the best variant ({}), got {}",
            qualities.join(", "),
            family.quality_min
        );
        found.push(format!("{field}: qualities of the repository: {}", qualities.join(", ")));
    }
    Ok(found)
}

/// The tables of the families in a configuration file. Empty without families. `served`: what the server calls a model.
pub fn tables<'a>(workload: &'a Workload, served: impl Fn(&'a Model) -> &'a str) -> Table {
    let table = |own: &Model, family: &'a Family| {
        let variants = variants(workload, family).map(|model| Value::String(served(model).to_owned()));
        Table::from_iter([
            ("slo".to_owned(), Value::String(TimeSpan(Duration::from_nanos(own.slo)).to_string())),
            ("variants".to_owned(), Value::Array(variants.collect())),
            ("quality_min".to_owned(), Value::Float(family.quality_min)),
        ])
    };
    let families = workload.families();
    families.map(|(_, own, family)| (own.name.clone(), Value::Table(table(own, family)))).collect()
}

fn variants<'a>(workload: &'a Workload, family: &'a Family) -> impl Iterator<Item = &'a Model> {
    family.variants.iter().filter_map(|variant| workload.models.get(variant.model as usize))
}

/// Mean quality of the answers of each family, by the answers of each model since the warm-up. A model with requests of its own
/// counts them too.
pub fn qualities(workload: &Workload, answered: &BTreeMap<String, u64>) -> Vec<(String, f64)> {
    let of = |own: &Model, family: &Family| {
        let (mut sum, mut all) = (0.0, 0.0);
        for (variant, model) in family.variants.iter().zip(variants(workload, family)) {
            let count = answered.get(&model.name).copied().unwrap_or_default() as f64;
            sum += count * variant.quality;
            all += count;
        }
        (all > 0.0).then(|| (own.name.clone(), sum / all))
    };
    workload.families().filter_map(|(_, own, family)| of(own, family)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::reading::parse;

    const TEXT: &str = r#"name = "families"
duration = "1s"
[models.large]
profile = { alpha = "1ms", beta = "5ms", max_batch = 8 }
[models.small]
profile = { alpha = "1ms", beta = "1ms", max_batch = 8 }
[families.images]
slo = "100ms"
rate = 10
quality_min = 0.6
variants = { large = 0.8, small = 0.6 }
"#;

    #[test]
    fn a_server_reads_the_families_and_their_qualities() {
        let workload = parse(TEXT, Path::new("families.toml")).unwrap();
        let settings: node::config::FamilySettings =
            tables(&workload, |model| &model.name)["images"].clone().try_into().unwrap();
        assert_eq!(
            (settings.variants, settings.quality_min),
            (vec!["large".to_owned(), "small".to_owned()], 0.6)
        );
        assert_eq!(settings.slo, Some(TimeSpan(Duration::from_millis(100))));
        let folder = tempfile::tempdir().unwrap();
        for model in ["large", "small"] {
            fs::create_dir_all(folder.path().join(model).join("1")).unwrap();
            fs::write(folder.path().join(model).join("1/model.toml"), model).unwrap();
        }
        write_qualities(&workload, folder.path()).unwrap();
        let text = fs::read_to_string(folder.path().join("small").join(QUALITY_FILE)).unwrap();
        assert_eq!(Quality::parse(&text).unwrap().value, 0.6);
    }

    #[test]
    fn variants_of_real_models_have_the_qualities_that_were_measured() {
        let folder = tempfile::tempdir().unwrap();
        let served = |model: &Model| format!("my-{}", model.name);
        let store = |name: &str, value: f64| {
            let quality = Quality { value, rows: 1, digest: "0".to_owned(), ..Quality::default() };
            fs::create_dir_all(folder.path().join(name)).unwrap();
            let path = folder.path().join(name).join(QUALITY_FILE);
            fs::write(path, serde_json::to_string(&quality).unwrap()).unwrap();
        };
        let read = || {
            let mut workload = parse(TEXT, Path::new("families.toml")).unwrap();
            let found = read_qualities(&mut workload, folder.path(), served);
            found.map(|found| (workload, found)).map_err(|error| error.to_string())
        };
        store("my-large", 0.7);
        let missing = read().unwrap_err();
        assert!(missing.contains("families.images.variants: ") && missing.contains("my-small"), "{missing}");
        store("my-small", 0.5);
        let (workload, found) = read().unwrap();
        assert_eq!(found, ["families.images: qualities of the repository: my-large 0.7, my-small 0.5"]);
        let named = tables(&workload, |model| if model.name == "large" { "my-large" } else { "my-small" });
        assert_eq!(named["images"]["variants"], Value::from(vec!["my-large", "my-small"]));
        let answered = BTreeMap::from([("large".to_owned(), 30), ("small".to_owned(), 10)]);
        assert!((qualities(&workload, &answered)[0].1 - 0.65).abs() < 1e-9);
        store("my-large", 0.5);
        let low = read().unwrap_err();
        assert!(low.starts_with("families.images.quality_min: expected at most"), "{low}");
    }

    #[test]
    fn the_quality_is_the_mean_of_what_the_variants_answered() {
        let workload = parse(TEXT, Path::new("families.toml")).unwrap();
        let answered =
            BTreeMap::from([("large".to_owned(), 30), ("small".to_owned(), 10), ("images".to_owned(), 40)]);
        let [(name, quality)] = &qualities(&workload, &answered)[..] else { panic!("expected one family") };
        assert_eq!(name, "images");
        assert!((quality - 0.75).abs() < 1e-9, "{quality}");
        assert_eq!(qualities(&workload, &BTreeMap::new()), []);
    }
}
