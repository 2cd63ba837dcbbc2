//! Tenants of requests: their names as the router's numbers, their quotas, and who may name them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use router_core::{Allowance, Tenant, TenantQuota, TenantUse};

use crate::config::{Config, Network, OTHER, TenantSettings};
use crate::metrics::TenantMetrics;
use crate::reason::Reason;

/// The tenant of requests that name none, and of those that name an unknown one.
const DEFAULT: &str = "default";

/// Whose request it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTenant {
    /// As the router knows it.
    pub number: Tenant,
    /// Whether the request named a tenant that is not configured. It belongs to `default`; metrics count it as `other`.
    pub is_other: bool,
}

/// Names of tenants by number.
#[derive(Clone, Debug, Default)]
pub struct TenantNames(Arc<[Box<str>]>);

impl TenantNames {
    /// The name of a request's tenant, as metrics have it.
    pub fn of(&self, tenant: RequestTenant) -> &str {
        if tenant.is_other {
            return OTHER;
        }
        self.0.get(usize::from(tenant.number.number())).map_or(DEFAULT, |name| name)
    }
}

/// The tenants of the configuration.
pub struct Tenants {
    /// Numbers by name, the default tenant with number 0.
    numbers: BTreeMap<String, Tenant>,
    weights: Vec<u32>,
    quotas: Vec<TenantQuota>,
    /// Header that names the tenant.
    header: Option<String>,
    trusted: Vec<Network>,
    /// By number, and at last those of `other`. Empty without configured tenants.
    metrics: Vec<TenantMetrics>,
}

impl Tenants {
    /// The tenants of the configuration. Their metrics are registered with the current recorder.
    pub fn new(config: &Config) -> Self {
        let unnamed = TenantSettings::default();
        let default = config.tenants.get(DEFAULT).unwrap_or(&unnamed);
        let others = config.tenants.iter().filter(|(name, _)| *name != DEFAULT);
        let listed: Vec<(&str, &TenantSettings)> = std::iter::once((DEFAULT, default))
            .chain(others.map(|(name, one)| (name.as_str(), one)))
            .collect();
        let quotas: Vec<TenantQuota> = listed.iter().map(|(_, settings)| quota(settings)).collect();
        let single = config.tenants.is_empty() && config.server.tenant_header.is_none();
        let names: &[(&str, &TenantSettings)] = if single { &[] } else { &listed };
        let metrics = names.iter().map(|(name, settings)| TenantMetrics::new(name, &quota(settings)));
        let other = (!names.is_empty()).then(|| TenantMetrics::new(OTHER, &TenantQuota::default()));
        let number = |at: usize| Tenant::new(u16::try_from(at).unwrap_or_default());
        Self {
            metrics: metrics.chain(other).collect(),
            numbers: listed
                .iter()
                .enumerate()
                .map(|(at, (name, _))| ((*name).to_owned(), number(at)))
                .collect(),
            weights: listed
                .iter()
                .map(|(_, settings)| settings.weight.map_or(1, |weight| weight.get()))
                .collect(),
            quotas,
            header: config.server.tenant_header.clone(),
            trusted: config.server.trusted_peers.clone(),
        }
    }

    /// Names by number.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<(u16, &str)> =
            self.numbers.iter().map(|(name, tenant)| (tenant.number(), name.as_str())).collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// Names of the tenants of requests, for records of them.
    pub fn request_names(&self) -> TenantNames {
        TenantNames(self.names().into_iter().map(Into::into).collect())
    }

    /// Weights by number, for the router.
    pub fn weights(&self) -> Vec<u32> {
        self.weights.clone()
    }

    /// Quotas by number, for the router.
    pub fn quotas(&self) -> Vec<TenantQuota> {
        self.quotas.clone()
    }

    /// Header that names the tenant of a request. `None`: requests name no tenant.
    pub fn header(&self) -> Option<&str> {
        self.header.as_deref()
    }

