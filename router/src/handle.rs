//! The handle for submitting requests and changing models and lanes.

use std::sync::Arc;
use std::time::Instant;

use gpulet::{LaneHandle, LaneSink};
use router_core::{
    Explanation, FamilyId, FamilySpec, GatherCounts, LaneId, ModelBacklog, ModelId, ModelSpec, PipelineId,
    PipelineSpec, Reason, RequestId, Snapshot, TenantTable,
};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::job::{Answer, Job, RecordKey, Rejection, VariantQuery};
use crate::outlet::{Outlet, Urgent};
use crate::payload::{Ids, Reply};
use crate::plan::{LaneDownError, LanePlan, SwitchError};
use crate::sequences::SequenceModel;

pub(crate) struct Submission {
    pub id: RequestId,
    pub job: Job,
    pub reply: Reply,
    pub arrived: Instant,
}

pub(crate) enum Control {
    ModelUp(Box<ModelSpec>, oneshot::Sender<bool>),
    ModelChanged(Box<ModelSpec>, oneshot::Sender<()>),
    TenantsChanged(Box<TenantTable>, oneshot::Sender<()>),
    ModelDown(ModelId, oneshot::Sender<()>),
    PipelineUp(Box<PipelineSpec>, oneshot::Sender<()>),
    PipelineDown(PipelineId, oneshot::Sender<()>),
    FamilyUp(Box<FamilySpec>, oneshot::Sender<()>),
    FamilyDown(FamilyId, oneshot::Sender<()>),
    Choose(Box<VariantQuery>, oneshot::Sender<Option<ModelId>>),
    SequencesUp(ModelId, Box<SequenceModel>, oneshot::Sender<()>),
    EndSequences(ModelId, oneshot::Sender<()>),
    LaneUp { lane: LaneHandle, done: oneshot::Sender<()> },
    Switch(Box<LanePlan>, oneshot::Sender<Result<(), SwitchError>>),
    LaneIdle(LaneId, oneshot::Sender<bool>),
    LaneFailed(LaneId, oneshot::Sender<()>),
    LaneDown(LaneId, oneshot::Sender<Result<(), LaneDownError>>),
    Drain { until: Instant, done: oneshot::Sender<()> },
    Snapshot(oneshot::Sender<Snapshot>),
    Backlogs(oneshot::Sender<Vec<ModelBacklog>>),
    GatherCounts(oneshot::Sender<GatherCounts>),
    Explain(RecordKey, oneshot::Sender<Option<Explanation>>),
}

/// A handle of the actor. Clones share the actor.
#[derive(Clone)]
pub struct RouterHandle {
    pub(crate) submissions: mpsc::Sender<Submission>,
    pub(crate) control: mpsc::Sender<Control>,
    pub(crate) outlet: Outlet,
    pub(crate) ids: Arc<Ids>,
}

/// Cancels a request when its client stops waiting.
struct CancelOnDrop<'a> {
    outlet: &'a Outlet,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let _ = self.outlet.0.send(Urgent::Cancel(id));
        }
    }
}

impl RouterHandle {
    /// Submits a job and waits for its end. A full mailbox rejects the job immediately.
    pub async fn submit(&self, job: Job) -> Result<Answer, Rejection> {
        let arrived = Instant::now();
        let id = self.ids.take().ok_or_else(|| Rejection::refused(Reason::QueueFull))?;
        let (reply, answer) = oneshot::channel();
        if let Err(refused) = self.submissions.try_send(Submission { id, job, reply, arrived }) {
            self.ids.give_back(id);
            let reason = match refused {
                TrySendError::Full(_) => Reason::QueueFull,
                TrySendError::Closed(_) => Reason::Draining,
            };
            return Err(Rejection::refused(reason));
        }
        let mut guard = CancelOnDrop { outlet: &self.outlet, id: Some(id) };
        let ended = answer.await;
        guard.id = None;
        ended.unwrap_or_else(|_| Err(Rejection::refused(Reason::Draining)))
    }

    /// Makes a pipeline known, or changes it. Returns when it is in force.
    pub async fn pipeline_up(&self, spec: PipelineSpec) {
        let (done, wait) = oneshot::channel();
        self.tell(Control::PipelineUp(Box::new(spec), done), wait).await;
    }

    /// Forgets a pipeline. Unfinished requests of its stages go on.
    pub async fn pipeline_down(&self, pipeline: PipelineId) {
        let (done, wait) = oneshot::channel();
        self.tell(Control::PipelineDown(pipeline, done), wait).await;
    }

    /// Makes a family known, or changes it. Returns when it is in force.
    pub async fn family_up(&self, spec: FamilySpec) {
        let (done, wait) = oneshot::channel();
        self.tell(Control::FamilyUp(Box::new(spec), done), wait).await;
    }

    /// Forgets a family. Unfinished requests of its variants go on.
    pub async fn family_down(&self, family: FamilyId) {
        let (done, wait) = oneshot::channel();
        self.tell(Control::FamilyDown(family, done), wait).await;
    }

    /// The variant that a request gets. `None`: none suits, or the actor has ended.
    pub async fn choose(&self, query: VariantQuery) -> Option<ModelId> {
        let (done, chosen) = oneshot::channel();
        self.control.send(Control::Choose(Box::new(query), done)).await.ok()?;
        chosen.await.ok()?
    }

    /// The channel for reports of lanes.
    pub fn lane_sink(&self) -> Arc<dyn LaneSink> {
        Arc::new(self.outlet.clone())
    }

