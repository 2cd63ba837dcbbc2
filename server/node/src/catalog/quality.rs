//! The measured quality of a model, in a file in its folder.

use std::collections::BTreeMap;

use models::ContentHash;
use serde::{Deserialize, Serialize};

/// Name of the file.
pub const QUALITY_FILE: &str = "quality.json";

/// Classes of which a file has the accuracy at most.
pub const CLASSES_MAX: usize = 10_000;

/// What a quality is the share of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QualityKind {
    /// Rows whose answer is their label.
    #[default]
    Accuracy,
    /// Rows whose answer is that of a reference model.
    Agreement,
}

/// How often a model is right about the rows of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassAccuracy {
    /// Rows of the class whose answer is the class.
    pub right: u64,
    /// Rows of the class, at least 1.
    pub rows: u64,
}

/// The measured quality of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quality {
    /// From 0 to 1.
    #[serde(rename = "quality")]
    pub value: f64,
    /// What it is the share of.
    pub kind: QualityKind,
    /// The model that it is compared with, for an agreement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Rows that were measured.
    pub rows: u64,
    /// SHA-256 of the model's files.
    pub digest: String,
    /// Accuracy by label. Empty without labels, with more than [`CLASSES_MAX`] of them, and in files of earlier releases.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<i64, ClassAccuracy>,
}

impl Quality {
    /// The text of a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if !(0.0..=1.0).contains(&read.value) {
            return Err(format!("quality: expected 0 to 1, got {}", read.value));
        }
        if read.classes.len() > CLASSES_MAX {
            return Err(format!("classes: expected at most {CLASSES_MAX}, got {}", read.classes.len()));
        }
        let wrong = |(_, one): &(&i64, &ClassAccuracy)| one.rows == 0 || one.right > one.rows;
        if let Some((class, one)) = read.classes.iter().find(wrong) {
            let expected = "expected at least one row, and at most as many right answers as rows";
            return Err(format!("classes.{class}: {expected}, got {} of {}", one.right, one.rows));
        }
        Ok(read)
    }

    /// The stored quality of a model, if it was measured of the files with this hash.
    ///
    /// # Errors
    /// It was never measured, or of other files.
    pub(super) fn of_files((name, hash): (&str, ContentHash), stored: Option<Self>) -> Result<Self, String> {
        let remedy = "measure it with `tessera variants measure`";
        let quality = stored.ok_or_else(|| format!("the quality of `{name}` was not measured: {remedy}"))?;
        if quality.digest == hash.to_string() {
            return Ok(quality);
        }
        let problem = "was measured of other files than those that are served";
        Err(format!("the quality of `{name}` {problem}: {remedy} again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let quality = Quality { value: 0.95, rows: 360, digest: "ab".to_owned(), ..Quality::default() };
        let text = serde_json::to_string(&quality).unwrap();
        assert!(!text.contains("classes"), "{text}");
        assert_eq!(Quality::parse(&text), Ok(quality.clone()));
        let classes = [(-1, 3), (7, 4)].map(|(class, rows)| (class, ClassAccuracy { right: 3, rows }));
        let quality = Quality { classes: classes.into(), ..quality };
        assert_eq!(Quality::parse(&serde_json::to_string(&quality).unwrap()), Ok(quality));
        let text = r#"{"quality": 1.5, "kind": "agreement", "reference": "l", "rows": 3, "digest": "ab"}"#;
        assert_eq!(Quality::parse(text).unwrap_err(), "quality: expected 0 to 1, got 1.5");
        assert!(Quality::parse("{}").unwrap_err().contains("missing field `quality`"));
    }

    #[test]
    fn accuracies_of_classes_are_checked() {
        let parse = |classes: &str| {
            let start = r#"{"quality": 1, "kind": "accuracy", "rows": 3, "digest": "ab", "classes": {"#;
            Quality::parse(&format!("{start}{classes}}}}}"))
        };
        assert_eq!(parse(r#""5": {"right": 3, "rows": 3}"#).unwrap().classes.len(), 1);
        let expected = "at least one row, and at most as many right answers as rows";
        for (classes, said) in [
            (r#""5": {"right": 4, "rows": 3}"#, format!("classes.5: expected {expected}, got 4 of 3")),
            (r#""5": {"right": 0, "rows": 0}"#, format!("classes.5: expected {expected}, got 0 of 0")),
            (r#""five": {"right": 0, "rows": 1}"#, "invalid".to_owned()),
        ] {
            let error = parse(classes).unwrap_err();
            assert!(error.contains(&said), "{error}");
        }
        let many: Vec<String> =
            (0..=CLASSES_MAX).map(|class| format!(r#""{class}": {{"right": 0, "rows": 1}}"#)).collect();
        assert_eq!(parse(&many.join(",")).unwrap_err(), "classes: expected at most 10000, got 10001");
    }

    #[test]
    fn quality_is_that_of_the_files_that_are_served() {
        let hash = ContentHash::of(b"model");
        let read = |digest: Option<&str>| {
            let stored = digest.map(|digest| Quality { digest: digest.to_owned(), ..Quality::default() });
            Quality::of_files(("s", hash), stored)
        };
        assert!(read(Some(&hash.to_string())).is_ok());
        let error = read(Some("0123")).unwrap_err();
        assert!(error.contains("measured of other files"), "{error}");
        let error = read(None).unwrap_err();
        let said = "the quality of `s` was not measured: measure it with `tessera variants measure`";
        assert_eq!(error, said);
    }
}
