//! The nodes that a picker chooses from: their names and addresses, and the rates that the plan sends there.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use serde::Deserialize;
use units::parse_toml;

/// Nodes at most.
pub const NODES_MAX: usize = fleet_core::pick::NODES_MAX;
/// Longest name of a device type.
const DEVICE_TYPE_BYTES_MAX: usize = 63;
/// Longest name of a node.
const NAME_BYTES_MAX: usize = 253;

/// A node and its addresses as `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Name of the node.
    pub name: String,
    /// Its REST interface.
    pub http: String,
    /// Its gRPC interface, which also sends the signals.
    pub grpc: String,
    /// Its device type. Nodes without one are taken as alike.
    #[serde(default)]
    pub device_type: String,
}

/// What the plan sends to a node.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRate {
    /// Name of the node.
    pub node: String,
    /// Name of the model.
    pub model: String,
    /// Rows a second.
    pub rate: f64,
}

/// All nodes of a fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members {
    /// Whether the list was read. A list from elsewhere is not at first.
    pub is_known: bool,
    /// The nodes, in any order.
    pub nodes: Vec<Arc<Endpoint>>,
    /// What the plan sends to them.
    pub rates: Vec<PlannedRate>,
}

/// A list of nodes that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct NodesError {
    /// What is wrong.
    pub field: String,
    /// Why, and what would be right.
    pub problem: String,
}

fn fault(field: impl Into<String>, problem: impl Into<String>) -> NodesError {
    NodesError { field: field.into(), problem: problem.into() }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    nodes: Vec<Endpoint>,
}

impl Members {
    /// A list that does not change.
    ///
    /// # Errors
    /// A name or an address is wrong, or there are too many.
    pub fn fixed(mut nodes: Vec<Endpoint>) -> Result<Self, NodesError> {
        if nodes.len() > NODES_MAX {
            return Err(fault("nodes", format!("expected at most {NODES_MAX}, got {}", nodes.len())));
        }
        let mut names = BTreeSet::new();
        for node in &mut nodes {
            node.check()?;
            if !names.insert(node.name.clone()) {
                return Err(fault(format!("nodes.{}", node.name), "expected each name once"));
            }
        }
        Ok(Self { is_known: true, nodes: nodes.into_iter().map(Arc::new).collect(), rates: Vec::new() })
    }
}

/// Reads a file with entries such as `nodes = [{ name = "a", http = "10.0.0.1:8000", grpc = "10.0.0.1:8001" }]`.
///
/// # Errors
/// It is not such a file.
pub fn parse_file(text: &str) -> Result<Vec<Endpoint>, NodesError> {
    let file: File = parse_toml(text).map_err(|error| fault("the file", error.to_string()))?;
    Ok(file.nodes)
}

impl Endpoint {
    fn check(&mut self) -> Result<(), NodesError> {
        let Self { name, http, grpc, device_type } = self;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if device_type.len() > DEVICE_TYPE_BYTES_MAX || !device_type.bytes().all(is_plain) {
            let problem = format!(
                "expected at most {DEVICE_TYPE_BYTES_MAX} letters, digits, `-`, `.` and `_`, got `{device_type}`"
            );
            return Err(fault(format!("nodes.{name}.device_type"), problem));
        }
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            let problem =
                format!("expected 1 to {NAME_BYTES_MAX} letters, digits, `-`, `.` and `_`, got `{name}`");
            return Err(fault("nodes.name", problem));
        }
        for (interface, address) in [("http", http), ("grpc", grpc)] {
            let plain = address.strip_prefix("http://").unwrap_or(address);
            let plain = plain.strip_suffix('/').unwrap_or(plain).to_owned();
            if !is_address(&plain) {
                let problem = format!("expected HOST:PORT without TLS, got `{address}`");
                return Err(fault(format!("nodes.{name}.{interface}"), problem));
            }
            *address = plain;
        }
        Ok(())
    }
}

fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match inner {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
                !host.is_empty() && host.bytes().all(is_plain)
            }
        };
        is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once(',')?)));
        let (name, (http, rest)) = parts
            .ok_or_else(|| format!("expected NAME=HTTP_ADDRESS,GRPC_ADDRESS[,DEVICE_TYPE], got `{text}`"))?;
        let (grpc, device_type) = rest.split_once(',').unwrap_or((rest, ""));
        let [name, http, grpc, device_type] = [name, http, grpc, device_type].map(str::to_owned);
        let mut node = Self { name, http, grpc, device_type };
        node.check().map_err(|error| error.to_string())?;
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_a_name_and_two_addresses() {
        let node: Endpoint = "a=10.0.0.1:8000,http://[::1]:8001/".parse().unwrap();
        assert_eq!(
            (node.name.as_str(), node.http.as_str(), node.grpc.as_str()),
            ("a", "10.0.0.1:8000", "[::1]:8001")
        );
        assert_eq!("a=h:1,h:2,l4".parse::<Endpoint>().unwrap().device_type, "l4");
        for (text, problem) in [
            ("a", "expected NAME=HTTP_ADDRESS,GRPC_ADDRESS[,DEVICE_TYPE], got `a`"),
            ("a=h:1", "expected NAME=HTTP_ADDRESS,GRPC_ADDRESS[,DEVICE_TYPE], got `a=h:1`"),
            (
                "a=h:1,h:2,l 4",
                "nodes.a.device_type: expected at most 63 letters, digits, `-`, `.` and `_`, got `l 4`",
            ),
            ("a=h:1,h:0", "nodes.a.grpc: expected HOST:PORT without TLS, got `h:0`"),
            ("a=https://h:1,h:2", "nodes.a.http: expected HOST:PORT without TLS, got `https://h:1`"),
            ("a b=h:1,h:2", "nodes.name: expected 1 to 253 letters, digits, `-`, `.` and `_`, got `a b`"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap_err(), problem);
        }
    }

    #[test]
    fn a_file_has_the_entries_of_the_servers_own_list() {
        let nodes = parse_file("nodes = [{ name = \"b\", http = \"h:8000\", grpc = \"h:8001\" }]").unwrap();
        let members = Members::fixed(nodes.clone()).unwrap();
        assert!(members.is_known && members.nodes.len() == 1);
        let error = Members::fixed([nodes.clone(), nodes].concat()).unwrap_err();
        assert_eq!(error.to_string(), "nodes.b: expected each name once");
        let error = parse_file("nodes = [{ name = \"b\" }]").unwrap_err().to_string();
        assert!(error.contains("http"), "{error}");
    }
}
