//! `[fleet]`: the other servers of a static list.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};
use units::TimeSpan;

/// Nodes at most.
const NODES_MAX: usize = 256;
/// Longest name of a node.
const NAME_BYTES_MAX: usize = 253;
/// Most requests that may be forwarded at once.
const FORWARDS_MAX: usize = 65_536;
/// Longest that a marked request may wait for the others of its batch.
const BATCH_WAIT_MAX: Duration = Duration::from_millis(50);
/// Largest file of a key.
const KEY_BYTES_MAX: u64 = 64 << 10;

/// Default port of `fleet.agent_metrics`.
const AGENT_METRICS_PORT: u16 = 9005;

/// `[fleet]`: other servers, to which requests for models that only they have are forwarded, and the agent of a fleet on Kubernetes.
#[derive(Clone, Debug, Deserialize, Serialize, Documented, DocumentedFields)]
#[serde(deny_unknown_fields, default)]
pub struct Fleet {
    /// Name of this server among the nodes: letters, digits, `-`, `.` and `_`. Default: none. Example: `"a"`.
    pub node: Option<String>,
    /// The servers of the fleet. An entry with the name of this server is skipped, so that all servers can have the same list. At
    /// most 256. Example: `[{ name = "b", http = "10.0.0.2:8000", grpc = "10.0.0.2:8001" }]`.
    pub nodes: Vec<FleetNode>,
    /// Whether a request for a model that this server does not have, or has not ready, goes to a node that has it. `false`: the
    /// request is refused.
    pub forward: bool,
    /// Requests that may be forwarded at once, at most 65536. Further ones are refused.
    pub forwards: NonZeroUsize,
    /// Whether requests with the same `x-tessera-batch: ID/ROWS` wait for each other and start as one batch. For servers behind an
    /// endpoint picker that forms batches. `false`: the header is ignored.
    pub batch_marks: bool,
    /// How long such a request waits for the others after the first of its batch came, at most 50ms. Its deadline ends the wait too.
    #[serde(serialize_with = "units::text")]
    pub batch_wait: TimeSpan,
    /// File of certificates in PEM that the certificates of `https` nodes are checked with. Default: the authorities of the system.
    /// Example: `"/etc/tessera/ca.crt"`.
    pub ca: Option<PathBuf>,
    /// File with a key or token of role `read`, with which this server asks the other nodes for their signals. Default: none.
    /// Example: `"/etc/tessera/fleet-key"`.
    pub key_file: Option<PathBuf>,
    /// Whether this server is a node of a fleet on Kubernetes. It then starts `tessera-fleet agent`, which loads and unloads models as
    /// the node's plan says. Needs `fleet.node` and `repository.load = "explicit"`; `--node NAME` sets all three.
    pub agent: bool,
    /// Namespace of the fleet's objects on Kubernetes. Default: that of the service account, or of the kubeconfig. Example: `"models"`.
    pub namespace: Option<String>,
    /// Folder in which the agent keeps the last plan, from which a node starts without Kubernetes.
    pub state: PathBuf,
    /// Address of the agent's `/metrics` and `/health`.
    pub agent_metrics: SocketAddr,
    /// File with a key of role `operate`, with which the agent loads models if callers are known. Default: none.
    /// Example: `"/etc/tessera/agent-key"`.
    pub agent_key_file: Option<PathBuf>,
}

/// One entry of `fleet.nodes`.
#[derive(Clone, Debug, Deserialize, Serialize, DocumentedFields)]
#[serde(deny_unknown_fields)]
pub struct FleetNode {
    /// Name of the node, which is its `fleet.node`. Default: none, it must be set. Example: `"b"`.
    pub name: String,
    /// Its REST interface, as `HOST:PORT` or a URL of `http` or `https`. Default: none, it must be set. Example: `"10.0.0.2:8000"`.
    pub http: NodeAddress,
    /// Its gRPC interface, as `HOST:PORT` or a URL of `http` or `https`. Default: none, it must be set. Example: `"10.0.0.2:8001"`.
    pub grpc: NodeAddress,
}

/// Where an interface of a node is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeAddress {
    /// Whether it speaks TLS.
    pub tls: bool,
    /// `HOST:PORT`.
    pub authority: String,
}

