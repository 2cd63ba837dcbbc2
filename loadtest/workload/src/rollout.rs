//! A new version of a model that is rolled out during a workload, and how it differs from the old one.

use rand::RngExt as _;
use serde::Deserialize;
use units::Fault as WorkloadError;

use crate::seeds::{Generator, Purpose, generator};
use crate::spans::Span;

/// A roll-out in virtual time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RolloutPlan {
    /// When the new version is loaded, in nanoseconds from the start.
    pub at: u64,
    /// Share of the requests that the new version gets, above 0 and at most 0.5. `None`: the default, as below.
    pub canary: Option<f64>,
    /// Least time before a promotion, in nanoseconds.
    pub bake: Option<u64>,
    /// Least number of requests of the new version before a promotion.
    pub samples: Option<u64>,
    /// Whether outputs are compared.
    pub compare: Option<bool>,
    /// Least share of compared requests whose outputs must agree.
    pub agreement: Option<f64>,
    /// The new version.
    pub version: NewVersion,
}

/// How a new version differs from the old one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewVersion {
    /// Its batch times as a multiple of the old ones.
    pub time: f64,
    /// Share of its requests that fail.
    pub failures: f64,
    /// Share of its outputs that differ.
    pub disagreements: f64,
    /// Number of the only tenant whose requests fail or differ. `None`: those of all tenants.
    pub tenant: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RolloutSection {
    at: Option<Span>,
    canary: Option<f64>,
    bake: Option<Span>,
    samples: Option<u64>,
    compare: Option<bool>,
    agreement: Option<f64>,
    version: VersionSection,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionSection {
    time: Option<f64>,
    failures: Option<f64>,
    disagreements: Option<f64>,
    tenant: Option<String>,
}

/// Slowest version: batch times times this.
const TIME_MAX: f64 = 1_000.0;

impl RolloutPlan {
    pub(crate) fn read(
        section: &RolloutSection,
        tenants: &[&str],
        field: &str,
    ) -> Result<Self, WorkloadError> {
        let version = &section.version;
        let within = |key: &str, share: Option<f64>, range: std::ops::RangeInclusive<f64>| match share {
            Some(share) if !range.contains(&share) => {
                let problem = format!("expected {} to {}, got {share}", range.start(), range.end());
                Err(WorkloadError::new(format!("{field}.{key}"), problem))
            }
            share => Ok(share),
        };
        let tenant = version.tenant.as_ref().map(|name| {
            let number = tenants.iter().position(|tenant| tenant == name);
            number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| {
                WorkloadError::new(
                    format!("{field}.version.tenant"),
                    format!("no tenant `{name}` in [tenants]"),
                )
            })
        });
        Ok(Self {
            at: section.at.map_or(0, |at| at.0),
            canary: within("canary", section.canary, 1e-6..=0.5)?,
            bake: section.bake.map(|bake| bake.0),
            samples: section.samples,
            compare: section.compare,
            agreement: within("agreement", section.agreement, 0.0..=1.0)?,
            version: NewVersion {
                time: within("version.time", version.time, 1e-3..=TIME_MAX)?.unwrap_or(1.0),
                failures: within("version.failures", version.failures, 0.0..=1.0)?.unwrap_or(0.0),
                disagreements: within("version.disagreements", version.disagreements, 0.0..=1.0)?
                    .unwrap_or(0.0),
                tenant: tenant.transpose()?,
            },
        })
    }
}

/// Which requests of a new version fail, and which outputs differ.
#[derive(Debug)]
pub struct VersionDraws {
    version: NewVersion,
    generator: Generator,
}

impl VersionDraws {
    /// The draws of a model's new version.
    pub fn new(version: NewVersion, seed: u64, model: &str) -> Self {
        Self { version, generator: generator(seed, Purpose::Version, model) }
    }

    /// Whether a request of a tenant fails.
    pub fn fails(&mut self, tenant: u16) -> bool {
        self.draw(tenant, self.version.failures)
    }

    /// Whether the outputs of a request of a tenant differ.
    pub fn differs(&mut self, tenant: u16) -> bool {
        self.draw(tenant, self.version.disagreements)
    }

    fn draw(&mut self, tenant: u16, share: f64) -> bool {
        let chosen = self.generator.random::<f64>() < share;
        chosen && self.version.tenant.is_none_or(|only| only == tenant)
    }
}
