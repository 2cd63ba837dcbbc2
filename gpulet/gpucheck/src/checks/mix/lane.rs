//! A lane: the thread of a gpulet, its queues, and its results.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpulet::Partition;
use gpulet_core::interference::{CoLocated, Runner};
use gpulet_core::profile::Quantile;
use gpulet_cuda::CudaDevice;
use models::engine::{Batch, RunError, Session};

use super::arm::{Place, Slot};
use super::offer::Mix;
use crate::bench::{Stop, at_most, open};

/// Weight of a new sample in the average ratio of measured to expected time.
const LEARNING: f64 = 0.1;
/// Upper bound on a predicted slowdown.
const SLOWER_MAX: f64 = 100.0;

/// A batch size that was warmed up.
struct Size {
    batch: Batch,
    /// Time that batches are planned with.
    expected: Duration,
    predicted: Predicted,
}

/// Predictions of the 99th percentile of a batch's times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Predicted {
    /// Without other gpulets.
    pub(super) alone: Duration,
    /// Co-located, by the model of interference.
    pub(super) co_located: Duration,
}

/// A model on a lane. The session is dropped first.
pub(super) struct Served {
    session: Box<dyn Session>,
    pub(super) model: usize,
    pub(super) weight: f64,
    sizes: BTreeMap<u32, Size>,
    /// Average ratio of measured to expected time.
    stretch: f64,
    /// Times of batches by rows, since they were last taken.
    times: BTreeMap<u32, Vec<Duration>>,
    pub(super) in_time: u64,
}

impl Served {
    /// Loads and warms up a session. Sizes beyond the profile are left out.
    fn load(
        partition: &Arc<dyn Partition>,
        mix: &Mix<'_>,
        (slot, units): (&Slot, u32),
        co_located: &CoLocated,
    ) -> Result<Self, Stop> {
        let missing = || Stop::Other(format!("there is no model number {}", slot.model));
        let subject = mix.subjects.get(slot.model).ok_or_else(missing)?;
        let demand = mix.demands.models.get(slot.model).ok_or_else(missing)?;
        let mut session = partition.load(&subject.files, &at_most(slot.rows_max))?;
        let mut sizes = BTreeMap::new();
        let powers = (0..=5).map(|power| 1_u32 << power);
        for rows in powers.filter(|rows| *rows <= slot.rows_max) {
            let known = |quantile| demand.time(quantile, rows, units);
            let Some((expected, alone)) = known(Quantile::P95).zip(known(Quantile::P99)) else { break };
            let own = Runner { profile: &demand.profile, batch: rows, units };
            let factor = mix.interference.slowdown_with(&own, co_located);
            let slowed = alone.mul_f64(factor.clamp(1.0, SLOWER_MAX));
            let batch = subject.batch(session.as_mut(), rows)?;
            for _ in 0..3 {
                session.run(&batch)?;
            }
            sizes.insert(rows, Size { batch, expected, predicted: Predicted { alone, co_located: slowed } });
        }
        if sizes.is_empty() {
            return Err(Stop::Other(format!(
                "the profile of `{}` has no batch on {units} units",
                subject.name()
            )));
        }
        let (model, weight, times) = (slot.model, slot.weight, BTreeMap::new());
        Ok(Self { session, model, weight, sizes, stretch: 1.0, times, in_time: 0 })
    }

    fn stretched(&self, size: &Size) -> Duration {
        size.expected.mul_f64(self.stretch.clamp(1.0, 100.0))
    }

    /// Expected time of the smallest batch.
    fn least(&self) -> Duration {
        self.sizes.values().next().map_or(Duration::ZERO, |size| self.stretched(size))
    }

    /// Rows of the largest batch of the waiting requests that ends within `left`.
    fn rows(&self, waiting: usize, left: Duration) -> u32 {
        let fits = |(rows, size): (&u32, &Size)| {
            let enough = usize::try_from(*rows).is_ok_and(|rows| rows <= waiting);
            (enough && self.stretched(size) <= left).then_some(*rows)
        };
        self.sizes.iter().filter_map(fits).next_back().unwrap_or(1)
    }

