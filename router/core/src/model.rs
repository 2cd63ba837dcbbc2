//! State of a loaded model version.

use crate::batch::{Counted, Policy, StartReason, WaitForecast};
use crate::costs::Costs;
use crate::queue::QueueKey;
use crate::rate::{Peak, Rate};
use crate::resources::Limited;
use crate::{Class, ModelSpec, Nanos};

/// Arrival rates are averaged over this long.
const RATE_MEMORY: Nanos = Nanos::from_millis(1_000);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Model {
    pub max_batch: u32,
    /// Rows of the largest batch that one of its lanes lets it run: `max_batch`, unless slots of cycles are smaller.
    pub largest: u32,
    queue_limit: u32,
    class_limits: Vec<(Class, u32)>,
    /// Largest limit before a change of settings: requests that were queued under it stay.
    former_limit: u32,
    pub limited: Limited,
    pub policy: Policy,
    pub costs: Costs,
    pub wait_forecast: WaitForecast,
    /// Rate of arriving rows, including rejected ones.
    pub rate: Rate,
    /// The most requests that were unfinished at a time recently.
    pub most_unfinished: Peak,
    /// From arrival to deadline of the last request with a deadline, zero before the first.
    pub slo: Nanos,
    /// The same of the whole request, if the last one was a stage of a pipeline.
    pub objective: Nanos,
    /// Payload bytes a row of the last request.
    pub row_bytes: u64,
    /// Payload bytes a row in the profile, for estimates before the first request.
    pub profiled_row_bytes: u64,
    /// Pool of the lanes that run it.
    pub pool: u32,
    /// Queues that are not empty.
    pub queues: Vec<(QueueKey, u32)>,
    /// Queued requests by class.
    pub queued: [u32; Class::NUMBERS],
    /// Requests in batches, including cancelled ones.
    pub in_flight: u32,
    /// Batches on lanes.
    pub running: u32,
    /// The part of its pool's demand that is this model's.
    pub counted: Counted,
    /// Whether its lanes can return a batch that runs.
    pub preemptible: bool,
    /// Takes no new requests.
    pub retiring: bool,
    /// Requests that found a free lane but an estimate too long for them.
    pub doubted: u32,
    /// Batches by the reason for their start, in the order of [`StartReason::ALL`].
    pub starts: [u64; StartReason::ALL.len()],
}

impl Model {
    pub(crate) fn new(spec: &ModelSpec, pool: u32) -> Self {
        Self {
            max_batch: spec.max_batch.max(1),
            largest: spec.max_batch.max(1),
            queue_limit: spec.queue_limit,
            class_limits: spec.class_limits.clone(),
            former_limit: 0,
            limited: Limited::new(&spec.rate_limit),
            policy: spec.policy.clone(),
            costs: Costs::new(spec.measured_on, &spec.profile),
            wait_forecast: WaitForecast::default(),
            rate: Rate::over(RATE_MEMORY),
            most_unfinished: Peak::over(RATE_MEMORY),
            slo: Nanos::ZERO,
            objective: Nanos::ZERO,
            row_bytes: 0,
            profiled_row_bytes: spec.profile.first().map_or(0, |point| point.row_bytes),
            pool,
            queues: Vec::new(),
            queued: [0; Class::NUMBERS],
            in_flight: 0,
            running: 0,
            counted: Counted::default(),
            preemptible: spec.preemptible,
            retiring: false,
            doubted: 0,
            starts: [0; StartReason::ALL.len()],
        }
    }

    /// Most queued requests of one tenant in a class.
    pub(crate) fn limit_of(&self, class: Class) -> usize {
        let own = self.class_limits.iter().find(|(other, _)| *other == class);
        own.map_or(self.queue_limit, |&(_, limit)| limit) as usize
    }

    /// Most queued requests that there can be of one tenant in a class.
    pub(crate) fn bound_of(&self, class: Class) -> usize {
        self.limit_of(class).max(self.former_limit as usize)
    }

    /// The model with the settings of `spec`. Its requests, lanes and resources, and what was learned about it, stay.
    pub(crate) fn changed(self, spec: &ModelSpec) -> Self {
        // No `..` here: a new field has to be sorted into settings and state.
        let Self {
            max_batch: _,
            largest: _,
            queue_limit,
            class_limits,
            former_limit,
            limited,
            policy: _,
            costs,
            wait_forecast,
            rate,
            most_unfinished,
            slo,
            objective,
            row_bytes,
            profiled_row_bytes,
            pool,
            queues,
            queued,
            in_flight,
            running,
            counted,
            preemptible,
            retiring,
            doubted,
            starts,
        } = self;
        let limits = class_limits.iter().map(|(_, limit)| *limit).chain([queue_limit, former_limit]);
        Self {
            former_limit: limits.max().unwrap_or_default(),
            limited,
            costs,
            wait_forecast,
            rate,
            most_unfinished,
            slo,
            objective,
            row_bytes,
            profiled_row_bytes,
            queues,
            queued,
            in_flight,
            running,
            counted,
            preemptible,
            retiring,
            doubted,
            starts,
            ..Self::new(spec, pool)
        }
    }

    pub(crate) fn queue(&self, key: QueueKey) -> Option<u32> {
        self.queues.iter().find(|(other, _)| *other == key).map(|(_, slot)| *slot)
    }

    pub(crate) fn queued_mut(&mut self, class: Class) -> Option<&mut u32> {
        self.queued.get_mut(usize::from(class.level()))
    }

    /// A batch that should take `time` starts. Requests that were missing for longer than that are not expected any more.
    pub(crate) fn batch_starts(&mut self, now: Nanos, time: Nanos) {
        if now.since(self.rate.last()) > time {
            self.most_unfinished.forget();
            self.count_unfinished(now);
        }
    }

    pub(crate) fn count_unfinished(&mut self, now: Nanos) {
        self.most_unfinished.count(now, u32::try_from(self.unfinished()).unwrap_or(u32::MAX));
    }

    /// How many more requests were unfinished at a time recently than are now.
    pub(crate) fn missing(&self) -> u32 {
        self.most_unfinished.largest().saturating_sub(u32::try_from(self.unfinished()).unwrap_or(u32::MAX))
    }

    pub(crate) fn unfinished(&self) -> u64 {
        self.queued.iter().map(|&count| u64::from(count)).sum::<u64>() + u64::from(self.in_flight)
    }
}
