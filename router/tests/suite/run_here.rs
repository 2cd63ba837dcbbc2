//! Which thread runs a batch: the router's own if it is short and the server idle, otherwise that of its lane.

use std::thread;
use std::time::Duration;

use models::Signature;
use models::engine::{Batch, RunError, Session};
use oip::Tensor;
use router::{RouterHandle, RouterOptions, start};
use tokio::sync::mpsc;

use crate::fixture::{MODEL, job, lane, model, signature};

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

/// A router with one lane, on which a caller may run batches that take at most so long. One batch has run.
async fn router(run_here_max: Duration) -> (RouterHandle, mpsc::UnboundedReceiver<String>) {
    let router = start(&RouterOptions::default()).unwrap();
    let lane = lane(&router, 0, run_here_max);
    let (sender, mut ran_on) = mpsc::unbounded_channel();
    lane.install(MODEL.0, Box::new(Telling { signature: signature(), ran_on: sender })).unwrap();
    router.lane_up(lane).await;
    assert!(router.model_up(model()).await);
    router.submit(job(1)).await.unwrap();
    assert_eq!(ran_on.recv().await.unwrap(), "lane-0", "nothing is known about the first batch");
    (router, ran_on)
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
