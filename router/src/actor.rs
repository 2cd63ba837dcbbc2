//! The task that owns the core. It feeds events to the core and carries out the effects. It decides nothing itself.
//!
//! Hot path: it takes no locks, writes no log for a request, and waits only for the next event.

mod control;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpulet::{BatchError, BatchOutcome, LaneBatch, LaneHandle, LaneReport, Member, Response, RunError};
use invariant::expected;

use router_core::{
    Arrival, BatchId, BatchReport, Checker, ConfigError, Effect, Effects, Event, Gatherings, LaneId,
    LaneState, ModelId, Nanos, Outcome, Position, Reason, RequestId, Router, RouterConfig, SwitchRefusal,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant as TokioInstant, sleep_until};
use tracing::error;

use crate::clock::Clock;
use crate::handle::{Control, RouterHandle, Submission};
use crate::job::{Answer, RecordKey, Rejection, Timing};
use crate::outlet::{Outlet, Urgent};
use crate::payload::{Ids, Payload, Payloads};
use crate::plan::{LaneDownError, LanePlan, SwitchError};
use crate::sequences::{AllSequences, FollowUp};

/// Events handled before the task lets others run.
const EVENTS_PER_POLL: usize = 256;
/// Batches of senders that may be incomplete at a time. Their requests are bounded by the ids too.
const GATHERINGS_MAX: usize = 256;

/// Bounds of the shell and of the core in it.
#[derive(Clone, Debug)]
pub struct RouterOptions {
    /// Submissions that may wait for the actor.
    pub mailbox: usize,
    /// How long a marked request waits for the others of its batch ([`Job::gather`](crate::Job::gather)).
    pub gather_wait: Duration,
    /// The core's bounds.
    pub core: RouterConfig,
}

impl Default for RouterOptions {
    fn default() -> Self {
        Self { mailbox: 16_384, gather_wait: Duration::from_millis(2), core: RouterConfig::default() }
    }
}

/// Starts the actor on the current tokio runtime. It ends when every handle and lane is dropped.
pub fn start(options: &RouterOptions) -> Result<RouterHandle, ConfigError> {
    let core = Router::new(options.core.clone())?;
    let (submissions, mailbox) = mpsc::channel(options.mailbox.max(1));
    let (control, commands) = mpsc::channel(64);
    let (urgent, reports) = mpsc::unbounded_channel();
    let ids = Arc::new(Ids::new(options.core.max_requests));
    let actor = Actor {
        core,
        checker: Checker::default(),
        clock: Clock::start(),
        effects: Effects::default(),
        payloads: Payloads::default(),
        ids: Arc::clone(&ids),
        lanes: BTreeMap::new(),
        in_flight: BTreeMap::new(),
        retiring: BTreeMap::new(),
        sequences: AllSequences::new(options.core.queued_bytes_limit),
        gatherings: Gatherings::new(Nanos::from(options.gather_wait), GATHERINGS_MAX),
        idle_waiters: BTreeMap::new(),
        losing: BTreeMap::new(),
        refused: None,
        drained: Vec::new(),
        idle: false,
    };
    tokio::spawn(actor.run(mailbox, commands, reports));
    Ok(RouterHandle { submissions, control, outlet: Outlet(urgent), ids })
}

/// A batch on a lane: its requests in the order of its members.
struct InFlight {
    lane: u32,
    members: Vec<RequestId>,
    rows: u32,
}

/// The result of a batch while the core processes its report.
struct Returned {
    answers: BTreeMap<RequestId, Result<Response, RunError>>,
    timing: Timing,
    error: Option<BatchError>,
}

struct Actor {
    core: Router,
    checker: Checker,
    clock: Clock,
    effects: Effects,
    payloads: Payloads,
    ids: Arc<Ids>,
    lanes: BTreeMap<u32, LaneHandle>,
    in_flight: BTreeMap<u64, InFlight>,
    sequences: AllSequences,
    gatherings: Gatherings,
    retiring: BTreeMap<ModelId, Vec<oneshot::Sender<()>>>,
    /// Callers that wait for a lane to become idle. They get false if it is removed.
    idle_waiters: BTreeMap<u32, Vec<oneshot::Sender<bool>>>,
    /// Callers that wait for a failed lane to be removed.
    losing: BTreeMap<u32, Vec<oneshot::Sender<()>>>,
    /// Why the core refused the last switch.
    refused: Option<SwitchRefusal>,
    drained: Vec<oneshot::Sender<()>>,
    /// No message waits but the one that is processed.
    idle: bool,
}

