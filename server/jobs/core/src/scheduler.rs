//! The machine: jobs in, rows out.

mod rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::forecast::{Forecast, Pace, Work};
use crate::job::{JobId, Millis, Spec};
use rows::Rows;

/// Rows after which results are committed without waiting for [`COMMIT_MILLIS`].
const COMMIT_ROWS: u64 = 1_000;
/// Time after which results are committed. A crash loses at most the work of that long.
const COMMIT_MILLIS: u64 = 1_000;
/// Pause of a job after a row of it was refused. It doubles with each refusal in a row.
const PAUSE_MILLIS: u64 = 100;
/// The longest pause is this many times twice as long, 6.4 s.
const PAUSE_DOUBLINGS: u32 = 6;
/// Times that a row on which the model fails is sent, before its error is its result.
const ATTEMPTS: u32 = 3;
/// How often progress is measured.
const MEASURE_MILLIS: u64 = 1_000;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A job was submitted, or read from the journal.
    Submitted(JobId, Spec),
    /// A job may have this many rows in flight from now on.
    Window(JobId, u32),
    /// A row has its result.
    Done(JobId, u64),
    /// A row was refused for now: it must be sent again.
    Refused(JobId, u64),
    /// The model failed on a row.
    Failed(JobId, u64),
    /// A job was cancelled. What is done of it is committed; results of its rows in flight are ignored.
    Cancelled(JobId),
    /// A job cannot go on, because its files cannot be read or written.
    Broken(JobId),
    /// The time that [`Scheduler::wakeup`] returned is reached.
    Tick,
}

/// What the shell must do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a row.
    Send(JobId, u64),
    /// The error of a row is its result: the model failed on it too often.
    Abandon(JobId, u64),
    /// Append the results of these rows to the output.
    Append(JobId, Range<u64>),
    /// Make what was appended durable, then record that this many rows are done.
    Commit(JobId, u64),
    /// All rows are done and committed.
    Ended(JobId),
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Rows with results, in order from the first.
    pub done: u64,
    /// Rows that are sent and have no result.
    pub in_flight: u32,
    /// Until when no row of it is sent, because the last one was refused.
    pub paused_until: Option<Millis>,
    /// When it will end. `None`: it has not run long enough, or one before it has not.
    pub forecast: Option<Forecast>,
}

#[derive(Clone, Debug)]
struct Job {
    by: Option<Millis>,
    rows: Rows,
    window: u32,
    paused_until: Option<Millis>,
    /// Refusals since the last result.
    refusals: u32,
    /// How often the model failed on rows without a result.
    failures: BTreeMap<u64, u32>,
    committed_at: Millis,
    pace: Pace,
}

impl Job {
    fn take_next(&mut self) -> Option<u64> {
        if self.paused_until.is_some() { None } else { self.rows.take_next(self.window) }
    }
}

/// All jobs that have not ended. Jobs with an earlier time to end by come first, then those without, each by their number.
///
/// A job sends rows as long as its window allows. Later jobs send only what earlier ones leave: they get the lanes if the rows of an
/// earlier job are all in flight, or if it pauses.
#[derive(Clone, Debug, Default)]
pub struct Scheduler {
    jobs: BTreeMap<JobId, Job>,
    measured: Millis,
}

