//! Weighted shares of lane time when there is more work than lanes.
//!
//! Shares have no effect while no request is dropped. A request that is dropped for lack of lanes makes its tenant a
//! victim for some seconds, unless another victim uses even less. During that time, the queues of tenants that use more
//! lane time in proportion to their weight come after all others of their class. They get the remaining time, so no
//! lane idles. With all tenants flooding this settles at their weights; a tenant below its share gets nearly all
//! that it asks for.

use crate::rate::Rate;
use crate::{Nanos, Tenant};

/// Lane time is averaged over this long.
const MEMORY: Nanos = Nanos::from_millis(1_000);

/// How long one dropped request puts tenants over their share behind the others.
const GRIEVANCE: Nanos = Nanos::from_millis(5_000);

/// Uses within this factor of each other count as equal.
const TOLERANCE: f64 = 1.02;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shares {
    weights: Vec<u32>,
    /// Lane microseconds a second by tenant.
    used: Vec<Rate>,
    /// Whether more than one tenant was ever seen; until then nothing is counted.
    several: bool,
    victim: Option<(Tenant, Nanos)>,
}

impl Shares {
    pub(crate) fn new(weights: &[u32]) -> Self {
        Self { weights: weights.to_vec(), used: Vec::new(), several: weights.len() > 1, victim: None }
    }

    /// Changes the weights. What tenants used stays as it is.
    pub(crate) fn set_weights(&mut self, weights: &[u32]) {
        self.weights = weights.to_vec();
        self.several |= weights.len() > 1;
    }

    fn weight(&self, tenant: Tenant) -> f64 {
        f64::from(self.weights.get(usize::from(tenant.number())).copied().unwrap_or(1))
    }

    /// Lane time in proportion to the weight.
    fn use_of(&self, tenant: Tenant, now: Nanos) -> f64 {
        let used = self.used.get(usize::from(tenant.number())).map_or(0.0, |rate| rate.per_second(now));
        used / self.weight(tenant)
    }

    /// A request of this tenant came.
    pub(crate) fn know(&mut self, tenant: Tenant) {
        self.several |= tenant.number() > 0;
    }

    /// Whether the tenant has had more than its share while requests of another tenant were dropped.
    pub(crate) fn over(&self, now: Nanos, tenant: Tenant) -> bool {
        let victim = self.victim.filter(|&(victim, until)| self.several && until > now && victim != tenant);
        victim.is_some_and(|(victim, _)| self.use_of(tenant, now) > self.use_of(victim, now) * TOLERANCE)
    }

    /// A request was started and costs this much lane time.
    pub(crate) fn charge(&mut self, now: Nanos, tenant: Tenant, time: Nanos) {
        if !self.several {
            return;
        }
        let index = usize::from(tenant.number());
        if index >= self.used.len() {
            self.used.resize(index + 1, Rate::over(MEMORY));
        }
        if let Some(used) = self.used.get_mut(index) {
            used.count(now, u32::try_from(time.0 / 1_000).unwrap_or(u32::MAX));
        }
    }

    /// A request was dropped for lack of lanes.
    pub(crate) fn suffered(&mut self, now: Nanos, tenant: Tenant) {
        if !self.several {
            return;
        }
        let worse_off = self.victim.is_none_or(|(victim, until)| {
            until <= now || victim == tenant || self.use_of(tenant, now) < self.use_of(victim, now)
        });
        if worse_off {
            self.victim = Some((tenant, now.after(GRIEVANCE)));
        }
    }
}