impl Actor {
    async fn run(
        mut self,
        mut mailbox: mpsc::Receiver<Submission>,
        mut commands: mpsc::Receiver<Control>,
        mut reports: mpsc::UnboundedReceiver<Urgent>,
    ) {
        let timer = sleep_until(TokioInstant::now());
        tokio::pin!(timer);
        loop {
            let wakes = [self.core.next_wake(), self.sequences.next_wake(), self.gatherings.next_wake()];
            let wake = wakes.into_iter().flatten().min();
            let wake = wake.map(|at| TokioInstant::from_std(self.clock.instant(at)));
            if let Some(at) = wake.filter(|at| *at != timer.deadline()) {
                timer.as_mut().reset(at);
            }
            tokio::select! {
                biased;
                Some(urgent) = reports.recv() => self.urgent(urgent),
                Some(command) = commands.recv() => self.control(command),
                submission = mailbox.recv() => match submission {
                    Some(submission) => {
                        let idle = mailbox.is_empty() && reports.is_empty();
                        self.take(submission, idle);
                    }
                    None => return,
                },
                () = &mut timer, if wake.is_some() => {
                    self.sequences.tick(self.clock.now());
                    self.process(Event::Tick, None);
                }
            }
            for _ in 0..EVENTS_PER_POLL {
                if let Ok(urgent) = reports.try_recv() {
                    self.urgent(urgent);
                } else if let Ok(submission) = mailbox.try_recv() {
                    let idle = mailbox.is_empty() && reports.is_empty();
                    self.take(submission, idle);
                } else {
                    break;
                }
            }
            self.end_gatherings();
            self.tell_drained();
        }
    }

    /// Processes a submission. `idle`: no other message waits.
    fn take(&mut self, submission: Submission, idle: bool) {
        self.idle = idle;
        self.submit(submission);
        self.idle = false;
    }

    /// Keeps the payload of a request. Returns what the core is told of it.
    fn keep(&mut self, submission: Submission) -> Arrival {
        let Submission { id, job, reply, arrived } = submission;
        let position = |stage: crate::job::Stage| Position {
            pipeline: stage.pipeline,
            stage: stage.stage,
            begun: self.clock.at(stage.begun),
        };
        let arrival = Arrival {
            request: id,
            model: job.model,
            class: job.class,
            tenant: job.tenant,
            shape: job.shape,
            rows: job.member.rows,
            bytes: job.bytes,
            deadline: job.deadline.map(|deadline| self.clock.at(deadline)),
            timeout_action: job.timeout_action,
            pipeline: job.stage.map(position),
        };
        let (member, tenant) = (Some(job.member), job.tenant);
        self.payloads.insert(Payload { id, tenant, member, reply, admitted: arrived, dispatched: arrived });
        arrival
    }

    fn submit(&mut self, submission: Submission) {
        let (gather, sequence) = (submission.job.gather, submission.job.sequence.clone());
        let is_first = submission.job.stage.is_none_or(|stage| stage.is_first);
        let family = submission.job.family;
        let arrives =
            |arrival| family.map_or(Event::Arrive(arrival), |of| Event::ArriveAtVariant(arrival, of));
        if submission.reply.is_closed() {
            if let Some(gather) = gather {
                self.gatherings.absent(submission.job.model, gather, submission.job.member.rows);
                self.feed_gathered();
            }
            self.ids.give_back(submission.id);
            return;
        }
        let arrival = self.keep(submission);
        match sequence {
            Some(step) if self.sequences.arrive(self.clock.now(), &step, arrival) => self.follow_up(),
            _ => match gather {
                Some(gather) => {
                    self.gatherings.arrive(self.clock.now(), gather, arrival);
                    self.feed_gathered();
                }
                None if !is_first => self.process(Event::StageDone(&[arrival]), None),
                None => self.process(arrives(arrival), None),
            },
        }
    }