    /// Adds a model version. Its sessions must be installed on the lanes before. False if its id is in use or beyond
    /// `RouterConfig::max_models`, or if the actor has ended.
    pub async fn model_up(&self, spec: ModelSpec) -> bool {
        let (done, taken) = oneshot::channel();
        self.control.send(Control::ModelUp(Box::new(spec), done)).await.is_ok()
            && taken.await.unwrap_or(false)
    }

    /// Makes a model version take sequences. To be called before [`RouterHandle::model_up`].
    pub async fn sequences_up(&self, id: ModelId, model: SequenceModel) {
        let (done, wait) = oneshot::channel();
        self.tell(Control::SequencesUp(id, Box::new(model), done), wait).await;
    }

    /// Ends the sequences of a model version, which will be retired: requests that are held back are refused.
    pub async fn end_sequences(&self, id: ModelId) {
        let (done, wait) = oneshot::channel();
        self.tell(Control::EndSequences(id, done), wait).await;
    }

    /// Takes up changed settings of a model version. Returns when they are in force. The lanes and batch times of `spec` are
    /// not used.
    pub async fn model_changed(&self, spec: ModelSpec) {
        let (done, wait) = oneshot::channel();
        self.tell(Control::ModelChanged(Box::new(spec), done), wait).await;
    }

    /// Changes the weights and quotas of tenants. Returns when they are in force.
    pub async fn tenants_changed(&self, table: TenantTable) {
        let (done, wait) = oneshot::channel();
        self.tell(Control::TenantsChanged(Box::new(table), done), wait).await;
    }

    /// Retires a model version: it takes no new requests. Returns when its last request has ended.
    pub async fn model_down(&self, model: ModelId) {
        let (done, wait) = oneshot::channel();
        self.tell(Control::ModelDown(model, done), wait).await;
    }

    /// Adds a lane.
    pub async fn lane_up(&self, lane: LaneHandle) {
        let (done, wait) = oneshot::channel();
        self.tell(Control::LaneUp { lane, done }, wait).await;
    }

    /// Replaces the plan of lanes, completely or not at all. Sessions must be installed on the lanes before. No request is
    /// lost: batches in flight finish on their lanes, and queued requests move with their models.
    pub async fn switch(&self, plan: LanePlan) -> Result<(), SwitchError> {
        let (done, outcome) = oneshot::channel();
        let sent = self.control.send(Control::Switch(Box::new(plan), done)).await;
        sent.map_err(|_| SwitchError::Ended)?;
        outcome.await.unwrap_or(Err(SwitchError::Ended))
    }

    /// Waits until a lane is drained by a switch and holds no batch. Returns immediately if it is idle. Returns false if
    /// the lane is unknown or goes down first.
    pub async fn lane_idle(&self, lane: LaneId) -> bool {
        let (told, rests) = oneshot::channel();
        self.control.send(Control::LaneIdle(lane, told)).await.is_ok() && rests.await.unwrap_or(false)
    }

    /// Removes a lane whose gpulet failed. Its requests run again on other lanes. Returns once its number can be reused.
    pub async fn lane_failed(&self, lane: LaneId) {
        let (told, lost) = oneshot::channel();
        self.tell(Control::LaneFailed(lane, told), lost).await;
    }

    /// Removes an idle lane and drops the router's handle of it. Its thread ends when no other handle exists.
    pub async fn lane_down(&self, lane: LaneId) -> Result<(), LaneDownError> {
        let (done, outcome) = oneshot::channel();
        let sent = self.control.send(Control::LaneDown(lane, done)).await;
        sent.map_err(|_| LaneDownError::Unknown(lane))?;
        outcome.await.unwrap_or(Err(LaneDownError::Unknown(lane)))
    }

    /// Rejects new requests from now on and queued ones at `until`. Returns when no request is left, at the latest when
    /// those in flight at `until` have ended.
    pub async fn drain(&self, until: Instant) {
        let (done, wait) = oneshot::channel();
        self.tell(Control::Drain { until, done }, wait).await;
    }

    /// The core's state; `None` when the actor has ended.
    pub async fn snapshot(&self) -> Option<Snapshot> {
        let (reply, answer) = oneshot::channel();
        self.control.send(Control::Snapshot(reply)).await.ok()?;
        answer.await.ok()
    }

    /// What a new request of each model would meet; `None` when the actor has ended.
    pub async fn backlogs(&self) -> Option<Vec<ModelBacklog>> {
        let (reply, answer) = oneshot::channel();
        self.control.send(Control::Backlogs(reply)).await.ok()?;
        answer.await.ok()
    }

    /// How marked requests went on since the start; `None` when the actor has ended.
    pub async fn gather_counts(&self) -> Option<GatherCounts> {
        let (reply, answer) = oneshot::channel();
        self.control.send(Control::GatherCounts(reply)).await.ok()?;
        answer.await.ok()
    }

    /// The decisions about a request that ended. `None` if they are no longer on record, or the actor has ended.
    pub async fn explain(&self, record: RecordKey) -> Option<Explanation> {
        let (reply, answer) = oneshot::channel();
        self.control.send(Control::Explain(record, reply)).await.ok()?;
        answer.await.ok().flatten()
    }

    /// If the actor has ended, there is nothing left to do.
    async fn tell(&self, message: Control, done: oneshot::Receiver<()>) {
        if self.control.send(message).await.is_ok() {
            let _ = done.await;
        }
    }
}
