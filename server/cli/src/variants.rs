//! `tessera variants`: makes variants of a model, and measures the quality of models for `[families.NAME]`.

mod answers;
pub mod arguments;
mod make;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use models::Loader;
use node::catalog::{QUALITY_FILE, Quality, QualityKind, Source};
use node::config::{Config, FamilySettings};
use node::environment::Environment;
use node::output;
use serde::Serialize;

use crate::profile::subjects::{self, Subject};
use answers::{Answers, Rows};
use arguments::{MeasureArgs, VariantsAction, VariantsArgs};

/// A model that was measured.
#[derive(Debug, Serialize)]
struct Measured {
    model: String,
    #[serde(flatten)]
    quality: Quality,
}

/// Runs the command.
pub fn run(config: &Config, arguments: &VariantsArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    match &arguments.action {
        VariantsAction::Measure(arguments) => measure(config, arguments, environment),
        VariantsAction::Make(arguments) => make::run(config, arguments),
    }
}

fn measure(config: &Config, arguments: &MeasureArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    let root = config.repository.path.as_deref().context("--repository: expected a folder of models")?;
    let names = models_of(&config.families, &arguments.names);
    let source = Source::open(&config.repository)?;
    let found = subjects::find(&source, config, "NAME", &names)?;
    for subject in &found {
        let folder = root.join(subject.name.as_str());
        anyhow::ensure!(folder.is_dir(), "{}: expected a folder, for {QUALITY_FILE}", folder.display());
    }
    let ort = models::engine::ort::discover(config.repository.ort_library.as_deref(), &environment.ort);
    let loader = Loader::new(ort);
    let path = arguments
        .labelled
        .as_deref()
        .or(arguments.data.as_deref())
        .context("expected --labelled or --data")?;
    let rows = Rows::open(path)?;
    let cores = crate::split::cores(arguments.cores)?;
    let answers_of = |subject: &Subject, label: Option<&str>| -> anyhow::Result<Answers> {
        let files = subject.read(&source).map_err(anyhow::Error::msg)?;
        let mut session = loader.load(&files, &subject.config.load_options(&cores, false))?;
        let context = || format!("model `{}`", subject.name);
        Answers::of(session.as_mut(), &rows, arguments.output.as_deref(), label).with_context(context)
    };
    let reference = match &arguments.reference {
        None => None,
        Some(name) => {
            let found = subjects::find(&source, config, "--reference", std::slice::from_ref(name))?;
            let subject = found.first().context("--reference: expected a model")?;
            Some((name.clone(), answers_of(subject, None)?.classes))
        }
    };
    let mut measured = Vec::new();
    for subject in &found {
        let label = arguments.labelled.as_ref().map(|_| arguments.label.as_str());
        let answers = answers_of(subject, label)?;
        let expected = reference.as_ref().map_or(&answers.labels, |(_, classes)| classes);
        anyhow::ensure!(!answers.classes.is_empty(), "{}: has no rows", path.display());
        let right =
            answers.classes.iter().zip(expected).filter(|(class, expected)| class == expected).count();
        let quality = Quality {
            value: right as f64 / answers.classes.len() as f64,
            kind: if reference.is_some() { QualityKind::Agreement } else { QualityKind::Accuracy },
            reference: reference.as_ref().map(|(name, _)| name.clone()),
            rows: answers.classes.len() as u64,
            digest: subject.hash.to_string(),
        };
        if !arguments.dry_run {
            store(&root.join(subject.name.as_str()), &quality)?;
        }
        measured.push(Measured { model: subject.name.to_string(), quality });
    }
    show(&measured, arguments);
    Ok(ExitCode::SUCCESS)
}

/// The variants of families, and other names as they are.
fn models_of(families: &BTreeMap<String, FamilySettings>, names: &[String]) -> Vec<String> {
    let mut models: Vec<String> = Vec::new();
    for name in names {
        let family = families.get(name).map(|family| family.variants.as_slice());
        for model in family.unwrap_or(std::slice::from_ref(name)) {
            if !models.contains(model) {
                models.push(model.clone());
            }
        }
    }
    models
}

fn store(folder: &Path, quality: &Quality) -> anyhow::Result<()> {
    let (path, new) = (folder.join(QUALITY_FILE), folder.join(format!(".{QUALITY_FILE}.tmp")));
    let text = serde_json::to_string_pretty(quality)? + "\n";
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn show(measured: &[Measured], arguments: &MeasureArgs) {
    if arguments.json {
        if let Ok(text) = serde_json::to_string(measured) {
            output::line(&text);
        }
        return;
    }
    let kind = match &arguments.reference {
        Some(reference) => format!("agreement with {reference}"),
        None => "accuracy".to_owned(),
    };
    let rows = measured.iter().map(|one| {
        vec![one.model.clone(), format!("{:.2} %", one.quality.value * 100.0), one.quality.rows.to_string()]
    });
    output::write(output::table(&["model", &kind, "rows"], rows.collect::<Vec<_>>()).as_bytes());
    let written = if arguments.dry_run {
        "Nothing was written (--dry-run)."
    } else {
        "Written to quality.json in the folder of each model."
    };
    output::line(&format!("\n{written}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_stand_for_their_variants() {
        let family = toml::from_str("variants = ['s', 'l']").unwrap();
        let families = BTreeMap::from([("digits".to_owned(), family)]);
        let names = ["l", "digits", "other"].map(str::to_owned);
        assert_eq!(models_of(&families, &names), ["l", "s", "other"]);
    }

    #[test]
    fn what_is_stored_is_what_servers_read() {
        let folder = tempfile::tempdir().unwrap();
        let quality = Quality { value: 0.9, rows: 10, digest: "ab".to_owned(), ..Quality::default() };
        store(folder.path(), &quality).unwrap();
        let text = fs::read_to_string(folder.path().join(QUALITY_FILE)).unwrap();
        assert_eq!(Quality::parse(&text), Ok(quality));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
