//! Follows the signals of one other node for as long as the server runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use node::metrics::NodeMetrics;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};

use super::client::{Client, innermost};
use super::proto::WatchRequest;
use super::proto::node_signals_client::NodeSignalsClient;
use super::views::Views;

/// Time between two messages in milliseconds.
const INTERVAL_MS: u32 = 100;
/// A stream without a message for this time is broken. Nodes send one every 5 seconds at least.
const SILENCE: Duration = Duration::from_secs(15);
/// First and longest pause before a node is asked again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Largest message: one for each of ten thousand models with long names.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// The node that is followed.
pub(super) struct Followed {
    /// Its place in the list.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Its gRPC interface.
    pub grpc: Uri,
    /// The key for it, as `Bearer KEY`.
    pub key: Option<MetadataValue<Ascii>>,
    /// Its metrics.
    pub metrics: Arc<NodeMetrics>,
}

/// Opens the stream of a node again whenever it ends.
pub(super) async fn run(node: Followed, client: Client, views: Arc<Mutex<Views>>) {
    let (first, longest) = PAUSES;
    let mut pause = first;
    let mut reported = false;
    loop {
        let mut heard = false;
        let reason = listen(&node, &client, &views, &mut heard).await;
        views.lock().unwrap_or_else(PoisonError::into_inner).lost(node.number);
        node.metrics.connected(false);
        if heard {
            (pause, reported) = (first, false);
        }
        if !reported {
            reported = true;
            tracing::warn!(node = node.name, address = %node.grpc, reason, "no signals from this node; asking again");
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(longest);
    }
}

/// Reads one stream to its end, and returns why it ended.
async fn listen(node: &Followed, client: &Client, views: &Mutex<Views>, heard: &mut bool) -> String {
    let mut asking = NodeSignalsClient::with_origin(client.clone(), node.grpc.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX);
    let mut request = Request::new(WatchRequest { node: node.name.clone(), interval_ms: INTERVAL_MS });
    if let Some(key) = &node.key {
        request.metadata_mut().insert("authorization", key.clone());
    }
    let mut messages = match tokio::time::timeout(SILENCE, asking.watch(request)).await {
        Ok(Ok(answer)) => answer.into_inner(),
        Ok(Err(status)) => return reason_of(&status),
        Err(_) => return "no answer".to_owned(),
    };
    loop {
        match tokio::time::timeout(SILENCE, messages.message()).await {
            Ok(Ok(Some(signals))) => {
                if !std::mem::replace(heard, true) {
                    tracing::info!(node = node.name, models = signals.models.len(), "following this node");
                    node.metrics.connected(true);
                }
                views.lock().unwrap_or_else(PoisonError::into_inner).said(node.number, signals);
            }
            Ok(Ok(None)) => return "the stream ended".to_owned(),
            Ok(Err(status)) => return reason_of(&status),
            Err(_) => return "no message in time".to_owned(),
        }
    }
}

fn reason_of(status: &tonic::Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => innermost(source),
        None => format!("{:?}: {}", status.code(), status.message()),
    }
}
