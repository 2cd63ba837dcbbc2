//! The actor with real lanes and a session whose pace the test sets: no sleeps, every step waits for an event.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpulet::LaneHandle;
use models::Signature;
use models::engine::{Batch, RunError, Session};
use oip::Tensor;
use router::{Answer, Job, Rejection, RouterHandle, RouterOptions, start};
use router_core::batch::Policy;
use router_core::{ModelId, ModelSpec, Nanos, Outcome, ProfilePoint, Reason, RouterConfig};
use tokio::sync::mpsc;

use crate::fixture::{self, MODEL, signature};

/// Says when a batch began and waits to be let go.
struct Gated {
    signature: Signature,
    began: mpsc::UnboundedSender<u32>,
    go: std::sync::mpsc::Receiver<Result<(), RunError>>,
}

impl Session for Gated {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        self.began.send(batch.rows).unwrap();
        self.go.recv().unwrap()?;
        Ok(vec![batch.inputs[0].clone().unwrap()])
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn engine(&self) -> &'static str {
        "test"
    }
}

pub struct World {
    pub router: RouterHandle,
    lane: LaneHandle,
    pub began: mpsc::UnboundedReceiver<u32>,
    pub go: std::sync::mpsc::Sender<Result<(), RunError>>,
}

async fn world(max_requests: u32) -> World {
    let core = RouterConfig { max_requests, ..RouterConfig::default() };
    world_with(RouterOptions { mailbox: 64, core, ..RouterOptions::default() }).await
}

pub async fn world_with(options: RouterOptions) -> World {
    let router = start(&options).unwrap();
    let lane = fixture::lane(&router, 0, Duration::ZERO);
    let (began_sender, began) = mpsc::unbounded_channel();
    let (go, go_receiver) = std::sync::mpsc::channel();
    lane.install(MODEL.0, Box::new(Gated { signature: signature(), began: began_sender, go: go_receiver }))
        .unwrap();
    router.lane_up(lane.clone()).await;
    let policy = Policy::new("triton", &Default::default()).unwrap();
    let spec = ModelSpec { queue_limit: 16, policy, ..fixture::model() };
    assert!(router.model_up(spec.clone()).await);
    assert!(!router.model_up(spec.clone()).await, "its id is in use");
    let beyond = ModelSpec { model: ModelId(RouterConfig::default().max_models), ..spec };
    assert!(!router.model_up(beyond).await, "the number of models is bounded");
    World { router, lane, began, go }
}

fn job(value: u8, timeout: Option<Duration>) -> Job {
    Job { deadline: timeout.map(|timeout| Instant::now() + timeout), ..fixture::job(value) }
}

impl World {
    fn submit(&self, value: u8) -> tokio::task::JoinHandle<Result<Answer, Rejection>> {
        let router = self.router.clone();
        tokio::spawn(async move { router.submit(job(value, None)).await })
    }

    /// Waits until the core has seen this many unfinished requests.
    async fn until_unfinished(&self, count: usize) {
        while self.router.snapshot().await.unwrap().unfinished != count {
            tokio::task::yield_now().await;
        }
    }
}

