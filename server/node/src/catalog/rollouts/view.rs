//! A roll-out as operators see it.

use serde::{Deserialize, Serialize};
use version_rollout::{Figures, State};

use super::VersionRollout;
use crate::catalog::version::Loaded;
use crate::tenants::{RequestTenant, Tenants};
use router_core::Tenant;

/// A version of a model, by number and content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VersionView {
    /// Its number.
    pub version: u64,
    /// SHA-256 of its files.
    pub digest: String,
}

/// A roll-out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RolloutView {
    /// Name of the model.
    pub model: String,
    /// Where it stands.
    pub state: State,
    /// Why it ended.
    pub cause: Option<String>,
    /// The tenant whose requests were decisive.
    pub tenant: Option<String>,
    /// The version that served before.
    pub stable: VersionView,
    /// The new version.
    pub canary: VersionView,
    /// Share of the requests that the canary gets.
    pub share: f64,
    /// Least time before a promotion, in seconds.
    pub bake_s: f64,
    /// Requests or comparisons that a promotion lacks.
    pub missing_samples: u64,
    /// Whether outputs are compared.
    pub compare: bool,
    /// How requests ended.
    pub figures: Figures,
}

impl VersionRollout {
    pub(in crate::catalog) fn view(&self, tenants: &Tenants) -> RolloutView {
        let core = self.core();
        let verdict = core.verdict();
        let mut figures = *core.figures();
        if verdict.is_none() {
            figures.elapsed = self.began.elapsed();
        }
        let name = |number| {
            let tenant = RequestTenant { number: Tenant::new(number), is_other: false };
            tenants.request_names().of(tenant).to_string()
        };
        RolloutView {
            model: self.canary.name.clone(),
            state: core.state(),
            cause: verdict.map(|verdict| verdict.cause().to_string()),
            tenant: verdict.and_then(|verdict| verdict.tenant()).map(name),
            stable: version(&self.stable),
            canary: version(&self.canary),
            share: core.settings().canary,
            bake_s: core.settings().bake.as_secs_f64(),
            missing_samples: core.missing_samples(),
            compare: core.settings().compare,
            figures,
        }
    }
}

fn version(loaded: &Loaded) -> VersionView {
    VersionView { version: loaded.version, digest: loaded.hash.to_string() }
}
