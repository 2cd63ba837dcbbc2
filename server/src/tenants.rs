//! Names of tenants as the numbers by which the router tells them apart.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use identity::DEFAULT_TENANT;
use router_core::Tenant;

/// The tenants known, at most [`Tenant::COUNT`]. All others share the number of `default`, so that a caller cannot create any.
pub struct Tenants {
    numbers: ArcSwap<BTreeMap<Arc<str>, Tenant>>,
}

impl Default for Tenants {
    fn default() -> Self {
        Self { numbers: ArcSwap::from_pointee(BTreeMap::from([(DEFAULT_TENANT.into(), Tenant::default())])) }
    }
}

impl Tenants {
    /// Adds tenants. Known ones keep their numbers, because requests of theirs may be queued.
    pub fn add(&self, names: impl IntoIterator<Item = Arc<str>>) {
        let mut numbers = BTreeMap::clone(&self.numbers.load());
        let known = numbers.len();
        for name in names {
            let next = numbers.len();
            if numbers.contains_key(&name) {
                continue;
            }
            let Some(number) = u16::try_from(next).ok().filter(|_| next < Tenant::COUNT) else {
                tracing::warn!(tenant = %name, "too many tenants: counts as tenant `{DEFAULT_TENANT}`");
                break;
            };
            numbers.insert(name, Tenant::new(number));
        }
        if numbers.len() > known {
            self.numbers.store(Arc::new(numbers));
        }
    }

    /// The number of a tenant.
    pub fn number(&self, name: &str) -> Tenant {
        self.numbers.load().get(name).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_and_unknown_tenants_are_the_default() {
        let tenants = Tenants::default();
        tenants.add(["b".into(), "a".into()]);
        let (a, b) = (tenants.number("a"), tenants.number("b"));
        assert_eq!((b.number(), a.number()), (1, 2));
        tenants.add(["c".into(), "a".into()]);
        assert_eq!((tenants.number("a"), tenants.number("c").number()), (a, 3));
        assert_eq!(tenants.number(DEFAULT_TENANT), Tenant::default());
        assert_eq!(tenants.number("unknown"), Tenant::default());
    }

    #[test]
    fn there_are_no_more_tenants_than_the_router_tells_apart() {
        let tenants = Tenants::default();
        tenants.add((0..2000).map(|number| number.to_string().into()));
        assert_eq!(usize::from(tenants.number("1022").number()), Tenant::COUNT - 1);
        assert_eq!(tenants.number("1023"), Tenant::default());
    }
}
