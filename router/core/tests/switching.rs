//! Plans of lanes that change while requests wait and batches run, step by step.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use router_core::batch::{BatchOptions, Policy};
use router_core::{
    Arrival, BatchId, BatchReport, Class, Effect, Effects, Event, LaneClass, LaneId, LaneSpec, LaneState,
    LaneUp, ModelId, ModelLanes, ModelMove, ModelSpec, Nanos, Outcome, ProfilePoint, Reason, RequestId,
    Router, RouterConfig, ShapeKey, Switch, Tenant,
};

const MODEL: ModelId = ModelId(0);
/// Cores 0 and 1.
const OLD: LaneId = LaneId(0);
/// Core 0.
const OVERLAPPING: LaneId = LaneId(1);
/// Core 2.
const SEPARATE: LaneId = LaneId(2);

fn at_ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn lane(lane: LaneId) -> LaneSpec {
    LaneSpec::new(lane, LaneClass::default())
}

fn up(id: LaneId, after: &[LaneId]) -> LaneUp {
    LaneUp { spec: lane(id), after: after.to_vec() }
}

fn to(lanes: &[LaneId]) -> Vec<ModelMove> {
    vec![ModelMove { model: MODEL, lanes: ModelLanes::Only(lanes.to_vec()), times: Vec::new() }]
}

/// From the old lane to the two that take its place.
fn apart() -> Switch {
    let up = vec![up(OVERLAPPING, &[OLD]), up(SEPARATE, &[])];
    Switch { up, drain: vec![OLD], models: to(&[OVERLAPPING, SEPARATE]) }
}

struct Timeline(Router);

impl Timeline {
    /// A model that takes 10 ms a request, one at a time, on the old lane.
    fn new() -> Self {
        let mut timeline = Self(Router::new(RouterConfig::default()).unwrap());
        timeline.feed(0, Event::LaneUp(lane(OLD)));
        timeline.feed(
            0,
            Event::ModelUp(&ModelSpec {
                measured_on: LaneClass::default(),
                preemptible: true,
                model: MODEL,
                max_batch: 1,
                queue_limit: 100,
                class_limits: Vec::new(),
                rate_limit: Default::default(),
                policy: Policy::new("deadline", &BatchOptions::default()).unwrap(),
                lanes: ModelLanes::Only(vec![OLD]),
                profile: vec![ProfilePoint { rows: 1, row_bytes: 64, time: at_ms(10) }],
            }),
        );
        timeline
    }

    fn feed(&mut self, ms: u64, event: Event<'_>) -> Vec<String> {
        let mut effects = Effects::default();
        self.0.handle(at_ms(ms), event, &mut effects);
        self.0.check().unwrap();
        assert_eq!(invariant::violations(), []);
        let word = |effect: &Effect| match *effect {
            Effect::Dispatch { lane, members, .. } => {
                let slots: Vec<u32> = effects.members(members).iter().map(|id| id.slot()).collect();
                format!("start {slots:?} on {}", lane.0)
            }
            Effect::Finish { request, outcome: Outcome::Done, .. } => format!("answer {}", request.slot()),
            Effect::Finish { request, reason, .. } => format!("end {} {reason:?}", request.slot()),
            Effect::LaneIdle(lane) => format!("{} rests", lane.0),
            Effect::Switched => "switched".to_owned(),
            ref other => format!("{other:?}"),
        };
        effects.iter().map(word).collect()
    }

    fn arrive(&mut self, ms: u64, slot: u32, slack_ms: Option<u64>) -> Vec<String> {
        let (class, tenant, shape) = (Class::default(), Tenant::default(), ShapeKey(0));
        let deadline = slack_ms.map(|slack| at_ms(ms + slack));
        let request = RequestId::new(slot, 0);
        let arrival = Arrival {
            request,
            model: MODEL,
            class,
            tenant,
            shape,
            rows: 1,
            bytes: 64,
            deadline,
            timeout_action: Default::default(),
            pipeline: None,
        };
        self.feed(ms, Event::Arrive(arrival))
    }

    /// The only batch of a lane is done.
    fn done(&mut self, ms: u64, lane: LaneId, ok: bool) -> Vec<String> {
        let batch = self.running(lane).unwrap();
        self.feed(ms, Event::BatchDone(BatchReport { lane, batch, ok }))
    }

    fn running(&self, on: LaneId) -> Option<BatchId> {
        self.0.records().iter().rev().find_map(|record| match record.decided {
            router_core::Decided::Dispatch { batch, lane, .. } if lane == on => Some(batch),
            _ => None,
        })
    }

    fn states(&self) -> [Option<LaneState>; 3] {
        [OLD, OVERLAPPING, SEPARATE].map(|lane| self.0.lane_state(lane))
    }
}

#[test]
fn a_lane_waits_for_the_cores_that_an_old_one_still_uses_and_another_starts_at_once() {
    use LaneState::{Active, Draining, Idle, Waiting};
    let mut t = Timeline::new();
    assert_eq!(t.arrive(0, 1, None), ["start [1] on 0"]);
    for slot in 2..5 {
        assert!(t.arrive(0, slot, Some(100)).is_empty());
    }
    assert_eq!(t.feed(0, Event::Switch(&apart())), ["switched", "start [2] on 2"]);
    assert_eq!(t.states(), [Some(Draining), Some(Waiting), Some(Active)]);
    // Its first batch ends at 10 ms: only then its core is free.
    assert_eq!(t.done(10, OLD, true), ["answer 1", "0 rests", "start [3] on 1"]);
    assert_eq!(t.states(), [Some(Idle), Some(Active), Some(Active)]);
    assert_eq!(t.done(10, SEPARATE, true), ["answer 2", "start [4] on 2"]);
    assert_eq!(t.done(20, OVERLAPPING, true), ["answer 3"]);
    assert_eq!(t.feed(21, Event::LaneDown(OLD)), [""; 0], "nothing is lost");
    assert_eq!(t.states(), [None, Some(Active), Some(Active)]);
}

