//! An even share of each tenant's requests, without randomness.

use std::collections::BTreeMap;

/// Fractional part of the golden ratio. Multiples of it spread tenants over the cycle, so that the first requests of many tenants
/// do not all get the same version.
const SPREAD: f64 = 0.618_033_988_749_894_9;

/// Takes a share of each tenant's requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrafficShare(BTreeMap<u16, f64>);

impl TrafficShare {
    /// Whether the next request of a tenant is one of the share.
    pub(crate) fn take(&mut self, tenant: u16, share: f64) -> bool {
        let credit = self.0.entry(tenant).or_insert_with(|| (f64::from(tenant) * SPREAD).fract());
        *credit += share;
        let taken = *credit >= 1.0;
        if taken {
            *credit -= 1.0;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenant_gets_its_share_evenly() {
        let mut split = TrafficShare::default();
        for tenant in 0..8 {
            let taken: Vec<usize> = (0..1_000).filter(|_| split.take(tenant, 0.1)).collect();
            assert!((99..=100).contains(&taken.len()), "{}", taken.len());
            assert!(taken.windows(2).all(|pair| pair[1] - pair[0] <= 11));
        }
    }

    #[test]
    fn tenants_do_not_begin_together() {
        let mut split = TrafficShare::default();
        let first = (0..200).filter(|&tenant| split.take(tenant, 0.1)).count();
        assert!((15..=25).contains(&first), "{first}");
    }
}
