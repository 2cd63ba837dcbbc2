//! The thread of a lane: takes batches in order, runs them on the lane's sessions, and reports the results.
//!
//! A caller may run a batch on its own thread instead while the lane is idle ([`LaneHandle::run_here`]). For a batch of
//! some microseconds, handing it to another thread and back takes longer than running it.
//!
//! Hot path: nothing here logs per batch. The lock of what runs now is held for nanoseconds. The lock of the sessions is
//! held while a batch runs, and no caller waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use models::engine::{Batch, Colocated, Interrupt, Member, Response, RunError, Session};
use tracing::{error, warn};

use crate::cores::pin_this_thread;
use crate::device::Partition;
use crate::gather::gather;
use crate::scatter::scatter;

/// Configuration of a lane.
#[derive(Clone)]
pub struct LaneConfig {
    /// Number of the lane; part of its thread's name.
    pub id: u32,
    /// Gpulet of the lane; the thread is pinned to its cores.
    pub partition: Arc<dyn Partition>,
    /// Capacity of the command queue.
    pub mailbox: usize,
    /// Lane class: lanes with the same number are equally fast. 0 if unknown.
    pub lane_class: u32,
    /// The longest batch that a caller may run on its own thread: see [`LaneHandle::run_here`]. Zero for none.
    pub run_here_max: Duration,
}

/// A batch to run.
#[derive(Debug)]
pub struct LaneBatch {
    /// Repeated in the report. Larger than those of earlier batches of the lane.
    pub token: u64,
    /// Model whose installed session runs the batch.
    pub model: u32,
    /// Requests of the batch, all of one shape.
    pub members: Vec<Member>,
}

/// Why a batch failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The engine refused the values or failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The batch could not be gathered or scattered, or the model is not installed on the lane.
    #[error("{0}")]
    Lane(String),
}

impl BatchError {
    /// Whether the lane failed, through no fault of the batch.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Run(RunError::DeviceFailed(_)))
    }
}

/// How a batch ended.
#[derive(Debug)]
pub enum BatchOutcome {
    /// The result of each member. A member fails by itself only where the session takes requests one by one.
    Done(Vec<Result<Response, RunError>>),
    /// The batch failed. The members are returned so that they can run again.
    Failed(BatchError, Vec<Member>),
    /// The batch was preempted. The members have to run again.
    Preempted(Vec<Member>),
}

/// Report of a lane on one batch.
#[derive(Debug)]
pub struct LaneReport {
    /// Number of the lane.
    pub lane: u32,
    /// Token of the batch.
    pub token: u64,
    /// When the batch finished or failed.
    pub ended: Instant,
    /// Time in the engine.
    pub compute: Duration,
    /// How the batch ended.
    pub outcome: BatchOutcome,
}

/// Receives the reports of lanes. Called on the lane's thread; must not block.
pub trait LaneSink: Send + Sync + 'static {
    /// A batch ended.
    fn report(&self, report: LaneReport);
    /// The lane's thread ended without a request to stop.
    fn failed(&self, lane: u32);
}

/// The thread could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the thread of lane {lane}: {cause}")]
pub struct LaneError {
    /// Number of the lane.
    pub lane: u32,
    /// Error of the operating system.
    pub cause: std::io::Error,
}

/// The lane accepts no command: its thread has ended, or its mailbox is full although its depth should suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lane's thread has ended or its mailbox is full")]
pub struct LaneFailed;

/// Receives the removed session, if the lane held one.
type Removed = Box<dyn FnOnce(Option<Box<dyn Session>>) + Send>;

enum Command {
    Run(LaneBatch),
    Install(u32, Box<dyn Session>),
    Remove(u32, Removed),
    Stop,
}

/// Handle of a lane's thread. The thread ends when its last handle is dropped.
#[derive(Clone)]
pub struct LaneHandle {
    id: u32,
    lane_class: u32,
    partition: Arc<dyn Partition>,
    commands: Sender<Command>,
    running: Arc<Running>,
    worker: Arc<Mutex<Worker>>,
}

/// What a lane runs now, and which batch it is asked to return.
#[derive(Default)]
struct Running(Mutex<Current>);

#[derive(Default)]
struct Current {
    token: Option<u64>,
    interrupt: Option<Arc<dyn Interrupt>>,
    interrupted: bool,
    /// Batches that had not begun, or had ended, when they were preempted.
    preempted: BTreeSet<u64>,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, Current> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the batch is to run.
    fn begin(&self, token: u64, interrupt: Option<Arc<dyn Interrupt>>) -> bool {
        let mut current = self.lock();
        // Batches begin in the order of their tokens.
        current.preempted = current.preempted.split_off(&token);
        if current.preempted.remove(&token) {
            return false;
        }
        (current.token, current.interrupt) = (Some(token), interrupt);
        true
    }

