//! One `[models.NAME]` table of `tessera.toml`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use documented::DocumentedFields;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::batching::ROW_TOLERANCE;
use crate::engine::python::PythonOptions;
use crate::ort_table::OrtTable;
use crate::rollout_settings::RolloutSettings;
use crate::{EngineChoice, TimeSpan, Version};

/// How one model is served. Every option may be left out; what is set here wins over `config.pbtxt`.
///
/// ```toml
/// [models.resnet50]
/// slo = "50ms"
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSettings {
    /// Service-level objective: a request must be answered within this time of its arrival, unless it brings
    /// its own `timeout`. Default: none, requests wait up to `timeout_max`. Example: `"50ms"`.
    pub slo: Option<TimeSpan>,
    /// Engine: `auto`, `ort`, `tract`, `synthetic` or `python`. Default: `auto`, which is `ort` where ONNX Runtime was
    /// found and can load the model, else `tract`. Example: `"tract"`.
    pub engine: Option<EngineChoice>,
    /// Largest batch in rows; 0: never batch. Default: 64 for a model whose shapes allow a batch and whose rows
    /// do not influence each other (checked at load), else 0. Example: `32`.
    pub max_batch: Option<u32>,
    /// Frees a batch dimension that the ONNX file fixes at 1. The changed model is checked against the original
    /// behaviour and refused if batches change answers. Default: `false`. Example: `true`.
    pub free_batch: Option<bool>,
    /// Versions to serve: `"latest"`, a number n (the n latest), a list, or `"all"`. Default: `"latest"`.
    /// Example: `[1, 3]`.
    pub versions: Option<VersionPolicy>,
    /// How requests are gathered into batches.
    pub batching: BatchingSettings,
    /// Session settings of ONNX Runtime.
    pub ort: Option<OrtTable>,
    /// How a new version replaces the one that serves.
    pub rollout: Option<RolloutSettings>,
    /// Bound on queued requests; further ones are refused. Default: that of `limits.queue`. Example: `256`.
    pub queue_limit: Option<NonZeroU32>,
    /// Class of requests that bring no priority; 1 is the most important. Default: 1, or what `config.pbtxt`
    /// says. Example: `2`.
    pub default_class: Option<NonZeroU32>,
    /// `"best_effort"`: all its requests run only while no other request wants the cores or the lane, and have no objective
    /// (docs/best-effort.md). Default: `"online"`.
    /// Example: `"best_effort"`.
    pub class: Option<ModelClass>,
    /// Lanes that may run the model: `"all"` or a list of lane numbers from 0. Default: `"all"`.
    /// Example: `[0, 1]`.
    pub lanes: Option<LaneChoice>,
    /// With `partition.live`: number of fault domains that must hold the model, so that it serves on if all but one are lost. If
    /// fewer are left, all of them. Default: 1. Example: `2`.
    pub replicas_min: Option<NonZeroU32>,
    /// Longest `timeout` that a request may ask for; longer ones are shortened to it. Default: the server's. Example: `"30s"`.
    pub timeout_max: Option<TimeSpan>,
    /// Interpreter of a Python model. Default: that of `EXECUTION_ENV_PATH` in `config.pbtxt`, else `python3`. Example: `"/opt/venv/bin/python"`.
    pub python: Option<PathBuf>,
    /// Longest time for the import of a Python model and its `initialize`. Default: `10m`. Example: `"30m"`.
    pub load_timeout: Option<TimeSpan>,
    /// Longest time of one call of a Python model's `execute`; then its process is replaced. Default: `60s`. Example: `"5s"`.
    pub run_timeout: Option<TimeSpan>,
    /// Whether a Python model runs sample inputs before it is ready, to measure it. Default: `true`. Example: `false`.
    pub sample_runs: Option<bool>,
}

impl ModelSettings {
    /// The settings of Python models.
    pub(crate) fn python_options(&self) -> PythonOptions {
        let default = PythonOptions::default();
        PythonOptions {
            interpreter: self.python.clone(),
            load_timeout: self.load_timeout.map_or(default.load_timeout, |span| span.0),
            run_timeout: self.run_timeout.map_or(default.run_timeout, |span| span.0),
            sample_runs: self.sample_runs.unwrap_or(default.sample_runs),
        }
    }

