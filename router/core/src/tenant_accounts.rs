//! What tenants use of their quotas: lane time and requests, each with a token bucket.
//!
//! A tenant's lane time is charged when its batch starts, with the request's share of the expected time, and corrected
//! to the measured time when the batch ends. Requests that wait are *reserved*: at the best measured time a row, so that a
//! reservation never exceeds what the request will cost. Admission counts reservations as used, otherwise a burst
//! would be admitted before its first batch starts. A tenant without tokens starts no batch. Its use in any interval is
//! therefore at most its rate times the interval, plus the burst and one batch.
//!
//! A tenant that *borrows* is not refused: its requests beyond the quota run on lanes that no other tenant wants. They
//! wait in queues of their own, come after all other requests of all classes, share no batch with them, and cost no
//! tokens. A borrowed batch takes at most half of the time that recent requests of other tenants could wait, because it
//! is not interrupted. Nothing that admission and policies estimate from traffic counts borrowed requests.

use serde::Serialize;

use crate::tenant_quota::REQUEST;
use crate::token_bucket::TokenBucket;
use crate::{Allowance, Nanos, Tenant, TenantQuota, TenantTable};

/// Most that one request may be charged at a time; the bucket's numbers stay far from overflow.
const CHARGE_MAX: u64 = u64::MAX / 4;

/// How a request that arrives stands to the quota of its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Within,
    /// Beyond the quota of a tenant that borrows.
    Borrows,
    /// Beyond the quota of a tenant that does not borrow.
    Refused,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Account {
    lane_time: Option<TokenBucket>,
    requests: Option<TokenBucket>,
    borrows: bool,
    /// Lane time that queued requests will need at least.
    reserved: u64,
    /// Lane time that ended batches took.
    used: u64,
}

/// The tenants that are accounted for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TenantAccounts {
    accounts: Vec<Account>,
    /// Whether any tenant has a quota. Without quotas nothing is decided here.
    limited: bool,
}

impl TenantAccounts {
    /// Accounts for the tenants of the table. A single tenant without a quota is not accounted for.
    pub(crate) fn new(table: &TenantTable) -> Self {
        let mut accounts = Self::default();
        accounts.change(Nanos::ZERO, table);
        accounts
    }

    /// Changes quotas. What tenants used and reserved stays as it is, and so do the tokens that are left, up to the new bursts.
    pub(crate) fn change(&mut self, now: Nanos, table: &TenantTable) {
        let limits = |quota: &TenantQuota| quota.lane_time.is_some() || quota.requests.is_some();
        self.limited = table.quotas().iter().any(limits);
        let tenants = table.weights().len();
        let count = if self.limited {
            tenants.max(table.quotas().len())
        } else if tenants > 1 {
            tenants
        } else {
            0
        };
        // What removed tenants used stays counted.
        self.accounts.resize_with(count.max(self.accounts.len()), Account::default);
        for (number, account) in self.accounts.iter_mut().enumerate() {
            let quota = table.quotas().get(number).copied().unwrap_or_default();
            account.lane_time = changed(account.lane_time, now, quota.lane_time);
            account.requests = changed(account.requests, now, quota.requests);
            account.borrows = quota.borrow;
        }
    }

    /// Whether any tenant is accounted for.
    pub(crate) fn is_on(&self) -> bool {
        !self.accounts.is_empty()
    }