impl TryFrom<String> for NodeAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (tls, rest) = match text.split_once("://") {
            None => (false, text.as_str()),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err(not_an_address(&text)),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let is_address = authority.rsplit_once(':').is_some_and(|(host, port)| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let is_host = match inner {
                Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
                None => !host.is_empty() && host.bytes().all(is_plain),
            };
            is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if !is_address {
            return Err(not_an_address(&text));
        }
        Ok(Self { tls, authority: authority.to_owned() })
    }
}

fn not_an_address(text: &str) -> String {
    format!("expected HOST:PORT, http://HOST:PORT or https://HOST:PORT, got `{text}`")
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.authority)
    }
}

impl From<NodeAddress> for String {
    fn from(address: NodeAddress) -> Self {
        address.to_string()
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            node: None,
            nodes: Vec::new(),
            forward: true,
            forwards: NonZeroUsize::MIN.saturating_add(255),
            batch_marks: false,
            batch_wait: TimeSpan(Duration::from_millis(2)),
            ca: None,
            key_file: None,
            agent: false,
            namespace: None,
            state: "/var/lib/tessera/fleet".into(),
            agent_metrics: (Ipv4Addr::LOCALHOST, AGENT_METRICS_PORT).into(),
            agent_key_file: None,
        }
    }
}

impl Fleet {
    /// The other nodes, by name.
    pub fn others(&self) -> Vec<FleetNode> {
        let mut others: Vec<_> =
            self.nodes.iter().filter(|node| Some(&node.name) != self.node.as_ref()).cloned().collect();
        others.sort_by(|left, right| left.name.cmp(&right.name));
        others
    }

    /// The key with which other nodes are asked for their signals.
    ///
    /// # Errors
    /// Why the file cannot be used. It never repeats the key.
    pub fn key(&self) -> Result<Option<String>, String> {
        self.key_file.as_deref().map(read_key).transpose()
    }

