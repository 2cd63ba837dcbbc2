//! Address, protocol and encoding of the server.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// REST over HTTP/1.1: one request at a time on a connection.
    Http,
    /// REST over HTTP/2 without TLS: many requests on a connection.
    Http2,
    /// gRPC, with many requests on a connection.
    Grpc,
}

impl Protocol {
    /// The name in options and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Http2 => "http2",
            Self::Grpc => "grpc",
        }
    }
}

/// Encoding of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tensors {
    /// Raw bytes: the binary tensor extension over REST, `raw_input_contents` over gRPC.
    Binary,
    /// As JSON over REST, as `contents` over gRPC.
    Json,
}

impl Tensors {
    /// The name in options and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::Json => "json",
        }
    }
}

/// A server and its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Host and port as given.
    pub authority: String,
    /// How requests travel.
    pub protocol: Protocol,
    /// Whether connections use TLS.
    pub tls: bool,
}

/// An address is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}`: {problem}")]
pub struct BadEndpoint {
    given: String,
    problem: String,
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    /// `http://HOST:PORT`, `http2://HOST:PORT`, `grpc://HOST:PORT`, with TLS `https://`, `https2://` and `grpcs://`; without a scheme
    /// `http`.
    fn from_str(given: &str) -> Result<Self, BadEndpoint> {
        let wrong = |problem: &str| BadEndpoint { given: given.to_owned(), problem: problem.to_owned() };
        let (scheme, rest) = given.split_once("://").unwrap_or(("http", given));
        let (protocol, port, tls) = match scheme {
            "http" => (Protocol::Http, 8000, false),
            "https" => (Protocol::Http, 8000, true),
            "http2" | "h2c" => (Protocol::Http2, 8000, false),
            "https2" => (Protocol::Http2, 8000, true),
            "grpc" => (Protocol::Grpc, 8001, false),
            "grpcs" => (Protocol::Grpc, 8001, true),
            _ => {
                let known = "http://HOST:PORT, http2://HOST:PORT or grpc://HOST:PORT, or with TLS https, https2 or grpcs";
                return Err(wrong(&format!("expected {known}")));
            }
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
            return Err(wrong("expected only a host and a port"));
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(host, port)| {
            port.parse::<u16>().is_ok() && (host.starts_with('[') || !host.contains(':'))
        });
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
        Ok(Self { authority, protocol, tls })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.protocol, self.tls) {
            (Protocol::Http, true) => "https",
            (Protocol::Http2, true) => "https2",
            (Protocol::Grpc, true) => "grpcs",
            (protocol, false) => protocol.as_str(),
        };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl Endpoint {
    /// Resolves the host.
    pub fn resolve(&self) -> Result<SocketAddr, BadEndpoint> {
        let wrong = |problem: String| BadEndpoint { given: self.to_string(), problem };
        let mut found = self
            .authority
            .to_socket_addrs()
            .map_err(|error| wrong(format!("cannot find this host: {error}")))?;
        found.next().ok_or_else(|| wrong("this host has no address".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_defaults_and_faults_are_told() {
        let shown = |text: &str| text.parse::<Endpoint>().map(|endpoint| endpoint.to_string());
        assert_eq!(shown("127.0.0.1:9000").unwrap(), "http://127.0.0.1:9000");
        assert_eq!(shown("localhost").unwrap(), "http://localhost:8000");
        assert_eq!(shown("grpc://localhost").unwrap(), "grpc://localhost:8001");
        assert_eq!(shown("grpcs://localhost").unwrap(), "grpcs://localhost:8001");
        assert_eq!(shown("https2://a:1").unwrap(), "https2://a:1");
        assert_eq!(shown("h2c://[::1]:80/").unwrap(), "http2://[::1]:80");
        for (given, problem) in [
            ("ftp://a", "expected http://HOST:PORT"),
            ("http://a/v2", "only a host and a port"),
            ("http://", "expected only a host and a port"),
        ] {
            let error = shown(given).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains(given), "{error}");
        }
        let unknown = "http://no-such-host.invalid:1".parse::<Endpoint>().unwrap().resolve().unwrap_err();
        assert!(unknown.to_string().contains("cannot find this host"), "{unknown}");
    }
}
