//! Which thread runs a batch: the router's own if it is short and the server idle, otherwise that of its lane.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gpulet::{DeviceError, LaneConfig, Member, Partition, spawn_lane};
use models::engine::{Batch, RunError, Session};
use models::{Dim, LoadOptions, ModelFiles, Signature, TensorSpec};
use oip::{Datatype, Shape, Tensor};
use router::{Job, RouterHandle, RouterOptions, start};
use router_core::batch::Policy;
use router_core::{Class, LaneClass, ModelId, ModelLanes, ModelSpec, ShapeKey, Tenant};
use tokio::sync::mpsc;

/// Names the thread of each run. Refuses 13.
struct Telling {
    signature: Signature,
    ran_on: mpsc::UnboundedSender<String>,
}

impl Session for Telling {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        self.ran_on.send(thread::current().name().unwrap_or_default().to_owned()).unwrap();
        let input = batch.inputs[0].clone().unwrap();
        if input.data.contains(&13) {
            Err(RunError::Input("13 is not served".to_owned()))
        } else {
            Ok(vec![input])
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
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

const MODEL: ModelId = ModelId(0);

/// A router with one lane, on which a caller may run batches that take at most so long. One batch has run.
async fn router(run_here_max: Duration) -> (RouterHandle, mpsc::UnboundedReceiver<String>) {
    let router = start(&RouterOptions::default()).unwrap();
    let config = LaneConfig { id: 0, partition: Arc::new(Anywhere), mailbox: 8, lane_class: 0, run_here_max };
    let lane = spawn_lane(config, router.lane_sink()).unwrap();
    let (sender, mut ran_on) = mpsc::unbounded_channel();
    let dims = vec![Dim::Free, Dim::Fixed(1)];
    let spec = TensorSpec { name: "x".to_owned(), datatype: Datatype::Uint8, dims, optional: false };
    let signature = Signature { inputs: vec![spec.clone()], outputs: vec![spec], max_batch: 8 };
    lane.install(MODEL.0, Box::new(Telling { signature, ran_on: sender })).unwrap();
    router.lane_up(lane).await;
    let spec = ModelSpec {
        measured_on: LaneClass::default(),
        preemptible: false,
        model: MODEL,
        max_batch: 8,
        queue_limit: 64,
        class_limits: Vec::new(),
        rate_limit: Default::default(),
        policy: Policy::default(),
        lanes: ModelLanes::All,
        profile: Vec::new(),
    };
    assert!(router.model_up(spec).await);
    router.submit(job(1)).await.unwrap();
    assert_eq!(ran_on.recv().await.unwrap(), "lane-0", "nothing is known about the first batch");
    (router, ran_on)
}

fn job(value: u8) -> Job {
    let shape = Shape::from_extents(&[1, 1]);
    let tensor = Tensor { name: "x".to_owned(), datatype: Datatype::Uint8, shape, data: vec![value].into() };
    Job {
        model: MODEL,
        class: Class::default(),
        tenant: Tenant::default(),
        shape: ShapeKey(0),
        member: Member::of(vec![Some(tensor)], 1),
        bytes: 1,
        deadline: None,
        timeout_action: Default::default(),
        sequence: None,
    }
}

#[tokio::test]
async fn a_lone_short_batch_runs_on_the_routers_thread() {
    let (router, mut ran_on) = router(Duration::MAX).await;
    let here = thread::current().name().unwrap().to_owned();
    for value in 0..3 {
        let answer = router.submit(job(value)).await.unwrap();
        assert_eq!(answer.response.outputs[0].data[0], value);
        assert_eq!(ran_on.recv().await.unwrap(), here);
    }
    let error = router.submit(job(13)).await.unwrap_err().error.unwrap();
    assert!(error.to_string().contains("13 is not served"), "{error}");
    assert_eq!(router.submit(job(7)).await.unwrap().response.outputs[0].data[0], 7);
}

#[tokio::test]
async fn a_long_batch_runs_on_its_lane() {
    let (router, mut ran_on) = router(Duration::ZERO).await;
    router.submit(job(7)).await.unwrap();
    assert_eq!(ran_on.recv().await.unwrap(), "lane-0");
}

#[tokio::test]
async fn requests_that_arrive_together_run_on_the_lane_and_all_are_answered() {
    let (router, mut ran_on) = router(Duration::MAX).await;
    // All are in the mailbox before the router's task runs.
    let requests: Vec<_> = (0..8)
        .map(|value| {
            let router = router.clone();
            tokio::spawn(async move { router.submit(job(value)).await })
        })
        .collect();
    for (value, answer) in (0..).zip(requests) {
        assert_eq!(answer.await.unwrap().unwrap().response.outputs[0].data[0], value);
    }
    assert_eq!(ran_on.recv().await.unwrap(), "lane-0", "others wait for the router");
}