    /// Reports values that types do not exclude.
    pub(super) fn check(&self, report: &mut impl FnMut(&str, String)) {
        if let Some(name) = self.node.as_deref().filter(|name| !is_name(name)) {
            report("fleet.node", not_a_name(name));
        }
        if self.node.is_none() && !self.nodes.is_empty() {
            report(
                "fleet.node",
                "expected the name of this server, because `fleet.nodes` names others".to_owned(),
            );
        }
        if self.agent && self.node.is_none() {
            report("fleet.node", "expected the name of this node, because `fleet.agent` is on".to_owned());
        }
        if self.agent
            && let Some(Err(reason)) = self.agent_key_file.as_deref().map(read_key)
        {
            report("fleet.agent_key_file", reason);
        }
        if self.nodes.len() > NODES_MAX {
            report("fleet.nodes", format!("{} nodes: expected at most {NODES_MAX}", self.nodes.len()));
        }
        let mut seen = BTreeSet::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let path = format!("fleet.nodes[{at}].name");
            if !is_name(&node.name) {
                report(&path, not_a_name(&node.name));
            } else if !seen.insert(&node.name) {
                report(&path, format!("`{}` is the name of two nodes: expected each name once", node.name));
            }
        }
        if self.forwards.get() > FORWARDS_MAX {
            report("fleet.forwards", format!("{}: expected at most {FORWARDS_MAX}", self.forwards));
        }
        if self.batch_wait.0 > BATCH_WAIT_MAX {
            let most = TimeSpan(BATCH_WAIT_MAX);
            report("fleet.batch_wait", format!("{}: expected at most {most}", self.batch_wait));
        }
        let uses_tls = self.others().iter().any(|node| node.http.tls || node.grpc.tls);
        if uses_tls && let Err(reason) = identity::client_tls(self.ca.as_deref()) {
            report("fleet.ca", reason);
        }
        if !self.nodes.is_empty()
            && let Err(reason) = self.key()
        {
            report("fleet.key_file", reason);
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

fn not_a_name(name: &str) -> String {
    let shown: String = name.chars().take(64).collect();
    format!("`{shown}`: expected 1 to {NAME_BYTES_MAX} letters, digits, `-`, `.` and `_`")
}

fn read_key(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let length = std::fs::metadata(path).map_err(|error| format!("cannot read `{shown}`: {error}"))?.len();
    if length > KEY_BYTES_MAX {
        return Err(format!("`{shown}` has {length} bytes: expected at most {KEY_BYTES_MAX}"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    let key = text.trim();
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("`{shown}`: expected one key or token in visible ASCII characters"));
    }
    Ok(key.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Sources};

    fn load(text: &str) -> Result<Config, String> {
        let text = format!("[fleet]\n{text}\n");
        let sources = Sources { file: Some(("tessera.toml".into(), text)), ..Sources::default() };
        Config::load(&sources).map_err(|problems| problems.to_string())
    }

    #[test]
    fn a_server_skips_itself_and_addresses_may_be_urls() {
        let fleet = load(
            "node = \"b\"\nnodes = [\n{ name = \"c\", http = \"https://c.example:443/\", grpc = \"[::1]:8001\" },\n\
             { name = \"b\", http = \"b:1\", grpc = \"b:2\" },\n{ name = \"a\", http = \"http://a:1\", grpc = \"a:2\" }]",
        )
        .unwrap()
        .fleet;
        let shown =
            fleet.others().into_iter().map(|node| format!("{} {} {}", node.name, node.http, node.grpc));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            ["a http://a:1 http://a:2", "c https://c.example:443 http://[::1]:8001"]
        );
        assert!(load("").unwrap().fleet.others().is_empty());
    }

    #[test]
    fn mistakes_name_their_key() {
        let node = |name: &str| format!("{{ name = \"{name}\", http = \"x:1\", grpc = \"x:2\" }}");
        let (b, slash) = (node("b"), node("b/c"));
        for (text, path, expected) in [
            (format!("nodes = [{b}]"), "fleet.node: ", "expected the name of this server"),
            ("node = \"a b\"".to_owned(), "fleet.node: ", "letters, digits"),
            (format!("node = \"a\"\nnodes = [{b}, {b}]"), "fleet.nodes[1].name: ", "each name once"),
            (format!("node = \"a\"\nnodes = [{slash}]"), "fleet.nodes[0].name: ", "letters, digits"),
            ("agent = true".to_owned(), "fleet.node: ", "because `fleet.agent` is on"),
            ("agent = true\nnode = \"a\"".to_owned(), "repository.load: ", "expected `explicit`"),
            (
                "agent = true\nnode = \"a\"\nagent_key_file = \"/nowhere/key\"".to_owned(),
                "fleet.agent_key_file: ",
                "cannot read",
            ),
            ("agent_metrics = \"9005\"".to_owned(), "fleet.agent_metrics: ", "address"),
            ("forwards = 65537".to_owned(), "fleet.forwards: ", "at most 65536"),
            ("batch_wait = \"51ms\"".to_owned(), "fleet.batch_wait: ", "at most 50ms"),
            (
                format!("node = \"a\"\nnodes = [{b}]\nkey_file = \"/nowhere/key\""),
                "fleet.key_file: ",
                "cannot read",
            ),
            ("nodes = [[\"b\", \"x:1\", \"x:2\"]]".to_owned(), "fleet.nodes: ", "expected a list of tables"),
        ] {
            let mistake = load(&text).unwrap_err();
            assert!(mistake.starts_with(path) && mistake.contains(expected), "{text}: {mistake}");
        }
        for address in ["x", "x:0", ":1", "ftp://x:1", "x:1/path", "u@x:1", "[x]:1", "http://x"] {
            let text =
                format!("node = \"a\"\nnodes = [{{ name = \"b\", http = \"{address}\", grpc = \"x:1\" }}]");
            let mistake = load(&text).unwrap_err();
            assert!(mistake.starts_with("fleet.nodes: ") && mistake.contains("HOST:PORT"), "{mistake}");
        }
    }

    #[test]
    fn a_key_comes_from_a_file_and_is_not_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "  secret\n").unwrap();
        let nodes = "nodes = [{ name = \"b\", http = \"b:1\", grpc = \"b:2\" }]";
        let text = format!("node = \"a\"\n{nodes}\nkey_file = {path:?}");
        assert_eq!(load(&text).unwrap().fleet.key().unwrap().as_deref(), Some("secret"));
        std::fs::write(&path, "secret word").unwrap();
        let mistake = load(&text).unwrap_err();
        assert!(mistake.starts_with("fleet.key_file: ") && !mistake.contains("secret"), "{mistake}");
    }
}
