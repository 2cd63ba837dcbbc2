//! Writes plans and status: what changed, not often, and only while the term lasts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use metrics::counter;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::WRITE_PERIOD;
use crate::election::Term;
use crate::pacing::{Due, Pacer};
use crate::requests;
use crate::resources::model::{Model, ModelStatus};
use crate::resources::node_plan::{NodePlan, NodePlanSpec};
use crate::resources::serving_pool::{ServingPool, ServingPoolStatus};

/// Owner of the fields that leaders write.
pub const MANAGER: &str = "tessera-fleet";
/// Time between two urgent writes of the same object.
const URGENT_PERIOD: Duration = Duration::from_secs(1);
/// Writes at the same time.
const CONCURRENT: usize = 8;
/// Time after which a failed write is repeated.
const RETRY: Duration = Duration::from_secs(2);

/// What the API server should have, next to what it has.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Plans by node.
    pub plans: BTreeMap<String, NodePlanSpec>,
    /// Plans that the API server has.
    pub stored_plans: BTreeMap<String, NodePlanSpec>,
    /// Nodes whose plans are written without waiting.
    pub urgent: BTreeSet<String>,
    /// Status of models: what is stored, and what is wanted.
    pub models: BTreeMap<String, (Option<ModelStatus>, ModelStatus)>,
    /// Status of pools: what is stored, and what is wanted.
    pub pools: BTreeMap<String, (Option<ServingPoolStatus>, ServingPoolStatus)>,
}

/// Objects of one kind, by name.
struct Objects<K, T> {
    api: Api<K>,
    kind: &'static str,
    pacers: BTreeMap<String, Pacer<T>>,
}

/// The writer of one term.
pub struct Writer {
    plans: Objects<NodePlan, NodePlanSpec>,
    models: Objects<Model, ModelStatus>,
    pools: Objects<ServingPool, ServingPoolStatus>,
}

impl Writer {
    /// Nothing is written in this term yet.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self {
            plans: Objects::new(Api::namespaced(client.clone(), namespace), "NodePlan"),
            models: Objects::new(Api::namespaced(client.clone(), namespace), "Model"),
            pools: Objects::new(Api::namespaced(client, namespace), "ServingPool"),
        }
    }

    /// Writes what is due, and returns when the next write is due.
    pub async fn write(&mut self, now: Duration, wanted: Wanted, term: &Term) -> Option<Duration> {
        let Wanted { plans, mut stored_plans, urgent, models, pools } = wanted;
        let plan = |(node, plan): (String, NodePlanSpec)| {
            let urgent = urgent.contains(&node);
            Item { stored: stored_plans.remove(&node), name: node, wanted: plan, urgent }
        };
        let plans = plans.into_iter().map(plan).collect();
        let plans = self.plans.write(now, plans, Part::Spec, term).await;
        let models = models.into_iter().map(|(name, (stored, wanted))| Item {
            urgent: stored.as_ref().is_none_or(|stored| stored.copies_ready != wanted.copies_ready),
            name,
            stored,
            wanted,
        });
        let models = self.models.write(now, models.collect(), Part::Status, term).await;
        let pools = pools.into_iter().map(|(name, (stored, wanted))| Item {
            urgent: stored.as_ref().is_none_or(|stored| stored.devices_wanted != wanted.devices_wanted),
            name,
            stored,
            wanted,
        });
        let pools = self.pools.write(now, pools.collect(), Part::Status, term).await;
        [plans, models, pools].into_iter().flatten().min()
    }
}

struct Item<T> {
    name: String,
    stored: Option<T>,
    wanted: T,
    urgent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Spec,
    Status,
}

impl<K, T> Objects<K, T>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    T: Clone + PartialEq + Serialize,
{
    const fn new(api: Api<K>, kind: &'static str) -> Self {
        Self { api, kind, pacers: BTreeMap::new() }
    }

    async fn write(
        &mut self,
        now: Duration,
        items: Vec<Item<T>>,
        part: Part,
        term: &Term,
    ) -> Option<Duration> {
        let names: BTreeSet<&str> = items.iter().map(|item| item.name.as_str()).collect();
        self.pacers.retain(|name, _| names.contains(name.as_str()));
        let mut next = None;
        let mut due = Vec::new();
        for Item { name, stored, wanted, urgent } in items {
            let pacer =
                self.pacers.entry(name.clone()).or_insert_with(|| Pacer::new(WRITE_PERIOD, URGENT_PERIOD));
            match pacer.due(now, stored.as_ref(), &wanted, urgent) {
                Due::Never => {}
                Due::Now => due.push((name, wanted)),
                Due::At(at) => next = Some(next.map_or(at, |next: Duration| next.min(at))),
            }
        }
        let (api, kind) = (&self.api, self.kind);
        let writes = due.into_iter().map(|(name, wanted)| async move {
            let written = apply(api, kind, &name, &wanted, part, term).await;
            (name, wanted, written)
        });
        let written: Vec<_> = stream::iter(writes).buffer_unordered(CONCURRENT).collect().await;
        for (name, wanted, written) in written {
            match self.pacers.get_mut(&name) {
                Some(pacer) if written => pacer.wrote(now, wanted),
                _ => next = Some(next.map_or(now + RETRY, |next| next.min(now + RETRY))),
            }
        }
        next
    }
}

/// Writes one object, and returns whether it is stored.
async fn apply<K, T>(
    api: &Api<K>,
    kind: &'static str,
    name: &str,
    wanted: &T,
    part: Part,
    term: &Term,
) -> bool
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    T: Serialize,
{
    if !term.is_valid() {
        return false;
    }
    let mut object = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name},
    });
    let parameters = PatchParams::apply(MANAGER).force();
    let field = match part {
        Part::Spec => "spec",
        Part::Status => "status",
    };
    match serde_json::to_value(wanted) {
        Ok(value) => {
            if let Value::Object(object) = &mut object {
                object.insert(field.to_owned(), value);
            }
        }
        Err(error) => {
            counter!("tessera_fleet_write_failures_total", "kind" => kind).increment(1);
            tracing::error!(%error, kind, name, "cannot be written as JSON");
            return false;
        }
    }
    let patch = Patch::Apply(object);
    let written = match part {
        Part::Spec => requests::within(requests::TIMEOUT, api.patch(name, &parameters, &patch)).await,
        Part::Status => {
            requests::within(requests::TIMEOUT, api.patch_status(name, &parameters, &patch)).await
        }
    };
    match written {
        Ok(_stored) => {
            counter!("tessera_fleet_writes_total", "kind" => kind).increment(1);
            true
        }
        // The object was deleted since it was seen; the watch will say so.
        Err(error) if error.code() == Some(404) => false,
        Err(error) => {
            counter!("tessera_fleet_write_failures_total", "kind" => kind).increment(1);
            tracing::warn!(%error, kind, name, "cannot be written");
            false
        }
    }
}
