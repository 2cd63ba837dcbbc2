//! Metrics of one tenant.

use std::time::Duration;

use metrics::Counter;
use router_core::TenantQuota;

use super::names;
use crate::reason::Reason;

/// Metrics of one tenant, registered at the start.
pub struct TenantMetrics {
    answered: Counter,
    late: Counter,
    quota: Counter,
    refused: Counter,
    failed: Counter,
    device_time: Counter,
}

impl TenantMetrics {
    /// Registers with the current recorder. A quota without a limit has no gauge, or `+Inf` if it had a limit before.
    pub fn new(name: &str, quota: &TenantQuota, before: &TenantQuota) -> Self {
        let outcome = |outcome: &'static str| {
            metrics::counter!(
                names::TENANT_REQUESTS.name,
                names::TENANT => name.to_owned(),
                names::OUTCOME => outcome
            )
        };
        let device = |quota: &TenantQuota| quota.lane_time.map(|limit| limit.lane_seconds_per_second());
        let requests = |quota: &TenantQuota| quota.requests.map(|limit| limit.requests_per_second());
        for (gauge, limit, before) in [
            (names::TENANT_DEVICE_QUOTA.name, device(quota), device(before)),
            (names::TENANT_REQUEST_QUOTA.name, requests(quota), requests(before)),
        ] {
            if limit.or(before).is_some() {
                metrics::gauge!(gauge, names::TENANT => name.to_owned()).set(limit.unwrap_or(f64::INFINITY));
            }
        }
        Self {
            answered: outcome("answered"),
            late: outcome("late"),
            quota: outcome("quota"),
            refused: outcome("refused"),
            failed: outcome("failed"),
            device_time: metrics::counter!(names::TENANT_DEVICE_TIME.name, names::TENANT => name.to_owned()),
        }
    }

    /// Counts a request that was answered. `in_time` is `None` without a deadline.
    pub fn answered(&self, in_time: Option<bool>) {
        if in_time == Some(false) { self.late.increment(1) } else { self.answered.increment(1) }
    }

    /// Counts a request that ended without a result.
    pub fn refused(&self, reason: Reason) {
        let counter = match reason {
            Reason::Quota => &self.quota,
            Reason::QueueFull
            | Reason::DeadlineUnmeetable
            | Reason::Shed
            | Reason::Expired
            | Reason::Draining
            | Reason::ModelNotReady => &self.refused,
            _ => &self.failed,
        };
        counter.increment(1);
    }

    /// Sets the device time used since the start.
    pub fn used(&self, time: Duration) {
        self.device_time.absolute(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }
}
