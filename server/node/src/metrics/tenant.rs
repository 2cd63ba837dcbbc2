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
    /// Registers with the current recorder. A quota without a limit has no gauge.
    pub fn new(name: &str, quota: &TenantQuota) -> Self {
        let outcome = |outcome: &'static str| {
            metrics::counter!(
                names::TENANT_REQUESTS.name,
                names::TENANT => name.to_owned(),
                names::OUTCOME => outcome
            )
        };
        if let Some(lane_time) = quota.lane_time {
            metrics::gauge!(names::TENANT_DEVICE_QUOTA.name, names::TENANT => name.to_owned())
                .set(lane_time.lane_seconds_per_second());
        }
        if let Some(requests) = quota.requests {
            metrics::gauge!(names::TENANT_REQUEST_QUOTA.name, names::TENANT => name.to_owned())
                .set(requests.requests_per_second());
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