    /// The first option that is set and only Python models have.
    pub(crate) fn python_only(&self) -> Option<&'static str> {
        let set = [
            (self.python.is_some(), "python"),
            (self.load_timeout.is_some(), "load_timeout"),
            (self.run_timeout.is_some(), "run_timeout"),
            (self.sample_runs.is_some(), "sample_runs"),
        ];
        set.into_iter().find_map(|(is_set, name)| is_set.then_some(name))
    }
}

/// The `batching` table of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct BatchingSettings {
    /// Batching policy by name. Default: `deadline`. For a model without `slo` whose `config.pbtxt` has a queue delay or
    /// preferred sizes: `triton`. Example: `"triton"`.
    pub policy: Option<String>,
    /// Longest time that a request waits for others to fill its batch, for policies that wait. Default: none. Example: `"2ms"`.
    pub max_delay: Option<TimeSpan>,
    /// Batch sizes to aim for, for policies that have such. Default: none. Example: `[4, 8]`.
    pub preferred: Option<Vec<NonZeroU32>>,
    /// Pads requests of unlike lengths to a common one, so that they share batches: `"bucket"`, or a table of `buckets` (lengths
    /// to pad to), `mask` (inputs that are 1 for elements of the request, 0 for padding), `values` (of padding, by input) and
    /// `tolerance` (largest difference of answers, as a share of the largest value). Checked at load: padding must not change
    /// answers. Default: requests of unlike lengths run in batches of their own. Example: `{ buckets = [32, 128, 512] }`.
    pub padding: Option<PaddingSettings>,
}

/// How requests of unlike lengths are padded.
///
/// ```toml
/// [models.minilm.batching]
/// padding = "bucket"
/// # padding = { buckets = [32, 128, 512], mask = ["attention_mask"], values = { input_ids = 1 }, tolerance = 0.02 }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaddingSettings {
    /// Lengths to pad to, 1 and more. Longer requests are not padded. Default: 8, 12, 16, 24, 32 and so on to 512, as far as
    /// the model runs at that length.
    pub buckets: Option<Vec<u64>>,
    /// Inputs that are 1 for elements of the request and 0 for padding. Default: `attention_mask`, if there is one.
    pub mask: Option<Vec<String>>,
    /// Value of padding by input, a whole number. Default: 0.
    pub values: BTreeMap<String, i64>,
    /// Largest difference of answers, in millionths of the largest value of the output.
    tolerance_millionths: Option<u32>,
}

impl PaddingSettings {
    /// Largest difference between padded and unpadded answers, as a share of the largest value of the output.
    pub fn tolerance(&self) -> f64 {
        self.tolerance_millionths.map_or(ROW_TOLERANCE, |millionths| f64::from(millionths) / 1e6)
    }
}

/// Bound on the number of buckets.
const BUCKETS_MAX: usize = 64;

/// Bound on a bucket: a request of one element is padded to the smallest one.
const BUCKET_MAX: u64 = 1 << 20;

/// The table of [`PaddingSettings`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaddingTable {
    buckets: Option<Vec<u64>>,
    mask: Option<Vec<String>>,
    #[serde(default)]
    values: BTreeMap<String, i64>,
    tolerance: Option<f64>,
}

struct WordOrTable;

impl<'de> Visitor<'de> for WordOrTable {
    type Value = PaddingSettings;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("\"bucket\" or a table such as { buckets = [32, 128] }")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<PaddingSettings, E> {
        match word {
            "bucket" => Ok(PaddingSettings::default()),
            _ => Err(E::custom(format!("expected \"bucket\" or a table, got `{word}`"))),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PaddingSettings, A::Error> {
        let table = PaddingTable::deserialize(MapAccessDeserializer::new(map))?;
        let buckets = table.buckets.map(|mut buckets| {
            buckets.sort_unstable();
            buckets.dedup();
            buckets
        });
        let sound = |buckets: &Vec<u64>| {
            (1..=BUCKETS_MAX).contains(&buckets.len())
                && buckets.iter().all(|one| (1..=BUCKET_MAX).contains(one))
        };
        if buckets.as_ref().is_some_and(|buckets| !sound(buckets)) {
            let expected = format!("buckets: expected 1 to {BUCKETS_MAX} lengths of 1 to {BUCKET_MAX}");
            return Err(A::Error::custom(expected));
        }
        let millionths = |tolerance: f64| {
            if (0.0..=1.0).contains(&tolerance) {
                // At most a million.
                Ok((tolerance * 1e6) as u32)
            } else {
                Err(A::Error::custom(format!("tolerance: expected 0 to 1, got {tolerance}")))
            }
        };
        Ok(PaddingSettings {
            buckets,
            mask: table.mask,
            values: table.values,
            tolerance_millionths: table.tolerance.map(millionths).transpose()?,
        })
    }
}

impl<'de> Deserialize<'de> for PaddingSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrTable)
    }
}

