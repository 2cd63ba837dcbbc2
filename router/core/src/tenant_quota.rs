//! What one tenant may use: lane time and requests.

use serde::Serialize;

use crate::{Allowance, ConfigError};

/// Tokens of one request, so that rates below one request a second can be expressed.
pub(crate) const REQUEST: u64 = 1_000_000;

/// What a tenant may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TenantQuota {
    /// Nanoseconds of lane time. `None`: no limit.
    pub lane_time: Option<Allowance>,
    /// Millionths of a request. `None`: no limit.
    pub requests: Option<Allowance>,
    /// Whether requests beyond the quota run on lanes that no other tenant wants, instead of being refused.
    pub borrow: bool,
}

impl TenantQuota {
    /// Refuses rates of zero, and bursts that would refuse every request.
    pub(crate) fn validate(&self, field: &str) -> Result<(), ConfigError> {
        for (name, allowance, least) in
            [("lane_time", self.lane_time, 1), ("requests", self.requests, REQUEST)]
        {
            let Some(allowance) = allowance else { continue };
            if allowance.per_second == 0 {
                return Err(ConfigError::new(
                    format!("{field}.{name}.per_second"),
                    "is 0, expected at least 1",
                ));
            }
            if allowance.burst < least {
                let problem = format!("is {}, expected at least {least}", allowance.burst);
                return Err(ConfigError::new(format!("{field}.{name}.burst"), problem));
            }
        }
        Ok(())
    }
}

impl Allowance {
    /// Lane time: seconds of it per second, and at once after a pause.
    pub fn of_lane_time(seconds_per_second: f64, burst_seconds: f64) -> Self {
        Self::scaled(seconds_per_second, burst_seconds, 1e9)
    }

    /// Requests: per second, and at once after a pause.
    pub fn of_requests(per_second: f64, burst: f64) -> Self {
        Self::scaled(per_second, burst, REQUEST as f64)
    }

    /// Rounded to whole tokens, at least 1.
    fn scaled(per_second: f64, burst: f64, tokens: f64) -> Self {
        let whole = |amount: f64| ((amount * tokens).round() as u64).max(1);
        Self { per_second: whole(per_second), burst: whole(burst) }
    }

    /// The rate in units of `tokens` tokens.
    fn rate(&self, tokens: f64) -> f64 {
        self.per_second as f64 / tokens
    }

    /// Seconds of lane time per second.
    pub fn lane_seconds_per_second(&self) -> f64 {
        self.rate(1e9)
    }

    /// Requests per second.
    pub fn requests_per_second(&self) -> f64 {
        self.rate(REQUEST as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_that_refuse_everything_are_refused() {
        let empty = Some(Allowance { per_second: 1, burst: 0 });
        let quota = TenantQuota { requests: empty, ..TenantQuota::default() };
        assert_eq!(quota.validate("quotas[0]").unwrap_err().field, "quotas[0].requests.burst");
        let stopped = Some(Allowance { per_second: 0, burst: 1 });
        let quota = TenantQuota { lane_time: stopped, ..TenantQuota::default() };
        assert_eq!(quota.validate("quotas[0]").unwrap_err().field, "quotas[0].lane_time.per_second");
    }
}