    /// Whether any tenant has a quota.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    fn get(&self, tenant: Tenant) -> Option<&Account> {
        self.accounts.get(usize::from(tenant.number()))
    }

    fn get_mut(&mut self, tenant: Tenant) -> Option<&mut Account> {
        self.accounts.get_mut(usize::from(tenant.number()))
    }

    /// How a request that arrives now stands to the quota. `counts`: to the request rate too.
    pub(crate) fn standing(&self, now: Nanos, tenant: Tenant, counts: bool) -> Standing {
        let Some(account) = self.get(tenant).filter(|_| self.limited) else { return Standing::Within };
        let time_left = account.lane_time.is_none_or(|bucket| bucket.has_more_than(now, account.reserved));
        let requests_left = !counts || account.requests.is_none_or(|bucket| bucket.has(now, REQUEST));
        match (time_left && requests_left, account.borrows) {
            (true, _) => Standing::Within,
            (false, true) => Standing::Borrows,
            (false, false) => Standing::Refused,
        }
    }

    /// When a request would be within the quota, if no other request came before it.
    pub(crate) fn within_from(&self, now: Nanos, tenant: Tenant) -> Nanos {
        let Some(account) = self.get(tenant) else { return now };
        let time =
            account.lane_time.map_or(now, |bucket| bucket.refilled(now, account.reserved.saturating_add(1)));
        time.max(account.requests.map_or(now, |bucket| bucket.refilled(now, REQUEST)))
    }

    /// A request within the quota was admitted.
    pub(crate) fn admitted(&mut self, now: Nanos, tenant: Tenant) {
        if let Some(bucket) = self.get_mut(tenant).and_then(|account| account.requests.as_mut()) {
            bucket.take(now, i128::from(REQUEST));
        }
    }

    /// Until when a tenant is without tokens for lane time; `None` if it has some.
    pub(crate) fn over_until(&self, now: Nanos, tenant: Tenant) -> Option<Nanos> {
        let bucket = self.get(tenant)?.lane_time?;
        (!bucket.has_more_than(now, 0)).then(|| bucket.refilled(now, 0))
    }

    pub(crate) fn borrows(&self, tenant: Tenant) -> bool {
        self.get(tenant).is_some_and(|account| account.borrows)
    }

    /// A request that will take at least this long waits in a queue. Returns what was reserved.
    pub(crate) fn reserve(&mut self, tenant: Tenant, time: Nanos) -> Nanos {
        let Some(account) = self.get_mut(tenant).filter(|account| account.lane_time.is_some()) else {
            return Nanos::ZERO;
        };
        let time = time.0.min(CHARGE_MAX);
        account.reserved = account.reserved.saturating_add(time);
        Nanos(time)
    }

    /// A request no longer waits.
    pub(crate) fn release(&mut self, tenant: Tenant, reserved: Nanos) {
        if let Some(account) = self.get_mut(tenant) {
            account.reserved = account.reserved.saturating_sub(reserved.0);
        }
    }

    /// A request that is not borrowed started, and should take this long.
    pub(crate) fn charge(&mut self, now: Nanos, tenant: Tenant, expected: Nanos) {
        if let Some(bucket) = self.get_mut(tenant).and_then(|account| account.lane_time.as_mut()) {
            bucket.take(now, i128::from(expected.0.min(CHARGE_MAX)));
        }
    }

    /// A request ended that took `measured`. If it was charged, its charge is corrected.
    pub(crate) fn settle(&mut self, now: Nanos, tenant: Tenant, charged: Option<Nanos>, measured: Nanos) {
        let Some(account) = self.get_mut(tenant) else { return };
        account.used = account.used.saturating_add(measured.0);
        if let Some((bucket, charged)) = account.lane_time.as_mut().zip(charged) {
            bucket.take(now, i128::from(measured.0.min(CHARGE_MAX)) - i128::from(charged.0.min(CHARGE_MAX)));
        }
    }

    /// The accounts as people and reports see them, by tenant.
    pub(crate) fn uses(&self, now: Nanos) -> impl Iterator<Item = TenantUse> + '_ {
        self.accounts.iter().map(move |account| TenantUse {
            lane_time: Nanos(account.used),
            reserved: Nanos(account.reserved),
            quota: TenantQuota {
                lane_time: account.lane_time.map(|bucket| bucket.allowance()),
                requests: account.requests.map(|bucket| bucket.allowance()),
                borrow: account.borrows,
            },
            lane_time_left: account.lane_time.map(|bucket| bucket.tokens(now)),
            requests_left: account.requests.map(|bucket| bucket.tokens(now)),
        })
    }

    /// What is reserved, by tenant, and whether the tenant's buckets are within their bursts.
    pub(crate) fn reservations(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        self.accounts.iter().map(|account| {
            let buckets = [account.lane_time, account.requests];
            (account.reserved, buckets.into_iter().flatten().all(|bucket| bucket.is_within_burst()))
        })
    }

    #[cfg(test)]
    pub(crate) fn miscount_reservations(&mut self) {
        if let Some(account) = self.accounts.first_mut() {
            account.reserved += 1;
        }
    }
}

