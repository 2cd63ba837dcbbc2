//! Plans of lanes that change under load, with real lanes: no request is lost and no unit runs two batches at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use gpulet::LaneHandle;
use models::Signature;
use models::engine::{Batch, RunError, Session};
use oip::Tensor;
use router::{LaneDownError, LanePlan, RouterHandle, RouterOptions, SwitchError, start};
use router_core::{
    LaneClass, LaneId, LaneSpec, LaneState, LaneUp, ModelLanes, ModelMove, ModelSpec, Switch, SwitchRefusal,
};

use crate::fixture::{self, MODEL, job, model, signature};

const CLIENTS: u32 = 8;

/// Units of a device, and who runs on each.
type Units = Arc<[AtomicU32; 2]>;

/// Adds one to bytes, alone on its lane's units.
struct Exclusive {
    signature: Signature,
    units: Units,
    own: &'static [usize],
    lane: u32,
    runs: Arc<AtomicU32>,
}

impl Session for Exclusive {
    fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
        for &unit in self.own {
            let before = self.units[unit].swap(self.lane + 1, Ordering::SeqCst);
            assert_eq!(before, 0, "lanes {} and {} run on unit {unit}", self.lane, before.wrapping_sub(1));
        }
        // Long enough to catch an overlapping batch, and for switches to meet batches in flight.
        for _ in 0..50 {
            std::thread::yield_now();
        }
        for &unit in self.own {
            let own = self.units[unit].swap(0, Ordering::SeqCst);
            assert_eq!(own, self.lane + 1, "another lane came onto unit {unit}");
        }
        self.runs.fetch_add(1, Ordering::Relaxed);
        let input = batch.inputs[0].as_ref().unwrap();
        let data = input.data.iter().map(|byte| byte.wrapping_add(1)).collect::<Vec<_>>().into();
        Ok(vec![Tensor { data, ..input.clone() }])
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn engine(&self) -> &'static str {
        "test"
    }
}

struct World {
    router: RouterHandle,
    units: Units,
    runs: Arc<AtomicU32>,
}

impl World {
    fn lane(&self, id: u32, own: &'static [usize]) -> LaneHandle {
        let (lane, signature) = (fixture::lane(&self.router, id, Duration::ZERO), signature());
        let (units, runs) = (Arc::clone(&self.units), Arc::clone(&self.runs));
        lane.install(MODEL.0, Box::new(Exclusive { signature, units, own, lane: id, runs })).unwrap();
        lane
    }
}

/// Lane 0 runs the model on both units.
async fn world() -> World {
    let router = start(&RouterOptions::default()).unwrap();
    let world = World { router, units: Arc::default(), runs: Arc::default() };
    world.router.lane_up(world.lane(0, &[0, 1])).await;
    let spec = ModelSpec { lanes: ModelLanes::Only(vec![LaneId(0)]), ..model() };
    assert!(world.router.model_up(spec).await);
    world
}

fn up(lane: u32, after: &[u32]) -> LaneUp {
    let spec = LaneSpec::new(LaneId(lane), LaneClass::default());
    LaneUp { spec, after: after.iter().copied().map(LaneId).collect() }
}

fn switch(up: Vec<LaneUp>, drain: &[u32]) -> Switch {
    let lanes = ModelLanes::Only(up.iter().map(|up| up.spec.lane).collect());
    let drain = drain.iter().copied().map(LaneId).collect();
    Switch { up, drain, models: vec![ModelMove { model: MODEL, lanes, times: Vec::new() }] }
}

