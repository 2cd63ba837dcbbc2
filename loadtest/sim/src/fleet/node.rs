//! One node: a router, its lanes, and what it holds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use fleet_core::pick::Update;
use fleet_core::view::ModelView;
use router_core::{
    Arrival, BatchId, BatchReport, Class, Effect, Effects, Event, Gather, Gatherings, LaneClass, LaneId,
    LaneSpec, ModelBacklog, ModelId, ModelSpec, Nanos, Outcome, Reason, Router, RouterConfig, ShapeKey,
    Tenant,
};
use workload::{ExecutionNoise, Workload};

use crate::error::Breach;
use crate::inflight::{InFlight, Request};
use crate::lanes::{Held, Lanes};

/// Longest time that requests wait for others of their batch, and batches that wait at most: the defaults of a server.
const GATHER: (Nanos, usize) = (Nanos::from_millis(2), 256);

/// A request that reaches a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving {
    pub request: Request,
    /// The picker that sent it.
    pub picker: u32,
    /// That picker's name for it.
    pub key: u64,
}

/// A request that ended on a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub arrived: Arriving,
    pub outcome: Outcome,
    pub reason: Reason,
}

#[derive(Debug)]
pub(super) struct Node {
    router: Router,
    gatherings: Gatherings,
    lanes: Lanes,
    effects: Effects,
    requests: InFlight,
    /// By slot of a request: the picker that sent it, and its name for it.
    senders: Vec<(u32, u64)>,
    pub up: bool,
    /// Models that are loaded, by number, and since when, or that will be.
    pub models: BTreeMap<u32, u64>,
    /// Number of its first lane among those of the fleet.
    first_lane: u32,
    lane_count: u32,
    /// Requests that ended and were not yet taken.
    pub ended: Vec<Ended>,
    preempted: VecDeque<(LaneId, BatchId)>,
    /// Nanoseconds of lane time in batches.
    pub busy: u64,
    /// Batches and their rows.
    pub batches: (u64, u64),
    /// Models that it named in its last message.
    said: BTreeSet<String>,
    /// When its next event is scheduled.
    pub scheduled: u64,
}

impl Node {
    pub(super) fn new(config: &RouterConfig, first_lane: u32, lane_count: u32) -> Result<Self, Breach> {
        let router =
            Router::new(config.clone()).map_err(|error| Breach { id: "F0", detail: error.to_string() })?;
        let mut node = Self {
            router,
            gatherings: Gatherings::new(GATHER.0, GATHER.1),
            lanes: Lanes::new((lane_count, lane_count), 1),
            effects: Effects::default(),
            requests: InFlight::default(),
            senders: Vec::new(),
            up: true,
            models: BTreeMap::new(),
            first_lane,
            lane_count,
            ended: Vec::new(),
            preempted: VecDeque::new(),
            busy: 0,
            batches: (0, 0),
            said: BTreeSet::new(),
            scheduled: u64::MAX,
        };
        for lane in 0..lane_count {
            node.lanes.come_up(lane);
            let up = Event::LaneUp(LaneSpec::new(LaneId(lane), LaneClass::default()));
            node.router.handle(Nanos::ZERO, up, &mut node.effects);
        }
        node.effects.clear();
        Ok(node)
    }

    /// It loses all that it holds. Returns the requests that were inside.
    pub(super) fn killed(&mut self, config: &RouterConfig) -> Result<Vec<Arriving>, Breach> {
        let inside = self.requests.iter_with_slots().map(|(slot, request)| {
            let (picker, key) = self.senders.get(slot).copied().unwrap_or_default();
            Arriving { request: *request, picker, key }
        });
        let inside = inside.collect();
        let (busy, batches) = (self.busy, self.batches);
        *self = Self { up: false, busy, batches, ..Self::new(config, self.first_lane, self.lane_count)? };
        Ok(inside)
    }

    /// When something happens here next.
    pub(super) fn next(&mut self) -> u64 {
        let wake = self.router.next_wake().into_iter().chain(self.gatherings.next_wake()).min();
        let wake = wake.map_or(u64::MAX, |at| at.0);
        self.lanes.next_end().unwrap_or(u64::MAX).min(wake)
    }

    pub(super) fn load(
        &mut self,
        now: u64,
        spec: &ModelSpec,
        noise: &mut ExecutionNoise,
    ) -> Result<(), Breach> {
        if self.router.knows(spec.model) { Ok(()) } else { self.feed(now, Event::ModelUp(spec), noise) }
    }

    pub(super) fn unload(&mut self, now: u64, model: u32, noise: &mut ExecutionNoise) -> Result<(), Breach> {
        self.models.remove(&model);
        let model = ModelId(model);
        self.gatherings.release_model(model);
        self.released(now, noise)?;
        if self.router.knows(model) { self.feed(now, Event::ModelDown(model), noise) } else { Ok(()) }
    }

    /// Whether it takes requests of a model.
    pub(super) fn takes(&self, model: u32) -> bool {
        self.up && self.models.contains_key(&model) && self.router.knows(ModelId(model))
    }

