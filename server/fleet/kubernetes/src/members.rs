//! The nodes behind a Service, and what the plan sends to them, for an endpoint picker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::Store;
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::resources::node_plan::NodePlan;
use crate::watches;

/// Label of slices with the name of their Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// Names of the ports of servers, and their numbers without one.
const PORTS: [(&str, i32); 2] = [("http", 8000), ("grpc", 8001)];
/// Port of a picker.
const PICKER_PORT: (&str, i32) = ("grpc", 9002);

/// A node and its addresses as `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Name of its Kubernetes node, or of its pod if another pod has the same node.
    pub name: String,
    /// Its REST interface.
    pub http: String,
    /// Its gRPC interface.
    pub grpc: String,
    /// Its device type, as its plan says. Empty: not known.
    pub device_type: String,
}

/// A picker and its gRPC address as `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Picker {
    /// Name of its pod, or its address without one.
    pub name: String,
    /// Where it answers.
    pub address: String,
}

/// Rows a second of a model that the plan sends to a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// Name of the node.
    pub node: String,
    /// Name of the model.
    pub model: String,
    /// Rows a second.
    pub rate: f64,
}

/// Follows a Service and the plans of a namespace until it is told to stop. `each` gets both after every change, once the Service has a
/// node.
pub async fn follow(
    client: Client,
    namespace: &str,
    service: &str,
    stop: CancellationToken,
    mut each: impl FnMut(Vec<Member>, Vec<Rate>),
) {
    let changed = Arc::new(Notify::new());
    let plans: Api<NodePlan> = Api::namespaced(client.clone(), namespace);
    let slices = slices(client, namespace, &changed, &stop);
    let plans = watches::copy(plans, "NodePlan", Arc::clone(&changed), stop.clone());
    let mut last = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = changed.notified() => {}
        }
        let plans = plans.state();
        let current = (members(&of_service(&slices.state(), service), &device_types(&plans)), rates(&plans));
        if current != last {
            last = current.clone();
            each(current.0, current.1);
        }
    }
}

/// Follows the pickers behind a Service until it is told to stop. `each` gets them after every change.
pub async fn follow_pickers(
    client: Client,
    namespace: &str,
    service: &str,
    stop: CancellationToken,
    mut each: impl FnMut(Vec<Picker>),
) {
    let changed = Arc::new(Notify::new());
    let slices = slices(client, namespace, &changed, &stop);
    let mut last = Vec::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = changed.notified() => {}
        }
        let current = pickers(&of_service(&slices.state(), service));
        if current != last {
            last.clone_from(&current);
            each(current);
        }
    }
}

fn slices(
    client: Client,
    namespace: &str,
    changed: &Arc<Notify>,
    stop: &CancellationToken,
) -> Store<EndpointSlice> {
    watches::copy(Api::namespaced(client, namespace), "EndpointSlice", Arc::clone(changed), stop.clone())
}

/// The slices of a Service.
fn of_service(slices: &[Arc<EndpointSlice>], service: &str) -> Vec<Arc<EndpointSlice>> {
    let is_of_service = |slice: &&Arc<EndpointSlice>| {
        let label = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_LABEL));
        label.is_some_and(|label| label == service)
    };
    slices.iter().filter(is_of_service).cloned().collect()
}

/// The number of a port of a slice.
fn port(slice: &EndpointSlice, (name, default): (&str, i32)) -> i32 {
    let mut ports = slice.ports.iter().flatten();
    ports.find(|port| port.name.as_deref() == Some(name)).and_then(|port| port.port).unwrap_or(default)
}

