//! The measured quality of a model, in a file in its folder.

use serde::{Deserialize, Serialize};

/// Name of the file.
pub const QUALITY_FILE: &str = "quality.json";

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
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let quality = Quality { value: 0.95, rows: 360, digest: "ab".to_owned(), ..Quality::default() };
        assert_eq!(Quality::parse(&serde_json::to_string(&quality).unwrap()), Ok(quality));
        let text = r#"{"quality": 1.5, "kind": "agreement", "reference": "l", "rows": 3, "digest": "ab"}"#;
        assert_eq!(Quality::parse(text).unwrap_err(), "quality: expected 0 to 1, got 1.5");
        assert!(Quality::parse("{}").unwrap_err().contains("missing field `quality`"));
    }
}
