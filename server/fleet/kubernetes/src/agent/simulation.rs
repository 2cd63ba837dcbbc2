//! The agent's decisions against a simulated server with little memory and failing loads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::node::{Listing, ModelState, NodeError};
use super::reconciler::{Accepted, Effect, Event, Reconciler, Settings};
use super::report;
use crate::resources::model::Source;
use crate::resources::node_plan::{NodePlanSpec, PlannedModel, Role};

const LIMIT: u64 = 10;

fn plan(epoch: i64, models: &[(&str, i64)]) -> NodePlanSpec {
    let planned = |(model, bytes): &(&str, i64)| PlannedModel {
        model: (*model).to_owned(),
        rate: 1.0,
        role: Role::Serving,
        memory_bytes: Some(*bytes),
        source: None,
    };
    NodePlanSpec { epoch, models: models.iter().map(planned).collect(), ..NodePlanSpec::default() }
}

fn accepted(generation: i64, plan: NodePlanSpec) -> Accepted {
    Accepted { generation, plan }
}

/// A server, and the agent's state.
struct World {
    agent: Reconciler,
    now: Duration,
    ready: BTreeSet<String>,
    sources: BTreeMap<String, Source>,
    sizes: BTreeMap<String, u64>,
    /// Whether the next loads fail, in this order; then they succeed.
    failing: Vec<bool>,
    done: Vec<String>,
}

impl World {
    fn new(memory_bytes: Option<u64>, ready: &[&str]) -> Self {
        let settings = Settings { memory_bytes, ..Settings::default() };
        Self {
            agent: Reconciler::new(settings, None, Duration::ZERO),
            now: Duration::ZERO,
            ready: ready.iter().map(|model| (*model).to_owned()).collect(),
            sources: BTreeMap::new(),
            sizes: BTreeMap::new(),
            failing: Vec::new(),
            done: Vec::new(),
        }
    }

    fn used(&self) -> u64 {
        self.ready.iter().map(|model| self.sizes.get(model).copied().unwrap_or(0)).sum()
    }

    fn handle(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.agent.handle(self.now, event) {
                events.extend(self.carry_out(effect));
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Store(_) | Effect::Refuse(_) => None,
            Effect::List => {
                let models = self.ready.iter().map(|model| (model.clone(), ModelState::Ready)).collect();
                let sources = self.sources.clone();
                Some(Event::Listed(Ok(Listing { models, sources, ..Listing::default() })))
            }
            Effect::Load(model, source) => {
                self.done.push(format!("load {model}"));
                if self.failing.pop().unwrap_or(false) {
                    return Some(Event::Loaded(Err(NodeError("no such file".into()))));
                }
                if let Some(source) = source {
                    self.sources.insert(model.clone(), source);
                }
                self.ready.insert(model);
                assert!(
                    self.used() <= LIMIT || self.sizes.is_empty(),
                    "{} bytes in use: {:?}",
                    self.used(),
                    self.done
                );
                Some(Event::Loaded(Ok(())))
            }
            Effect::Unload(model) => {
                let planned = &self.agent.accepted().unwrap().plan.models;
                assert!(planned.iter().all(|planned| planned.model != model), "{model} is in the plan");
                self.done.push(format!("unload {model}"));
                assert!(self.ready.remove(&model));
                Some(Event::Unloaded(Ok(())))
            }
        }
    }

    fn run(&mut self, length: Duration) {
        let end = self.now + length;
        for _ in 0..10_000 {
            let Some(wakeup) = self.agent.wakeup().filter(|wakeup| *wakeup <= end) else { break };
            assert!(wakeup > self.now || self.now.is_zero(), "the agent spins at {:?}", self.now);
            self.now = self.now.max(wakeup);
            self.handle(Event::Tick);
        }
        self.now = end;
    }

    fn plan(&mut self, generation: i64, plan: NodePlanSpec) {
        for planned in &plan.models {
            self.sizes.insert(planned.model.clone(), planned.memory_bytes.unwrap_or_default() as u64);
        }
        self.handle(Event::Plan(accepted(generation, plan)));
    }
}

