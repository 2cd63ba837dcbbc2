//! A lane with sessions of the test.

use models::engine::{Batch, Member, Response};

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
    let config = LaneConfig { id: 3, partition: Arc::new(Anywhere), mailbox: 4, lane_class: 0, run_here_max };
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
fn a_failed_batch_says_nothing_about_how_long_others_take() {
    let (lane, reports) = lane();
    lane.run(LaneBatch { token: 1, model: 7, members: vec![member(13)] }).unwrap();
    assert!(matches!(reports.recv().unwrap().unwrap().outcome, BatchOutcome::Failed(..)));
    assert!(lane.run_here(LaneBatch { token: 2, model: 7, members: vec![member(1)] }).is_err());
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
    assert!(matches!(reports.recv().unwrap().unwrap().outcome, BatchOutcome::Failed(BatchError::Lane(_), _)));
}

#[test]
fn a_lane_that_is_asked_to_stop_is_not_missed() {
    let (lane, reports) = lane();
    lane.stop().unwrap();
    drop(lane);
    assert!(reports.recv().is_err(), "the sink is dropped without a word");
}
