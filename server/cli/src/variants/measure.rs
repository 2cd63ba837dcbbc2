//! `tessera variants measure`: the quality of models, stored in their folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use node::catalog::{CLASSES_MAX, ClassAccuracy, QUALITY_FILE, Quality, QualityKind};
use node::config::Config;
use node::environment::Environment;
use node::output;
use serde::Serialize;

use super::answers::Answers;
use super::arguments::MeasureArgs;
use super::classifiers::Classifiers;

/// A model that was measured.
#[derive(Debug, Serialize)]
struct Measured {
    model: String,
    #[serde(flatten)]
    quality: Quality,
}

/// Measures the models.
pub fn run(config: &Config, arguments: &MeasureArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    let root = config.repository.path.as_deref().context("--repository: expected a folder of models")?;
    let path = arguments
        .labelled
        .as_deref()
        .or(arguments.data.as_deref())
        .context("expected --labelled or --data")?;
    let classifiers = Classifiers::open(config, &arguments.models, path, environment)?;
    for subject in &classifiers.found {
        let folder = root.join(subject.name.as_str());
        anyhow::ensure!(folder.is_dir(), "{}: expected a folder, for {QUALITY_FILE}", folder.display());
    }
    let reference = match &arguments.reference {
        None => None,
        Some(name) => {
            let subject = classifiers.find("--reference", name)?;
            Some((name.clone(), classifiers.answers(&subject, false)?.classes))
        }
    };
    let mut measured = Vec::new();
    for subject in &classifiers.found {
        let answers = classifiers.answers(subject, arguments.labelled.is_some())?;
        let expected = reference.as_ref().map_or(&answers.labels, |(_, classes)| classes);
        let right =
            answers.classes.iter().zip(expected).filter(|(class, expected)| class == expected).count();
        let quality = Quality {
            value: right as f64 / answers.classes.len() as f64,
            kind: if reference.is_some() { QualityKind::Agreement } else { QualityKind::Accuracy },
            reference: reference.as_ref().map(|(name, _)| name.clone()),
            rows: answers.classes.len() as u64,
            digest: subject.hash.to_string(),
            classes: by_class(&answers),
        };
        if !arguments.dry_run {
            store(&root.join(subject.name.as_str()), &quality)?;
        }
        measured.push(Measured { model: subject.name.to_string(), quality });
    }
    show(&measured, arguments);
    Ok(ExitCode::SUCCESS)
}

/// Accuracy by label. Empty without labels, and with more than [`CLASSES_MAX`] of them.
fn by_class(answers: &Answers) -> BTreeMap<i64, ClassAccuracy> {
    let mut classes: BTreeMap<i64, ClassAccuracy> = BTreeMap::new();
    for (class, label) in answers.classes.iter().zip(&answers.labels) {
        if classes.len() == CLASSES_MAX && !classes.contains_key(label) {
            return BTreeMap::new();
        }
        let one = classes.entry(*label).or_default();
        one.rows += 1;
        one.right += u64::from(class == label);
    }
    classes
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
    if arguments.labelled.is_some() && measured.iter().any(|one| one.quality.classes.is_empty()) {
        output::line(&format!(
            "There are more than {CLASSES_MAX} classes: accuracies of classes were not stored, so the models cannot vote."
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_what_servers_read() {
        let folder = tempfile::tempdir().unwrap();
        let quality = Quality { value: 0.9, rows: 10, digest: "ab".to_owned(), ..Quality::default() };
        store(folder.path(), &quality).unwrap();
        let text = fs::read_to_string(folder.path().join(QUALITY_FILE)).unwrap();
        assert_eq!(Quality::parse(&text), Ok(quality));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn rows_are_counted_by_label() {
        let answers = |count: i64| Answers {
            classes: (0..count).map(|row| row % 3).collect(),
            labels: (0..count).collect(),
            ..Answers::default()
        };
        let right = |right| ClassAccuracy { right, rows: 1 };
        assert_eq!(
            by_class(&answers(4)),
            BTreeMap::from([(0, right(1)), (1, right(1)), (2, right(1)), (3, right(0))])
        );
        assert_eq!(by_class(&answers(10_000)).len(), CLASSES_MAX);
        assert!(by_class(&answers(10_001)).is_empty(), "more classes than a file has");
        assert!(by_class(&Answers { classes: vec![1], ..Answers::default() }).is_empty(), "no labels");
    }
}