/// Lane 0 on both units is replaced by lanes 1 and 2 on one each, and back.
fn layouts() -> [Switch; 2] {
    [switch(vec![up(1, &[0]), up(2, &[0])], &[0]), switch(vec![up(0, &[1, 2])], &[1, 2])]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_switches_under_load_lose_no_request() {
    let w = world().await;
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (router, stop) = (w.router.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut answered = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    let value = (answered * CLIENTS + client) as u8;
                    let answer = router.submit(job(value)).await.unwrap();
                    assert_eq!(
                        answer.response.outputs[0].data[0],
                        value.wrapping_add(1),
                        "another client's answer"
                    );
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    let [split, join] = layouts();
    for round in 0..100 {
        let new = if round == 0 { vec![w.lane(1, &[0]), w.lane(2, &[1])] } else { Vec::new() };
        w.router.switch(LanePlan { new, switch: split.clone() }).await.unwrap();
        // Every other time the switch is rolled back while lane 0 may still hold a batch.
        if round % 2 == 0 {
            assert!(w.router.lane_idle(LaneId(0)).await);
        }
        let before = w.runs.load(Ordering::Relaxed);
        while w.runs.load(Ordering::Relaxed) == before {
            tokio::task::yield_now().await;
        }
        w.router.switch(LanePlan { new: Vec::new(), switch: join.clone() }).await.unwrap();
        if round % 3 == 0 {
            assert!(w.router.lane_idle(LaneId(1)).await && w.router.lane_idle(LaneId(2)).await);
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut answered = Vec::new();
    for client in clients {
        answered.push(client.await.unwrap());
    }
    assert!(answered.iter().all(|&answered| answered > 0), "{answered:?}");
    println!("{} answers in {} batches", answered.iter().sum::<u32>(), w.runs.load(Ordering::Relaxed));
    for lane in [1, 2] {
        assert!(w.router.lane_idle(LaneId(lane)).await);
        w.router.lane_down(LaneId(lane)).await.unwrap();
    }
    let snapshot = w.router.snapshot().await.unwrap();
    assert_eq!((snapshot.unfinished, snapshot.lanes.len()), (0, 1));
}

#[tokio::test]
async fn a_plan_that_makes_no_sense_is_refused_and_its_lanes_are_dropped() {
    let w = world().await;
    let refused = |new: Vec<LaneHandle>, switch: Switch| {
        let router = w.router.clone();
        async move { router.switch(LanePlan { new, switch }).await.unwrap_err() }
    };
    let [split, _] = layouts();
    assert_eq!(refused(vec![w.lane(1, &[0])], split.clone()).await, SwitchError::NoHandle(LaneId(2)));
    let stray = refused(vec![w.lane(1, &[0]), w.lane(2, &[1]), w.lane(3, &[1])], split.clone()).await;
    assert_eq!(stray, SwitchError::Handle(LaneId(3)));
    let known = switch(vec![up(0, &[])], &[]);
    assert_eq!(refused(vec![w.lane(0, &[0, 1])], known).await, SwitchError::Handle(LaneId(0)));
    let impossible = switch(vec![up(1, &[0])], &[]);
    let error = refused(vec![w.lane(1, &[0])], impossible).await;
    let refusal = SwitchRefusal::AfterActive { lane: LaneId(1), after: LaneId(0) };
    assert_eq!(error, SwitchError::Refused(refusal));
    assert_eq!(error.to_string(), refusal.to_string());
    // The same lanes may come with a plan that does.
    w.router.switch(LanePlan { new: vec![w.lane(1, &[0]), w.lane(2, &[1])], switch: split }).await.unwrap();
    assert_eq!(w.router.submit(job(4)).await.unwrap().response.outputs[0].data[0], 5);
}

#[tokio::test]
async fn a_lane_is_removed_only_when_idle_and_its_thread_ends_with_its_handles() {
    let w = world().await;
    assert_eq!(w.router.lane_down(LaneId(0)).await, Err(LaneDownError::Busy(LaneId(0))));
    assert_eq!(w.router.lane_down(LaneId(7)).await, Err(LaneDownError::Unknown(LaneId(7))));
    assert!(!w.router.lane_idle(LaneId(7)).await);
    let [split, _] = layouts();
    let idle = tokio::spawn({
        let router = w.router.clone();
        async move { router.lane_idle(LaneId(0)).await }
    });
    let new = vec![w.lane(1, &[0]), w.lane(2, &[1])];
    w.router.switch(LanePlan { new, switch: split }).await.unwrap();
    assert!(idle.await.unwrap(), "a caller that asked before the switch gets the answer too");
    assert_eq!(w.router.snapshot().await.unwrap().lanes[0].state, LaneState::Idle);
    let runs = Arc::downgrade(&w.runs);
    let sessions = runs.strong_count();
    w.router.lane_down(LaneId(0)).await.unwrap();
    // The session is dropped with the lane's thread.
    while runs.strong_count() == sessions {
        tokio::task::yield_now().await;
    }
    assert_eq!(w.router.lane_down(LaneId(0)).await, Err(LaneDownError::Unknown(LaneId(0))));
    assert_eq!(w.router.submit(job(1)).await.unwrap().response.outputs[0].data[0], 2);
}

#[tokio::test]
async fn who_waits_for_a_lane_that_dies_is_told() {
    let w = world().await;
    let idle = tokio::spawn({
        let router = w.router.clone();
        async move { router.lane_idle(LaneId(0)).await }
    });
    w.router.snapshot().await.unwrap();
    w.router.lane_sink().failed(0);
    assert!(!idle.await.unwrap());
}
