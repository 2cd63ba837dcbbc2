//! The `ort` table of a model: session settings of ONNX Runtime.

use std::num::NonZeroUsize;

use documented::DocumentedFields;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use crate::engine::ort::{GraphLevel, OrtSettings};

/// How sessions of ONNX Runtime run a model. What is set here wins over `config.pbtxt`. A change needs new sessions. A model with such a
/// setting runs on ONNX Runtime or does not load.
///
/// ```toml
/// [models.resnet50.ort]
/// threads = 1
/// graph_level = "extended"
/// spinning = true
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct OrtTable {
    /// Threads that run one operator, at most the cores of the lane. Default: one for each core of the lane. Example: `2`.
    pub threads: Option<NonZeroUsize>,
    /// Which rewrites of the graph are allowed: `disable`, `basic`, `extended` or `all`. Default: `all`. Example: `"extended"`.
    #[serde(deserialize_with = "level")]
    pub graph_level: Option<GraphLevel>,
    /// Whether the threads of a session wait for the next operator by spinning. Batches of small operators are faster, but the threads also
    /// use their cores for a short time after each batch. Default: `false`. Example: `true`.
    pub spinning: Option<bool>,
}

impl OrtTable {
    /// The first setting that is set.
    pub(crate) fn first_set(&self) -> Option<&'static str> {
        let set = [
            (self.threads.is_some(), "threads"),
            (self.graph_level.is_some(), "graph_level"),
            (self.spinning.is_some(), "spinning"),
        ];
        set.into_iter().find_map(|(is_set, name)| is_set.then_some(name))
    }

    /// The settings of a file with those of this table in their place.
    pub(crate) fn over(&self, file: OrtSettings) -> OrtSettings {
        OrtSettings {
            intra_threads: self.threads.or(file.intra_threads),
            graph_level: self.graph_level.unwrap_or(file.graph_level),
            spinning: self.spinning.unwrap_or(file.spinning),
            ..file
        }
    }
}

fn level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<GraphLevel>, D::Error> {
    let word = String::deserialize(deserializer)?;
    let level = GraphLevel::EACH.into_iter().find(|level| level.as_str() == word);
    let wrong = || {
        let shown: String = word.chars().take(64).collect();
        D::Error::custom(format!("expected `disable`, `basic`, `extended` or `all`, got `{shown}`"))
    };
    level.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_wins_over_a_file_field_by_field() {
        let table: OrtTable = toml::from_str("graph_level = \"basic\"\nspinning = true").unwrap();
        let file =
            OrtSettings { intra_threads: NonZeroUsize::new(3), parallel: true, ..OrtSettings::default() };
        let both = table.over(file.clone());
        let expected = OrtSettings { graph_level: GraphLevel::Basic, spinning: true, ..file.clone() };
        assert_eq!(both, expected);
        assert_eq!(OrtTable::default().over(file.clone()), file);
        assert_eq!((table.first_set(), OrtTable::default().first_set()), (Some("graph_level"), None));
    }

    #[test]
    fn mistakes_say_what_would_be_right() {
        for (text, says) in [
            ("graph_level = \"none\"", "expected `disable`, `basic`, `extended` or `all`, got `none`"),
            ("threads = 0", "nonzero"),
            ("spinning = 1", "expected a boolean"),
            ("thread = 1", "unknown field `thread`"),
        ] {
            let error = toml::from_str::<OrtTable>(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