impl Scheduler {
    /// Processes one event.
    pub fn handle(&mut self, now: Millis, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Submitted(id, spec) => self.submitted(now, id, spec),
            Event::Window(id, window) => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.window = window;
                }
            }
            Event::Done(id, row) => self.done(id, row, &mut effects),
            Event::Refused(id, row) => self.refused(now, id, row),
            Event::Failed(id, row) => self.failed(now, id, row, &mut effects),
            Event::Cancelled(id) => {
                let job = self.jobs.remove(&id).filter(|job| job.rows.uncommitted() > 0);
                effects.extend(job.map(|job| Effect::Commit(id, job.rows.done())));
            }
            Event::Broken(id) => drop(self.jobs.remove(&id)),
            Event::Tick => {}
        }
        for job in self.jobs.values_mut() {
            job.paused_until = job.paused_until.filter(|until| *until > now);
        }
        self.commit(now, &mut effects);
        self.send(&mut effects);
        self.measure(now);
        effects
    }

    /// When the next [`Event::Tick`] is due.
    #[must_use]
    pub fn wakeup(&self) -> Option<Millis> {
        let of = |job: &Job| {
            let commit = (job.rows.uncommitted() > 0).then(|| job.committed_at.after(COMMIT_MILLIS));
            commit.into_iter().chain(job.paused_until).min()
        };
        let measure = (!self.jobs.is_empty()).then(|| self.measured.after(MEASURE_MILLIS));
        self.jobs.values().filter_map(of).chain(measure).min()
    }

    /// How far each job is, in the order in which they run.
    #[must_use]
    pub fn progress(&self, now: Millis) -> Vec<(JobId, Progress)> {
        let mut before = Some(Work::default());
        let of = |id: JobId| {
            let job = self.jobs.get(&id)?;
            let own = job.pace.work(job.rows.left());
            before = before.zip(own).map(|(before, own)| before.and(own));
            let forecast = before.zip(job.pace.rate()).map(|(work, rate)| work.forecast(now, rate));
            let (done, in_flight) = (job.rows.done(), job.rows.in_flight());
            Some((id, Progress { done, in_flight, paused_until: job.paused_until, forecast }))
        };
        self.order().into_iter().filter_map(of).collect()
    }

    /// Jobs in the order in which they run.
    fn order(&self) -> Vec<JobId> {
        let mut order: Vec<(Millis, JobId)> =
            self.jobs.iter().map(|(id, job)| (job.by.unwrap_or(Millis(u64::MAX)), *id)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, id)| id).collect()
    }

    fn submitted(&mut self, now: Millis, id: JobId, spec: Spec) {
        let job = Job {
            by: spec.by,
            rows: Rows::new(spec.rows, spec.committed),
            window: 0,
            paused_until: None,
            refusals: 0,
            failures: BTreeMap::new(),
            committed_at: now,
            pace: Pace::default(),
        };
        if self.jobs.insert(id, job).is_some() {
            invariant::violated!("jobs.submitted_twice");
        }
    }

    fn done(&mut self, id: JobId, row: u64, effects: &mut Vec<Effect>) {
        // A job that was cancelled may still have rows in flight.
        let Some(job) = self.jobs.get_mut(&id) else { return };
        (job.refusals, job.paused_until) = (0, None);
        job.failures.remove(&row);
        let ready = job.rows.done_with(row);
        if !ready.is_empty() {
            effects.push(Effect::Append(id, ready));
        }
    }

    fn failed(&mut self, now: Millis, id: JobId, row: u64, effects: &mut Vec<Effect>) {
        // As for `done`.
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let failures = job.failures.entry(row).or_default();
        *failures += 1;
        if *failures < ATTEMPTS {
            return self.refused(now, id, row);
        }
        effects.push(Effect::Abandon(id, row));
        self.done(id, row, effects);
    }

    fn refused(&mut self, now: Millis, id: JobId, row: u64) {
        // As for `done`.
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.rows.returned(row);
        // Rows that were in flight together are refused together, which is one refusal.
        if job.paused_until.is_none() {
            let pause = PAUSE_MILLIS << job.refusals.min(PAUSE_DOUBLINGS);
            (job.refusals, job.paused_until) = (job.refusals.saturating_add(1), Some(now.after(pause)));
        }
    }

    fn commit(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        let mut ended = Vec::new();
        for (id, job) in &mut self.jobs {
            let uncommitted = job.rows.uncommitted();
            let is_old = now.since(job.committed_at) >= COMMIT_MILLIS;
            if uncommitted >= COMMIT_ROWS || (uncommitted > 0 && (is_old || job.rows.left() == 0)) {
                job.committed_at = now;
                job.rows.commit();
                effects.push(Effect::Commit(*id, job.rows.done()));
            } else if uncommitted == 0 && is_old {
                job.committed_at = now;
            }
            if job.rows.left() == 0 {
                ended.push(*id);
                effects.push(Effect::Ended(*id));
            }
        }
        for id in ended {
            self.jobs.remove(&id);
        }
    }

    fn send(&mut self, effects: &mut Vec<Effect>) {
        for id in self.order() {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            while let Some(row) = job.take_next() {
                effects.push(Effect::Send(id, row));
            }
            // As many as the lanes can take: nothing is left for later jobs.
            if job.rows.is_full(job.window) {
                return;
            }
        }
    }

    fn measure(&mut self, now: Millis) {
        if now.since(self.measured) < MEASURE_MILLIS {
            return;
        }
        self.measured = now;
        for job in self.jobs.values_mut() {
            match job.rows.in_flight() {
                0 => job.pace.waits(),
                _ => job.pace.runs(now, job.rows.done()),
            }
        }
    }
}
