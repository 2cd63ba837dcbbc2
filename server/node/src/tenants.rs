//! Tenants of requests: their names as the router's numbers, their quotas, and who may name them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use router_core::{Allowance, Tenant, TenantQuota, TenantTable, TenantUse};

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

/// The tenant of requests that run on a second version only to compare its outputs. It has no quota, and no request of a client
/// belongs to it.
pub fn mirrors() -> Tenant {
    Tenant::new(u16::MAX)
}

/// Names of tenants by number. Clones share the names, also those of tenants that come later.
#[derive(Clone, Debug, Default)]
pub struct TenantNames(Arc<ArcSwap<Vec<Arc<str>>>>);

impl TenantNames {
    /// The name of a request's tenant, as metrics have it.
    pub fn of(&self, tenant: RequestTenant) -> Arc<str> {
        if tenant.is_other {
            return OTHER.into();
        }
        let names = self.0.load();
        names.get(usize::from(tenant.number.number())).map_or_else(|| DEFAULT.into(), Arc::clone)
    }
}

/// The tenants of one configuration.
pub struct TenantSet {
    /// Names by number, the default tenant with number 0. Tenants that were removed keep their number.
    names: Vec<Arc<str>>,
    /// Numbers of the tenants that are configured.
    numbers: BTreeMap<Arc<str>, Tenant>,
    table: TenantTable,
    /// Whether requests cannot be of several tenants.
    is_single: bool,
}

impl TenantSet {
    /// The tenants of a configuration. `before`: names that have numbers already.
    fn of(config: &Config, before: &[Arc<str>]) -> Result<Self, String> {
        let mut names = before.to_vec();
        for name in std::iter::once(DEFAULT).chain(config.tenants.keys().map(String::as_str)) {
            if names.iter().all(|known| **known != *name) {
                names.push(name.into());
            }
        }
        let most = usize::from(mirrors().number());
        if names.len() > most {
            return Err(format!(
                "tenants: {} different ones since the start: expected at most {most}, or a restart",
                names.len(),
            ));
        }
        let number = |at: usize| Tenant::new(u16::try_from(at).unwrap_or(u16::MAX));
        let is_configured = |name: &str| name == DEFAULT || config.tenants.contains_key(name);
        let configured = names.iter().enumerate().filter(|(_, name)| is_configured(name));
        let numbers = configured.map(|(at, name)| (Arc::clone(name), number(at))).collect();
        let unnamed = TenantSettings::default();
        let settings = |name: &Arc<str>| config.tenants.get(&**name).unwrap_or(&unnamed);
        let weight = |name| settings(name).weight.map_or(1, |weight| weight.get());
        let weights = names.iter().map(weight).collect();
        let quotas = names.iter().map(|name| quota(settings(name))).collect();
        let table = TenantTable::new(weights, quotas).map_err(|error| format!("tenants: {error}"))?;
        let is_single = config.tenants.is_empty() && config.server.tenant_header.is_none();
        Ok(Self { names, numbers, table, is_single })
    }

    /// Weights and quotas by number, for the router.
    pub fn table(&self) -> &TenantTable {
        &self.table
    }

    /// The configured ones with their numbers.
    pub fn named(&self) -> impl Iterator<Item = (&str, Tenant)> {
        self.numbers.iter().map(|(name, tenant)| (&**name, *tenant))
    }
}

/// Tenants that are in force, with their metrics.
struct InForce {
    set: TenantSet,
    /// By number, and at last those of `other`. Empty if requests cannot be of several tenants.
    metrics: Vec<TenantMetrics>,
}

impl InForce {
    fn new(set: TenantSet, before: &[TenantQuota]) -> Self {
        let names: &[Arc<str>] = if set.is_single { &[] } else { &set.names };
        let none = TenantQuota::default();
        let before = before.iter().chain(std::iter::repeat(&none));
        let metrics = names
            .iter()
            .zip(set.table.quotas().iter().zip(before))
            .map(|(name, (quota, before))| TenantMetrics::new(name, quota, before));
        let other = (!names.is_empty()).then(|| TenantMetrics::new(OTHER, &none, &none));
        Self { metrics: metrics.chain(other).collect(), set }
    }
}

/// The tenants of the configuration.
pub struct Tenants {
    in_force: ArcSwap<InForce>,
    names: TenantNames,
    /// Header that names the tenant.
    header: Option<String>,
    trusted: Vec<Network>,
}

impl Tenants {
    /// The tenants of the configuration. Their metrics are registered with the current recorder.
    ///
    /// # Errors
    /// If there are too many.
    pub fn new(config: &Config) -> Result<Self, String> {
        let set = TenantSet::of(config, &[])?;
        let names = TenantNames(Arc::new(ArcSwap::from_pointee(set.names.clone())));
        Ok(Self {
            in_force: ArcSwap::from_pointee(InForce::new(set, &[])),
            names,
            header: config.server.tenant_header.clone(),
            trusted: config.server.trusted_peers.clone(),
        })
    }

