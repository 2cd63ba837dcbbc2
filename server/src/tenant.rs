//! Whose request it is.

use std::net::IpAddr;

use http::HeaderMap;
use node::tenants::RequestTenant;

use crate::front::Front;

/// Address that the connection of a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// The tenant that a request names in `server.tenant_header`, if its connection comes from a trusted peer.
pub fn of(front: &Front, headers: &HeaderMap, peer: Option<Peer>) -> RequestTenant {
    let tenants = front.service.node.catalog().tenants();
    let Some(header) = tenants.header() else { return RequestTenant::default() };
    if !peer.is_some_and(|peer| tenants.trusts(peer.0)) {
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
    use router_core::Tenant;

    #[tokio::test]
    async fn a_tenant_is_named_by_trusted_peers_only() {
        let options = [("server.tenant_header", "x-tenant"), ("tenants.search.weight", "2")];
        let front = front_with(limits(), &options).await;
        let mut headers = HeaderMap::new();
        let peer = |text: &str| Some(Peer(text.parse().unwrap()));
        assert_eq!(of(&front, &headers, peer("127.0.0.1")), RequestTenant::default());
        headers.insert("x-tenant", "search".parse().unwrap());
        let search = RequestTenant { number: Tenant::new(1), is_other: false };
        assert_eq!(of(&front, &headers, peer("127.0.0.1")), search);
        assert_eq!(of(&front, &headers, peer("::ffff:127.0.0.1")), search);
        assert_eq!(of(&front, &headers, peer("10.0.0.1")), RequestTenant::default());
        assert_eq!(of(&front, &headers, None), RequestTenant::default());
        headers.insert("x-tenant", "stranger".parse().unwrap());
        assert!(of(&front, &headers, peer("::1")).is_other);
    }

    #[tokio::test]
    async fn without_the_setting_the_header_is_not_read() {
        let front = front_with(limits(), &[("tenants.search.weight", "2")]).await;
        let headers = HeaderMap::from_iter([("x-tenant".parse().unwrap(), "search".parse().unwrap())]);
        let peer = Some(Peer("127.0.0.1".parse().unwrap()));
        assert_eq!(of(&front, &headers, peer), RequestTenant::default());
    }
}
