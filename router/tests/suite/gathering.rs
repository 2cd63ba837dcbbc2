//! Requests that a sender put into one batch run together, and each gets one answer whatever happens before.

use std::time::{Duration, Instant};

use router::{Answer, Gather, GatherCounts, Job, Rejection, RouterOptions};
use router_core::{Outcome, Reason};
use tokio::task::JoinHandle;

use crate::actor::{World, world_with};
use crate::fixture;

/// Longer than any test runs.
const NEVER: Duration = Duration::from_secs(3_600);

async fn world(gather_wait: Duration) -> World {
    world_with(RouterOptions { mailbox: 64, gather_wait, ..RouterOptions::default() }).await
}

fn submit(w: &World, job: Job) -> JoinHandle<Result<Answer, Rejection>> {
    let router = w.router.clone();
    tokio::spawn(async move { router.submit(job).await })
}

/// A request of one row, of a batch of four.
fn marked(w: &World, value: u8) -> JoinHandle<Result<Answer, Rejection>> {
    submit(w, Job { gather: Some(Gather { batch: 9, rows: 4 }), ..fixture::job(value) })
}

/// Waits until the router has taken all requests that were sent before.
async fn until_taken(w: &mut World) {
    let last = submit(w, fixture::job(0));
    assert_eq!(w.began.recv().await, Some(1), "the mailbox is in order, and this one does not wait");
    w.go.send(Ok(())).unwrap();
    last.await.unwrap().unwrap();
}

async fn all_answered(requests: Vec<JoinHandle<Result<Answer, Rejection>>>, batch_rows: u32) {
    for (request, value) in requests.into_iter().zip(1_u8..) {
        let answer = request.await.unwrap().unwrap();
        assert_eq!(answer.timing.batch_rows, batch_rows);
        assert_eq!(&answer.response.outputs[0].data[..], [value], "the answer is that of another request");
    }
}

async fn counts(w: &World) -> (u64, u64, u64) {
    let GatherCounts { complete, incomplete, too_many } = w.router.gather_counts().await.unwrap();
    (complete, incomplete, too_many)
}

#[tokio::test]
async fn the_requests_of_a_batch_start_together_on_an_idle_lane() {
    let mut w = world(NEVER).await;
    let requests = (1..=4).map(|value| marked(&w, value)).collect();
    assert_eq!(w.began.recv().await, Some(4));
    w.go.send(Ok(())).unwrap();
    all_answered(requests, 4).await;
    assert_eq!(counts(&w).await, (1, 0, 0));
}

#[tokio::test]
async fn a_batch_starts_without_a_request_that_does_not_come() {
    let mut w = world(Duration::from_millis(2)).await;
    let requests = (1..=3).map(|value| marked(&w, value)).collect();
    assert_eq!(w.began.recv().await, Some(3));
    w.go.send(Ok(())).unwrap();
    all_answered(requests, 3).await;
    assert_eq!(counts(&w).await, (0, 1, 0));
}

#[tokio::test]
async fn a_batch_starts_without_clients_that_left() {
    let mut w = world(NEVER).await;
    let mut requests: Vec<_> = (1..=2).map(|value| marked(&w, value)).collect();
    let leaves = marked(&w, 3);
    until_taken(&mut w).await;
    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    requests.push(marked(&w, 3));
    assert_eq!(w.began.recv().await, Some(3));
    w.go.send(Ok(())).unwrap();
    all_answered(requests, 3).await;
    assert_eq!(counts(&w).await, (1, 0, 0));
    assert_eq!(w.router.snapshot().await.unwrap().unfinished, 0);
}

#[tokio::test]
async fn a_request_that_waits_for_others_expires_at_its_deadline() {
    let w = world(NEVER).await;
    let deadline = Instant::now() + Duration::from_millis(5);
    let gather = Some(Gather { batch: 9, rows: 4 });
    let job = Job { gather, deadline: Some(deadline), ..fixture::job(1) };
    let rejection = submit(&w, job).await.unwrap().unwrap_err();
    assert_eq!((rejection.outcome, rejection.reason), (Outcome::Expired, Reason::DeadlinePassed));
    assert!(Instant::now() >= deadline);
}

#[tokio::test]
async fn a_drain_answers_requests_that_wait_for_others() {
    let mut w = world(NEVER).await;
    let requests = (1..=2).map(|value| marked(&w, value)).collect();
    until_taken(&mut w).await;
    let router = w.router.clone();
    let drained = tokio::spawn(async move { router.drain(Instant::now() + NEVER).await });
    assert_eq!(w.began.recv().await, Some(2));
    let late = marked(&w, 3).await.unwrap().unwrap_err();
    assert_eq!(late.reason, Reason::Draining);
    w.go.send(Ok(())).unwrap();
    all_answered(requests, 2).await;
    drained.await.unwrap();
}

#[tokio::test]
async fn a_model_that_goes_down_answers_requests_that_wait_for_others() {
    let mut w = world(NEVER).await;
    let requests = (1..=2).map(|value| marked(&w, value)).collect();
    until_taken(&mut w).await;
    let router = w.router.clone();
    let down = tokio::spawn(async move { router.model_down(fixture::MODEL).await });
    assert_eq!(w.began.recv().await, Some(2));
    w.go.send(Ok(())).unwrap();
    all_answered(requests, 2).await;
    down.await.unwrap();
}
