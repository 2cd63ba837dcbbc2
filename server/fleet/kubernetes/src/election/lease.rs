//! The Lease of Kubernetes as the record of an election.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use fleet_core::lease::{Effect, Event, Holder, Record, Unreadable, Write, WriteReply};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ListParams, ObjectMeta, PostParams};
use metrics::counter;

use super::Options;
use crate::requests::{self, RequestError};
use crate::resources::node_plan::NodePlan;

/// Annotation with the epoch of the last leader.
pub const EPOCH: &str = "tessera.dev/epoch";
/// Annotation of a Lease that its leader released. It is missing on one that was created for a deleted one.
pub const RELEASED: &str = "tessera.dev/released";
/// Plans in one reply of the API server.
const PAGE: u32 = 500;

/// What came back of a request.
struct Answered {
    event: Event,
    /// The Lease as the API server has it, if it said so.
    seen: Option<Lease>,
    /// Why the API server could not be used.
    error: Option<RequestError>,
}

impl Answered {
    const fn new(event: Event, seen: Option<Lease>) -> Self {
        Self { event, seen, error: None }
    }

    fn failed(event: Event, action: &'static str, error: RequestError) -> Self {
        counter!("tessera_fleet_lease_failures_total", "action" => action).increment(1);
        Self { event, seen: None, error: Some(error) }
    }
}

type Reply = Pin<Box<dyn Future<Output = Answered> + Send>>;

/// Sends the requests of an election, one at a time.
pub struct Store {
    leases: Api<Lease>,
    plans: Api<NodePlan>,
    name: String,
    /// Time in which a request is answered. Three of them fit into a term.
    limit: Duration,
    /// The Lease as it was last seen. Labels and annotations of others stay in it.
    last: Option<Lease>,
    reply: Option<Reply>,
    /// Whether the last request failed, so that a long outage is logged once.
    failing: bool,
}

impl Store {
    /// Nothing was read yet.
    pub fn new(leases: Api<Lease>, plans: Api<NodePlan>, options: &Options) -> Self {
        let limit = options.settings.renew_deadline() / 3;
        Self { leases, plans, name: options.lease.clone(), limit, last: None, reply: None, failing: false }
    }

    /// Starts a request.
    pub fn send(&mut self, request: Effect) {
        let (limit, name) = (self.limit, self.name.clone());
        self.reply = match request {
            Effect::Read => Some(Box::pin(read(self.leases.clone(), name, limit))),
            Effect::ReadEpochs => Some(Box::pin(read_epochs(self.plans.clone()))),
            Effect::Write(write) => {
                let lease = lease(self.last.take().unwrap_or_default(), &name, &write, Timestamp::now());
                Some(Box::pin(put(self.leases.clone(), name, lease, write.expected.is_none(), limit)))
            }
            Effect::Lead { .. } | Effect::StepDown(_) | Effect::Stopped => None,
        };
    }

    /// Waits for the reply to the request that was sent, if any.
    pub async fn reply(&mut self) -> Event {
        let Some(reply) = &mut self.reply else { return std::future::pending().await };
        let Answered { event, seen, error } = reply.await;
        self.reply = None;
        match &error {
            Some(error) if !self.failing => tracing::warn!(%error, "the election cannot use the API server"),
            None if self.failing => tracing::info!("the election can use the API server again"),
            _ => {}
        }
        self.failing = error.is_some();
        if seen.is_some() {
            self.last = seen;
        }
        event
    }
}

async fn read(leases: Api<Lease>, name: String, limit: Duration) -> Answered {
    match requests::within(limit, leases.get_opt(&name)).await {
        Ok(found) => Answered::new(Event::Read(Ok(found.as_ref().map(record))), found),
        Err(error) => Answered::failed(Event::Read(Err(Unreadable)), "read", error),
    }
}

async fn read_epochs(plans: Api<NodePlan>) -> Answered {
    let highest = requests::within(requests::TIMEOUT, async {
        let mut page = ListParams::default().limit(PAGE);
        let mut highest = 0;
        loop {
            let list = plans.list(&page).await?;
            for plan in &list.items {
                let in_force = plan.status.as_ref().map_or(0, |status| status.observed_epoch);
                highest = highest.max(plan.spec.epoch).max(in_force);
            }
            match list.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => return Ok(u64::try_from(highest).unwrap_or_default()),
            }
        }
    });
    match highest.await {
        Ok(highest) => Answered::new(Event::Epochs(Ok(highest)), None),
        Err(error) => Answered::failed(Event::Epochs(Err(Unreadable)), "list plans", error),
    }
}