    /// Hands the requests that need not wait for others any more to the core.
    fn feed_gathered(&mut self) {
        while let Some(arrivals) = self.gatherings.next_released() {
            self.process(Event::ArriveTogether(&arrivals), None);
        }
    }

    /// The timer alone does not suffice, because on a busy server it comes after all messages.
    fn end_gatherings(&mut self) {
        if self.gatherings.next_wake().is_some() {
            self.gatherings.tick(self.clock.now());
            self.feed_gathered();
        }
    }

    /// Releases and refuses requests of sequences.
    fn follow_up(&mut self) {
        while let Some(next) = self.sequences.follow_ups.pop_front() {
            match next {
                FollowUp::Arrive(arrival) => self.handle(Event::Arrive(arrival), None),
                FollowUp::Finish(request, outcome, reason) => self.finish(request, outcome, reason, None),
            }
        }
    }

    fn urgent(&mut self, urgent: Urgent) {
        match urgent {
            Urgent::Report(report) => self.report(report),
            Urgent::Cancel(id) => {
                if self.sequences.cancel(self.clock.now(), id) {
                    self.follow_up();
                } else if self.gatherings.cancel(id) {
                    self.finish(id, Outcome::Cancelled, Reason::ClientDisconnected, None);
                } else {
                    self.process(Event::Cancel(id), None);
                }
            }
            Urgent::LaneThreadEnded(lane) => self.lane_thread_ended(lane),
        }
    }

    fn lane_thread_ended(&mut self, lane: u32) {
        error!(lane, "a lane's thread ended");
        self.forget_lane(lane, Event::LaneDown(LaneId(lane)));
    }

    fn forget_lane(&mut self, lane: u32, event: Event<'_>) {
        self.lanes.remove(&lane);
        self.in_flight.retain(|_, batch| batch.lane != lane);
        self.process(event, None);
        self.rests(lane, false);
        for told in self.losing.remove(&lane).unwrap_or_default() {
            let _ = told.send(());
        }
    }

    /// Waits for the report of the lane's batch, because it returns the inputs of the requests.
    fn lane_failed(&mut self, lane: u32, told: oneshot::Sender<()>) {
        if self.in_flight.values().any(|batch| batch.lane == lane) {
            self.losing.entry(lane).or_default().push(told);
        } else {
            self.forget_lane(lane, Event::LaneFailed(LaneId(lane)));
            let _ = told.send(());
        }
    }

    fn rests(&mut self, lane: u32, rests: bool) {
        for told in self.idle_waiters.remove(&lane).unwrap_or_default() {
            let _ = told.send(rests);
        }
    }

    fn report(&mut self, report: LaneReport) {
        // A batch may still end on a lane that was removed as failed.
        let Some(batch) = self.in_flight.remove(&report.token) else { return };
        let first =
            batch.members.first().and_then(|&id| self.payloads.get_mut(id)).map(|payload| payload.dispatched);
        let timing = Timing {
            queue: std::time::Duration::ZERO,
            batch_wait: first.map_or_else(Default::default, |at| {
                report.ended.saturating_duration_since(at).saturating_sub(report.compute)
            }),
            compute: report.compute,
            hand_back: report.ended.elapsed(),
            lane: report.lane,
            batch: Some(BatchId(report.token)),
            batch_rows: batch.rows,
            leads_batch: true,
        };
        let mut returned = Returned { answers: BTreeMap::new(), timing, error: None };
        match report.outcome {
            BatchOutcome::Done(answers) => {
                returned.answers = batch.members.iter().copied().zip(answers).collect()
            }
            BatchOutcome::Failed(error, members) => {
                self.keep_inputs(&batch.members, members);
                returned.error = Some(error);
            }
            BatchOutcome::Preempted(members) => {
                self.keep_inputs(&batch.members, members);
                let (lane, batch) = (LaneId(report.lane), BatchId(report.token));
                self.process(Event::BatchReturned { lane, batch }, None);
                return self.lose_if_idle(report.lane);
            }
        }
        let (lane, batch, ok) = (LaneId(report.lane), BatchId(report.token), returned.error.is_none());
        if returned.error.as_ref().is_some_and(BatchError::is_lost) {
            self.forget_lane(report.lane, Event::LaneFailed(lane));
        } else {
            self.process(Event::BatchDone(BatchReport { lane, batch, ok }), Some(returned));
            self.lose_if_idle(report.lane);
        }
    }

