//! One sending thread: starts requests when they are due, sends them, and checks the answers. HOT PATH.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use workload::Offered;

use crate::api::Api;
use crate::clock::{Alarm, Clock};
use crate::connection::{Connections, Failure, Watch};
use crate::outcome::Outcome;
use crate::plan::{Memory, ModelPlan};
use crate::record::{Due, Record};
use crate::timing::Timing;

/// Upper bound on requests in flight per thread. Requests beyond it wait, and the wait is part of their latency.
const IN_FLIGHT_MAX: usize = 200_000;
/// Shortest interval between checks for due requests, in nanoseconds. A request may be sent this much late, so that one
/// thread can send more than ten thousand per second.
const GRAIN: u64 = 100_000;
/// Requests that are started in a row before answers are processed.
const BURST: usize = 64;
/// How often a waiting sender checks whether to stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a stopped run waits for answers.
const STOP_WAIT_MAX: Duration = Duration::from_secs(1);

/// A request of the workload and its stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub offered: Offered,
    pub stage: u32,
    /// Its number among the requests of its model, from 0.
    pub number: usize,
}

/// What all threads of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub api: Api,
    pub plans: Vec<ModelPlan>,
    pub timeout: Duration,
    pub stop: AtomicBool,
    pub keep_timings: bool,
}

/// The sending part of one thread.
pub(crate) struct Sender {
    shared: Arc<Shared>,
    connections: Connections,
    record: Arc<Mutex<Record>>,
    clock: Clock,
    memories: Vec<Memory>,
    in_flight: Cell<usize>,
    /// Notified when a request ends.
    ended: Notify,
}

/// What a thread reports at its end, in addition to its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub connections: u64,
    /// Nanoseconds of processor time.
    pub cpu: u64,
    /// Nanoseconds of the run until its last request was sent.
    pub sending: u64,
}

/// Observes one request in flight.
struct Under<'a> {
    sender: &'a Sender,
    sent: Cell<u64>,
}

impl Watch for Under<'_> {
    fn held(&self) {
        self.sender.record().held += 1;
    }

    fn sent(&self) {
        self.sent.set(self.sender.clock.now());
    }
}

impl Sender {
    pub fn new(
        shared: Arc<Shared>,
        connections: Connections,
        record: Arc<Mutex<Record>>,
        clock: Clock,
    ) -> Rc<Self> {
        let memories = shared.plans.iter().map(|_| Memory::default()).collect();
        let (in_flight, ended) = (Cell::new(0), Notify::new());
        Rc::new(Self { shared, connections, record, clock, memories, in_flight, ended })
    }

    /// No code panics while it holds the lock. If it did, the counts would still be valid.
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Sends every request when it is due, independent of the others.
    pub async fn open_loop(self: &Rc<Self>, requests: impl Iterator<Item = Timed>) -> io::Result<Spent> {
        let alarm = Alarm::new(self.clock)?;
        let interval = u64::try_from(CHECK_INTERVAL.as_nanos()).unwrap_or(u64::MAX);
        let (mut burst, mut woken) = (0, 0_u64);
        for Timed { offered, stage, number } in requests {
            let mut held = false;
            while woken < offered.at && !self.stopped() {
                burst = 0;
                // Waking for each of many requests would cost more than sending them.
                let next = offered.at.max(woken.saturating_add(GRAIN));
                alarm.wait(next.min(self.clock.now().saturating_add(interval))).await?;
                woken = self.clock.now();
            }
            while self.in_flight.get() >= IN_FLIGHT_MAX && !self.stopped() {
                held = true;
                // Woken by an answer; the timeout is for a server that sends none.
                let _ = tokio::time::timeout(CHECK_INTERVAL, self.ended.notified()).await;
            }
            if self.stopped() {
                break;
            }
            let due = Due { model: offered.model, stage, at: offered.at };
            {
                let mut record = self.record();
                record.due(due);
                record.held += u64::from(held);
            }
            self.in_flight.set(self.in_flight.get() + 1);
            let sender = Rc::clone(self);
            tokio::task::spawn_local(async move {
                sender.request(due, (offered.tenant, offered.rows, number), held).await
            });
            burst += 1;
            if burst == BURST {
                burst = 0;
                tokio::task::yield_now().await;
            }
        }
        let sending = self.clock.now();
        self.finish().await;
        Ok(self.spent(sending))
    }

    /// Keeps `concurrency` requests in flight until `until`: the mix of the workload without its times.
    pub async fn closed_loop(
        self: &Rc<Self>,
        requests: impl Iterator<Item = Timed>,
        concurrency: usize,
        until: u64,
    ) -> io::Result<Spent> {
        if concurrency == 0 {
            // There are more threads than requests in flight.
            return Ok(self.spent(0));
        }
        Alarm::new(self.clock)?.wait(0).await?;
        for Timed { offered, number, .. } in requests {
            while self.in_flight.get() >= concurrency && !self.stopped() && self.clock.now() < until {
                // Woken by an answer; the timeout is for a server that sends none.
                let _ = tokio::time::timeout(CHECK_INTERVAL, self.ended.notified()).await;
            }
            let now = self.clock.now();
            if now >= until || self.stopped() {
                break;
            }
            let due = Due { model: offered.model, stage: 0, at: now };
            self.record().due(due);
            self.in_flight.set(self.in_flight.get() + 1);
            let sender = Rc::clone(self);
            tokio::task::spawn_local(async move {
                sender.request(due, (offered.tenant, offered.rows, number), false).await
            });
        }
        let sending = self.clock.now();
        self.finish().await;
        Ok(self.spent(sending))
    }

    /// Waits for requests in flight. Each ends within the timeout; a stopped run waits at most [`STOP_WAIT_MAX`].
    async fn finish(&self) {
        let mut left = STOP_WAIT_MAX;
        while self.in_flight.get() > 0 && !left.is_zero() {
            if tokio::time::timeout(CHECK_INTERVAL, self.ended.notified()).await.is_err() && self.stopped() {
                left = left.saturating_sub(CHECK_INTERVAL);
            }
        }
    }

    fn spent(&self, sending: u64) -> Spent {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
        let cpu = u64::try_from(nanos).unwrap_or(0);
        Spent { connections: self.connections.opened(), cpu, sending }
    }

    async fn request(self: Rc<Self>, due: Due, (tenant, rows, number): (u16, u32, usize), held: bool) {
        let model = due.model as usize;
        if let (Some(plan), Some(memory)) = (self.shared.plans.get(model), self.memories.get(model))
            && let Some(ready) = plan.of_number((tenant, rows), number)
        {
            let began = self.clock.now();
            if !held {
                self.record().begun(due, began.saturating_sub(due.at));
            }
            let under = Under { sender: &self, sent: Cell::new(began) };
            let exchange = self.connections.exchange(&ready.wire, &under);
            let reply = tokio::time::timeout(self.shared.timeout, exchange).await;
            let now = self.clock.now();
            let latency = now.saturating_sub(due.at);
            let mut timing = None;
            let outcome = match reply {
                Ok(Ok(reply)) => {
                    if self.shared.keep_timings {
                        timing = Timing::read(&reply.headers, due.model, latency);
                    }
                    plan.outcome(&self.shared.api, ready, &reply, memory)
                }
                Ok(Err(failure)) => Outcome::of_failure(&failure),
                Err(_) => Outcome::of_failure(&Failure::TimedOut),
            };
            let service = now.saturating_sub(under.sent.get());
            let mut record = self.record();
            record.timing(due, timing);
            record.ended(due, outcome, latency, service);
        }
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
        self.ended.notify_one();
    }
}