    /// Requests reach the node together. Those of a batch wait for the others of it.
    pub(super) fn arrive(
        &mut self,
        now: u64,
        (arriving, gather): (&[Arriving], Option<Gather>),
        (class, row_bytes): (u8, u64),
        noise: &mut ExecutionNoise,
    ) -> Result<(), Breach> {
        let mut arrivals = Vec::with_capacity(arriving.len());
        for Arriving { request, picker, key } in arriving {
            let id = self.requests.insert(*request);
            let slot = id.slot() as usize;
            if self.senders.len() <= slot {
                self.senders.resize(slot + 1, (0, 0));
            }
            if let Some(known) = self.senders.get_mut(slot) {
                *known = (*picker, *key);
            }
            arrivals.push(Arrival {
                request: id,
                model: ModelId(request.model),
                class: Class::new(class),
                tenant: Tenant::new(request.tenant),
                shape: ShapeKey::default(),
                rows: request.rows,
                bytes: row_bytes.saturating_mul(u64::from(request.rows)),
                deadline: request.deadline,
                timeout_action: Default::default(),
                pipeline: None,
            });
        }
        let Some(gather) = gather else {
            return self.feed(now, Event::ArriveTogether(&arrivals), noise);
        };
        arrivals.into_iter().for_each(|arrival| self.gatherings.arrive(Nanos(now), gather, arrival));
        self.released(now, noise)
    }

    fn released(&mut self, now: u64, noise: &mut ExecutionNoise) -> Result<(), Breach> {
        while let Some(arrivals) = self.gatherings.next_released() {
            self.feed(now, Event::ArriveTogether(&arrivals), noise)?;
        }
        Ok(())
    }

    /// Everything that happens at a moment: batches that end, then the router's timer.
    pub(super) fn advance(&mut self, now: u64, noise: &mut ExecutionNoise) -> Result<(), Breach> {
        while self.lanes.next_end().is_some_and(|end| end <= now) {
            let Some((lane, running)) = self.lanes.finish_next() else { break };
            let report = BatchReport { lane: LaneId(lane), batch: running.held.batch, ok: true };
            self.feed(now, Event::BatchDone(report), noise)?;
        }
        self.gatherings.tick(Nanos(now));
        self.released(now, noise)?;
        if self.router.next_wake().is_some_and(|at| at.0 <= now) {
            self.feed(now, Event::Tick, noise)?;
        }
        Ok(())
    }

    fn feed(&mut self, now: u64, event: Event<'_>, noise: &mut ExecutionNoise) -> Result<(), Breach> {
        self.router.handle(Nanos(now), event, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        for effect in &effects {
            match *effect {
                Effect::Dispatch { lane, batch, model, rows, .. } => {
                    let held = Held { batch, model: model.0, canary: false, rows };
                    let time = noise.time(self.first_lane + lane.0, model.0, rows, now);
                    self.busy += time;
                    self.batches = (self.batches.0 + 1, self.batches.1 + u64::from(rows));
                    self.lanes.give(lane.0, held, now, || time)?;
                }
                Effect::Finish { request: id, outcome, reason } => {
                    let (picker, key) = self.senders.get(id.slot() as usize).copied().unwrap_or_default();
                    let Some(request) = self.requests.remove(id) else {
                        let detail = format!("{id:?} ended and was not in flight");
                        return Err(Breach { id: "R1", detail });
                    };
                    self.ended.push(Ended { arrived: Arriving { request, picker, key }, outcome, reason });
                }
                Effect::Preempt { lane, batch } => self.preempted.push_back((lane, batch)),
                Effect::Retired(_) | Effect::Switched | Effect::SwitchRefused(_) | Effect::LaneIdle(_) => {}
            }
        }
        effects.clear();
        self.effects = effects;
        while let Some((lane, batch)) = self.preempted.pop_front() {
            if let Some(Some(running)) = self.lanes.preempt(lane.0, batch) {
                self.busy = self.busy.saturating_sub(running.end.saturating_sub(now));
            }
            self.feed(now, Event::BatchReturned { lane, batch }, noise)?;
        }
        Ok(())
    }

    /// What it says to the pickers.
    pub(super) fn signals(&mut self, workload: &Workload) -> Update {
        let span = |time: Nanos| Duration::from_nanos(time.0);
        let of = |one: ModelBacklog| {
            let view = ModelView {
                ready: true,
                pool: one.pool,
                lanes: one.lanes,
                free_in: span(one.free_in),
                backlog: span(one.backlog),
                row_time: span(one.row_time),
                single_time: span(one.single_time),
                queued: one.queued,
                max_batch: one.max_batch,
            };
            let model = workload.models.get(one.model.0 as usize);
            model.map(|model| (model.name.clone(), view))
        };
        let models: Vec<(String, ModelView)> = self.router.backlogs().into_iter().filter_map(of).collect();
        let says: BTreeSet<String> = models.iter().map(|(name, _)| name.clone()).collect();
        let removed = self.said.difference(&says).cloned().collect();
        self.said = says;
        Update { complete: false, draining: false, models, removed }
    }
}