    /// Keeps the inputs of requests that did not run, so that they can run again.
    fn keep_inputs(&mut self, ids: &[RequestId], members: Vec<Member>) {
        for (&id, mut member) in ids.iter().zip(members) {
            self.sequences.strip(id, &mut member);
            if let Some(payload) = self.payloads.get_mut(id) {
                payload.member = Some(member);
            }
        }
    }

    /// Removes a failed lane whose last batch has ended.
    fn lose_if_idle(&mut self, lane: u32) {
        let waited_for = self.losing.contains_key(&lane);
        if waited_for && !self.in_flight.values().any(|batch| batch.lane == lane) {
            self.forget_lane(lane, Event::LaneFailed(LaneId(lane)));
        }
    }

    /// Processes one event, carries out its effects, and releases the requests of sequences that may run after it.
    fn process(&mut self, event: Event<'_>, returned: Option<Returned>) {
        self.handle(event, returned);
        self.follow_up();
    }

    fn handle(&mut self, event: Event<'_>, mut returned: Option<Returned>) {
        self.core.handle(self.clock.now(), event, &mut self.effects);
        if let Err(violation) = self.checker.after_event(&self.core) {
            error!(
                invariant = violation.id,
                detail = violation.detail,
                "the router's state is wrong: a bug in Tessera"
            );
        }
        let mut effects = std::mem::take(&mut self.effects);
        let mut dead_lanes = Vec::new();
        for &effect in &effects {
            match effect {
                Effect::Dispatch { lane, batch, model, rows, members } => {
                    if !self.dispatch(lane, batch, model, rows, effects.members(members)) {
                        dead_lanes.push(lane.0);
                    }
                }
                Effect::Preempt { lane, batch } => {
                    if let Some(lane) = self.lanes.get(&lane.0) {
                        lane.preempt(batch.0);
                    }
                }
                Effect::Finish { request, outcome, reason } => {
                    self.finish(request, outcome, reason, returned.as_mut())
                }
                Effect::Retired(model) => self.retired(model),
                Effect::Switched => self.refused = None,
                Effect::SwitchRefused(refusal) => self.refused = Some(refusal),
                Effect::LaneIdle(lane) => self.rests(lane.0, true),
            }
        }
        effects.clear();
        self.effects = effects;
        for lane in dead_lanes {
            self.lane_thread_ended(lane);
        }
    }

    fn dispatch(
        &mut self,
        lane: LaneId,
        batch: BatchId,
        model: ModelId,
        rows: u32,
        members: &[RequestId],
    ) -> bool {
        let now = Instant::now();
        let (mut inputs, mut ids) = (Vec::with_capacity(members.len()), Vec::with_capacity(members.len()));
        for &id in members {
            let payload = expected!(self.payloads.get_mut(id), "router.dispatched_request_unknown");
            let member = payload.and_then(|payload| {
                payload.dispatched = now;
                expected!(payload.member.take(), "router.dispatched_request_without_inputs")
            });
            // Answers are matched to requests by position, so a request without inputs must not be listed.
            if let Some(mut member) = member {
                self.sequences.fill(id, &mut member);
                inputs.push(member);
                ids.push(id);
            }
        }
        let alone = self.idle && self.in_flight.is_empty();
        self.in_flight.insert(batch.0, InFlight { lane: lane.0, members: ids, rows });
        let mut work = LaneBatch { token: batch.0, model: model.0, members: inputs };
        let Some(lane) = self.lanes.get(&lane.0) else { return false };
        // On an idle server, the way to another thread and back takes longer than a short batch. This is decided here and not
        // in the core, because it changes no order and no batch, and because only the mailbox shows that nothing waits.
        if alone {
            work = match lane.run_here(work) {
                Ok(()) => return true,
                Err(work) => work,
            };
        }
        lane.run(work).is_ok()
    }