    fn run(&mut self, due: &[Instant], rows: u32) -> Result<(), RunError> {
        let Some(size) = self.sizes.get(&rows) else { return Ok(()) };
        let begun = Instant::now();
        self.session.run(&size.batch)?;
        let ended = Instant::now();
        let took = ended - begun;
        let ratio = took.as_secs_f64() / size.expected.as_secs_f64().max(1e-9);
        self.stretch += LEARNING * (ratio - self.stretch);
        self.times.entry(rows).or_default().push(took);
        self.in_time += due.iter().filter(|due| **due >= ended).map(|_| 1).sum::<u64>();
        Ok(())
    }

    /// For each size, the predictions and the measured times.
    pub(super) fn taken(&mut self) -> Vec<(Predicted, Vec<Duration>)> {
        let times = std::mem::take(&mut self.times);
        times
            .into_iter()
            .filter_map(|(rows, times)| Some((self.sizes.get(&rows)?.predicted, times)))
            .collect()
    }
}

/// Deadlines of waiting requests, by the lane's models.
#[derive(Default)]
struct Waiting {
    queues: Vec<VecDeque<Instant>>,
    closed: bool,
}

/// A lane's queues.
#[derive(Default)]
pub(super) struct Mailbox {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

impl Mailbox {
    pub(super) fn new(models: usize) -> Self {
        let waiting = Waiting { queues: vec![VecDeque::new(); models], closed: false };
        Self { waiting: Mutex::new(waiting), arrived: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, queue: usize, due: Instant) {
        if let Some(queue) = self.lock().queues.get_mut(queue) {
            queue.push_back(due);
        }
        self.arrived.notify_one();
    }

    /// No more requests follow.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
    }

    /// The next batch: the model, and the deadlines of its requests. None after the last one.
    fn next(&self, models: &[Served]) -> Option<(usize, u32, Vec<Instant>)> {
        let mut waiting = self.lock();
        loop {
            let now = Instant::now();
            for (queue, served) in waiting.queues.iter_mut().zip(models) {
                // Drop requests that would be late: they would only delay others.
                while queue.front().is_some_and(|due| *due < now + served.least()) {
                    queue.pop_front();
                }
            }
            let heads = waiting.queues.iter().enumerate();
            let urgent = heads.filter_map(|(at, queue)| Some((*queue.front()?, at))).min();
            if let Some((due, at)) = urgent {
                let (queue, served) = (waiting.queues.get_mut(at)?, models.get(at)?);
                let rows = served.rows(queue.len(), due.saturating_duration_since(now));
                let count = usize::try_from(rows).unwrap_or(1).min(queue.len());
                return Some((at, rows, queue.drain(..count).collect()));
            }
            if waiting.closed {
                return None;
            }
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A gpulet with its models. The sessions are dropped before the gpulet.
pub(super) struct Lane {
    pub(super) models: Vec<Served>,
    _partition: Arc<dyn Partition>,
}

impl Lane {
    pub(super) fn open(
        device: &CudaDevice,
        place: &Place,
        mix: &Mix<'_>,
        co_located: &CoLocated,
    ) -> Result<Self, Stop> {
        let partition = open(device, place.first, place.units)?;
        let mut models = Vec::new();
        for slot in &place.slots {
            models.push(Served::load(&partition, mix, (slot, place.as_units), co_located)?);
        }
        Ok(Self { models, _partition: partition })
    }

    /// Runs batches until the mailbox is closed and empty.
    pub(super) fn serve(&mut self, mailbox: &Mailbox) -> Result<(), RunError> {
        while let Some((at, rows, due)) = mailbox.next(&self.models) {
            if let Some(served) = self.models.get_mut(at) {
                served.run(&due, rows)?;
            }
        }
        Ok(())
    }
}