const MODELS: &[(&str, i64)] = &[("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5), ("f", 8)];

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_holds_at_every_step_and_plans_that_fit_come_into_force(
        plans in prop::collection::vec((prop::sample::subsequence(MODELS, 0..=MODELS.len()), 1..5_i64, 0..30_u64), 1..8),
        failing in prop::collection::vec(any::<bool>(), 0..10),
    ) {
        let mut world = World::new(Some(LIMIT), &[]);
        world.failing = failing;
        world.run(Duration::from_millis(1));
        let mut highest = 0;
        for (generation, (models, epoch, wait)) in plans.into_iter().enumerate() {
            let before = world.agent.accepted().cloned();
            world.plan(generation as i64, plan(epoch, &models));
            if epoch < highest {
                prop_assert_eq!(world.agent.accepted(), before.as_ref(), "an older epoch is refused");
            }
            highest = highest.max(epoch);
            world.run(Duration::from_secs(wait));
        }
        world.run(Duration::from_secs(1_000));
        let planned: Vec<_> = world.agent.accepted().unwrap().plan.models.clone();
        let fits = planned.iter().map(|planned| planned.memory_bytes.unwrap()).sum::<i64>() <= LIMIT as i64;
        let status = report::status(&world.agent, None, &[], Timestamp::UNIX_EPOCH);
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
        if fits {
            let names: BTreeSet<String> = planned.into_iter().map(|planned| planned.model).collect();
            prop_assert_eq!(&names, &world.ready);
            prop_assert_eq!(ready.reason.as_str(), "InForce");
            prop_assert!(status.refusals.is_empty());
        } else {
            prop_assert_eq!(ready.reason.as_str(), "OutOfMemory");
            prop_assert!(!status.refusals.is_empty());
        }
    }
}

#[test]
fn with_enough_memory_the_new_model_is_loaded_before_the_old_one_is_unloaded() {
    let mut world = World::new(Some(LIMIT), &[]);
    world.plan(1, plan(1, &[("a", 1), ("d", 4)]));
    world.run(Duration::from_secs(1));
    world.plan(2, plan(1, &[("a", 1), ("e", 5)]));
    world.run(Duration::from_secs(1));
    assert_eq!(world.done, ["load a", "load d", "load e", "unload d"]);
}

#[test]
fn a_model_whose_source_changed_is_loaded_again_and_serves_until_then() {
    let mut world = World::new(None, &[]);
    let from = |digest: &str| {
        let source = Source { uri: "s3://models/a".to_owned(), digest: Some(digest.to_owned()) };
        let mut plan = plan(1, &[("a", 1)]);
        plan.models[0].source = Some(source);
        plan
    };
    world.plan(1, from("sha256:1"));
    world.run(Duration::from_secs(1));
    world.failing = vec![true];
    world.plan(2, from("sha256:2"));
    world.run(Duration::from_millis(100));
    let status = report::status(&world.agent, None, &[], Timestamp::UNIX_EPOCH);
    assert_eq!((status.ready.as_slice(), status.refusals.len()), (["a".to_owned()].as_slice(), 1));
    world.run(Duration::from_secs(60));
    assert_eq!(world.done, ["load a", "load a", "load a"], "failed once");
    assert_eq!(world.sources["a"].digest.as_deref(), Some("sha256:2"));
    let status = report::status(&world.agent, None, &[], Timestamp::UNIX_EPOCH);
    assert!(status.refusals.is_empty(), "{status:?}");
    world.plan(3, plan(1, &[("a", 1)]));
    world.run(Duration::from_secs(60));
    assert_eq!(world.done.len(), 3, "without a source, what is there stays");
}

#[test]
fn without_enough_memory_the_old_model_leaves_first() {
    let mut world = World::new(Some(LIMIT), &[]);
    world.plan(1, plan(1, &[("a", 1), ("e", 5)]));
    world.run(Duration::from_secs(1));
    world.plan(2, plan(1, &[("a", 1), ("f", 8)]));
    world.run(Duration::from_secs(1));
    assert_eq!(world.done, ["load a", "load e", "unload e", "load f"]);
}

#[test]
fn nothing_changes_before_the_first_plan() {
    let mut world = World::new(None, &["a", "b"]);
    world.handle(Event::Plan(accepted(1, NodePlanSpec::default())));
    world.run(Duration::from_secs(100));
    assert!(world.done.is_empty(), "{:?}", world.done);
    let status = report::status(&world.agent, None, &[], Timestamp::UNIX_EPOCH);
    assert_eq!(status.ready, ["a", "b"]);
    assert_eq!((status.observed_generation, status.observed_epoch), (None, 0));
}

#[test]
fn a_model_that_cannot_be_loaded_is_retried_less_and_less_often() {
    let mut world = World::new(None, &[]);
    world.failing = vec![true; 100];
    world.plan(1, plan(1, &[("a", 1)]));
    world.run(Duration::from_secs(300));
    // After 1, 2, 4, 8, 16 and 32 s, then once a minute.
    assert_eq!(world.done.len(), 10, "{:?}", world.done);
    let status = report::status(&world.agent, None, &[], Timestamp::UNIX_EPOCH);
    assert_eq!(status.refusals[0].reason, "LoadFailed");
    assert_eq!(status.refusals[0].message, "no such file");
    assert!(status.ready.is_empty());
}

#[test]
fn an_older_plan_is_refused_with_both_epochs() {
    let mut world = World::new(None, &[]);
    world.plan(1, plan(5, &[("a", 1)]));
    world.plan(2, plan(4, &[("b", 1)]));
    world.run(Duration::from_secs(1));
    let status = report::status(&world.agent, None, &[], Timestamp::UNIX_EPOCH);
    assert_eq!((status.observed_generation, status.observed_epoch, status.ready.len()), (Some(1), 5, 1));
    let condition = status.conditions.iter().find(|condition| condition.type_ == "Accepted").unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "OldEpoch"));
    assert!(
        condition.message.ends_with("expected 5 or higher, which is in force, got 4"),
        "{}",
        condition.message
    );
}

#[test]
fn a_server_that_cannot_be_reached_has_nothing_ready() {
    let mut world = World::new(None, &[]);
    world.plan(1, plan(1, &[("a", 1)]));
    world.run(Duration::from_secs(1));
    world.now += Duration::from_secs(20);
    assert_eq!(world.agent.handle(world.now, Event::Tick), [Effect::List]);
    let effects = world.agent.handle(world.now, Event::Listed(Err(NodeError("connection refused".into()))));
    assert!(effects.is_empty());
    let status = report::status(&world.agent, None, &[], Timestamp::UNIX_EPOCH);
    assert!(status.ready.is_empty());
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("Unknown", "ServerUnreachable"));
    assert_eq!(ready.message, "connection refused");
}
