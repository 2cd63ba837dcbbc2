//! `[tenants.NAME]`: weights and quotas.

use std::num::NonZeroU32;

use documented::DocumentedFields;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use units::in_words;

use super::{Origin, Problem, fields};

/// Tenants that there may be at most.
const TENANTS_MAX: usize = 1_000;
/// Characters of a name.
const NAME_MAX: usize = 64;
/// Label of metrics for requests of unknown tenants.
pub const OTHER: &str = "other";
/// Largest quota of device time, in seconds per second, and its burst in seconds.
const DEVICE_SECONDS_MAX: f64 = 1e6;
/// Largest quota of requests per second, and its burst.
const REQUESTS_MAX: f64 = 1e9;

/// One `[tenants.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct TenantSettings {
    /// Share of lane time under contention, relative to other tenants. Default: `1`. Example: `3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<NonZeroU32>,
    /// Quota of device time: seconds of lane time per second. A second of a lane counts as one, whatever its share of the device.
    /// Default: no limit. Example: `0.5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_seconds_per_second: Option<f64>,
    /// Seconds of lane time that the tenant may use at once after a pause. Default: one second of its quota. Example: `2.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_seconds_burst: Option<f64>,
    /// Quota of requests: how many are admitted per second. Default: no limit. Example: `100.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<f64>,
    /// Requests that are admitted at once after a pause. Default: one second of the quota, at least 1. Example: `500.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_burst: Option<f64>,
    /// What happens to requests beyond the quotas. `true`: they run on lanes that no other tenant wants. `false`: they are
    /// refused with the reason `quota`. Default: `false`. Example: `true`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub borrow: bool,
}

impl TenantSettings {
    /// Seconds of lane time per second, and at once.
    pub fn device_seconds(&self) -> Option<(f64, f64)> {
        let rate = self.device_seconds_per_second?;
        Some((rate, self.device_seconds_burst.unwrap_or(rate)))
    }

    /// Requests per second, and at once.
    pub fn requests(&self) -> Option<(f64, f64)> {
        let rate = self.requests_per_second?;
        Some((rate, self.requests_burst.unwrap_or(rate.max(1.0))))
    }

    /// Settings that have no effect or that no request could pass: the key, and what is wrong.
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        for (key, value, least, most) in [
            ("device_seconds_per_second", self.device_seconds_per_second, 0.0, DEVICE_SECONDS_MAX),
            ("device_seconds_burst", self.device_seconds_burst, 0.0, DEVICE_SECONDS_MAX),
            ("requests_per_second", self.requests_per_second, 0.0, REQUESTS_MAX),
            ("requests_burst", self.requests_burst, 1.0, REQUESTS_MAX),
        ] {
            let Some(value) = value else { continue };
            if !(value > 0.0 && value >= least && value <= most) {
                let from = if least > 0.0 { format!("at least {least}") } else { "more than 0".to_owned() };
                problems.push((key, format!("{value}: expected {from} and at most {most}")));
            }
        }
        let missing = |key: &str| format!("has no effect without `{key}`: expected both");
        if self.device_seconds_burst.is_some() && self.device_seconds_per_second.is_none() {
            problems.push(("device_seconds_burst", missing("device_seconds_per_second")));
        }
        if self.requests_burst.is_some() && self.requests_per_second.is_none() {
            problems.push(("requests_burst", missing("requests_per_second")));
        }
        if self.borrow && self.device_seconds_per_second.is_none() && self.requests_per_second.is_none() {
            let message = "has no effect without `device_seconds_per_second` or `requests_per_second`: expected a quota";
            problems.push(("borrow", message.to_owned()));
        }
        problems
    }
}

/// Reports every mistake in every tenant's table.
pub fn check(tenants: &Table, origin: impl Fn(&str) -> Origin, problems: &mut Vec<Problem>) {
    if tenants.len() > TENANTS_MAX {
        let message = format!("{} tenants: expected at most {TENANTS_MAX}", tenants.len());
        problems.push(Problem::new("tenants", &message, &origin("tenants")));
    }
    for (name, settings) in tenants {
        let path = format!("tenants.{name}");
        let mut report =
            |path: &str, message: &str| problems.push(Problem::new(path, message, &origin(path)));
        let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(sound) {
            report(
                &path,
                &format!("expected a name of at most {NAME_MAX} letters, digits, `-`, `_` and `.`"),
            );
        }
        if name == OTHER {
            report(&path, "metrics count unknown tenants under this name: expected another one");
        }
        let Value::Table(settings) = settings else {
            report(&path, "expected a table like [tenants.search]");
            continue;
        };
        for (key, value) in settings {
            if let Err(message) = check_key(key, value) {
                report(&format!("{path}.{key}"), &message);
            }
        }
    }
}

/// Whether a tenant may have this key with this value.
///
/// # Errors
/// What would be right.
pub fn check_key(key: &str, value: &Value) -> Result<(), String> {
    let known = fields::of::<TenantSettings>();
    if !known.contains(&key) {
        return Err(fields::unknown(key, known, "key"));
    }
    let one = Table::from_iter([(key.to_owned(), value.clone())]);
    one.try_into::<TenantSettings>().map(drop).map_err(|error| in_words(error.message()))
}
