//! The sections of families.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{ArrivalsSection, RowsSection, kibibyte, yes};
use crate::overhead::SpansSection;
use crate::spans::Span;

/// `[families.NAME]`, as TOML gives it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FamilySection {
    pub(crate) slo: Span,
    /// Quality by model.
    pub(crate) variants: BTreeMap<String, f64>,
    #[serde(default)]
    pub(crate) quality_min: f64,
    #[serde(default)]
    pub(crate) quality_mean: f64,
    pub(crate) rate: Option<f64>,
    #[serde(default)]
    pub(crate) arrivals: ArrivalsSection,
    #[serde(default)]
    pub(crate) rows: RowsSection,
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
