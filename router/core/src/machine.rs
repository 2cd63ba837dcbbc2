//! The state machine: one turn an event, in three steps. What happened is taken in, what became due is looked
//! at, and free lanes are given work.

mod admission;
mod dispatch;
mod lifecycle;

use crate::config::ConfigError;
use crate::event::{BatchReport, Effect, Effects, Event, Outcome, Reason};
use crate::heap::{Heap, Positions};
use crate::lane::{Batches, Lane};
use crate::model::Model;
use crate::queue::{Queues, Urgency};
use crate::request::{Requests, Stage};
use crate::snapshot::{LaneSnapshot, ModelSnapshot, Snapshot};
use crate::{LaneId, ModelId, Nanos, RequestId, RouterConfig};

/// All requests, queues, lanes and batches of one shard.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    pub(crate) config: RouterConfig,
    pub(crate) now: Nanos,
    pub(crate) sequence: u64,
    pub(crate) requests: Requests,
    pub(crate) queues: Queues,
    /// When each waiting queue must be looked at again.
    pub(crate) timers: Heap<Nanos>,
    pub(crate) timer_positions: Positions,
    /// Queues whose policy says fire, most urgent first.
    pub(crate) ready: Vec<(Urgency, u32)>,
    /// Queues that changed in this turn.
    pub(crate) changed: Vec<u32>,
    pub(crate) models: Vec<Option<Model>>,
    pub(crate) lanes: Vec<Option<Lane>>,
    /// Lanes that can take a batch, smallest id first: the others stay idle and may be given back.
    pub(crate) free_lanes: Vec<LaneId>,
    pub(crate) batches: Batches,
    pub(crate) queued_bytes: u64,
    pub(crate) drain_until: Option<Nanos>,
}

