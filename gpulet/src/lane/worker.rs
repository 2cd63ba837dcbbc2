//! Runs batches on the sessions of a lane.
//!
//! Hot path: nothing here logs per batch.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use models::engine::{Batch, Colocated, Member, Response, RunError, Session};
use tracing::error;

use super::batch::{BatchError, BatchOutcome, LaneBatch, LaneReport};
use super::running::Running;
use super::short_batches::ShortBatches;
use super::sink::LaneSink;
use crate::gather::gather;
use crate::scatter::scatter;

/// Sessions by model.
type Sessions = BTreeMap<u32, Box<dyn Session>>;
/// What a worker holds until the lane's thread ends.
type Held = (Sessions, Option<Arc<dyn LaneSink>>);

/// The sessions of a lane and what runs them: the lane's thread, or a caller that found the lane idle.
pub(super) struct Worker {
    lane: u32,
    /// None once the thread has ended.
    sink: Option<Arc<dyn LaneSink>>,
    running: Arc<Running>,
    sessions: Sessions,
    short: ShortBatches,
}

impl Worker {
    /// A worker without sessions. Others may run batches of at most `run_here_max` on it.
    pub(super) fn new(
        lane: u32,
        sink: Arc<dyn LaneSink>,
        running: Arc<Running>,
        run_here_max: Duration,
    ) -> Self {
        let short = ShortBatches::within(run_here_max);
        Self { lane, sink: Some(sink), running, sessions: BTreeMap::new(), short }
    }

    /// Installs a session and returns the one that it replaces.
    pub(super) fn install(&mut self, model: u32, session: Box<dyn Session>) -> Option<Box<dyn Session>> {
        self.short.forget(model);
        self.sessions.insert(model, session)
    }

    pub(super) fn remove(&mut self, model: u32) -> Option<Box<dyn Session>> {
        self.short.forget(model);
        self.sessions.remove(&model)
    }

    /// Ends its work: gives away what it holds, so that it can be dropped without the lock.
    pub(super) fn end(&mut self) -> Held {
        (std::mem::take(&mut self.sessions), self.sink.take())
    }

    /// The sink, if a thread other than the lane's may run a batch.
    pub(super) fn open_to(&self, batch: &LaneBatch) -> Option<Arc<dyn LaneSink>> {
        let session = self.sessions.get(&batch.model)?;
        let open =
            session.runs_on_any_thread() && self.short.contain(batch.model, input_bytes(&batch.members));
        self.sink.clone().filter(|_| open)
    }

    /// Runs a batch on the calling thread.
    pub(super) fn run(&mut self, batch: LaneBatch) -> LaneReport {
        let LaneBatch { token, model, members } = batch;
        let interrupt = self.sessions.get(&model).and_then(|session| session.interrupt());
        if !self.running.begin(token, interrupt) {
            let (ended, compute, outcome) =
                (Instant::now(), Duration::ZERO, BatchOutcome::Preempted(members));
            return LaneReport { lane: self.lane, token, ended, compute, outcome };
        }
        let (ended, compute, result) = self.compute(model, &members);
        let interrupted = self.running.end();
        self.short.ran(model, input_bytes(&members), compute, result.is_ok());
        let outcome = match result {
            Ok(answers) => BatchOutcome::Done(answers),
            Err(_) if interrupted => BatchOutcome::Preempted(members),
            Err(error) => BatchOutcome::Failed(error, members),
        };
        LaneReport { lane: self.lane, token, ended, compute, outcome }
    }

    fn compute(&mut self, model: u32, members: &[Member]) -> Timed<Vec<Result<Response, RunError>>> {
        let gave_up = |problem| (Instant::now(), Duration::ZERO, Err(BatchError::Lane(problem)));
        let Some(session) = self.sessions.get_mut(&model) else {
            return gave_up("the model is not installed on this lane".to_owned());
        };
        let lane = self.lane;
        if session.takes_requests() {
            return self.run_requests(model, members);
        }
        let batch = match gather(members) {
            Ok(batch) => batch,
            Err(problem) => return gave_up(problem),
        };
        let (ended, compute, ran) = timed(lane, model, || session.run(&batch));
        let scattered = ran.and_then(|outputs| scatter(outputs, members).map_err(BatchError::Lane));
        (
            ended,
            compute,
            scattered.map(|answers| answers.into_iter().map(|outputs| Ok(outputs.into())).collect()),
        )
    }

    /// Runs a session that takes requests one by one. It may call the other sessions of the lane.
    fn run_requests(&mut self, model: u32, members: &[Member]) -> Timed<Vec<Result<Response, RunError>>> {
        let Some(mut session) = self.sessions.remove(&model) else {
            let missing = BatchError::Lane("the model is not installed on this lane".to_owned());
            return (Instant::now(), Duration::ZERO, Err(missing));
        };
        let mut others = Others { lane: self.lane, sessions: &mut self.sessions };
        let (ended, compute, ran) = timed(self.lane, model, || session.run_requests(members, &mut others));
        self.sessions.insert(model, session);
        let result = ran.and_then(|results| {
            let (expected, got) = (members.len(), results.len());
            let wrong =
                || BatchError::Lane(format!("expected {expected} results, the engine returned {got}"));
            (expected == got).then_some(results).ok_or_else(wrong)
        });
        (ended, compute, result)
    }
}

fn input_bytes(members: &[Member]) -> usize {
    members.iter().flat_map(|member| &member.inputs).flatten().map(|tensor| tensor.data.len()).sum()
}

/// The sessions of a lane except those that run.
struct Others<'a> {
    lane: u32,
    sessions: &'a mut Sessions,
}

impl Colocated for Others<'_> {
    fn run(&mut self, model: u32, member: &Member) -> Option<Result<Response, RunError>> {
        let mut session = self.sessions.remove(&model)?;
        let lane = self.lane;
        let (_, _, ran) = if session.takes_requests() {
            let mut others = Others { lane, sessions: self.sessions };
            timed(lane, model, || {
                let results = session.run_requests(std::slice::from_ref(member), &mut others)?;
                let missing = || RunError::Engine("the engine returned no result".to_owned());
                results.into_iter().next().ok_or_else(missing)?
            })
        } else {
            let batch = Batch { inputs: member.inputs.clone(), rows: member.rows };
            timed(lane, model, || session.run(&batch).map(Response::from))
        };
        self.sessions.insert(model, session);
        Some(ran.map_err(|error| match error {
            BatchError::Run(error) => error,
            BatchError::Lane(reason) => RunError::Engine(reason),
        }))
    }
}

/// When a run ended, how long it took, and its result.
type Timed<T> = (Instant, Duration, Result<T, BatchError>);

/// Runs a session and tells when it ended and how long it took.
fn timed<T>(lane: u32, model: u32, run: impl FnOnce() -> Result<T, RunError>) -> Timed<T> {
    let begun = Instant::now();
    let ran = catch_unwind(AssertUnwindSafe(run));
    let ended = Instant::now();
    let result = match ran {
        Ok(ran) => ran.map_err(BatchError::Run),
        Err(_) => {
            error!(lane, model, "the engine panicked while running a batch");
            Err(BatchError::Run(RunError::Engine("the engine panicked".to_owned())))
        }
    };
    (ended, ended.saturating_duration_since(begun), result)
}
