//! `[tenants.NAME]`, or a weight alone: `gold = 3`.

use std::fmt;

use serde::de::{MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};

/// What a tenant's entry says.
#[derive(Debug, Default)]
pub(crate) struct TenantSection {
    pub(crate) weight: Option<f64>,
    pub(crate) device_seconds_per_second: Option<f64>,
    pub(crate) device_seconds_burst: Option<f64>,
    pub(crate) requests_per_second: Option<f64>,
    pub(crate) requests_burst: Option<f64>,
    pub(crate) borrow: bool,
}

/// The keys of the table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantTable {
    weight: Option<f64>,
    device_seconds_per_second: Option<f64>,
    device_seconds_burst: Option<f64>,
    requests_per_second: Option<f64>,
    requests_burst: Option<f64>,
    #[serde(default)]
    borrow: bool,
}

impl<'de> Deserialize<'de> for TenantSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TenantVisitor)
    }
}

struct TenantVisitor;

impl<'de> Visitor<'de> for TenantVisitor {
    type Value = TenantSection;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a weight like 3, or a table like [tenants.gold] with `weight` and quotas")
    }

    fn visit_f64<E: serde::de::Error>(self, weight: f64) -> Result<TenantSection, E> {
        Ok(TenantSection { weight: Some(weight), ..TenantSection::default() })
    }

    fn visit_i64<E: serde::de::Error>(self, weight: i64) -> Result<TenantSection, E> {
        self.visit_f64(weight as f64)
    }

    fn visit_u64<E: serde::de::Error>(self, weight: u64) -> Result<TenantSection, E> {
        self.visit_f64(weight as f64)
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<TenantSection, A::Error> {
        let table = TenantTable::deserialize(MapAccessDeserializer::new(table))?;
        Ok(TenantSection {
            weight: table.weight,
            device_seconds_per_second: table.device_seconds_per_second,
            device_seconds_burst: table.device_seconds_burst,
            requests_per_second: table.requests_per_second,
            requests_burst: table.requests_burst,
            borrow: table.borrow,
        })
    }
}