async fn put(leases: Api<Lease>, name: String, lease: Lease, create: bool, limit: Duration) -> Answered {
    let parameters = PostParams::default();
    let written = if create {
        requests::within(limit, leases.create(&parameters, &lease)).await
    } else {
        requests::within(limit, leases.replace(&name, &parameters, &lease)).await
    };
    match written {
        Ok(stored) => Answered::new(Event::Written(WriteReply::Stored(version(&stored))), Some(stored)),
        Err(error) if matches!(error.code(), Some(404 | 409)) => {
            Answered::new(Event::Written(WriteReply::Conflict), None)
        }
        Err(error) => Answered::failed(Event::Written(WriteReply::Unknown), "write", error),
    }
}

/// Version of a Lease: its uid and its resource version.
///
/// The resource version alone is not enough, because a PUT creates a Lease that does not exist, whatever resource version it has. With the
/// uid, the API server refuses to write another Lease than the one that was read.
fn version(lease: &Lease) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&lease.metadata.uid), part(&lease.metadata.resource_version))
}

/// The record that a Lease contains.
fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let annotation =
        |name: &str| lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(name));
    let holder = match spec.holder_identity.filter(|holder| !holder.is_empty()) {
        Some(holder) => Holder::Candidate(holder),
        None if annotation(RELEASED).is_some() => Holder::Released,
        None => Holder::Vacant,
    };
    let epoch = annotation(EPOCH).map(|epoch| epoch.parse()).unwrap_or(Ok(0)).unwrap_or_else(|_| {
        counter!("tessera_fleet_lease_failures_total", "action" => "epoch").increment(1);
        tracing::warn!(
            "the annotation {EPOCH} of the Lease: expected a whole number; the epochs of the plans are used"
        );
        0
    });
    let duration = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    Record {
        holder,
        renewed: spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default(),
        duration: Duration::from_secs(duration),
        transitions: spec.lease_transitions.and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
        epoch,
        version: version(lease),
    }
}

/// The Lease to write, made from the last one that was seen.
fn lease(last: Lease, name: &str, write: &Write, now: Timestamp) -> Lease {
    let (before, spec) = (last.metadata, last.spec.unwrap_or_default());
    let mut annotations: BTreeMap<String, String> = before.annotations.unwrap_or_default();
    annotations.insert(EPOCH.to_owned(), write.epoch.to_string());
    if write.holder == Holder::Released {
        annotations.insert(RELEASED.to_owned(), "true".to_owned());
    } else {
        annotations.remove(RELEASED);
    }
    let holder = match &write.holder {
        Holder::Candidate(identity) => identity.clone(),
        Holder::Released | Holder::Vacant => String::new(),
    };
    let expected = write.expected.as_deref().and_then(|version| version.split_once('/'));
    let (uid, resource_version) = expected.map(|(uid, version)| (uid.to_owned(), version.to_owned())).unzip();
    let whole = |count: u64| i32::try_from(count).unwrap_or(i32::MAX);
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: before.labels.filter(|_| write.expected.is_some()),
            annotations: Some(annotations),
            owner_references: before.owner_references.filter(|_| write.expected.is_some()),
            uid,
            resource_version,
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder),
            lease_duration_seconds: Some(whole(write.duration.as_secs())),
            acquire_time: if write.takeover { Some(MicroTime(now)) } else { spec.acquire_time },
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(whole(u64::from(write.transitions))),
            ..LeaseSpec::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::lease::Settings;

    use super::*;

    #[test]
    fn a_written_lease_is_read_as_the_record_that_was_meant() {
        let write = Write {
            expected: Some("u/7".into()),
            takeover: true,
            holder: Holder::Candidate("a".into()),
            duration: Settings::default().lease_duration(),
            transitions: 2,
            epoch: 5,
        };
        let now = Timestamp::from_second(1_000).unwrap();
        let taken = lease(Lease::default(), "fleet", &write, now);
        let read = record(&taken);
        assert_eq!((read.holder, read.epoch, read.transitions), (write.holder.clone(), 5, 2));
        assert_eq!((read.duration, read.version.as_str()), (Duration::from_secs(15), "u/7"));
        let release = Write { takeover: false, holder: Holder::Released, ..write.clone() };
        let released = lease(taken, "fleet", &release, now);
        assert_eq!(record(&released).holder, Holder::Released);
        assert_eq!(
            released.spec.as_ref().unwrap().acquire_time,
            Some(MicroTime(now)),
            "the takeover's time is kept"
        );
        let again = lease(released, "fleet", &write, now);
        assert_eq!(record(&again).holder, write.holder);
        assert!(!again.metadata.annotations.unwrap().contains_key(RELEASED));
        let vacant = Write { expected: None, holder: Holder::Vacant, ..write };
        assert_eq!(record(&lease(Lease::default(), "fleet", &vacant, now)).holder, Holder::Vacant);
    }
}
