//! The shape of a workload file, as TOML gives it; [`crate::reading`] makes sense of it.

mod families;
mod pipelines;

use crate::overhead::SpansSection;
use device_sections::DeviceSection;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer};
use units::PercentileLimit;

use crate::fleet::FleetSection;
use crate::rollout::RolloutSection;
use crate::spans::Span;
use crate::tenant_section::TenantSection;
pub(crate) use families::FamilySection;
pub(crate) use pipelines::{FanOutSection, PipelineSection};
pub use pipelines::{SplitSection, SplitWord, StageSection};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) about: String,
    #[serde(default)]
    pub(crate) seed: u64,
    pub(crate) duration: Option<Span>,
    pub(crate) requests: Option<u64>,
    #[serde(default = "none")]
    pub(crate) warmup: Span,
    #[serde(default)]
    pub(crate) lanes: LanesSection,
    #[serde(default)]
    pub(crate) best_effort: BestEffortSection,
    pub(crate) tenants: Option<BTreeMap<String, TenantSection>>,
    #[serde(default)]
    pub(crate) devices: BTreeMap<String, DeviceSection>,
    pub(crate) partition: Option<PartitionSection>,
    pub(crate) fleet: Option<FleetSection>,
    #[serde(default)]
    pub(crate) models: BTreeMap<String, ModelSection>,
    #[serde(default)]
    pub(crate) pipelines: BTreeMap<String, PipelineSection>,
    #[serde(default)]
    pub(crate) families: BTreeMap<String, FamilySection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BestEffortSection {
    pub(crate) protect: Option<PercentileLimit>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LanesSection {
    /// One, where nothing else is said; a share of each device, where there are some.
    pub(crate) count: Option<u32>,
    #[serde(default)]
    pub(crate) idle_priority: bool,
    #[serde(default)]
    pub(crate) noise: NoiseSection,
    pub(crate) overhead: Option<SpansSection>,
    #[serde(default)]
    pub(crate) failures: Vec<FailureSection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoiseSection {
    pub(crate) cv: Option<f64>,
    pub(crate) bias: Option<f64>,
    pub(crate) spread: Option<f64>,
    pub(crate) stalls: Option<StallsSection>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StallsSection {
    pub(crate) every: Span,
    pub(crate) time: Span,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailureSection {
    pub(crate) lane: u32,
    pub(crate) from: Span,
    pub(crate) until: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionSection {
    pub(crate) profiles: Paths,
    pub(crate) policy: Option<String>,
    pub(crate) quota_limit: Option<f64>,
    pub(crate) scaling: Option<String>,
    pub(crate) variants: Option<String>,
    pub(crate) interference: Option<String>,
    pub(crate) period: Option<Span>,
    pub(crate) bake_time: Option<Span>,
    pub(crate) prepare_timeout: Option<Span>,
    pub(crate) plan: Option<String>,
    pub(crate) open: Option<Span>,
    pub(crate) load: Option<Span>,
}

/// `profiles = "v100.jsonl"` or `profiles = ["v100.jsonl", "t4.jsonl"]`.
#[derive(Debug)]
pub struct Paths(pub Vec<String>);

impl<'de> Deserialize<'de> for Paths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PathsVisitor)
    }
}

struct PathsVisitor;

impl<'de> Visitor<'de> for PathsVisitor {
    type Value = Paths;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path like \"profiles/v100.jsonl\", or a list of paths")
    }

    fn visit_str<E: serde::de::Error>(self, path: &str) -> Result<Paths, E> {
        Ok(Paths(vec![path.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Paths, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Paths)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelSection {
    /// Where it stands in the file.
    #[serde(skip)]
    pub(crate) role: Role,
    #[serde(default = "one")]
    pub(crate) count: u32,
    /// Required, except of stages of pipelines without traffic of their own.
    pub(crate) slo: Option<Span>,
    pub(crate) model: Option<String>,
    pub(crate) load: Option<Span>,
    pub(crate) lanes: Option<Vec<u32>>,
    pub(crate) profile: Option<ProfileSection>,
    pub(crate) rate: Option<f64>,
    #[serde(default)]
    pub(crate) arrivals: ArrivalsSection,
    #[serde(default)]
    pub(crate) rows: RowsSection,
    #[serde(default = "kibibyte")]
    pub(crate) row_bytes: u64,
    #[serde(default)]
    pub(crate) priority: u8,
    #[serde(default)]
    pub(crate) class: ClassSection,
    #[serde(default)]
    pub(crate) tenants: BTreeMap<String, f64>,
    #[serde(default = "yes")]
    pub(crate) deadline: bool,
    pub(crate) overhead: Option<SpansSection>,
    pub(crate) rollout: Option<RolloutSection>,
}

/// What a section describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    #[default]
    Model,
    /// A model that is a stage of a pipeline, or a variant of a family. It may have no traffic of its own.
    StageModel,
    /// The traffic of a pipeline.
    Pipeline,
    /// The traffic of a family.
    Family,
}

impl ModelSection {
    /// The table of the file that it is in.
    pub(crate) fn table(&self) -> &'static str {
        match self.role {
            Role::Model | Role::StageModel => "models",
            Role::Pipeline => "pipelines",
            Role::Family => "families",
        }
    }

    /// A section without lanes and profile, for the traffic of a pipeline or a family: a request of a row, at no rate.
    pub(crate) fn of_traffic(role: Role, slo: Span) -> Self {
        Self {
            role,
            count: 1,
            slo: Some(slo),
            model: None,
            load: None,
            lanes: None,
            profile: None,
            rate: None,
            arrivals: ArrivalsSection::default(),
            rows: RowsSection::default(),
            row_bytes: kibibyte(),
            priority: 0,
            class: ClassSection::Online,
            tenants: BTreeMap::new(),
            deadline: true,
            overhead: None,
            rollout: None,
        }
    }

    /// Marks it as a part of a pipeline or of a family with this objective. Without an objective of its own, it has the longest of these.
    pub(crate) fn mark_part(&mut self, slo: Span) {
        let before = if self.role == Role::StageModel { self.slo } else { None };
        let is_own = self.role == Role::Model && self.slo.is_some();
        self.role = Role::StageModel;
        if !is_own {
            self.slo = Some(before.filter(|before| before.0 >= slo.0).unwrap_or(slo));
        }
    }

    /// Whether it is a stage of pipelines, or a variant of families, only.
    pub(crate) fn has_no_traffic(&self) -> bool {
        self.role == Role::StageModel && self.rate.is_none() && self.arrivals.process.is_none()
    }
}

/// Whether requests have a class with a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClassSection {
    #[default]
    Online,
    BestEffort,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProfileSection {
    pub(crate) alpha: Option<Span>,
    pub(crate) beta: Option<Span>,
    pub(crate) max_batch: Option<u32>,
    pub(crate) points: Option<Vec<(u32, Span)>>,
    pub(crate) file: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArrivalsSection {
    pub(crate) process: Option<String>,
    pub(crate) cv: Option<f64>,
    pub(crate) rates: Option<Vec<f64>>,
    pub(crate) stay: Option<Vec<Span>>,
    pub(crate) period: Option<Span>,
    pub(crate) low: Option<f64>,
    pub(crate) at: Option<Span>,
    pub(crate) lasts: Option<Span>,
    pub(crate) factor: Option<f64>,
    pub(crate) format: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) function: Option<u32>,
    pub(crate) functions: Option<String>,
    pub(crate) cv_scale: Option<f64>,
    pub(crate) rate_scale: Option<f64>,
    pub(crate) window: Option<Span>,
    pub(crate) time_scale: Option<f64>,
    pub(crate) repeat: Option<bool>,
}

/// `rows = 1` or `rows = [[1, 0.9], [4, 0.1]]`.
#[derive(Clone, Debug)]
pub(crate) enum RowsSection {
    Fixed(u32),
    Weighted(Vec<(u32, f64)>),
}

impl Default for RowsSection {
    fn default() -> Self {
        Self::Fixed(1)
    }
}

impl<'de> Deserialize<'de> for RowsSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RowsVisitor)
    }
}

struct RowsVisitor;

impl<'de> Visitor<'de> for RowsVisitor {
    type Value = RowsSection;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of rows like 1, or rows with weights like [[1, 0.9], [4, 0.1]]")
    }

    fn visit_i64<E: serde::de::Error>(self, rows: i64) -> Result<RowsSection, E> {
        let rows = u32::try_from(rows);
        rows.map(RowsSection::Fixed).map_err(|_| E::custom("expected a number of rows from 1 to 4294967295"))
    }

    fn visit_u64<E: serde::de::Error>(self, rows: u64) -> Result<RowsSection, E> {
        self.visit_i64(i64::try_from(rows).unwrap_or(-1))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, weights: A) -> Result<RowsSection, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(weights)).map(RowsSection::Weighted)
    }
}

fn none() -> Span {
    Span(0)
}

fn one() -> u32 {
    1
}

fn kibibyte() -> u64 {
    1_024
}

fn yes() -> bool {
    true
}
