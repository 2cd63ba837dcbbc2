//! The view of queues and lanes that a policy decides on.

use super::Demand;
use crate::ordered::{Keyed, Ordered};
use crate::queue::Waiting;
use crate::rate::{Load, Rate};
use crate::{CostModel, LaneId, Nanos};

/// A busy lane and when it should be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneEnd {
    /// Expected end; may have passed.
    pub at: Nanos,
    /// Lane whose batch ends.
    pub lane: LaneId,
}

impl Keyed for LaneEnd {
    type Key = (Nanos, LaneId);
    fn key(&self) -> Self::Key {
        (self.at, self.lane)
    }
}

/// The lanes that a queue may use.
#[derive(Clone, Copy, Debug)]
pub struct PoolView<'a> {
    /// Lanes that are up, at least 1.
    pub lanes: u32,
    /// Lanes that could take a batch now.
    pub free: u32,
    /// Models that share them, at least 1.
    pub models: u32,
    pub(crate) load: Load,
    pub(crate) busy: f64,
    /// Demand of all the models together (see [`BatchPolicy::demand`](super::BatchPolicy)).
    pub demand: Demand,
    /// The shortest objective seen recently on these lanes; `NEVER` before the first.
    pub tightest: Nanos,
    /// When a batch handed over now would begin: now, unless the lane that is next takes batches ahead; without a
    /// free lane, when the first should be free.
    pub begins: Nanos,
    /// The lane, if there is but one: the model runs nowhere else, or the requests are bound to it.
    pub only: Option<LaneId>,
    /// Mean time of the last batches.
    pub mean_time: Nanos,
    pub(crate) ends: &'a Ordered<LaneEnd>,
}

impl PoolView<'_> {
    /// Share of the lanes that was busy recently, 0 to 1.
    pub fn load(&self, now: Nanos) -> f64 {
        self.load.now(now, self.busy)
    }

    /// When the n-th lane, counted from 0, should be free; `None` beyond the last.
    pub fn free_at(&self, now: Nanos, nth: u32) -> Option<Nanos> {
        match nth.checked_sub(self.free) {
            None => Some(now),
            Some(nth) => self.ends.get(nth as usize).map(|end| end.at.max(now)),
        }
    }

    /// When busy lanes should be free, those between the two times only, in order.
    pub fn ends_between(&self, from: Nanos, to: Nanos) -> impl Iterator<Item = Nanos> {
        let first = self.ends.position((from, LaneId(0)));
        (first..).map_while(|n| self.ends.get(n)).map(|end| end.at).take_while(move |at| *at <= to)
    }
}

/// One queue: requests of one model, class and shape, earliest deadline first. Never empty.
#[derive(Clone, Copy, Debug)]
pub struct QueueView<'a> {
    /// The first request.
    pub head: Waiting,
    /// Rows waiting, including those of other classes that could join the batch.
    pub rows: u32,
    /// Arrival of the request that waits longest.
    pub oldest_arrival: Nanos,
    /// Payload bytes a row.
    pub row_bytes: u64,
    /// The model's largest batch in rows.
    pub max_batch: u32,
    /// What its batches cost.
    pub cost: &'a CostModel,
    /// Batches of the model that are on lanes.
    pub running: u32,
    /// How many more requests of the model were unfinished at a time recently than are now. 0 if it has as many as ever:
    /// clients that wait for their answers send no more.
    pub missing: u32,
    /// Lanes that may run it.
    pub pool: PoolView<'a>,
    pub(crate) waiting: &'a Ordered<Waiting>,
    pub(crate) rate: &'a Rate,
}

impl QueueView<'_> {
    /// Requests in the queue itself, at least 1.
    pub fn len(&self) -> u32 {
        u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The n-th request, counted from 0.
    pub fn get(&self, nth: u32) -> Option<&Waiting> {
        self.waiting.get(nth as usize)
    }

    /// The requests, earliest deadline first.
    pub fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter()
    }

    /// Recent arrival rate of this model in rows a second.
    pub fn rate(&self, now: Nanos) -> f64 {
        self.rate.per_second(now)
    }

    /// From arrival to deadline of the first request; `NEVER` if it has no deadline.
    pub fn slo(&self) -> Nanos {
        if self.head.deadline == Nanos::NEVER {
            Nanos::NEVER
        } else {
            self.head.deadline.since(self.head.arrived)
        }
    }

    /// Time that a batch rarely exceeds; zero while unknown.
    pub fn time(&self, rows: u32) -> Nanos {
        self.cost.cautious(rows, self.row_bytes)
    }

    /// Largest batch that would be done by `deadline` if started `now`, at least one row; as if there were no
    /// end to the queue.
    pub fn largest_by(&self, now: Nanos, deadline: Nanos) -> u32 {
        match deadline {
            Nanos::NEVER => self.max_batch,
            deadline => self.cost.largest_within(deadline.since(now), self.row_bytes, self.max_batch).max(1),
        }
    }

    /// The same with the part of a further row that would fit, at least 1.
    pub fn fractional_rows_by(&self, now: Nanos, deadline: Nanos) -> f64 {
        match deadline {
            Nanos::NEVER => f64::from(self.max_batch),
            deadline => {
                self.cost.fractional_rows_within(deadline.since(now), self.row_bytes, self.max_batch).max(1.0)
            }
        }
    }

    /// When a batch of `rows` rows must start to meet `deadline`; zero if that is no longer possible.
    pub fn latest_start(&self, deadline: Nanos, rows: u32) -> Nanos {
        if deadline == Nanos::NEVER { deadline } else { deadline.before(self.time(rows)) }
    }
}

