//! iGniter's analytic latency model of one workload (Xu et al., TPDS 2023). The procedure of the released code fits it.

use serde::{Deserialize, Serialize};

/// Coefficients of one model on one device type. A batch of b rows is active on r percent of the device for
/// (k1 b^2 + k2 b + k3) / (r + k4) + k5. Power and cache use are linear in rows per second of active time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// k1: microseconds x percent per row squared.
    pub k1_us_pct: f64,
    /// k2: microseconds x percent per row.
    pub k2_us_pct: f64,
    /// k3: microseconds x percent per batch.
    pub k3_us_pct: f64,
    /// k4: percent added to the share.
    pub k4_pct: f64,
    /// k5: microseconds that do not depend on the share.
    pub k5_us: f64,
    /// Kernels that a batch launches.
    pub kernels: u32,
    /// Microseconds of launching them, solo on the device.
    pub launch_us: f64,
    /// Microseconds to copy a row's output back.
    pub fetch_us_per_row: f64,
    /// Fraction of active time added per percent of cache use of all co-located batches.
    pub cache_sensitivity: f64,
    /// Watts per row per second of active time.
    pub power_w_per_row_s: f64,
    /// Watts at zero rows per second.
    pub power_w: f64,
    /// Percent of the cache's bandwidth per row per second of active time.
    pub cache_pct_per_row_s: f64,
    /// Percent of the cache's bandwidth at zero rows per second.
    pub cache_pct: f64,
    /// Largest batch that the fit is valid for, rows.
    pub batch_max: u32,
}

/// Valid sign of a coefficient.
#[derive(Clone, Copy)]
enum Sign {
    Any,
    NotNegative,
}

impl Coefficients {
    /// Returns the microseconds of solo execution on `share_pct` percent of the device.
    pub fn active_us(&self, batch: u32, share_pct: f64) -> f64 {
        let rows = f64::from(batch);
        let work = (self.k1_us_pct * rows + self.k2_us_pct) * rows + self.k3_us_pct;
        work / (share_pct + self.k4_pct) + self.k5_us
    }

    /// Returns the coefficients of a model whose batches take `factor` times as long.
    pub(super) fn slowed(self, factor: f64) -> Self {
        Self {
            k1_us_pct: self.k1_us_pct * factor,
            k2_us_pct: self.k2_us_pct * factor,
            k3_us_pct: self.k3_us_pct * factor,
            k5_us: self.k5_us * factor,
            launch_us: self.launch_us * factor,
            fetch_us_per_row: self.fetch_us_per_row * factor,
            ..self
        }
    }

    fn rows_s(&self, batch: u32, share_pct: f64) -> f64 {
        1e6 * f64::from(batch) / self.active_us(batch, share_pct)
    }

    /// Returns the watts above the idle device.
    pub fn power_w(&self, batch: u32, share_pct: f64) -> f64 {
        self.power_w_per_row_s * self.rows_s(batch, share_pct) + self.power_w
    }

    /// Returns the used percent of the cache's bandwidth.
    pub fn cache_pct(&self, batch: u32, share_pct: f64) -> f64 {
        self.cache_pct_per_row_s * self.rows_s(batch, share_pct) + self.cache_pct
    }

    /// Returns the first invalid coefficient, and what would be valid.
    pub(super) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let fields = [
            ("k1_us_pct", self.k1_us_pct, Sign::Any),
            ("k2_us_pct", self.k2_us_pct, Sign::Any),
            ("k3_us_pct", self.k3_us_pct, Sign::Any),
            ("k4_pct", self.k4_pct, Sign::NotNegative),
            ("k5_us", self.k5_us, Sign::NotNegative),
            ("launch_us", self.launch_us, Sign::NotNegative),
            ("fetch_us_per_row", self.fetch_us_per_row, Sign::NotNegative),
            ("cache_sensitivity", self.cache_sensitivity, Sign::NotNegative),
            ("power_w_per_row_s", self.power_w_per_row_s, Sign::NotNegative),
            ("power_w", self.power_w, Sign::Any),
            ("cache_pct_per_row_s", self.cache_pct_per_row_s, Sign::Any),
            ("cache_pct", self.cache_pct, Sign::Any),
        ];
        for (name, value, sign) in fields {
            if !value.is_finite() || value.abs() > 1e12 {
                return Some((name, "expected a number from -1e12 to 1e12"));
            }
            if value < 0.0 && matches!(sign, Sign::NotNegative) {
                return Some((name, "expected at least 0"));
            }
        }
        if !(1..=super::BATCH_MAX).contains(&self.batch_max) {
            return Some(("batch_max", "expected 1 to 4096"));
        }
        // A parabola that rises at both ends also rises between them.
        let slope = |rows: f64| 2.0 * self.k1_us_pct * rows + self.k2_us_pct;
        if slope(1.0) < 0.0 || slope(f64::from(self.batch_max)) < 0.0 {
            return Some(("k1_us_pct", "expected time that does not fall as batches grow to batch_max"));
        }
        let work = self.k1_us_pct + self.k2_us_pct + self.k3_us_pct;
        (work <= 0.0).then_some(("k3_us_pct", "expected k1 + k2 + k3 above 0"))
    }
}
