//! Decides which model to load or unload next: `(now, event)` in, effects out.
//!
//! Models are loaded before others are unloaded, as long as memory suffices. Where it does not, models that the plan drops are
//! unloaded first. At most one action runs at any time, so memory is within its limit in every intermediate state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_core::epoch::{Fence, Outdated};
use serde::{Deserialize, Serialize};

use super::node::{Listing, ModelState, NodeError};
use crate::resources::model::Source;
use crate::resources::node_plan::{NodePlanSpec, PlannedModel, Role};

/// Time after which a server whose models change by themselves is listed again.
const CHANGING: Duration = Duration::from_secs(1);
/// Failures of one model that lengthen its backoff. 1 s doubled six times is over a minute.
const DOUBLINGS_MAX: u32 = 6;

/// Reason of models that stay though the plan drops them.
const UNLOAD_FAILED: &str = "UnloadFailed";

/// How an agent works.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Memory that models may take, bytes. `None`: the server decides.
    pub memory_bytes: Option<u64>,
    /// Time between two listings of the server, which find models that changed without the agent.
    pub poll: Duration,
    /// Time until the first retry of a failed action. It doubles with each failure.
    pub backoff: Duration,
    /// Longest time until a retry.
    pub backoff_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            poll: Duration::from_secs(15),
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
        }
    }
}

/// A plan that was accepted, as the agent stores it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    /// Generation of the resource.
    pub generation: i64,
    /// The plan.
    pub plan: NodePlanSpec,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The API server has this plan.
    Plan(Accepted),
    /// Reply to [`Effect::List`].
    Listed(Result<Listing, NodeError>),
    /// Reply to [`Effect::Load`].
    Loaded(Result<(), NodeError>),
    /// Reply to [`Effect::Unload`].
    Unloaded(Result<(), NodeError>),
    /// The time that [`Reconciler::wakeup`] returned is reached.
    Tick,
}

/// What the shell must do. It replies to each of `List`, `Load` and `Unload` with one event.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Store the plan, so that the agent starts with it.
    Store(Accepted),
    /// Report a plan of a leader that was replaced.
    Refuse(Outdated),
    /// List the server's models.
    List,
    /// Load a model, with the files of its source if it has one.
    Load(String, Option<Source>),
    /// Unload a model.
    Unload(String),
}

/// An action that failed, or cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One word in camel case for programs.
    pub reason: &'static str,
    /// What is wrong, for people.
    pub message: String,
    attempts: u32,
    retry: Duration,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    List,
    Load(String, Option<Source>),
    Unload(String),
}

/// Whether a server has a model as planned. Without a source, any files of that name will do.
fn is_in_force(planned: &PlannedModel, listing: &Listing) -> bool {
    let from = planned.source.as_ref();
    listing.models.get(&planned.model) == Some(&ModelState::Ready)
        && from.is_none_or(|source| listing.sources.get(&planned.model) == Some(source))
}

/// The state of an agent.
#[derive(Clone, Debug)]
pub struct Reconciler {
    settings: Settings,
    fence: Fence,
    accepted: Option<Accepted>,
    /// Generation and epoch of the last plan that was refused, until one is accepted.
    refused: Option<(i64, Outdated)>,
    /// What the server has; `None` if it cannot be listed.
    listing: Option<Listing>,
    unreachable: Option<Failure>,
    /// Memory of models by the last plan that named them.
    memory: BTreeMap<String, u64>,
    failures: BTreeMap<String, Failure>,
    running: Option<Action>,
    next_list: Duration,
    /// When [`Self::next`] last looked for an action.
    evaluated: Duration,
}

impl Reconciler {
    /// Starts with the plan that was stored last.
    #[must_use]
    pub fn new(settings: Settings, accepted: Option<Accepted>, now: Duration) -> Self {
        let epoch = accepted.as_ref().map_or(0, |accepted| accepted.plan.epoch());
        let mut new = Self {
            settings,
            fence: Fence::new(epoch),
            accepted: None,
            refused: None,
            listing: None,
            unreachable: None,
            memory: BTreeMap::new(),
            failures: BTreeMap::new(),
            running: None,
            next_list: now,
            evaluated: Duration::ZERO,
        };
        if let Some(accepted) = accepted {
            new.take(accepted);
        }
        new
    }

    /// The plan in force.
    #[must_use]
    pub const fn accepted(&self) -> Option<&Accepted> {
        self.accepted.as_ref()
    }