/// Which versions of a model are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionPolicy {
    /// This many of the highest numbers.
    Latest(NonZeroU32),
    /// Those listed.
    Listed(Vec<Version>),
    /// All that are in the repository.
    All,
}

impl Default for VersionPolicy {
    fn default() -> Self {
        Self::Latest(NonZeroU32::MIN)
    }
}

impl VersionPolicy {
    /// The versions to serve out of those that exist, smallest first. A listed version that does not exist is
    /// left out; [`VersionPolicy::missing`] names those.
    pub fn select(&self, existing: &[Version]) -> Vec<Version> {
        let mut sorted = existing.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        match self {
            Self::All => sorted,
            Self::Latest(count) => {
                let keep = usize::try_from(count.get()).unwrap_or(usize::MAX);
                sorted.split_off(sorted.len().saturating_sub(keep))
            }
            Self::Listed(wanted) => {
                sorted.retain(|version| wanted.contains(version));
                sorted
            }
        }
    }

    /// Listed versions that do not exist.
    pub fn missing(&self, existing: &[Version]) -> Vec<Version> {
        match self {
            Self::Listed(wanted) => {
                wanted.iter().filter(|version| !existing.contains(version)).copied().collect()
            }
            Self::All | Self::Latest(_) => Vec::new(),
        }
    }
}

/// When the requests of a model run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelClass {
    /// By their priority and deadline.
    #[default]
    Online,
    /// On lanes that no other request wants.
    BestEffort,
}

/// Which lanes may run a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LaneChoice {
    /// Every lane.
    #[default]
    All,
    /// Those with these numbers; not empty, rising.
    Listed(Vec<u32>),
}

/// Bound on the length of a list in the configuration.
const LIST_MAX: usize = 4096;

/// Reads either a word or a list of numbers or one number.
struct WordOrNumbers;

enum Given {
    Word(String),
    One(u64),
    List(Vec<u64>),
}

