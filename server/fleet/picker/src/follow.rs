//! Follows the list of nodes, and the signals of each of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::pick::Update;
use fleet_core::view::ModelView;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;

use crate::attempts::Attempts;
use crate::nodes::{Endpoint, Members, PlannedRate};
use crate::proto::fleet::WatchRequest;
use crate::proto::fleet::node_signals_client::NodeSignalsClient;

pub use crate::proto::fleet::{ModelSignals, Signals};

/// A stream without a message for this time is broken. Nodes send one every 5 seconds at least.
const SILENCE: Duration = Duration::from_secs(15);
/// Time for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A silent connection is probed after this time, and has that time to answer.
const PROBE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(3));
/// First and longest pause before a node is asked again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Largest message: one for each of ten thousand models with long names.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// A key for the nodes, as `Bearer KEY`.
pub type Key = Option<MetadataValue<Ascii>>;

/// What is done with what nodes say.
pub trait Listener: Clone + Send + Sync + 'static {
    /// A node is part of the fleet, with these addresses.
    fn added(&self, node: &Arc<Endpoint>);
    /// The node of that name was removed from the fleet, or its addresses changed.
    fn removed(&self, node: &str);
    /// A node said something.
    fn heard(&self, node: &Arc<Endpoint>, signals: Signals);
    /// The connection to a node broke.
    fn lost(&self, node: &Arc<Endpoint>);
    /// The plan sends this to a node. 0: nothing any more.
    fn planned(&self, rate: PlannedRate);
}

/// Follows the nodes of a list that changes, for ever. `interval` is the least time between two messages of a node, 100 ms to 10 s.
pub async fn run(
    mut members: watch::Receiver<Members>,
    listener: impl Listener,
    key: Key,
    interval: Duration,
) {
    let interval_ms = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX);
    let mut followed: BTreeMap<String, (Arc<Endpoint>, DropGuard)> = BTreeMap::new();
    let mut rates: Vec<PlannedRate> = Vec::new();
    loop {
        let current = members.borrow_and_update().clone();
        let wanted: BTreeMap<&str, &Arc<Endpoint>> =
            current.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        followed.retain(|name, (endpoint, _)| {
            let stays = wanted.get(name.as_str()).is_some_and(|wanted| *wanted == endpoint);
            if !stays {
                tracing::info!(node = name, "the node was removed, or its addresses or device type changed");
                listener.removed(name);
            }
            stays
        });
        let mut is_new = false;
        for (name, endpoint) in wanted {
            followed.entry(name.to_owned()).or_insert_with(|| {
                is_new = true;
                listener.added(endpoint);
                let stop = CancellationToken::new();
                let asking = Asking { node: Arc::clone(endpoint), key: key.clone(), interval_ms };
                tokio::spawn(follow(asking, listener.clone(), stop.clone()));
                (Arc::clone(endpoint), stop.drop_guard())
            });
        }
        if is_new || rates != current.rates {
            let is_planned = |old: &PlannedRate| {
                current.rates.iter().any(|new| (&new.node, &new.model) == (&old.node, &old.model))
            };
            let ended = rates.iter().filter(|old| !is_planned(old));
            let ended: Vec<PlannedRate> = ended.map(|old| PlannedRate { rate: 0.0, ..old.clone() }).collect();
            ended.into_iter().chain(current.rates.clone()).for_each(|rate| listener.planned(rate));
            rates = current.rates;
        }
        if members.changed().await.is_err() {
            // The list does not change any more. Its nodes are followed on.
            std::future::pending::<()>().await;
        }
    }
}

/// Which node is asked, and how.
struct Asking {
    node: Arc<Endpoint>,
    key: Key,
    interval_ms: u32,
}

/// Opens the stream of a node again whenever it ends.
async fn follow(asking: Asking, listener: impl Listener, stop: CancellationToken) {
    let node = &asking.node;
    let mut attempts = Attempts::new(PAUSES);
    loop {
        let mut heard = false;
        let reason = tokio::select! {
            () = stop.cancelled() => return,
            reason = listen(&asking, &listener, &mut heard) => reason,
        };
        listener.lost(node);
        if attempts.ended(heard) {
            tracing::warn!(
                node = node.name,
                address = node.grpc,
                reason,
                "no signals from this node; asking again"
            );
        }
        if !attempts.pause(&stop).await {
            return;
        }
    }
}

/// Connects to an address, or says why not.
pub async fn connect(address: &str) -> Result<Channel, String> {
    let channel = Channel::from_shared(format!("http://{address}")).map_err(|error| error.to_string())?;
    let (probe_after, probe_timeout) = PROBE;
    let channel = channel
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(probe_after)
        .keep_alive_timeout(probe_timeout);
    match tokio::time::timeout(CONNECT_TIMEOUT, channel.connect()).await {
        Ok(connected) => connected.map_err(|error| innermost(&error)),
        Err(_) => Err("no connection in time".to_owned()),
    }
}

/// Reads one stream to its end, and returns why it ended.
async fn listen(asking: &Asking, listener: &impl Listener, heard: &mut bool) -> String {
    let Asking { node, key, interval_ms } = asking;
    let channel = match connect(&node.grpc).await {
        Ok(channel) => channel,
        Err(reason) => return reason,
    };
    let mut client = NodeSignalsClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    // Names of Kubernetes may differ from the node's own, so any will do.
    let mut request = Request::new(WatchRequest { node: String::new(), interval_ms: *interval_ms });
    if let Some(key) = key {
        request.metadata_mut().insert("authorization", key.clone());
    }
    let mut messages = match tokio::time::timeout(SILENCE, client.watch(request)).await {
        Ok(Ok(answer)) => answer.into_inner(),
        Ok(Err(status)) => return reason_of(&status),
        Err(_) => return "no answer in time".to_owned(),
    };
    loop {
        match tokio::time::timeout(SILENCE, messages.message()).await {
            Ok(Ok(Some(signals))) => {
                if !std::mem::replace(heard, true) {
                    tracing::info!(node = node.name, models = signals.models.len(), "following this node");
                }
                listener.heard(node, signals);
            }
            Ok(Ok(None)) => return "the stream ended".to_owned(),
            Ok(Err(status)) => return reason_of(&status),
            Err(_) => return "no message in time".to_owned(),
        }
    }
}

/// Signals as a picker and a planner know them.
#[must_use]
pub fn update(signals: Signals) -> Update {
    Update {
        complete: signals.complete,
        draining: signals.draining,
        models: signals.models.into_iter().map(view).collect(),
        removed: signals.removed,
    }
}

fn view(signals: ModelSignals) -> (String, ModelView) {
    let view = ModelView {
        ready: signals.ready,
        pool: signals.pool,
        lanes: signals.lanes,
        free_in: Duration::from_micros(signals.free_in_us),
        backlog: Duration::from_micros(signals.backlog_us),
        row_time: Duration::from_micros(signals.row_us),
        single_time: Duration::from_micros(signals.single_us),
        queued: signals.queued_rows,
        max_batch: signals.max_batch,
    };
    (signals.model, view)
}

/// Why a call failed.
pub(crate) fn reason_of(status: &tonic::Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => innermost(source),
        None => format!("{:?}: {}", status.code(), status.message()),
    }
}

/// The error at the end of the chain, which says what happened.
pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let last = std::iter::successors(Some(error), |error| error.source()).last();
    last.map_or_else(String::new, ToString::to_string)
}