    /// Whether the batch that ran was interrupted.
    fn end(&self) -> bool {
        let mut current = self.lock();
        current.token = None;
        let interrupt = current.interrupt.take();
        let interrupted = std::mem::take(&mut current.interrupted);
        if let Some(interrupt) = interrupt.filter(|_| interrupted) {
            interrupt.clear();
        }
        interrupted
    }

    fn preempt(&self, token: u64) {
        let mut current = self.lock();
        if current.token != Some(token) {
            current.preempted.insert(token);
        } else if let Some(interrupt) = &current.interrupt {
            interrupt.interrupt();
            current.interrupted = true;
        }
    }
}

impl LaneHandle {
    /// Number of the lane.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Lane class, see [`LaneConfig::lane_class`].
    pub fn lane_class(&self) -> u32 {
        self.lane_class
    }

    /// Cores to which the thread is pinned.
    pub fn cores(&self) -> &[usize] {
        self.partition.cores()
    }

    /// Gpulet of the lane.
    pub fn partition(&self) -> &Arc<dyn Partition> {
        &self.partition
    }

    /// Hands over a batch without waiting.
    pub fn run(&self, batch: LaneBatch) -> Result<(), LaneFailed> {
        self.commands.try_send(Command::Run(batch)).map_err(|_| LaneFailed)
    }

    /// Runs a batch on the calling thread, which reports it to the sink. All earlier batches must have been reported. Gives the
    /// batch back if the lane is not idle, if the session must run on the lane's thread, or
    /// unless the model ran as many bytes within [`LaneConfig::run_here_max`] the last time.
    pub fn run_here(&self, batch: LaneBatch) -> Result<(), LaneBatch> {
        let mut worker = match self.worker.try_lock() {
            Ok(worker) if self.commands.is_empty() => worker,
            Ok(_) | Err(_) => return Err(batch),
        };
        let Some(sink) = worker.sink.clone().filter(|_| worker.may_run_elsewhere(&batch)) else {
            return Err(batch);
        };
        let report = worker.run(batch);
        drop(worker);
        sink.report(report);
        Ok(())
    }

    /// Ends a batch early, or before it begins, if its session allows that. A batch that has ended stays as it is.
    pub fn preempt(&self, token: u64) {
        self.running.preempt(token);
    }

    /// Installs a session; later batches of `model` run on it. Waits while the mailbox is full.
    pub fn install(&self, model: u32, session: Box<dyn Session>) -> Result<(), LaneFailed> {
        self.commands.send(Command::Install(model, session)).map_err(|_| LaneFailed)
    }

    /// Removes a session after all earlier batches, and passes it to `removed` on the lane's thread. Dropping a session
    /// takes milliseconds and blocks the lane, so `removed` should send it to another thread.
    pub fn remove(
        &self,
        model: u32,
        removed: impl FnOnce(Option<Box<dyn Session>>) + Send + 'static,
    ) -> Result<(), LaneFailed> {
        self.commands.send(Command::Remove(model, Box::new(removed))).map_err(|_| LaneFailed)
    }

    /// Ends the thread after all earlier batches.
    pub fn stop(&self) -> Result<(), LaneFailed> {
        self.commands.send(Command::Stop).map_err(|_| LaneFailed)
    }
}

/// Starts a lane's thread, pinned to its cores. A failure to pin it is logged and not fatal.
pub fn spawn_lane(config: LaneConfig, sink: Arc<dyn LaneSink>) -> Result<LaneHandle, LaneError> {
    let (commands, inbox) = bounded(config.mailbox.max(1));
    let LaneConfig { id, lane_class, .. } = config;
    let running = Arc::<Running>::default();
    let partition = Arc::clone(&config.partition);
    let worker = Worker {
        lane: id,
        sink: Some(Arc::clone(&sink)),
        running: Arc::clone(&running),
        sessions: BTreeMap::new(),
        run_here_max: config.run_here_max,
        quick_bytes: BTreeMap::new(),
    };
    let worker = Arc::new(Mutex::new(worker));
    let own = LaneThread(Arc::clone(&worker));
    let handle = LaneHandle { id, lane_class, partition, commands, running, worker };
    let lane = config.id;
    thread::Builder::new()
        .name(format!("lane-{lane}"))
        .spawn(move || {
            let cores = config.partition.cores();
            if !cores.is_empty()
                && let Err(error) = pin_this_thread(cores)
            {
                warn!(lane, %error, "lane runs unpinned");
            }
            let watch = Watch { lane, sink: Arc::clone(&sink), inbox, asked: false };
            own.serve(watch, &*sink);
        })
        .map_err(|cause| LaneError { lane, cause })?;
    Ok(handle)
}