#[test]
fn admission_counts_a_lane_that_waits_as_busy() {
    let mut t = Timeline::new();
    t.arrive(0, 1, None);
    t.feed(0, Event::Switch(&apart()));
    assert_eq!(t.arrive(0, 2, None), ["start [2] on 2"]);
    // One of the two is free at 10 ms, an answer takes 10 ms and a margin more.
    assert_eq!(t.arrive(2, 3, Some(15)), ["end 3 DeadlineUnmeetable"]);
    assert_eq!(t.arrive(2, 4, Some(25)), [""; 0]);
    let waiting = t.0.snapshot().lanes.into_iter().map(|lane| lane.busy_until).collect::<Vec<_>>();
    assert_eq!(waiting, [None, Some(at_ms(10)), Some(at_ms(10))], "an idle lane serves no model");
}

#[test]
fn a_switch_can_be_rolled_back() {
    let mut t = Timeline::new();
    t.arrive(0, 1, None);
    t.feed(0, Event::Switch(&apart()));
    t.arrive(1, 2, None);
    t.arrive(1, 3, None);
    assert_eq!(t.arrive(1, 4, None), [""; 0]);
    let back = Switch {
        up: vec![up(OLD, &[OVERLAPPING, SEPARATE])],
        drain: vec![OVERLAPPING, SEPARATE],
        models: to(&[OLD]),
    };
    // The old lane never lost its batch; the one that waited for it held no batch.
    assert_eq!(t.feed(2, Event::Switch(&back)), ["switched", "1 rests"]);
    assert_eq!(t.done(10, OLD, true), ["answer 1"], "lane 2 holds a batch still");
    assert_eq!(t.done(11, SEPARATE, true), ["answer 2", "2 rests", "start [3] on 0"]);
    assert_eq!(t.done(21, OLD, true), ["answer 3", "start [4] on 0"]);
    assert_eq!(
        t.feed(22, Event::Switch(&Switch { drain: vec![SEPARATE], ..Switch::default() })),
        ["switched"]
    );
}

#[test]
fn a_lane_that_dies_while_others_wait_for_it_lets_them_go() {
    let mut t = Timeline::new();
    t.arrive(0, 1, None);
    t.arrive(0, 2, None);
    t.arrive(0, 3, None);
    assert_eq!(t.feed(0, Event::Switch(&apart())), ["switched", "start [2] on 2"]);
    assert_eq!(t.feed(3, Event::LaneDown(OLD)), ["end 1 LaneFailed", "start [3] on 1"]);
}

#[test]
fn a_model_that_is_left_without_lanes_is_told_so() {
    let mut t = Timeline::new();
    t.arrive(0, 1, None);
    t.arrive(0, 2, None);
    let nowhere = Switch { models: to(&[LaneId(7)]), ..Switch::default() };
    assert_eq!(t.feed(1, Event::Switch(&nowhere)), ["switched", "end 2 NoLane"]);
    assert_eq!(t.arrive(2, 3, None), ["end 3 NoLane"]);
    assert_eq!(t.done(10, OLD, true), ["answer 1"], "what ran ends where it is");
    let again = Switch { models: to(&[OLD]), ..Switch::default() };
    assert_eq!(t.feed(11, Event::Switch(&again)), ["switched"]);
    assert_eq!(t.arrive(12, 4, None), ["start [4] on 0"]);
}

#[test]
fn a_batch_that_fails_after_its_model_lost_all_lanes_ends_its_requests() {
    let mut t = Timeline::new();
    t.0 = Router::new(RouterConfig::default()).unwrap();
    t.feed(0, Event::LaneUp(LaneSpec { ..lane(OLD) }));
    let spec = ModelSpec {
        measured_on: LaneClass::default(),
        preemptible: true,
        model: MODEL,
        max_batch: 4,
        queue_limit: 100,
        class_limits: Vec::new(),
        rate_limit: Default::default(),
        policy: Policy::new("triton", &BatchOptions::default()).unwrap(),
        lanes: ModelLanes::All,
        profile: Vec::new(),
    };
    t.feed(0, Event::ModelUp(&spec));
    t.arrive(0, 1, None);
    t.arrive(0, 2, None);
    t.arrive(0, 3, None);
    assert_eq!(t.done(10, OLD, true), ["answer 1", "start [2, 3] on 0"]);
    let removal = Switch { drain: vec![OLD], ..Switch::default() };
    assert_eq!(t.feed(11, Event::Switch(&removal)), ["switched"]);
    assert_eq!(t.done(12, OLD, false), ["end 2 NoLane", "end 3 NoLane", "0 rests"]);
    assert_eq!(t.0.unfinished(), 0);
    assert_eq!(t.arrive(13, 4, None), [format!("end 4 {:?}", Reason::NoLane)]);
}