fn host_of(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

/// The pickers of the slices that serve, each once.
fn pickers(slices: &[Arc<EndpointSlice>]) -> Vec<Picker> {
    let mut found = BTreeSet::new();
    for slice in slices {
        let port = port(slice, PICKER_PORT);
        for endpoint in slice.endpoints.iter().flatten() {
            let conditions = endpoint.conditions.as_ref();
            // One that stops says so itself, and sooner.
            let serves = conditions.and_then(|conditions| conditions.serving).unwrap_or(true);
            if let Some(address) = endpoint.addresses.first().filter(|_| serves) {
                let pod = endpoint.target_ref.as_ref().and_then(|target| target.name.clone());
                let name = pod.unwrap_or_else(|| address.clone());
                found.insert(Picker { name, address: format!("{}:{port}", host_of(address)) });
            }
        }
    }
    found.into_iter().collect()
}

/// An endpoint, by its address and ports.
struct Found {
    node: Option<String>,
    pod: Option<String>,
}

/// The device types of nodes.
fn device_types(plans: &[Arc<NodePlan>]) -> BTreeMap<String, String> {
    let of = |plan: &Arc<NodePlan>| Some((plan.metadata.name.clone()?, plan.spec.device_type.clone()));
    plans.iter().filter_map(of).collect()
}

/// The serving endpoints of the slices, each once.
fn members(slices: &[Arc<EndpointSlice>], device_types: &BTreeMap<String, String>) -> Vec<Member> {
    let mut found: BTreeMap<(String, [i32; 2]), Found> = BTreeMap::new();
    for slice in slices {
        let ports = PORTS.map(|name| port(slice, name));
        for endpoint in slice.endpoints.iter().flatten() {
            // A server that drains still serves, and says itself that it drains.
            let serves =
                endpoint.conditions.as_ref().and_then(|conditions| conditions.serving).unwrap_or(true);
            if let Some(address) = endpoint.addresses.first().filter(|_| serves) {
                let pod = endpoint.target_ref.as_ref().and_then(|target| target.name.clone());
                found.insert((address.clone(), ports), Found { node: endpoint.node_name.clone(), pod });
            }
        }
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    found
        .values()
        .filter_map(|found| found.node.clone())
        .for_each(|node| *counts.entry(node).or_default() += 1);
    let mut names = BTreeSet::new();
    let member = |((address, [http, grpc]), found): ((String, [i32; 2]), Found)| {
        let Found { node, pod } = found;
        let alone = node.filter(|node| counts.get(node) == Some(&1));
        let name = alone.or(pod).unwrap_or_else(|| address.clone());
        let host = host_of(&address);
        let device_type = device_types.get(&name).cloned().unwrap_or_default();
        Member { name, http: format!("{host}:{http}"), grpc: format!("{host}:{grpc}"), device_type }
    };
    let members = found.into_iter().map(member);
    members.filter(|member| names.insert(member.name.clone())).collect()
}

fn rates(plans: &[Arc<NodePlan>]) -> Vec<Rate> {
    let of_plan = |plan: &Arc<NodePlan>| {
        let node = plan.metadata.name.clone().unwrap_or_default();
        let rate = move |model: &crate::resources::node_plan::PlannedModel| Rate {
            node: node.clone(),
            model: model.model.clone(),
            rate: model.rate,
        };
        plan.spec.models.iter().map(rate).collect::<Vec<_>>()
    };
    let mut rates: Vec<Rate> = plans.iter().flat_map(of_plan).collect();
    rates.sort_by(|left, right| (&left.node, &left.model).cmp(&(&right.node, &right.model)));
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(text: &str) -> Arc<EndpointSlice> {
        Arc::new(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn pickers_have_the_names_of_their_pods() {
        let slices = [slice(
            r#"{"metadata": {"name": "s-1"}, "addressType": "IPv4", "ports": [{"name": "grpc", "port": 9102}],
                "endpoints": [
                    {"addresses": ["10.0.0.2"], "targetRef": {"name": "pick-1"}},
                    {"addresses": ["10.0.0.1"], "targetRef": {"name": "pick-0"}},
                    {"addresses": ["10.0.0.3"], "targetRef": {"name": "pick-2"}, "conditions": {"serving": false}}]}"#,
        )];
        let found: Vec<(String, String)> =
            pickers(&slices).into_iter().map(|picker| (picker.name, picker.address)).collect();
        let expected = [("pick-0", "10.0.0.1:9102"), ("pick-1", "10.0.0.2:9102")];
        assert_eq!(found, expected.map(|(name, address)| (name.to_owned(), address.to_owned())));
    }

    #[test]
    fn endpoints_that_serve_are_members_under_the_name_of_their_node() {
        let slices = [
            slice(
                r#"{"metadata": {"name": "s-1"}, "addressType": "IPv4",
                "ports": [{"name": "http", "port": 80}, {"name": "grpc", "port": 81}],
                "endpoints": [
                    {"addresses": ["10.0.0.1"], "nodeName": "a", "targetRef": {"name": "pod-1"}},
                    {"addresses": ["10.0.0.2"], "nodeName": "b", "targetRef": {"name": "pod-2"}, "conditions": {"serving": false}},
                    {"addresses": ["10.0.0.3"], "nodeName": "c", "targetRef": {"name": "pod-3"},
                        "conditions": {"ready": false, "serving": true, "terminating": true}},
                    {"addresses": ["10.0.0.4"], "nodeName": "d", "targetRef": {"name": "pod-4"}},
                    {"addresses": ["10.0.0.5"], "nodeName": "d", "targetRef": {"name": "pod-5"}}]}"#,
            ),
            slice(
                r#"{"metadata": {"name": "s-2"}, "addressType": "IPv6", "endpoints": [{"addresses": ["fd00::1"]}]}"#,
            ),
        ];
        let members = members(&slices, &BTreeMap::from([("c".to_owned(), "l4".to_owned())]));
        let types: Vec<&str> = members.iter().map(|member| member.device_type.as_str()).collect();
        assert_eq!(types, ["", "l4", "", "", ""]);
        let found: Vec<(&str, &str, &str)> = members
            .iter()
            .map(|member| (member.name.as_str(), member.http.as_str(), member.grpc.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("a", "10.0.0.1:80", "10.0.0.1:81"),
                ("c", "10.0.0.3:80", "10.0.0.3:81"),
                ("pod-4", "10.0.0.4:80", "10.0.0.4:81"),
                ("pod-5", "10.0.0.5:80", "10.0.0.5:81"),
                ("fd00::1", "[fd00::1]:8000", "[fd00::1]:8001"),
            ]
        );
    }
}