    /// The tenants of another configuration, for [`Tenants::replace`].
    ///
    /// # Errors
    /// If there were too many since the start.
    pub fn prepare(&self, config: &Config) -> Result<TenantSet, String> {
        TenantSet::of(config, &self.in_force.load().set.names)
    }

    /// Takes up other tenants. Requests of those that are removed count as those of unknown tenants from now on.
    pub fn replace(&self, set: TenantSet) {
        self.names.0.store(Arc::new(set.names.clone()));
        let before = self.table();
        self.in_force.store(Arc::new(InForce::new(set, before.quotas())));
    }

    /// The configured tenants with their numbers, sorted by name.
    pub fn numbers(&self) -> Vec<(String, Tenant)> {
        let in_force = self.in_force.load();
        in_force.set.named().map(|(name, tenant)| (name.to_owned(), tenant)).collect()
    }

    /// Names of the tenants of requests, for records of them.
    pub fn request_names(&self) -> TenantNames {
        self.names.clone()
    }

    /// Weights and quotas by number.
    pub fn table(&self) -> TenantTable {
        self.in_force.load().set.table.clone()
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
        match self.in_force.load().set.numbers.get(name) {
            Some(&number) => RequestTenant { number, is_other: false },
            None => RequestTenant { number: Tenant::default(), is_other: true },
        }
    }

    fn count(&self, tenant: RequestTenant, count: impl FnOnce(&TenantMetrics)) {
        let in_force = self.in_force.load();
        let metrics = if tenant.is_other {
            in_force.metrics.last()
        } else {
            in_force.metrics.get(usize::from(tenant.number.number()))
        };
        if let Some(metrics) = metrics {
            count(metrics);
        }
    }

    /// Counts a request that was answered. `in_time` is `None` without a deadline.
    pub fn answered(&self, tenant: RequestTenant, in_time: Option<bool>) {
        self.count(tenant, |metrics| metrics.answered(in_time));
    }

    /// Counts a request that ended without a result.
    pub fn refused(&self, tenant: RequestTenant, reason: Reason) {
        self.count(tenant, |metrics| metrics.refused(reason));
    }

    /// Sets the device time that each tenant used. That of `other` is counted as the default tenant's.
    pub fn used(&self, uses: &[TenantUse]) {
        for (metrics, one) in self.in_force.load().metrics.iter().zip(uses) {
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

    fn config(text: &str) -> Config {
        let sources = Sources { file: Some(("tessera.toml".into(), text.to_owned())), ..Sources::default() };
        Config::load(&sources).unwrap()
    }

    fn tenants(text: &str) -> Tenants {
        Tenants::new(&config(text)).unwrap()
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
        assert_eq!(tenants.table().weights(), [1, 1, 3]);
        let [none, ads, search] = tenants.table().quotas()[..] else { panic!("three tenants") };
        assert_eq!(none, TenantQuota::default());
        assert_eq!(ads.requests, Some(Allowance { per_second: 10_000_000, burst: 10_000_000 }));
        assert_eq!(search.lane_time, Some(Allowance { per_second: 500_000_000, burst: 500_000_000 }));
    }

    #[test]
    fn tenants_keep_their_numbers_when_others_come_and_are_removed() {
        let tenants = tenants("[tenants.search]\nweight = 3");
        let names = tenants.request_names();
        let search = tenants.named(Some("search"));
        tenants.replace(
            tenants.prepare(&config("[tenants.ads]\nweight = 2\n[tenants.search]\nweight = 5")).unwrap(),
        );
        assert_eq!(tenants.named(Some("search")), search);
        let ads = tenants.named(Some("ads"));
        assert_eq!((&*names.of(search), &*names.of(ads)), ("search", "ads"));
        assert_eq!(tenants.table().weights(), [1, 5, 2]);
        tenants.replace(tenants.prepare(&config("[tenants.ads]\nweight = 4")).unwrap());
        assert!(tenants.named(Some("search")).is_other);
        assert_eq!(tenants.named(Some("ads")), ads);
        assert_eq!(&*names.of(search), "search", "its earlier requests are still explained");
        assert_eq!(tenants.table().weights(), [1, 1, 4]);
        assert_eq!(
            tenants.numbers(),
            [("ads".to_owned(), ads.number), ("default".to_owned(), Tenant::new(0))]
        );
    }

    #[test]
    fn there_is_a_bound_on_tenants_since_the_start() {
        let tenants = tenants("");
        let many = |prefix: &str| {
            (0..600).map(|n| format!("[tenants.{prefix}{n}]\nweight = 2\n")).collect::<String>()
        };
        tenants.replace(tenants.prepare(&config(&many("a"))).unwrap());
        let message = tenants.prepare(&config(&many("b"))).err().unwrap();
        assert_eq!(
            message,
            "tenants: 1201 different ones since the start: expected at most 1023, or a restart"
        );
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