impl<'de> Visitor<'de> for WordOrNumbers {
    type Value = Given;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a word, a whole number or a list of whole numbers")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Given, E> {
        Ok(Given::Word(word.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Given, E> {
        Ok(Given::One(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Given, E> {
        u64::try_from(number).map(Given::One).map_err(|_| E::custom(format!("{number}: expected 0 or more")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Given, A::Error> {
        let mut numbers = Vec::new();
        while numbers.len() < LIST_MAX {
            let Some(number) = list.next_element::<u64>()? else { return Ok(Given::List(numbers)) };
            numbers.push(number);
        }
        match list.next_element::<IgnoredAny>()? {
            None => Ok(Given::List(numbers)),
            Some(_) => Err(A::Error::custom(format!("has more than {LIST_MAX} entries"))),
        }
    }
}

impl<'de> Deserialize<'de> for VersionPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected =
            "expected \"latest\", \"all\", a number of latest versions or a list of versions of 1 or more";
        let refuse = |what: String| D::Error::custom(format!("{what}: {expected}"));
        match deserializer.deserialize_any(WordOrNumbers)? {
            Given::Word(word) if word == "latest" => Ok(Self::default()),
            Given::Word(word) if word == "all" => Ok(Self::All),
            Given::Word(word) => Err(refuse(format!("`{word}`"))),
            Given::One(count) => {
                let count = u32::try_from(count).ok().and_then(NonZeroU32::new);
                count.map(Self::Latest).ok_or_else(|| refuse("number of versions".to_owned()))
            }
            Given::List(numbers) if numbers.is_empty() || numbers.contains(&0) => {
                Err(refuse("list of versions".to_owned()))
            }
            Given::List(numbers) => Ok(Self::Listed(numbers.into_iter().map(Version).collect())),
        }
    }
}

impl<'de> Deserialize<'de> for LaneChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "expected \"all\" or a list of lane numbers";
        match deserializer.deserialize_any(WordOrNumbers)? {
            Given::Word(word) if word == "all" => Ok(Self::All),
            Given::List(numbers) if !numbers.is_empty() => {
                let lanes = numbers.into_iter().map(u32::try_from).collect::<Result<Vec<_>, _>>();
                let mut lanes =
                    lanes.map_err(|_| D::Error::custom(format!("lane number too large: {expected}")))?;
                lanes.sort_unstable();
                lanes.dedup();
                Ok(Self::Listed(lanes))
            }
            Given::Word(_) | Given::One(_) | Given::List(_) => Err(D::Error::custom(expected)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_parses() {
        let settings: ModelSettings = toml::from_str(
            r#"
            slo = "50ms"
            engine = "tract"
            max_batch = 8
            free_batch = true
            versions = [3, 1]
            batching = { policy = "triton", max_delay = "2ms", preferred = [4, 8] }
            queue_limit = 100
            default_class = 2
            lanes = [1, 0, 1]
            timeout_max = "10s"
            "#,
        )
        .unwrap();
        assert_eq!(settings.slo.unwrap().to_string(), "50ms");
        assert_eq!(settings.engine, Some(EngineChoice::Named("tract")));
        assert_eq!(settings.versions, Some(VersionPolicy::Listed(vec![Version(3), Version(1)])));
        assert_eq!(settings.lanes, Some(LaneChoice::Listed(vec![0, 1])));
    }

    #[test]
    fn padding_is_a_word_or_a_table() {
        let padding = |text: &str| toml::from_str::<ModelSettings>(text).unwrap().batching.padding.unwrap();
        assert_eq!(padding("batching.padding = \"bucket\""), PaddingSettings::default());
        let table = "batching.padding = { buckets = [64, 16, 64], values = { ids = 1 }, tolerance = 0.02 }";
        let table = padding(table);
        assert_eq!((table.buckets.as_deref(), table.values["ids"]), (Some(&[16, 64][..]), 1));
        assert_eq!((table.tolerance(), PaddingSettings::default().tolerance()), (0.02, ROW_TOLERANCE));
    }

    #[test]
    fn mistakes_say_what_would_be_right() {
        for (text, part) in [
            ("slo = \"50\"", "expected a duration such as `50ms`"),
            ("slo = 50", "expected a duration such as `50ms`"),
            ("engine = \"orc\"", "did you mean `ort`"),
            ("queue_limit = 0", "nonzero"),
            ("versions = \"newest\"", "expected \"latest\""),
            ("versions = 0", "expected \"latest\""),
            ("versions = [0]", "versions of 1 or more"),
            ("lanes = []", "list of lane numbers"),
            ("max_batch = -1", "invalid value"),
            ("batching = { maxdelay = \"1ms\" }", "maxdelay"),
            ("batching = { padding = \"buckets\" }", "expected \"bucket\" or a table, got `buckets`"),
            ("batching = { padding = { buckets = [0] } }", "expected 1 to 64 lengths"),
            ("batching = { padding = { tolerance = 2.0 } }", "tolerance: expected 0 to 1, got 2"),
            ("batching = { padding = { pad = 1 } }", "unknown field `pad`"),
        ] {
            let error = toml::from_str::<ModelSettings>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn version_policies_select() {
        let existing = [3, 1, 7].map(Version);
        let two = VersionPolicy::Latest(NonZeroU32::new(2).unwrap());
        assert_eq!(two.select(&existing), [Version(3), Version(7)]);
        assert_eq!(VersionPolicy::default().select(&[]), []);
        assert_eq!(VersionPolicy::All.select(&existing), [1, 3, 7].map(Version));
        let listed = VersionPolicy::Listed(vec![Version(9), Version(1)]);
        assert_eq!(
            (listed.select(&existing), listed.missing(&existing)),
            (vec![Version(1)], vec![Version(9)])
        );
    }
}