    /// Whether requests from this address may name their tenant.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(peer))
    }

    /// The tenant of a name. `None`: the default.
    pub fn named(&self, name: Option<&str>) -> RequestTenant {
        let Some(name) = name else { return RequestTenant::default() };
        match self.numbers.get(name) {
            Some(&number) => RequestTenant { number, is_other: false },
            None => RequestTenant { number: Tenant::default(), is_other: true },
        }
    }

    fn metrics_of(&self, tenant: RequestTenant) -> Option<&TenantMetrics> {
        if tenant.is_other {
            self.metrics.last()
        } else {
            self.metrics.get(usize::from(tenant.number.number()))
        }
    }

    /// Counts a request that was answered. `in_time` is `None` without a deadline.
    pub fn answered(&self, tenant: RequestTenant, in_time: Option<bool>) {
        if let Some(metrics) = self.metrics_of(tenant) {
            metrics.answered(in_time);
        }
    }

    /// Counts a request that ended without a result.
    pub fn refused(&self, tenant: RequestTenant, reason: Reason) {
        if let Some(metrics) = self.metrics_of(tenant) {
            metrics.refused(reason);
        }
    }

    /// Sets the device time that each tenant used. That of `other` is counted as the default tenant's.
    pub fn used(&self, uses: &[TenantUse]) {
        for (metrics, one) in self.metrics.iter().zip(uses) {
            metrics.used(one.lane_time.into());
        }
    }
}

fn quota(settings: &TenantSettings) -> TenantQuota {
    TenantQuota {
        lane_time: settings.device_seconds().map(|(rate, burst)| Allowance::of_lane_time(rate, burst)),
        requests: settings.requests().map(|(rate, burst)| Allowance::of_requests(rate, burst)),
        borrow: settings.borrow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn tenants(text: &str) -> Tenants {
        let sources = Sources { file: Some(("tessera.toml".into(), text.to_owned())), ..Sources::default() };
        Tenants::new(&Config::load(&sources).unwrap())
    }

    #[test]
    fn names_have_numbers_and_unknown_ones_are_the_default() {
        let tenants = tenants(
            "[tenants.search]\nweight = 3\ndevice_seconds_per_second = 0.5\n[tenants.ads]\nrequests_per_second = 10",
        );
        let number = |name| tenants.named(name);
        assert_eq!(number(None), RequestTenant::default());
        assert_eq!(number(Some("default")), RequestTenant::default());
        assert_eq!(number(Some("ads")).number, Tenant::new(1));
        assert_eq!(number(Some("search")).number, Tenant::new(2));
        assert_eq!(number(Some("stranger")), RequestTenant { number: Tenant::default(), is_other: true });
        assert_eq!(tenants.weights(), [1, 1, 3]);
        let [none, ads, search] = tenants.quotas()[..] else { panic!("three tenants") };
        assert_eq!(none, TenantQuota::default());
        assert_eq!(ads.requests, Some(Allowance { per_second: 10_000_000, burst: 10_000_000 }));
        assert_eq!(search.lane_time, Some(Allowance { per_second: 500_000_000, burst: 500_000_000 }));
    }

    #[test]
    fn requests_are_counted_by_tenant_and_outcome() {
        let recorder = crate::metrics::recorder().unwrap();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            let tenants = tenants("[tenants.search]\ndevice_seconds_per_second = 0.5");
            tenants.answered(tenants.named(Some("search")), Some(true));
            tenants.answered(tenants.named(Some("search")), Some(false));
            tenants.refused(tenants.named(Some("search")), Reason::Quota);
            tenants.refused(tenants.named(Some("stranger")), Reason::QueueFull);
            tenants.refused(tenants.named(None), Reason::EngineFailed);
        });
        let page = handle.render();
        for series in [
            "requests_total{tenant=\"search\",outcome=\"answered\"} 1",
            "requests_total{tenant=\"search\",outcome=\"late\"} 1",
            "requests_total{tenant=\"search\",outcome=\"quota\"} 1",
            "requests_total{tenant=\"other\",outcome=\"refused\"} 1",
            "requests_total{tenant=\"default\",outcome=\"failed\"} 1",
            "device_seconds_quota{tenant=\"search\"} 0.5",
        ] {
            assert!(page.contains(&format!("tessera_tenant_{series}\n")), "{series} in {page}");
        }
    }

    #[test]
    fn only_trusted_peers_name_tenants() {
        let local = tenants("");
        assert!(local.trusts("127.0.0.1".parse().unwrap()) && !local.trusts("10.0.0.1".parse().unwrap()));
        let gateway = tenants("[server]\ntrusted_peers = [\"10.0.0.0/8\"]");
        assert!(gateway.trusts("10.2.3.4".parse().unwrap()) && !gateway.trusts("127.0.0.1".parse().unwrap()));
    }
}