impl Router {
    /// An empty router at time zero.
    pub fn new(config: RouterConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            now: Nanos::ZERO,
            sequence: 0,
            requests: Requests::default(),
            queues: Queues::default(),
            timers: Heap::default(),
            timer_positions: Positions::default(),
            ready: Vec::new(),
            changed: Vec::new(),
            models: Vec::new(),
            lanes: Vec::new(),
            free_lanes: Vec::new(),
            batches: Batches::default(),
            queued_bytes: 0,
            drain_until: None,
        })
    }

    /// The only way anything ever happens. Time that goes backwards is taken as standing still.
    pub fn handle(&mut self, now: Nanos, event: Event<'_>, effects: &mut Effects) {
        self.now = self.now.max(now);
        match event {
            Event::Arrive(arrival) => self.arrive(&arrival, effects),
            Event::Cancel(request) => self.cancel(request, effects),
            Event::BatchDone(report) => self.batch_done(report, effects),
            Event::ModelUp(spec) => self.model_up(spec),
            Event::ModelDown(model) => self.model_down(model, effects),
            Event::LaneUp(spec) => self.lane_up(spec),
            Event::LaneDown(lane) => self.lane_down(lane, effects),
            Event::Drain { until } => self.drain_until = Some(until),
            Event::Tick => {}
        }
        self.look_at_due(effects);
        self.give_work(effects);
    }

    /// If nothing else happens, `Event::Tick` is wanted no later than this.
    pub fn next_wake(&self) -> Option<Nanos> {
        let timer = self.timers.first().map(|(at, _)| at);
        let drain = self.drain_until.filter(|_| self.queues.iter().next().is_some());
        [timer, drain].into_iter().flatten().min()
    }

    /// Whether a model is loaded, retiring ones included.
    pub fn knows(&self, model: ModelId) -> bool {
        self.model(model).is_some()
    }

    /// Requests admitted and not yet finished.
    pub fn unfinished(&self) -> usize {
        self.requests.len()
    }

    /// The state for people. Costs time in proportion to models and lanes.
    pub fn snapshot(&self) -> Snapshot {
        let model = |(id, model): (u32, &Option<Model>)| {
            model.as_ref().map(|model| ModelSnapshot {
                model: ModelId(id),
                policy: model.policy.name(),
                queued: model.queued.iter().map(|&count| u64::from(count)).sum(),
                in_flight: model.in_flight,
                lanes: model.lanes,
                retiring: model.retiring,
            })
        };
        let lane = |(id, lane): (u32, &Option<Lane>)| {
            lane.as_ref().map(|lane| LaneSnapshot {
                lane: LaneId(id),
                holding: lane.holding.len(),
                depth: lane.depth,
            })
        };
        Snapshot {
            now: self.now,
            draining: self.drain_until.is_some(),
            unfinished: self.requests.len(),
            queued_bytes: self.queued_bytes,
            models: (0..).zip(&self.models).filter_map(model).collect(),
            lanes: (0..).zip(&self.lanes).filter_map(lane).collect(),
        }
    }

    fn batch_done(&mut self, report: BatchReport, effects: &mut Effects) {
        let Some((slot, batch)) = self.batches.take(report.batch) else { return };
        let started = self.release_lane(batch.lane, slot).max(batch.dispatched);
        if let Some(model) = self.model_mut(batch.model) {
            model.in_flight =
                model.in_flight.saturating_sub(u32::try_from(batch.members.len()).unwrap_or(u32::MAX));
        }
        if report.ok {
            self.learn(&batch, started);
        }
        let retry = !report.ok && batch.members.len() > 1;
        for &id in &batch.members {
            let Some(request) = self.requests.get(id) else { continue };
            if retry {
                let slot = request.id.slot();
                self.enqueue_alone(slot);
            } else if report.ok {
                self.finish(id, Outcome::Done, Reason::Answered, effects);
            } else {
                self.finish(id, Outcome::Failed, Reason::EngineFailed, effects);
            }
        }
        self.model_changed(batch.model);
        self.retire_if_done(batch.model, effects);
    }

    /// Takes a batch off its lane; returns when the lane had reported last, which is when a batch that was
    /// waiting on the lane began.
    fn release_lane(&mut self, id: LaneId, batch_slot: u32) -> Nanos {
        let now = self.now;
        let Some(lane) = self.lane_mut(id) else { return Nanos::ZERO };
        lane.holding.retain(|held| *held != batch_slot);
        let before = std::mem::replace(&mut lane.last_report, now);
        if let Err(position) = self.free_lanes.binary_search(&id) {
            self.free_lanes.insert(position, id);
        }
        before
    }

    pub(crate) fn model(&self, id: ModelId) -> Option<&Model> {
        self.models.get(id.0 as usize).and_then(Option::as_ref)
    }

    pub(crate) fn model_mut(&mut self, id: ModelId) -> Option<&mut Model> {
        self.models.get_mut(id.0 as usize).and_then(Option::as_mut)
    }

    pub(crate) fn lane(&self, id: LaneId) -> Option<&Lane> {
        self.lanes.get(id.0 as usize).and_then(Option::as_ref)
    }

    pub(crate) fn lane_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.lanes.get_mut(id.0 as usize).and_then(Option::as_mut)
    }

    /// Forgets a request that is in no queue any more and says how it ended.
    pub(crate) fn finish(&mut self, id: RequestId, outcome: Outcome, reason: Reason, effects: &mut Effects) {
        if self.requests.get(id).is_some() {
            self.requests.remove(id.slot());
            effects.0.push(Effect::Finish { request: id, outcome, reason });
        }
    }

    /// Takes a queued request out of its queue and the counts that go with it.
    pub(crate) fn unqueue(&mut self, slot: u32) {
        let Some(request) = self.requests.at(slot) else { return };
        if request.stage != Stage::Queued {
            return;
        }
        let (queue_slot, model, class, bytes) = (request.queue, request.model, request.class, request.bytes);
        if let Some(queue) = self.queues.get_mut(queue_slot) {
            queue.remove(slot, &mut self.requests);
        }
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
        if let Some(count) = self.model_mut(model).and_then(|model| model.queued_mut(class)) {
            *count = count.saturating_sub(1);
        }
        self.changed.push(queue_slot);
    }
}
