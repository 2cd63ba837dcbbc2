//! `[best_effort]`: what work of best effort may cost other requests.

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};
use units::PercentileLimit;

/// `[best_effort]`: what jobs, models and requests of `class = "best_effort"` may cost others (docs/best-effort.md).
#[derive(Clone, Debug, Default, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct BestEffort {
    /// How much longer a percentile of any other model's latencies may become. Best-effort batches start during a share of the time only,
    /// which halves when a model is slower than this, and grows otherwise up to 95 %. Default: none, they start whenever nothing else
    /// wants the lane or the cores. Example: `"p99 <= 1.05x"`.
    #[serde(serialize_with = "units::text_if")]
    pub protect: Option<PercentileLimit>,
}