fn changed(bucket: Option<TokenBucket>, now: Nanos, allowance: Option<Allowance>) -> Option<TokenBucket> {
    let allowance = allowance?;
    Some(match bucket {
        Some(mut bucket) => {
            bucket.change(now, allowance);
            bucket
        }
        None => TokenBucket::new(allowance),
    })
}

/// What a tenant used, and what is left of its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TenantUse {
    /// Lane time of its share of all batches that ended, whether charged or borrowed.
    pub lane_time: Nanos,
    /// Least lane time that its queued requests will need.
    pub reserved: Nanos,
    /// Its quota.
    pub quota: TenantQuota,
    /// Nanoseconds of lane time left now, without deducting `reserved`; negative while more was used than allowed. `None`
    /// without a limit.
    pub lane_time_left: Option<i64>,
    /// Millionths of a request left now. `None` without a limit.
    pub requests_left: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    fn of(tenants: usize, quotas: Vec<TenantQuota>) -> TenantAccounts {
        TenantAccounts::new(&TenantTable::new(vec![1; tenants], quotas).unwrap())
    }

    fn quota(per_second: u64, borrow: bool) -> TenantQuota {
        let lane_time = Some(Allowance { per_second, burst: 10 * MILLI });
        TenantQuota { lane_time, requests: None, borrow }
    }

    #[test]
    fn reservations_count_until_the_request_starts() {
        let (now, tenant) = (Nanos::ZERO, Tenant::new(1));
        let mut accounts = of(2, vec![TenantQuota::default(), quota(1_000 * MILLI, false)]);
        let reserved = accounts.reserve(tenant, Nanos(10 * MILLI));
        assert_eq!(accounts.standing(now, tenant, true), Standing::Refused);
        assert_eq!(accounts.within_from(now, tenant), Nanos(1));
        accounts.release(tenant, reserved);
        accounts.charge(now, tenant, Nanos(4 * MILLI));
        assert_eq!(accounts.standing(now, tenant, true), Standing::Within);
        accounts.settle(now, tenant, Some(Nanos(4 * MILLI)), Nanos(12 * MILLI));
        assert_eq!(accounts.over_until(now, tenant), Some(Nanos(2 * MILLI + 1)));
        assert_eq!(accounts.uses(now).nth(1).unwrap().lane_time, Nanos(12 * MILLI));
    }

    #[test]
    fn requests_beyond_the_quota_are_refused_or_borrow() {
        let requests = Some(Allowance { per_second: REQUEST / 2, burst: REQUEST });
        for (borrow, standing) in [(false, Standing::Refused), (true, Standing::Borrows)] {
            let quota = TenantQuota { requests, borrow, ..TenantQuota::default() };
            let mut accounts = of(1, vec![quota]);
            let tenant = Tenant::new(0);
            assert_eq!(accounts.standing(Nanos::ZERO, tenant, true), Standing::Within);
            accounts.admitted(Nanos::ZERO, tenant);
            assert_eq!(accounts.standing(Nanos::ZERO, tenant, true), standing);
            assert_eq!(accounts.within_from(Nanos::ZERO, tenant), Nanos::from_millis(2_000));
            assert_eq!(accounts.standing(Nanos::ZERO, Tenant::new(7), true), Standing::Within);
        }
    }

    #[test]
    fn one_tenant_without_a_quota_is_not_accounted_for() {
        assert!(!of(1, vec![TenantQuota::default()]).is_on());
        assert!(of(2, Vec::new()).is_on() && !of(2, Vec::new()).is_limited());
    }
}
