//! The families of a workload on a server with synthetic models, and what their variants answered.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use models::repository::Repository;
use models::{ModelName, TimeSpan, Version};
use node::catalog::{QUALITY_FILE, Quality};
use toml::{Table, Value};
use workload::{Family, Workload};

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

/// The tables of the families in a configuration file. Empty without families.
pub fn tables(workload: &Workload) -> Table {
    let table = |own: &workload::Model, family: &Family| {
        let variants = names(workload, family).map(|name| Value::String(name.to_owned()));
        Table::from_iter([
            ("slo".to_owned(), Value::String(TimeSpan(Duration::from_nanos(own.slo)).to_string())),
            ("variants".to_owned(), Value::Array(variants.collect())),
            ("quality_min".to_owned(), Value::Float(family.quality_min)),
        ])
    };
    let families = workload.families();
    families.map(|(_, own, family)| (own.name.clone(), Value::Table(table(own, family)))).collect()
}

fn names<'a>(workload: &'a Workload, family: &'a Family) -> impl Iterator<Item = &'a str> {
    let models = family.variants.iter().filter_map(|variant| workload.models.get(variant.model as usize));
    models.map(|model| model.name.as_str())
}

/// Mean quality of the answers of each family, by the answers of each model since the warm-up. A model with requests of its own
/// counts them too.
pub fn qualities(workload: &Workload, answered: &BTreeMap<String, u64>) -> Vec<(String, f64)> {
    let of = |own: &workload::Model, family: &Family| {
        let (mut sum, mut all) = (0.0, 0.0);
        for (variant, name) in family.variants.iter().zip(names(workload, family)) {
            let count = answered.get(name).copied().unwrap_or_default() as f64;
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
        let settings: node::config::FamilySettings = tables(&workload)["images"].clone().try_into().unwrap();
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
