//! Which names a browser may reach the server by.
//!
//! A page of another site cannot read answers of this server, unless its name is made to resolve to this machine (DNS
//! rebinding). Then the browser sends the page's name as `host`. A page that only sends a request names itself in `origin`.

use std::fmt;
use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, Uri, header};

const LOCALHOST: &str = "localhost";

/// Names under which a listener answers.
#[derive(Clone, Debug, Default)]
pub struct Host {
    names: Vec<String>,
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostDenied {
    /// The name in `host` is not one of this server's.
    Host,
    /// The page in `origin` is not one of this server's.
    Origin,
}

impl fmt::Display for HostDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "header host: expected an address, `localhost` or a name of `server.admin_names`",
            Self::Origin => "header origin: expected none, or the address that the request was sent to",
        })
    }
}

impl Host {
    /// Answers to these names, to `localhost`, and to addresses: a page cannot make a browser send an address that is not
    /// its own.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Checks where a request was sent to and which page sent it.
    ///
    /// # Errors
    /// Which of the two is wrong.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HostDenied> {
        let named: Option<Authority> = match headers.get(header::HOST) {
            Some(host) => Some(Authority::try_from(host.as_bytes()).map_err(|_| HostDenied::Host)?),
            None => None,
        };
        // HTTP/2 and proxies name the host in the target. If a request does both, both count.
        let mut hosts = named.iter().chain(uri.authority()).peekable();
        let target = hosts.peek().copied().cloned().ok_or(HostDenied::Host)?;
        if !hosts.all(|host| self.knows(host)) {
            return Err(HostDenied::Host);
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        if origins.all(|origin| same_site(origin.as_bytes(), &target)) {
            Ok(())
        } else {
            Err(HostDenied::Origin)
        }
    }

    fn knows(&self, host: &Authority) -> bool {
        if host.as_str().contains('@') {
            return false;
        }
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        let is_known = |known: &str| name.eq_ignore_ascii_case(known);
        name.parse::<IpAddr>().is_ok()
            || is_known(LOCALHOST)
            || self.names.iter().any(|known| is_known(known))
    }
}

/// Whether a page was loaded from the address that its request goes to.
fn same_site(origin: &[u8], target: &Authority) -> bool {
    let page = origin.strip_prefix(b"https://").or_else(|| origin.strip_prefix(b"http://"));
    page.is_some_and(|page| page.eq_ignore_ascii_case(target.as_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(host: &str, origin: Option<&str>) -> Result<(), HostDenied> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        Host::new(["Tessera.example.com".to_owned()]).check(&Uri::from_static("/v2"), &headers)
    }

    #[test]
    fn only_addresses_and_own_names_are_answered() {
        for good in [
            "127.0.0.1:8003",
            "localhost",
            "LOCALHOST:1",
            "[::1]:8003",
            "10.0.0.7",
            "tessera.example.com:443",
        ] {
            assert_eq!(check(good, None), Ok(()), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example:8003",
            "127.0.0.1.evil.example",
            "a@localhost",
            "1.2.3",
            "",
            "%",
        ] {
            assert_eq!(check(bad, None), Err(HostDenied::Host), "{bad}");
        }
    }

    #[test]
    fn a_page_may_only_talk_to_where_it_came_from() {
        assert_eq!(check("localhost:8003", Some("http://localhost:8003")), Ok(()));
        assert_eq!(check("localhost:8003", Some("https://localhost:8003")), Ok(()));
        for bad in [
            "null",
            "http://localhost:3000",
            "http://evil.example",
            "http://127.0.0.1:8003",
            "file://localhost:8003",
            "",
        ] {
            assert_eq!(check("localhost:8003", Some(bad)), Err(HostDenied::Origin), "{bad}");
        }
    }

    #[test]
    fn the_target_of_http2_counts_as_the_host_does() {
        let host = Host::default();
        let check = |uri: &'static str| host.check(&Uri::from_static(uri), &HeaderMap::new());
        assert_eq!(check("https://127.0.0.1:8003/v2"), Ok(()));
        assert_eq!(check("https://evil.example/v2"), Err(HostDenied::Host));
        assert_eq!(check("/v2"), Err(HostDenied::Host));
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "localhost".parse().unwrap());
        assert_eq!(host.check(&Uri::from_static("http://evil.example/v2"), &headers), Err(HostDenied::Host));
    }

    proptest! {
        #[test]
        fn no_name_of_another_site_is_answered(name in "[a-z]{1,12}(\\.[a-z]{1,12}){1,3}(:[0-9]{1,5})?") {
            prop_assume!(!name.starts_with("tessera.example.com"));
            prop_assert_eq!(check(&name, None), Err(HostDenied::Host));
        }
    }
}
