//! The sections of pipelines.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{ArrivalsSection, kibibyte, yes};
use crate::overhead::SpansSection;
use crate::pipeline::Deadlines;
use crate::spans::Span;

/// `[pipelines.NAME]`, as TOML gives it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PipelineSection {
    pub(crate) slo: Span,
    pub(crate) stages: Vec<StageSection>,
    #[serde(default)]
    pub(crate) split: SplitSection,
    #[serde(default)]
    pub(crate) deadlines: Option<Deadlines>,
    pub(crate) rate: Option<f64>,
    #[serde(default)]
    pub(crate) arrivals: ArrivalsSection,
    #[serde(default)]
    pub(crate) priority: u8,
    #[serde(default)]
    pub(crate) tenants: BTreeMap<String, f64>,
    #[serde(default = "yes")]
    pub(crate) deadline: bool,
    #[serde(default = "kibibyte")]
    pub(crate) row_bytes: u64,
    pub(crate) overhead: Option<SpansSection>,
}

/// A stage, as TOML gives it. [`crate::read_stages`] reads it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageSection {
    pub(crate) name: Option<String>,
    pub(crate) model: String,
    #[serde(default)]
    pub(crate) from: FromSection,
    pub(crate) fan_out: Option<FanOutSection>,
    #[serde(default)]
    pub(crate) answers: f64,
}

/// `from = "det"` or `from = ["left", "right"]`.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected the name of a stage, or a list of them")]
pub(crate) enum FromSection {
    One(String),
    Several(Vec<String>),
}

impl Default for FromSection {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl FromSection {
    pub(crate) fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

/// `fan_out = 3.2` or `fan_out = [[0, 0.5], [6, 0.5]]`.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number of rows like 3.2, or rows with weights like [[0, 0.5], [6, 0.5]]"
)]
pub(crate) enum FanOutSection {
    Mean(f64),
    Weighted(Vec<(u32, f64)>),
}

/// `split = "plan"`, `split = "nexus"`, `split = "even"` or `split = { det = 0.4, rec = 0.6 }`.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected \"plan\", \"nexus\", \"even\", or a share for each stage like { det = 0.4, rec = 0.6 }"
)]
pub enum SplitSection {
    /// A way to divide the objective.
    Word(SplitWord),
    /// Shares by name of the stage.
    Shares(BTreeMap<String, f64>),
}

impl Default for SplitSection {
    fn default() -> Self {
        Self::Word(SplitWord::Even)
    }
}

/// A way to divide an objective.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitWord {
    /// [`crate::ObjectiveSplit::Plan`].
    Plan,
    /// [`crate::ObjectiveSplit::Nexus`].
    Nexus,
    /// [`crate::ObjectiveSplit::Even`].
    Even,
}