/// Notifies the sink when the thread panics, and returns the batches that were not started: they can run elsewhere.
struct Watch {
    lane: u32,
    sink: Arc<dyn LaneSink>,
    inbox: Receiver<Command>,
    asked: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.asked {
            return;
        }
        for command in self.inbox.try_iter() {
            let Command::Run(LaneBatch { token, members, .. }) = command else { continue };
            let lost = RunError::DeviceFailed("the lane's thread panicked".to_owned());
            let outcome = BatchOutcome::Failed(BatchError::Run(lost), members);
            let (ended, compute) = (Instant::now(), Duration::ZERO);
            self.sink.report(LaneReport { lane: self.lane, token, ended, compute, outcome });
        }
        self.sink.failed(self.lane);
    }
}

/// The lane's own thread. Sessions and the sink are dropped with it, not with the last handle.
struct LaneThread(Arc<Mutex<Worker>>);

impl LaneThread {
    /// Runs commands until `Stop`. `watch` is dropped before the sessions: the sink is notified first, because dropping
    /// sessions takes time.
    fn serve(self, mut watch: Watch, sink: &dyn LaneSink) {
        while let Ok(command) = watch.inbox.recv() {
            match command {
                Command::Run(batch) => {
                    let report = self.worker().run(batch);
                    sink.report(report);
                }
                Command::Install(model, session) => {
                    let replaced = self.worker().install(model, session);
                    drop(replaced);
                }
                Command::Remove(model, removed) => {
                    let session = self.worker().remove(model);
                    removed(session);
                }
                Command::Stop => break,
            }
        }
        watch.asked = true;
    }

    fn worker(&self) -> MutexGuard<'_, Worker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LaneThread {
    fn drop(&mut self) {
        let mut worker = self.worker();
        let (sessions, sink) = (std::mem::take(&mut worker.sessions), worker.sink.take());
        drop(worker);
        drop((sessions, sink));
    }
}

struct Worker {
    lane: u32,
    /// None once the thread has ended.
    sink: Option<Arc<dyn LaneSink>>,
    running: Arc<Running>,
    sessions: BTreeMap<u32, Box<dyn Session>>,
    run_here_max: Duration,
    /// Input bytes of the largest batch that took at most `run_here_max`, by model.
    quick_bytes: BTreeMap<u32, usize>,
}

impl Worker {
    fn install(&mut self, model: u32, session: Box<dyn Session>) -> Option<Box<dyn Session>> {
        self.quick_bytes.remove(&model);
        self.sessions.insert(model, session)
    }

    fn remove(&mut self, model: u32) -> Option<Box<dyn Session>> {
        self.quick_bytes.remove(&model);
        self.sessions.remove(&model)
    }

    fn may_run_elsewhere(&self, batch: &LaneBatch) -> bool {
        let quick = self.quick_bytes.get(&batch.model);
        let session = self.sessions.get(&batch.model);
        quick.is_some_and(|&quick| input_bytes(&batch.members) <= quick)
            && session.is_some_and(|session| session.runs_on_any_thread() && !session.takes_requests())
    }

    /// Notes how long a batch took, so that batches that become slow return to the lane's thread.
    fn learn(&mut self, model: u32, bytes: usize, compute: Duration) {
        let quick = self.quick_bytes.get(&model).copied();
        if compute <= self.run_here_max && !self.run_here_max.is_zero() {
            self.quick_bytes.insert(model, quick.map_or(bytes, |quick| quick.max(bytes)));
        } else if quick.is_some_and(|quick| bytes <= quick) {
            match bytes.checked_sub(1) {
                Some(smaller) => self.quick_bytes.insert(model, smaller),
                None => self.quick_bytes.remove(&model),
            };
        }
    }