/// Clockwork hands the next batch to a lane up to 10 ms before the lane is free, so the lane has it at hand.
#[tokio::test]
async fn a_policy_that_plans_ahead_gives_a_lane_a_second_batch_while_the_first_one_runs() {
    let mut w = world(64).await;
    let planned = |policy: &str| ModelSpec {
        queue_limit: 16,
        policy: Policy::new(policy, &Default::default()).unwrap(),
        profile: vec![ProfilePoint { rows: 1, row_bytes: 1, time: Nanos::from_millis(1) }],
        ..fixture::model()
    };
    let holding = |snapshot: router_core::Snapshot| snapshot.lanes[0].holding;
    for (policy, held, batches) in [("triton", 1, 2), ("clockwork", 2, 3), ("triton", 1, 2)] {
        w.router.model_changed(planned(policy)).await;
        let mut answers = Vec::new();
        for value in 0..3 {
            answers.push(w.submit(value));
            w.until_unfinished(answers.len()).await;
        }
        assert_eq!(w.began.recv().await, Some(1));
        assert_eq!(holding(w.router.snapshot().await.unwrap()), held, "{policy}");
        (0..batches).for_each(|_| w.go.send(Ok(())).unwrap());
        for answer in answers {
            assert!(answer.await.unwrap().is_ok(), "{policy}");
        }
        for _ in 1..batches {
            w.began.recv().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_larger_batch_preempts_a_running_one_whose_requests_are_answered_later() {
    let w = world(64).await;
    let (begin, mut begun) = mpsc::unbounded_channel();
    let first = std::sync::atomic::AtomicBool::new(true);
    let an_hour_once = move |rows| {
        begin.send(rows).unwrap();
        let first = first.swap(false, std::sync::atomic::Ordering::Relaxed);
        if first { Duration::from_secs(3_600) } else { Duration::ZERO }
    };
    let model = ModelId(MODEL.0 + 1);
    w.lane.install(model.0, models::engine::synthetic::emulate(signature(), Box::new(an_hour_once))).unwrap();
    let spec = ModelSpec {
        model,
        queue_limit: 16,
        policy: Policy::new("shepherd", &Default::default()).unwrap(),
        profile: vec![ProfilePoint { rows: 1, row_bytes: 1, time: Nanos::from_millis(1) }],
        ..fixture::model()
    };
    assert!(w.router.model_up(spec).await);
    let submit = |value: u8| {
        let router = w.router.clone();
        tokio::spawn(async move { router.submit(Job { model, ..job(value, None) }).await })
    };
    let mut answers = vec![submit(0)];
    assert_eq!(begun.recv().await, Some(1));
    answers.extend((1..=8).map(submit));
    for (value, answer) in (0..).zip(answers) {
        assert_eq!(answer.await.unwrap().unwrap().response.outputs[0].data[0], value);
    }
    let rows: u32 = std::iter::from_fn(|| begun.try_recv().ok()).sum();
    assert_eq!(rows, 9, "the first request ran twice");
}

#[tokio::test]
async fn requests_that_wait_together_run_together_and_each_gets_its_own_row() {
    let mut w = world(64).await;
    let first = w.submit(1);
    assert_eq!(w.began.recv().await, Some(1));
    let others: Vec<_> = [2, 3, 4].into_iter().map(|value| w.submit(value)).collect();
    w.until_unfinished(4).await;
    w.go.send(Ok(())).unwrap();
    assert_eq!(w.began.recv().await, Some(3));
    w.go.send(Ok(())).unwrap();
    assert_eq!(first.await.unwrap().unwrap().response.outputs[0].data[0], 1);
    let mut leaders = 0;
    for (expected, other) in [2, 3, 4].into_iter().zip(others) {
        let answer = other.await.unwrap().unwrap();
        assert_eq!(answer.response.outputs[0].data[0], expected);
        assert_eq!(answer.timing.batch_rows, 3);
        leaders += u32::from(answer.timing.leads_batch);
    }
    assert_eq!(leaders, 1);
}

#[tokio::test]
async fn a_client_that_leaves_is_not_run() {
    let mut w = world(64).await;
    let running = w.submit(1);
    assert_eq!(w.began.recv().await, Some(1));
    let (leaver, stayer) = (w.submit(2), w.submit(3));
    w.until_unfinished(3).await;
    leaver.abort();
    w.until_unfinished(2).await;
    w.go.send(Ok(())).unwrap();
    assert_eq!(w.began.recv().await, Some(1), "only the one that stayed");
    w.go.send(Ok(())).unwrap();
    running.await.unwrap().unwrap();
    assert_eq!(stayer.await.unwrap().unwrap().response.outputs[0].data[0], 3);
}

#[tokio::test]
async fn a_batch_that_fails_is_run_again_one_by_one() {
    let mut w = world(64).await;
    let running = w.submit(1);
    assert_eq!(w.began.recv().await, Some(1));
    let (good, bad) = (w.submit(2), w.submit(3));
    w.until_unfinished(3).await;
    let bad_input = || RunError::Input("3 is not served".to_owned());
    for verdict in [Ok(()), Err(bad_input()), Ok(()), Err(bad_input())] {
        w.go.send(verdict).unwrap();
    }
    for rows in [2, 1, 1] {
        assert_eq!(w.began.recv().await, Some(rows));
    }
    running.await.unwrap().unwrap();
    assert_eq!(good.await.unwrap().unwrap().response.outputs[0].data[0], 2);
    let rejection = bad.await.unwrap().unwrap_err();
    assert_eq!((rejection.outcome, rejection.reason), (Outcome::Failed, Reason::EngineFailed));
    assert_eq!(rejection.error.unwrap().to_string(), "3 is not served");
}

#[tokio::test]
async fn the_number_of_requests_is_bounded_and_slots_come_back() {
    let mut w = world(2).await;
    let (first, second) = (w.submit(1), w.submit(2));
    assert_eq!(w.began.recv().await, Some(1));
    w.until_unfinished(2).await;
    let refused = w.router.submit(job(3, None)).await.unwrap_err();
    assert_eq!((refused.outcome, refused.reason), (Outcome::Refused, Reason::QueueFull));
    w.go.send(Ok(())).unwrap();
    w.go.send(Ok(())).unwrap();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    for value in 0..10 {
        w.go.send(Ok(())).unwrap();
        assert_eq!(w.router.submit(job(value, None)).await.unwrap().response.outputs[0].data[0], value);
    }
}

#[tokio::test]
async fn a_request_expires_while_it_waits() {
    let mut w = world(64).await;
    let running = w.submit(1);
    assert_eq!(w.began.recv().await, Some(1));
    let rejection = w.router.submit(job(2, Some(Duration::from_millis(5)))).await.unwrap_err();
    assert_eq!((rejection.outcome, rejection.reason), (Outcome::Expired, Reason::DeadlinePassed));
    w.go.send(Ok(())).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_model_is_removed_only_after_its_requests() {
    let mut w = world(64).await;
    let running = w.submit(1);
    assert_eq!(w.began.recv().await, Some(1));
    let router = w.router.clone();
    let down = tokio::spawn(async move { router.model_down(MODEL).await });
    while !w.router.snapshot().await.unwrap().models[0].retiring {
        tokio::task::yield_now().await;
    }
    let refused = w.router.submit(job(2, None)).await.unwrap_err();
    assert_eq!(refused.reason, Reason::UnknownModel);
    assert!(!down.is_finished());
    w.go.send(Ok(())).unwrap();
    running.await.unwrap().unwrap();
    down.await.unwrap();
    w.router.model_down(MODEL).await;
    let (sender, dropped) = std::sync::mpsc::channel();
    w.lane.remove(MODEL.0, move |_| sender.send(()).unwrap()).unwrap();
    dropped.recv().unwrap();
}

#[tokio::test]
async fn a_drain_waits_for_what_runs() {
    let mut w = world(64).await;
    let running = w.submit(1);
    assert_eq!(w.began.recv().await, Some(1));
    let queued = w.submit(2);
    w.until_unfinished(2).await;
    let router = w.router.clone();
    let until = Instant::now() + Duration::from_millis(5);
    let drained = tokio::spawn(async move { router.drain(until).await });
    let rejection = queued.await.unwrap().unwrap_err();
    assert_eq!(rejection.reason, Reason::Draining);
    assert_eq!(w.router.submit(job(3, None)).await.unwrap_err().reason, Reason::Draining);
    assert!(!drained.is_finished());
    w.go.send(Ok(())).unwrap();
    running.await.unwrap().unwrap();
    drained.await.unwrap();
}

#[tokio::test]
async fn the_sink_of_a_router_can_be_shared() {
    let w = world(4).await;
    let sink: Arc<dyn gpulet::LaneSink> = w.router.lane_sink();
    sink.failed(0);
    while !w.router.snapshot().await.unwrap().lanes.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(w.router.submit(job(1, None)).await.unwrap_err().reason, Reason::NoLane);
}
