//! How long requests within quotas could wait lately, so that borrowed batches do not make them late.

use smallvec::SmallVec;

use crate::{Nanos, Tenant};

/// Requests are remembered for this long.
const MEMORY: Nanos = Nanos::from_millis(5_000);

/// Tenants that are remembered. Those whose requests can wait longest are forgotten first.
const TENANTS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tenant: Tenant,
    slack: Nanos,
    until: Nanos,
}

/// The shortest slack of recent requests, by tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecentSlack(SmallVec<[Entry; 2]>);

impl RecentSlack {
    /// A request came that can wait this long and then still be answered in time.
    pub(crate) fn came(&mut self, now: Nanos, tenant: Tenant, slack: Nanos) {
        let entry = Entry { tenant, slack, until: now.after(MEMORY) };
        let own = self.0.iter_mut().find(|known| known.tenant == tenant);
        if let Some(known) = own {
            if slack <= known.slack || known.until <= now {
                *known = entry;
            }
            return;
        }
        if self.0.len() < TENANTS {
            self.0.push(entry);
            return;
        }
        let longest = self.0.iter_mut().max_by_key(|known| (known.until <= now, known.slack));
        if let Some(longest) = longest.filter(|known| known.until <= now || slack < known.slack) {
            *longest = entry;
        }
    }

    /// The shortest slack of recent requests. `None` without any.
    pub(crate) fn of_all(&self, now: Nanos) -> Option<Nanos> {
        self.0.iter().filter(|known| known.until > now).map(|known| known.slack).min()
    }

    /// The shortest slack of recent requests of other tenants. `None` without any.
    pub(crate) fn of_others(&self, now: Nanos, tenant: Tenant) -> Option<Nanos> {
        let others = self.0.iter().filter(|known| known.tenant != tenant && known.until > now);
        others.map(|known| known.slack).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    #[test]
    fn the_shortest_slack_counts_until_it_is_too_old() {
        let mut slack = RecentSlack::default();
        let (one, two) = (Tenant::new(1), Tenant::new(2));
        assert_eq!(slack.of_others(at(0), one), None);
        slack.came(at(0), two, at(30));
        slack.came(at(1_000), two, at(90));
        slack.came(at(1_000), one, at(5));
        assert_eq!(slack.of_others(at(1_000), one), Some(at(30)));
        assert_eq!(slack.of_others(at(1_000), two), Some(at(5)));
        assert_eq!((slack.of_all(at(1_000)), RecentSlack::default().of_all(at(0))), (Some(at(5)), None));
        slack.came(at(5_000), two, at(90));
        assert_eq!(slack.of_others(at(5_000), one), Some(at(90)));
        assert_eq!(slack.of_others(at(10_000), one), None);
    }

    #[test]
    fn the_number_of_tenants_is_bounded_and_the_shortest_stay() {
        let mut slack = RecentSlack::default();
        for tenant in 0..100 {
            slack.came(at(0), Tenant::new(tenant), at(100 - u64::from(tenant)));
        }
        assert_eq!(slack.0.len(), TENANTS);
        assert_eq!(slack.of_others(at(1), Tenant::new(500)), Some(at(1)));
    }
}
