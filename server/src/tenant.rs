//! Whose request it is.

use std::net::IpAddr;

use http::{Extensions, HeaderMap};
use identity::{Caller, DEFAULT_TENANT};
use node::tenants::RequestTenant;

use crate::front::Front;

/// Address that the connection of a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// The tenant of the request's [`Caller`]. A caller of the default tenant, or one that does not say who it is, may name
/// another one in `server.tenant_header`, if its connection comes from a trusted [`Peer`]. Both are extensions.
pub fn of(front: &Front, headers: &HeaderMap, extensions: &Extensions) -> RequestTenant {
    let tenants = front.service.node.catalog().tenants();
    if let Some(caller) = extensions.get::<Caller>().filter(|caller| *caller.tenant != *DEFAULT_TENANT) {
        return tenants.named(Some(&caller.tenant));
    }
    let Some(header) = tenants.header() else { return RequestTenant::default() };
    if !extensions.get::<Peer>().is_some_and(|peer| tenants.trusts(peer.0)) {
        return RequestTenant::default();
    }
    // Bytes that are no text are the name of no tenant.
    let name = headers.get(header).map(|name| name.to_str().unwrap_or_default().trim());
    tenants.named(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{front_with, limits};
    use identity::Role;
    use router_core::Tenant;

    #[tokio::test]
    async fn a_tenant_is_named_by_trusted_peers_only() {
        let options = [("server.tenant_header", "x-tenant"), ("tenants.search.weight", "2")];
        let front = front_with(limits(), &options).await;
        let mut headers = HeaderMap::new();
        let peer = |text: &str| {
            let mut extensions = Extensions::new();
            extensions.insert(Peer(text.parse().unwrap()));
            extensions
        };
        assert_eq!(of(&front, &headers, &peer("127.0.0.1")), RequestTenant::default());
        headers.insert("x-tenant", "search".parse().unwrap());
        let search = RequestTenant { number: Tenant::new(1), is_other: false };
        assert_eq!(of(&front, &headers, &peer("127.0.0.1")), search);
        assert_eq!(of(&front, &headers, &peer("::ffff:127.0.0.1")), search);
        assert_eq!(of(&front, &headers, &peer("10.0.0.1")), RequestTenant::default());
        assert_eq!(of(&front, &headers, &Extensions::new()), RequestTenant::default());
        headers.insert("x-tenant", "stranger".parse().unwrap());
        assert!(of(&front, &headers, &peer("::1")).is_other);
    }

    #[tokio::test]
    async fn only_a_caller_without_a_tenant_of_its_own_names_one() {
        let options = [
            ("server.tenant_header", "x-tenant"),
            ("tenants.ads.weight", "1"),
            ("tenants.search.weight", "2"),
        ];
        let front = front_with(limits(), &options).await;
        let headers = HeaderMap::from_iter([("x-tenant".parse().unwrap(), "search".parse().unwrap())]);
        for (tenant, number, is_other) in [("default", 2, false), ("ads", 1, false), ("stranger", 0, true)] {
            let mut extensions = Extensions::new();
            extensions.insert(Peer("127.0.0.1".parse().unwrap()));
            extensions.insert(Caller { role: Role::Infer, tenant: tenant.into(), name: "n".into() });
            let expected = RequestTenant { number: Tenant::new(number), is_other };
            assert_eq!(of(&front, &headers, &extensions), expected, "{tenant}");
        }
    }

    #[tokio::test]
    async fn without_the_setting_the_header_is_not_read() {
        let front = front_with(limits(), &[("tenants.search.weight", "2")]).await;
        let headers = HeaderMap::from_iter([("x-tenant".parse().unwrap(), "search".parse().unwrap())]);
        let mut extensions = Extensions::new();
        extensions.insert(Peer("127.0.0.1".parse().unwrap()));
        assert_eq!(of(&front, &headers, &extensions), RequestTenant::default());
    }
}