    fn run(&mut self, batch: LaneBatch) -> LaneReport {
        let LaneBatch { token, model, members } = batch;
        let interrupt = self.sessions.get(&model).and_then(|session| session.interrupt());
        if !self.running.begin(token, interrupt) {
            let (ended, compute, outcome) =
                (Instant::now(), Duration::ZERO, BatchOutcome::Preempted(members));
            return LaneReport { lane: self.lane, token, ended, compute, outcome };
        }
        let (ended, compute, result) = self.compute(model, &members);
        let interrupted = self.running.end();
        self.learn(model, input_bytes(&members), compute);
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
    sessions: &'a mut BTreeMap<u32, Box<dyn Session>>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceError;
    use models::{Dim, LoadOptions, ModelFiles, Signature, TensorSpec};
    use oip::{Datatype, Shape, Tensor};

    /// Adds one to bytes; refuses 13, panics on 66.
    struct AddOne(Signature);

    impl Session for AddOne {
        fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
            let input = batch.inputs[0].as_ref().unwrap();
            assert!(!input.data.contains(&66), "planted");
            if input.data.contains(&13) {
                return Err(RunError::Input("13 is not served".to_owned()));
            }
            let data = input.data.iter().map(|byte| byte + 1).collect::<Vec<_>>().into();
            Ok(vec![Tensor { name: "y".to_owned(), data, ..input.clone() }])
        }

        fn signature(&self) -> &Signature {
            &self.0
        }

        fn engine(&self) -> &'static str {
            "test"
        }