    fn finish(&mut self, id: RequestId, outcome: Outcome, reason: Reason, returned: Option<&mut Returned>) {
        let Some(payload) = expected!(self.payloads.take(id), "router.finished_request_unknown") else {
            return;
        };
        self.ids.give_back(id);
        let record = RecordKey { request: id, ended: self.core.now() };
        let mut answer = match (outcome, returned) {
            (Outcome::Done, Some(returned)) => {
                let queue = payload.dispatched.saturating_duration_since(payload.admitted);
                let timing = Timing { queue, ..returned.timing };
                returned.timing.leads_batch = false;
                let result = expected!(returned.answers.remove(&id), "router.batch_without_answer");
                let answer = match result {
                    Some(Ok(response)) => Ok(Answer { response, timing, admitted: payload.admitted, record }),
                    Some(Err(error)) => Err(BatchError::Run(error)),
                    None => {
                        Err(BatchError::Lane("the batch returned no outputs for this request".to_owned()))
                    }
                };
                answer.map_err(|error| {
                    Rejection::ended(Outcome::Failed, Reason::EngineFailed, Some(error), record)
                })
            }
            (Outcome::Failed, Some(returned)) => {
                Err(Rejection::ended(outcome, reason, returned.error.clone(), record))
            }
            _ => Err(Rejection {
                retry_after: (reason == Reason::Quota).then(|| self.core.quota_wait(payload.tenant).into()),
                ..Rejection::ended(outcome, reason, None, record)
            }),
        };
        let response = answer.as_mut().ok().map(|answer| &mut answer.response);
        self.sequences.ended(self.clock.now(), id, (outcome, reason), response);
        // The send fails if the client has just left.
        let _ = payload.reply.send(answer);
    }

    fn retired(&mut self, model: ModelId) {
        self.sequences.model_down(model);
        for done in self.retiring.remove(&model).unwrap_or_default() {
            let _ = done.send(());
        }
    }

    /// Keeps the handles of new lanes if the core accepts the plan, otherwise drops them.
    fn switch(&mut self, plan: LanePlan) -> Result<(), SwitchError> {
        let LanePlan { new, switch } = plan;
        let mut handles = BTreeMap::new();
        for handle in new {
            let lane = LaneId(handle.id());
            let named = switch.up.iter().any(|up| up.spec.lane == lane);
            if !named || self.lanes.contains_key(&lane.0) || handles.insert(lane.0, handle).is_some() {
                return Err(SwitchError::Handle(lane));
            }
        }
        let known = |lane: LaneId| self.lanes.contains_key(&lane.0) || handles.contains_key(&lane.0);
        if let Some(up) = switch.up.iter().find(|up| !known(up.spec.lane)) {
            return Err(SwitchError::NoHandle(up.spec.lane));
        }
        let new: Vec<u32> = handles.keys().copied().collect();
        // The effects of the event may already dispatch a batch to them.
        self.lanes.append(&mut handles);
        self.process(Event::Switch(&switch), None);
        let Some(refusal) = self.refused.take() else { return Ok(()) };
        self.lanes.retain(|lane, _| !new.contains(lane));
        Err(SwitchError::Refused(refusal))
    }

    fn tell_idle(&mut self, lane: LaneId, told: oneshot::Sender<bool>) {
        match self.core.lane_state(lane) {
            None => {
                let _ = told.send(false);
            }
            Some(LaneState::Idle) => {
                let _ = told.send(true);
            }
            Some(LaneState::Active | LaneState::Waiting | LaneState::Draining) => {
                let waiting = self.idle_waiters.entry(lane.0).or_default();
                waiting.retain(|other| !other.is_closed());
                waiting.push(told);
            }
        }
    }

    fn lane_down(&mut self, lane: LaneId) -> Result<(), LaneDownError> {
        match self.core.lane_state(lane) {
            None => Err(LaneDownError::Unknown(lane)),
            Some(LaneState::Idle) => {
                self.forget_lane(lane.0, Event::LaneDown(lane));
                Ok(())
            }
            Some(LaneState::Active | LaneState::Waiting | LaneState::Draining) => {
                Err(LaneDownError::Busy(lane))
            }
        }
    }

    fn tell_drained(&mut self) {
        if !self.drained.is_empty() && self.core.unfinished() == 0 && self.sequences.held() == 0 {
            for done in self.drained.drain(..) {
                let _ = done.send(());
            }
        }
    }
}