/// A synthetic queue for the tests of a policy.
#[cfg(test)]
pub(crate) struct Scene {
    pub cost: CostModel,
    pub max_batch: u32,
    pub lanes: u32,
    pub free: u32,
    pub models: u32,
    pub load: f64,
    pub running: u32,
    pub missing: u32,
    pub demand: Demand,
    pub tightest: Nanos,
    pub begins: Nanos,
    pub only: Option<LaneId>,
    rate: Rate,
    waiting: Ordered<Waiting>,
    ends: Ordered<LaneEnd>,
}

#[cfg(test)]
impl Scene {
    /// One free lane and no requests. `points` are (rows, microseconds) of a batch.
    pub(crate) fn new(points: &[(u32, u64)]) -> Self {
        let point = |&(rows, micros): &(u32, u64)| crate::ProfilePoint {
            rows,
            row_bytes: 64,
            time: Nanos::from_micros(micros),
        };
        let mut cost = CostModel::from_profile(&points.iter().map(point).collect::<Vec<_>>());
        // So often measured that the cautious estimate is the time itself.
        for &(rows, micros) in points.iter().cycle().take(300 * points.len()) {
            cost.observe(rows, 64, Nanos::from_micros(micros));
        }
        Self {
            cost,
            max_batch: 32,
            lanes: 1,
            free: 1,
            models: 1,
            load: 0.0,
            running: 0,
            missing: 100,
            demand: Demand::default(),
            tightest: Nanos::NEVER,
            begins: Nanos::ZERO,
            only: None,
            rate: Rate::over(Nanos::from_millis(500)),
            waiting: Ordered::default(),
            ends: Ordered::default(),
        }
    }

    /// A request of one row.
    pub(crate) fn arrive(&mut self, arrived_us: u64, deadline_us: Option<u64>) -> &mut Self {
        self.arrive_with(1, arrived_us, deadline_us)
    }

    /// A request of several rows.
    pub(crate) fn arrive_with(&mut self, rows: u32, arrived_us: u64, deadline_us: Option<u64>) -> &mut Self {
        let sequence = self.waiting.len() as u64;
        let arrived = Nanos::from_micros(arrived_us);
        let deadline = deadline_us.map_or(Nanos::NEVER, Nanos::from_micros);
        self.waiting.insert(Waiting { deadline, arrived, rows, slot: 0, sequence });
        self.rate.count(arrived, rows);
        self
    }

    /// Adds `requests` requests without deadlines.
    pub(crate) fn crowd(&mut self, requests: u32) -> &mut Self {
        (0..requests).for_each(|_| {
            self.arrive(0, None);
        });
        self
    }

    /// A busy lane.
    pub(crate) fn busy_until(&mut self, micros: u64) -> &mut Self {
        let lane = crate::LaneId(self.ends.len() as u32);
        self.ends.insert(LaneEnd { at: Nanos::from_micros(micros), lane });
        self.lanes += 1;
        self
    }

    pub(crate) fn view(&self) -> QueueView<'_> {
        let oldest = self.waiting.iter().map(|waiting| waiting.arrived).min();
        QueueView {
            head: *self.waiting.first().unwrap(),
            rows: self.waiting.iter().map(|waiting| waiting.rows).sum(),
            oldest_arrival: oldest.unwrap(),
            row_bytes: 64,
            max_batch: self.max_batch,
            cost: &self.cost,
            running: self.running,
            missing: self.missing,
            pool: PoolView {
                lanes: self.lanes,
                free: self.free,
                models: self.models,
                load: Load::at(self.load),
                busy: self.load,
                demand: self.demand,
                tightest: self.tightest,
                begins: self.begins,
                only: self.only,
                mean_time: Nanos::from_millis(10),
                ends: &self.ends,
            },
            waiting: &self.waiting,
            rate: &self.rate,
        }
    }
}