        fn runs_on_any_thread(&self) -> bool {
            true
        }
    }

    /// A gpulet on no cores in particular, for sessions that are made elsewhere.
    struct Anywhere;

    impl Partition for Anywhere {
        fn cores(&self) -> &[usize] {
            &[]
        }

        fn load(&self, _: &ModelFiles, _: &LoadOptions) -> Result<Box<dyn Session>, DeviceError> {
            unreachable!("the test installs its own")
        }
    }

    struct Outbox(Sender<Result<LaneReport, u32>>);

    impl LaneSink for Outbox {
        fn report(&self, report: LaneReport) {
            self.0.send(Ok(report)).unwrap();
        }

        fn failed(&self, lane: u32) {
            self.0.send(Err(lane)).unwrap();
        }
    }

    fn spec(name: &str) -> TensorSpec {
        let dims = vec![Dim::Free, Dim::Fixed(1)];
        TensorSpec { name: name.to_owned(), datatype: Datatype::Uint8, dims, optional: false }
    }

    fn lane() -> (LaneHandle, Receiver<Result<LaneReport, u32>>) {
        lane_with(Duration::MAX)
    }

    fn lane_with(run_here_max: Duration) -> (LaneHandle, Receiver<Result<LaneReport, u32>>) {
        let (sender, receiver) = bounded(16);
        let config =
            LaneConfig { id: 3, partition: Arc::new(Anywhere), mailbox: 4, lane_class: 0, run_here_max };
        let lane = spawn_lane(config, Arc::new(Outbox(sender))).unwrap();
        let signature = Signature { inputs: vec![spec("x")], outputs: vec![spec("y")], max_batch: 8 };
        lane.install(7, Box::new(AddOne(signature))).unwrap();
        (lane, receiver)
    }

    fn member(value: u8) -> Member {
        let shape = Shape::from_extents(&[1, 1]);
        let data = vec![value].into();
        Member::of(vec![Some(Tensor { name: "x".to_owned(), datatype: Datatype::Uint8, shape, data })], 1)
    }

    fn first(answer: &Result<Response, RunError>) -> u8 {
        answer.as_ref().unwrap().outputs[0].data[0]
    }

    fn ran(values: &[u8]) -> BatchOutcome {
        let (lane, reports) = lane();
        let members = values.iter().map(|&value| member(value)).collect();
        lane.run(LaneBatch { token: 5, model: 7, members }).unwrap();
        let report = reports.recv().unwrap().unwrap();
        assert_eq!((report.lane, report.token), (3, 5));
        report.outcome
    }

    #[test]
    fn a_batch_comes_back_split() {
        let BatchOutcome::Done(answers) = ran(&[1, 5]) else { panic!("it failed") };
        assert_eq!((first(&answers[0]), first(&answers[1])), (2, 6));
    }

    #[test]
    fn a_failed_batch_gives_its_members_back() {
        let BatchOutcome::Failed(error, members) = ran(&[1, 13]) else { panic!("it ran") };
        assert_eq!(error, BatchError::Run(RunError::Input("13 is not served".to_owned())));
        assert_eq!(members.len(), 2);
    }

    #[test]
    fn an_engine_that_panics_fails_its_batch_and_nothing_else() {
        let (lane, reports) = lane();
        lane.run(LaneBatch { token: 1, model: 7, members: vec![member(66)] }).unwrap();
        assert!(matches!(reports.recv().unwrap().unwrap().outcome, BatchOutcome::Failed(..)));
        lane.run(LaneBatch { token: 2, model: 7, members: vec![member(1)] }).unwrap();
        assert!(matches!(reports.recv().unwrap().unwrap().outcome, BatchOutcome::Done(_)));
    }

    /// A batch of two rows that takes an hour, unless it is preempted.
    fn long_batch(token: u64) -> (LaneHandle, Receiver<Result<LaneReport, u32>>) {
        let (lane, reports) = lane();
        let signature = Signature { inputs: vec![spec("x")], outputs: vec![spec("y")], max_batch: 8 };
        let time = |rows| if rows == 2 { Duration::from_secs(3_600) } else { Duration::ZERO };
        lane.install(8, models::engine::synthetic::emulate(signature, Box::new(time))).unwrap();
        lane.run(LaneBatch { token, model: 8, members: vec![member(1), member(2)] }).unwrap();
        (lane, reports)
    }

    #[test]
    fn a_preempted_batch_gives_its_members_back_and_the_next_one_runs() {
        let (lane, reports) = long_batch(5);
        lane.preempt(5);
        let report = reports.recv().unwrap().unwrap();
        let BatchOutcome::Preempted(members) = report.outcome else { panic!("it ran") };
        assert_eq!((report.token, members.len()), (5, 2));
        lane.preempt(5);
        lane.run(LaneBatch { token: 6, model: 8, members: vec![member(1)] }).unwrap();
        assert!(matches!(reports.recv().unwrap().unwrap().outcome, BatchOutcome::Done(_)));
    }

    #[test]
    fn a_batch_that_is_preempted_before_it_begins_does_not_run() {
        let (lane, reports) = long_batch(5);
        lane.run(LaneBatch { token: 6, model: 7, members: vec![member(66)] }).unwrap();
        lane.preempt(6);
        lane.preempt(5);
        let both: Vec<_> = reports.iter().take(2).map(|report| report.unwrap()).collect();
        assert!(both.iter().all(|report| matches!(report.outcome, BatchOutcome::Preempted(_))), "{both:?}");
    }

    #[test]
    fn a_lane_whose_thread_panics_gives_back_what_it_had_not_begun() {
        let (lane, reports) = lane();
        let (go, wait) = bounded::<()>(0);
        lane.remove(9, move |_| {
            let _ = wait.recv();
            panic!("planted");
        })
        .unwrap();
        lane.run(LaneBatch { token: 5, model: 7, members: vec![member(1), member(2)] }).unwrap();
        drop(go);
        let report = reports.recv().unwrap().unwrap();
        let BatchOutcome::Failed(error, members) = report.outcome else { panic!("it ran") };
        assert!(error.is_lost(), "it may run elsewhere: {error}");
        assert_eq!((report.token, members.len()), (5, 2));
        assert_eq!(reports.recv().unwrap().unwrap_err(), 3, "the lane reports its failure");
        assert!(reports.recv().is_err(), "its thread has ended, and its sessions with it");
        assert_eq!(lane.run(LaneBatch { token: 6, model: 7, members: vec![member(1)] }), Err(LaneFailed));
    }

    #[test]
    fn an_idle_lane_lets_its_caller_run_a_batch() {
        let (lane, reports) = lane();
        // The session is installed once its lane has run a batch.
        lane.run(LaneBatch { token: 1, model: 7, members: vec![member(1)] }).unwrap();
        reports.recv().unwrap().unwrap();
        let run_here = |token, value| {
            lane.run_here(LaneBatch { token, model: 7, members: vec![member(value)] }).unwrap();
            let report = reports.try_recv().unwrap().unwrap();
            assert_eq!((report.lane, report.token), (3, token));
            report.outcome
        };
        let BatchOutcome::Done(answers) = run_here(2, 3) else { panic!("it failed") };
        assert_eq!(first(&answers[0]), 4);
        assert!(matches!(run_here(3, 66), BatchOutcome::Failed(..)), "a panic is a failed batch");
        lane.preempt(4);
        assert!(matches!(run_here(4, 1), BatchOutcome::Preempted(_)));
    }

    #[test]
    fn a_lane_that_is_busy_or_has_ended_gives_its_callers_batch_back() {
        let (lane, reports) = lane();
        let batch = |token| LaneBatch { token, model: 7, members: vec![member(1)] };
        let ((go, wait), (begun, begins)) = (bounded::<()>(0), bounded(1));
        lane.remove(9, move |_| {
            begun.send(()).unwrap();
            let _ = wait.recv();
        })
        .unwrap();
        begins.recv().unwrap();
        lane.run(batch(5)).unwrap();
        assert_eq!(lane.run_here(batch(6)).unwrap_err().token, 6, "another batch is before it");
        drop(go);
        reports.recv().unwrap().unwrap();
        lane.stop().unwrap();
        assert!(reports.recv().is_err(), "its thread has ended");
        assert_eq!(lane.run_here(batch(7)).unwrap_err().members.len(), 1);
    }

    #[test]
    fn a_caller_runs_only_batches_that_are_known_to_be_short() {
        let batch = |token, values: &[u8]| {
            let members = values.iter().map(|&value| member(value)).collect();
            LaneBatch { token, model: 7, members }
        };
        let (lane, reports) = lane_with(Duration::MAX);
        lane.run(batch(1, &[1, 2])).unwrap();
        reports.recv().unwrap().unwrap();
        assert!(lane.run_here(batch(2, &[1, 2, 3])).is_err(), "larger than any that ran");
        assert!(lane.run_here(batch(3, &[1])).is_ok());
        let (lane, reports) = lane_with(Duration::ZERO);
        lane.run(batch(1, &[1, 2])).unwrap();
        reports.recv().unwrap().unwrap();
        assert!(lane.run_here(batch(2, &[1])).is_err(), "no batch is short enough");
    }

    #[test]
    fn a_model_that_becomes_slow_returns_to_its_lanes_thread() {
        let worker = |bytes: &[(usize, u64)]| {
            let (running, sessions) = (Arc::default(), BTreeMap::new());
            let (run_here_max, quick_bytes) = (Duration::from_micros(100), BTreeMap::new());
            let mut worker = Worker { lane: 0, sink: None, running, sessions, run_here_max, quick_bytes };
            bytes.iter().for_each(|&(bytes, micros)| worker.learn(7, bytes, Duration::from_micros(micros)));
            worker.quick_bytes.get(&7).copied()
        };
        assert_eq!(worker(&[(10, 101)]), None);
        assert_eq!(worker(&[(10, 20), (40, 100), (20, 30)]), Some(40));
        assert_eq!(
            worker(&[(10, 20), (40, 100), (80, 200)]),
            Some(40),
            "a larger one says nothing about these"
        );
        assert_eq!(worker(&[(40, 100), (20, 101)]), Some(19));
        assert_eq!(worker(&[(40, 100), (20, 101), (40, 90)]), Some(40), "it has become quick again");
        assert_eq!(worker(&[(0, 100), (0, 101)]), None, "a model without inputs");
    }

    #[test]
    fn a_session_that_is_bound_to_its_lanes_thread_is_not_run_elsewhere() {
        let (lane, reports) = lane();
        let signature = Signature { inputs: vec![spec("x")], outputs: vec![spec("y")], max_batch: 8 };
        lane.install(8, models::engine::synthetic::emulate(signature, Box::new(|_| Duration::ZERO))).unwrap();
        lane.run(LaneBatch { token: 1, model: 8, members: vec![member(1)] }).unwrap();
        reports.recv().unwrap().unwrap();
        assert!(lane.run_here(LaneBatch { token: 2, model: 8, members: vec![member(1)] }).is_err());
    }

    #[test]
    fn a_removed_model_is_handed_over_and_not_run() {
        let (lane, reports) = lane();
        let (sender, removed) = bounded(2);
        let again = sender.clone();
        lane.remove(7, move |session| sender.send(session.map(|session| session.engine())).unwrap()).unwrap();
        lane.remove(7, move |session| again.send(session.map(|session| session.engine())).unwrap()).unwrap();
        assert_eq!((removed.recv().unwrap(), removed.recv().unwrap()), (Some("test"), None));
        lane.run(LaneBatch { token: 2, model: 7, members: vec![member(1)] }).unwrap();
        assert!(matches!(
            reports.recv().unwrap().unwrap().outcome,
            BatchOutcome::Failed(BatchError::Lane(_), _)
        ));
    }

    #[test]
    fn a_lane_that_is_asked_to_stop_is_not_missed() {
        let (lane, reports) = lane();
        lane.stop().unwrap();
        drop(lane);
        assert!(reports.recv().is_err(), "the sink is dropped without a word");
    }
}