    /// Highest epoch in force.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.fence.in_force()
    }

    /// Generation and reason of the last plan that was refused, unless another one was accepted since.
    #[must_use]
    pub const fn refused(&self) -> Option<&(i64, Outdated)> {
        self.refused.as_ref()
    }

    /// What the server had when it was last listed, changed by the actions since. `None`: it cannot be reached.
    #[must_use]
    pub const fn listing(&self) -> Option<&Listing> {
        self.listing.as_ref()
    }

    /// Why the server cannot be listed.
    #[must_use]
    pub const fn unreachable(&self) -> Option<&Failure> {
        self.unreachable.as_ref()
    }

    /// Models that failed to load or to unload.
    #[must_use]
    pub const fn failures(&self) -> &BTreeMap<String, Failure> {
        &self.failures
    }

    /// Models of the plan that are not ready, or have the files of another source, in the order in which they are loaded.
    #[must_use]
    pub fn missing(&self) -> Vec<&PlannedModel> {
        let planned = self.accepted.iter().flat_map(|accepted| &accepted.plan.models);
        let mut missing: Vec<_> = planned
            .filter(|planned| !self.listing.as_ref().is_some_and(|listing| is_in_force(planned, listing)))
            .collect();
        let spare = |planned: &PlannedModel| planned.role == Role::Spare;
        missing.sort_by(|left, right| {
            let order = spare(left).cmp(&spare(right)).then_with(|| right.rate.total_cmp(&left.rate));
            order.then_with(|| left.model.cmp(&right.model))
        });
        missing
    }

    /// Models that are ready and not in the plan, in the order in which they are unloaded.
    #[must_use]
    pub fn extra(&self) -> Vec<&str> {
        let Some(accepted) = &self.accepted else { return Vec::new() };
        let planned: BTreeSet<&str> =
            accepted.plan.models.iter().map(|planned| planned.model.as_str()).collect();
        let models = self.listing.iter().flat_map(|listing| &listing.models);
        let ready = models.filter(|(_, state)| **state == ModelState::Ready).map(|(model, _)| model.as_str());
        let mut extra: Vec<_> = ready.filter(|model| !planned.contains(model)).collect();
        extra.sort_by_key(|model| (std::cmp::Reverse(self.memory.get(*model).copied().unwrap_or(0)), *model));
        extra
    }

    /// When the next [`Event::Tick`] is due. `None`: after the reply to the action that runs.
    #[must_use]
    pub fn wakeup(&self) -> Option<Duration> {
        if self.running.is_some() {
            return None;
        }
        let changing = self.missing().into_iter().map(|planned| planned.model.as_str()).chain(self.extra());
        let retries = changing.filter_map(|model| self.failures.get(model)).map(|failure| failure.retry);
        // Those that were due already wait for something else, which the next listing shows.
        let retries = retries.filter(|retry| *retry > self.evaluated);
        retries.chain([self.next_list]).min()
    }

    /// Decides what to do after an event.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Tick => {}
            Event::Plan(plan) => self.planned(plan, &mut effects),
            Event::Listed(listed) => self.listed(now, listed),
            Event::Loaded(done) => self.loaded(now, done),
            Event::Unloaded(done) => self.unloaded(now, done),
        }
        self.evaluated = now;
        if self.running.is_none()
            && let Some(action) = self.next(now)
        {
            effects.push(match action.clone() {
                Action::List => Effect::List,
                Action::Load(model, source) => Effect::Load(model, source),
                Action::Unload(model) => Effect::Unload(model),
            });
            self.running = Some(action);
        }
        effects
    }

    fn planned(&mut self, offered: Accepted, effects: &mut Vec<Effect>) {
        // Epoch 0 is a resource that no leader has written yet. It must not unload anything.
        if offered.plan.epoch() == 0 || self.accepted.as_ref() == Some(&offered) {
            return;
        }
        if let Err(outdated) = self.fence.admit(offered.plan.epoch()) {
            let refused = Some((offered.generation, outdated));
            if self.refused != refused {
                effects.push(Effect::Refuse(outdated));
            }
            self.refused = refused;
            return;
        }
        effects.push(Effect::Store(offered.clone()));
        self.take(offered);
    }

    fn take(&mut self, accepted: Accepted) {
        for planned in &accepted.plan.models {
            if self.failures.get(&planned.model).is_some_and(|failure| failure.reason == UNLOAD_FAILED) {
                self.failures.remove(&planned.model);
            }
            if let Some(bytes) = planned.memory_bytes.and_then(|bytes| u64::try_from(bytes).ok()) {
                self.memory.insert(planned.model.clone(), bytes);
            }
        }
        self.refused = None;
        self.accepted = Some(accepted);
        self.forget();
    }

    /// Drops what is known of models that are neither in the plan nor on the server.
    fn forget(&mut self) {
        let planned =
            self.accepted.iter().flat_map(|accepted| &accepted.plan.models).map(|planned| &planned.model);
        let present = self.listing.iter().flat_map(|listing| listing.models.keys());
        let known: BTreeSet<String> = planned.chain(present).cloned().collect();
        self.failures.retain(|model, _| known.contains(model));
        self.memory.retain(|model, _| known.contains(model));
    }

    fn listed(&mut self, now: Duration, listed: Result<Listing, NodeError>) {
        self.running = None;
        match listed {
            Ok(listing) => {
                let changing = listing.models.values().any(|state| *state != ModelState::Ready);
                self.next_list = now.saturating_add(if changing { CHANGING } else { self.settings.poll });
                let planned = || self.accepted.iter().flat_map(|accepted| &accepted.plan.models);
                let ready = |model: &str| {
                    listing.models.get(model) == Some(&ModelState::Ready)
                        && planned()
                            .filter(|planned| planned.model == model)
                            .all(|one| is_in_force(one, &listing))
                };
                let settled = |(model, failure): (&String, &Failure)| {
                    (failure.reason != UNLOAD_FAILED && ready(model)).then(|| model.clone())
                };
                let settled: Vec<String> = self.failures.iter().filter_map(settled).collect();
                settled.iter().for_each(|model| drop(self.failures.remove(model)));
                self.listing = Some(listing);
                self.unreachable = None;
            }
            Err(error) => {
                let failure = self.failure(now, self.unreachable.as_ref(), "ServerUnreachable", error.0);
                self.next_list = failure.retry;
                self.listing = None;
                self.unreachable = Some(failure);
            }
        }
        self.forget();
    }

    fn loaded(&mut self, now: Duration, done: Result<(), NodeError>) {
        let Some(Action::Load(model, source)) = self.running.take() else {
            return invariant::violated!("agent.reply_to_no_load");
        };
        if let (Some(listing), Some(source), Ok(())) = (&mut self.listing, source, &done) {
            listing.sources.insert(model.clone(), source);
        }
        self.finished(now, model, done, "LoadFailed", Some(ModelState::Ready));
    }

    fn unloaded(&mut self, now: Duration, done: Result<(), NodeError>) {
        let Some(Action::Unload(model)) = self.running.take() else {
            return invariant::violated!("agent.reply_to_no_unload");
        };
        self.finished(now, model, done, UNLOAD_FAILED, None);
    }

    fn finished(
        &mut self,
        now: Duration,
        model: String,
        done: Result<(), NodeError>,
        reason: &'static str,
        state: Option<ModelState>,
    ) {
        if let Err(error) = done {
            let failure = self.failure(now, self.failures.get(&model), reason, error.0);
            self.failures.insert(model, failure);
            // The model may have changed all the same, or the server may be down.
            self.next_list = self.next_list.min(now.saturating_add(CHANGING));
            return;
        }
        self.failures.remove(&model);
        if let Some(listing) = &mut self.listing {
            match state {
                Some(state) => drop(listing.models.insert(model, state)),
                None => drop(listing.models.remove(&model)),
            }
        }
    }

    fn failure(
        &self,
        now: Duration,
        before: Option<&Failure>,
        reason: &'static str,
        message: String,
    ) -> Failure {
        let attempts = before.filter(|before| before.reason == reason).map_or(0, |before| before.attempts);
        let wait = self.settings.backoff.saturating_mul(1 << attempts.min(DOUBLINGS_MAX));
        let retry = now.saturating_add(wait.min(self.settings.backoff_max));
        Failure { reason, message, attempts: attempts.saturating_add(1), retry }
    }

    /// The next action, if one is due.
    fn next(&mut self, now: Duration) -> Option<Action> {
        if now >= self.next_list {
            return Some(Action::List);
        }
        let listing = self.listing.as_ref()?;
        let waits = |model: &str| self.failures.get(model).is_some_and(|failure| now < failure.retry);
        let unload = self.extra().into_iter().find(|model| !waits(model)).map(str::to_owned);
        let mut too_large = Vec::new();
        let mut replaced = true;
        for planned in self.missing() {
            if waits(&planned.model) {
                continue;
            }
            if listing.models.get(&planned.model).is_some_and(|state| *state != ModelState::Ready) {
                // The server loads it already. What it replaces stays until then.
                replaced = false;
                continue;
            }
            match self.shortage(&planned.model) {
                None => return Some(Action::Load(planned.model.clone(), planned.source.clone())),
                Some(_) if unload.is_some() => return unload.map(Action::Unload),
                Some(message) => too_large.push((planned.model.clone(), message)),
            }
        }
        for (model, message) in too_large {
            let failure = self.failure(now, self.failures.get(&model), "OutOfMemory", message);
            self.failures.insert(model, failure);
        }
        unload.filter(|_| replaced).map(Action::Unload)
    }

    /// Why a model must not be loaded now; `None` if it fits.
    fn shortage(&self, model: &str) -> Option<String> {
        let limit = self.settings.memory_bytes?;
        let present = self.listing.iter().flat_map(|listing| listing.models.keys());
        let sizes: Option<Vec<u64>> =
            present.map(String::as_str).chain([model]).map(|model| self.memory.get(model).copied()).collect();
        match sizes {
            Some(sizes) => {
                let total = sizes.into_iter().fold(0, u64::saturating_add);
                let text = || {
                    format!("needs {total} bytes with the models that stay, and the limit is {limit} bytes")
                };
                (total > limit).then(text)
            }
            // Without the sizes, all that is known is that fewer models take less memory.
            None if self.extra().is_empty() => None,
            None => Some("the memory of some models is not known".to_owned()),
        }
    }
}
