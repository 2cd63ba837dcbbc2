//! Local copies of the API server's objects, kept current by watches.

use std::fmt::Debug;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt as _, reflector as reflect};
use kube::{Api, Resource};
use metrics::counter;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::requests;

/// Keeps a copy of all objects behind an `Api` until it is stopped. `changed` is notified of each change.
///
/// While the API server is away, the copy stays as it was. After a gap that the API server cannot fill (410), the copy is replaced as a
/// whole once the new list is complete.
pub fn copy<K>(api: Api<K>, kind: &'static str, changed: Arc<Notify>, stop: CancellationToken) -> Store<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Default + Eq + Hash + Send + Sync,
{
    let (store, writer) = reflector::store();
    tokio::spawn(async move {
        let events = watcher(api, watcher::Config::default()).backoff(requests::watch_backoff());
        let mut events = pin!(reflect(writer, events));
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                Some(Ok(watcher::Event::Init | watcher::Event::InitApply(_))) => {}
                Some(Ok(_)) => changed.notify_one(),
                Some(Err(error)) => {
                    counter!("tessera_fleet_watch_failures_total", "kind" => kind).increment(1);
                    let error = requests::chain(&error);
                    tracing::warn!(error, kind, "objects cannot be watched; their last state is used");
                }
                None => return tracing::error!(kind, "the watch ended"),
            }
        }
    });
    store
}
