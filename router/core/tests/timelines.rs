//! What the machine does, step by step, with literal times.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use router_core::batch::{BatchOptions, Policy};
use router_core::{
    Arrival, BatchId, BatchReport, Class, Effect, Effects, Event, LaneClass, LaneId, LaneSpec, ModelId,
    ModelLanes, ModelSpec, Nanos, Outcome, ProfilePoint, Reason, RequestId, Router, RouterConfig, ShapeKey,
    Tenant, TimeoutAction,
};

const MODEL: ModelId = ModelId(0);

struct Timeline {
    router: Router,
    policy: Policy,
    now: Nanos,
}

fn at_ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// A model that takes 10 ms alone and, batched, 9 ms and 1 ms a row, on one lane.
fn spec(policy: Policy) -> ModelSpec {
    let point = |rows: u32| ProfilePoint { rows, row_bytes: 64, time: at_ms(9 + u64::from(rows)) };
    ModelSpec {
        measured_on: LaneClass::default(),
        preemptible: true,
        model: MODEL,
        max_batch: 8,
        queue_limit: 4,
        class_limits: Vec::new(),
        rate_limit: Default::default(),
        policy,
        lanes: ModelLanes::All,
        profile: [1, 2, 4, 8].map(point).to_vec(),
    }
}

impl Timeline {
    fn new(policy: Policy) -> Self {
        let router = Router::new(RouterConfig::default()).unwrap();
        let mut timeline = Self { router, policy: policy.clone(), now: Nanos::ZERO };
        timeline.feed(0, Event::ModelUp(&spec(policy)));
        timeline.feed(0, Event::LaneUp(LaneSpec::new(LaneId(0), LaneClass::default())));
        timeline
    }

    fn feed(&mut self, ms: u64, event: Event<'_>) -> Effects {
        self.now = at_ms(ms);
        let mut effects = Effects::default();
        self.router.handle(self.now, event, &mut effects);
        self.router.check().unwrap();
        assert_eq!(invariant::violations(), []);
        effects
    }

    fn arrive(&mut self, ms: u64, slot: u32, slack_ms: Option<u64>) -> Effects {
        self.arrive_as(ms, slot, slack_ms, Class::default(), ShapeKey(0))
    }

    fn arrive_as(
        &mut self,
        ms: u64,
        slot: u32,
        slack_ms: Option<u64>,
        class: Class,
        shape: ShapeKey,
    ) -> Effects {
        let deadline = slack_ms.map(|slack| at_ms(ms + slack));
        let request = RequestId::new(slot, 0);
        self.feed(
            ms,
            Event::Arrive(Arrival {
                request,
                model: MODEL,
                class,
                tenant: Tenant::default(),
                shape,
                rows: 1,
                bytes: 64,
                deadline,
                timeout_action: Default::default(),
                pipeline: None,
            }),
        )
    }

    fn done(&mut self, ms: u64, batch: BatchId, ok: bool) -> Effects {
        self.feed(ms, Event::BatchDone(BatchReport { lane: LaneId(0), batch, ok }))
    }
}

fn deadline() -> Policy {
    Policy::new("deadline", &BatchOptions::default()).unwrap()
}

fn dispatched(effects: &Effects) -> Option<(BatchId, Vec<u32>)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Dispatch { batch, members, .. } => {
            Some((*batch, effects.members(*members).iter().map(|id| id.slot()).collect()))
        }
        _ => None,
    })
}

fn finished(effects: &Effects) -> Vec<(u32, Outcome, Reason)> {
    let finish = |effect: &Effect| match effect {
        Effect::Finish { request, outcome, reason } => Some((request.slot(), *outcome, *reason)),
        _ => None,
    };
    effects.iter().filter_map(finish).collect()
}

#[test]
fn a_lone_request_starts_at_once_and_later_ones_form_the_next_batch() {
    let mut t = Timeline::new(deadline());
    let (first, members) = dispatched(&t.arrive(0, 1, Some(100))).unwrap();
    assert_eq!(members, [1]);
    for slot in 2..=5 {
        assert!(t.arrive(3, slot, Some(100)).is_empty());
    }
    let effects = t.done(10, first, true);
    assert_eq!(finished(&effects), [(1, Outcome::Done, Reason::Answered)]);
    assert_eq!(dispatched(&effects).unwrap().1, [2, 3, 4, 5]);
}

#[test]
fn requests_that_arrive_together_on_an_idle_lane_run_as_one_batch() {
    for policy in [deadline(), Policy::new("triton", &BatchOptions::default()).unwrap()] {
        let mut t = Timeline::new(policy);
        let arrival = |slot: u32, slack_ms: u64| Arrival {
            request: RequestId::new(slot, 0),
            model: MODEL,
            class: Class::default(),
            tenant: Tenant::default(),
            shape: ShapeKey(0),
            rows: 1,
            bytes: 64,
            deadline: Some(at_ms(slack_ms)),
            timeout_action: Default::default(),
            pipeline: None,
        };
        let effects = t.feed(0, Event::ArriveTogether(&[arrival(1, 100), arrival(2, 0), arrival(3, 100)]));
        assert_eq!(finished(&effects), [(2, Outcome::Expired, Reason::DeadlinePassed)], "by itself");
        assert_eq!(dispatched(&effects).unwrap().1, [1, 3]);
        assert!(t.feed(1, Event::ArriveTogether(&[])).is_empty());
    }
}

#[test]
fn a_request_that_cannot_be_answered_in_time_is_refused_on_arrival() {
    let mut t = Timeline::new(deadline());
    t.arrive(0, 1, None);
    // The lane is busy until 10 ms, an answer takes 10 ms and a margin of two deviations more.
    assert_eq!(finished(&t.arrive(1, 2, Some(15))), [(2, Outcome::Refused, Reason::DeadlineUnmeetable)]);
    assert!(t.arrive(1, 3, Some(25)).is_empty());
}

#[test]
fn a_queued_request_is_refused_the_moment_its_deadline_is_out_of_reach() {
    let mut t = Timeline::new(deadline());
    t.arrive(0, 1, None);
    t.arrive(0, 2, Some(24));
    // 24 ms less 10 ms and two deviations of 1.25 ms: after 11.5 ms it cannot finish in time.
    let wake = t.router.next_wake().unwrap();
    assert_eq!(wake, Nanos::from_micros(11_500).after(Nanos(1)));
    let mut effects = Effects::default();
    t.router.handle(wake, Event::Tick, &mut effects);
    assert_eq!(finished(&effects), [(2, Outcome::Refused, Reason::DeadlineUnmeetable)]);
}

#[test]
fn policies_aim_a_margin_before_the_deadline_but_no_more_than_an_eighth() {
    let waiting = |margin_ms: u64| {
        let policy = Policy::new("symphony", &BatchOptions::default()).unwrap();
        let mut t = Timeline::new(policy.clone());
        t.router = Router::new(RouterConfig { margin: at_ms(margin_ms), ..RouterConfig::default() }).unwrap();
        t.feed(0, Event::ModelUp(&spec(policy)));
        t.feed(0, Event::LaneUp(LaneSpec::new(LaneId(0), LaneClass::default())));
        assert!(t.arrive(0, 1, Some(40)).is_empty());
        t
    };
    let wakes = [0, 2, 30].map(|margin| waiting(margin).router.next_wake().unwrap().0);
    assert_eq!((wakes[0] - wakes[1], wakes[0] - wakes[2]), (at_ms(2).0, at_ms(5).0));
    // Woken too late for that, it still starts what can be answered by the deadline itself.
    let late = waiting(2).feed(27, Event::Tick);
    assert_eq!(dispatched(&late).unwrap().1, [1]);
}

#[test]
fn an_estimate_that_condemns_everything_is_put_to_the_test() {
    let mut t = Timeline::new(deadline());
    let (probe, _) = dispatched(&t.arrive(0, 1, Some(5))).unwrap();
    t.done(2, probe, true);
    let refused = t.arrive(3, 2, Some(5));
    assert_eq!(finished(&refused), [(2, Outcome::Refused, Reason::DeadlineUnmeetable)]);
    let mut now = 3;
    for slot in 3..60 {
        now += 3;
        if let Some((batch, _)) = dispatched(&t.arrive(now, slot, Some(5))) {
            t.done(now + 2, batch, true);
        }
    }
    let measured_again = (100..110).all(|slot| {
        now += 3;
        dispatched(&t.arrive(now, slot, Some(9)))
            .is_some_and(|(batch, _)| !t.done(now + 2, batch, true).is_empty())
    });
    assert!(measured_again, "batches that take 2 ms fit a deadline of 9 ms once that has been seen");
}

#[test]
fn the_queue_has_a_bound() {
    let mut t = Timeline::new(deadline());
    for slot in 0..5 {
        t.arrive(0, slot, None);
    }
    assert_eq!(finished(&t.arrive(0, 9, None)), [(9, Outcome::Refused, Reason::QueueFull)]);
    let other_class = t.arrive_as(0, 10, None, Class::new(1), ShapeKey(0));
    assert!(other_class.is_empty(), "each class has its own");
}

#[test]
fn classes_go_first_and_shapes_do_not_mix_but_classes_do() {
    let mut t = Timeline::new(deadline());
    let (running, _) = dispatched(&t.arrive(0, 1, None)).unwrap();
    t.arrive_as(0, 2, None, Class::new(1), ShapeKey(0));
    t.arrive_as(1, 3, None, Class::new(0), ShapeKey(7));
    t.arrive_as(2, 4, None, Class::new(0), ShapeKey(0));
    t.arrive_as(3, 5, None, Class::new(0), ShapeKey(7));
    let (running, members) = dispatched(&t.done(10, running, true)).unwrap();
    assert_eq!(members, [3, 5]);
    assert_eq!(
        dispatched(&t.done(21, running, true)).unwrap().1,
        [4, 2],
        "the batch has space for a lower class"
    );
}

#[test]
fn earlier_deadlines_overtake() {
    let mut t = Timeline::new(deadline());
    let (running, _) = dispatched(&t.arrive(0, 1, None)).unwrap();
    t.arrive(0, 2, None);
    t.arrive(1, 3, Some(200));
    t.arrive(2, 4, Some(100));
    assert_eq!(dispatched(&t.done(10, running, true)).unwrap().1, [4, 3, 2]);
}

#[test]
fn a_client_that_leaves_is_never_run() {
    let mut t = Timeline::new(deadline());
    let (running, _) = dispatched(&t.arrive(0, 1, None)).unwrap();
    t.arrive(0, 2, None);
    t.arrive(0, 3, None);
    let cancelled = t.feed(5, Event::Cancel(RequestId::new(2, 0)));
    assert_eq!(finished(&cancelled), [(2, Outcome::Cancelled, Reason::ClientDisconnected)]);
    assert_eq!(dispatched(&t.done(10, running, true)).unwrap().1, [3]);
}

#[test]
fn one_bad_request_does_not_fail_its_batch() {
    let mut t = Timeline::new(deadline());
    let (running, _) = dispatched(&t.arrive(0, 1, None)).unwrap();
    t.arrive(0, 2, None);
    t.arrive(0, 3, None);
    let (both, members) = dispatched(&t.done(10, running, true)).unwrap();
    assert_eq!(members, [2, 3]);
    let failed = t.done(20, both, false);
    assert_eq!(finished(&failed), []);
    let (alone, members) = dispatched(&failed).unwrap();
    assert_eq!(members, [2]);
    let effects = t.done(30, alone, false);
    assert_eq!(finished(&effects), [(2, Outcome::Failed, Reason::EngineFailed)]);
    let (alone, members) = dispatched(&effects).unwrap();
    assert_eq!(members, [3]);
    assert_eq!(finished(&t.done(40, alone, true)), [(3, Outcome::Done, Reason::Answered)]);
}

#[test]
fn a_dead_lane_fails_what_it_ran_and_refuses_what_only_it_could_run() {
    let mut t = Timeline::new(deadline());
    t.arrive(0, 1, None);
    t.arrive(0, 2, None);
    let ended = finished(&t.feed(5, Event::LaneDown(LaneId(0))));
    assert_eq!(ended, [(1, Outcome::Failed, Reason::LaneFailed), (2, Outcome::Refused, Reason::NoLane)]);
    assert_eq!(finished(&t.arrive(6, 3, None)), [(3, Outcome::Refused, Reason::NoLane)]);
}

#[test]
fn requests_of_a_failed_lane_run_again_alone_and_not_a_third_time() {
    let mut t = Timeline::new(deadline());
    let other = |lane| LaneSpec::new(LaneId(lane), LaneClass::default());
    let (first, _) = dispatched(&t.arrive(0, 1, None)).unwrap();
    for slot in 2..=4 {
        t.arrive(0, slot, None);
    }
    let (_, members) = dispatched(&t.done(10, first, true)).unwrap();
    assert_eq!(members, [2, 3, 4]);
    t.feed(11, Event::LaneUp(other(1)));
    let effects = t.feed(12, Event::LaneFailed(LaneId(0)));
    assert_eq!(finished(&effects), [], "they have an answer coming");
    assert_eq!(dispatched(&effects).unwrap().1, [2], "on the other lane, and alone");
    t.feed(13, Event::LaneUp(other(0)));
    let effects = t.feed(14, Event::LaneFailed(LaneId(1)));
    assert_eq!(finished(&effects), [(2, Outcome::Failed, Reason::LaneFailedTwice)]);
    let last = finished(&t.feed(15, Event::LaneFailed(LaneId(0))));
    assert!(last.contains(&(3, Outcome::Failed, Reason::LaneFailedTwice)));
    assert!(last.contains(&(4, Outcome::Refused, Reason::NoLane)), "{last:?}: it was not run a second time");
}

#[test]
fn without_another_lane_what_a_lost_one_ran_may_be_sent_again() {
    let mut t = Timeline::new(deadline());
    t.arrive(0, 1, None);
    let ended = finished(&t.feed(5, Event::LaneFailed(LaneId(0))));
    assert_eq!(ended, [(1, Outcome::Refused, Reason::LaneFailed)]);
}

#[test]
fn a_model_that_goes_down_answers_what_it_accepted() {
    let mut t = Timeline::new(deadline());
    let (running, _) = dispatched(&t.arrive(0, 1, None)).unwrap();
    t.arrive(0, 2, None);
    assert!(t.feed(1, Event::ModelDown(MODEL)).is_empty());
    assert_eq!(finished(&t.arrive(2, 3, None)), [(3, Outcome::Refused, Reason::UnknownModel)]);
    let (running, members) = dispatched(&t.done(10, running, true)).unwrap();
    assert_eq!(members, [2]);
    assert!(t.done(20, running, true).iter().any(|effect| *effect == Effect::Retired(MODEL)));
}

#[test]
fn a_drain_answers_what_it_can_and_refuses_the_rest_at_its_end() {
    let mut t = Timeline::new(deadline());
    t.arrive(0, 1, None);
    t.arrive(0, 2, None);
    t.feed(1, Event::Drain { until: at_ms(8) });
    assert_eq!(finished(&t.arrive(2, 3, None)), [(3, Outcome::Refused, Reason::Draining)]);
    assert_eq!(t.router.next_wake(), Some(at_ms(8)));
    assert_eq!(finished(&t.feed(8, Event::Tick)), [(2, Outcome::Refused, Reason::Draining)]);
    assert_eq!(t.router.unfinished(), 1);
}

#[test]
fn a_delayed_request_is_served_after_those_of_its_class_that_are_in_time() {
    for policy in [deadline(), Policy::new("triton", &BatchOptions::default()).unwrap()] {
        let mut t = Timeline::new(policy);
        let spec = ModelSpec { model: ModelId(1), max_batch: 1, ..spec(t.policy.clone()) };
        t.feed(0, Event::ModelUp(&spec));
        let arrive = |slot: u32, deadline: Option<u64>, class: u8| Arrival {
            request: RequestId::new(slot, 0),
            model: ModelId(1),
            class: Class::new(class),
            tenant: Tenant::default(),
            shape: ShapeKey(0),
            rows: 1,
            bytes: 64,
            deadline: deadline.map(at_ms),
            timeout_action: TimeoutAction::Delay,
            pipeline: None,
        };
        let (running, _) = dispatched(&t.feed(0, Event::Arrive(arrive(1, None, 0)))).unwrap();
        t.feed(1, Event::Arrive(arrive(2, Some(5), 0)));
        t.feed(2, Event::Arrive(arrive(3, Some(6), 0)));
        t.feed(3, Event::Arrive(arrive(4, None, 0)));
        t.feed(4, Event::Arrive(arrive(5, Some(500), 0)));
        t.feed(4, Event::Arrive(arrive(6, Some(500), 1)));
        assert_eq!(
            finished(&t.feed(7, Event::Tick)),
            [],
            "both timeouts have passed and nothing is rejected"
        );
        let mut order = Vec::new();
        let mut next = Some((running, Vec::new()));
        let mut ms = 10;
        while let Some((batch, members)) = next {
            order.extend(members);
            next = dispatched(&t.done(ms, batch, true));
            ms += 10;
        }
        assert_eq!(order, [5, 4, 2, 3, 6], "in time, without deadline, delayed; then the next class");
    }
}

#[test]
fn a_class_with_its_own_limit_is_refused_at_that_limit() {
    let mut t = Timeline::new(deadline());
    t.feed(0, Event::ModelDown(MODEL));
    t.feed(0, Event::ModelUp(&ModelSpec { class_limits: vec![(Class::new(2), 1)], ..spec(deadline()) }));
    t.arrive(0, 1, None);
    let limited = Class::new(2);
    assert!(t.arrive_as(1, 2, None, limited, ShapeKey(0)).is_empty());
    assert_eq!(
        finished(&t.arrive_as(1, 3, None, limited, ShapeKey(0))),
        [(3, Outcome::Refused, Reason::QueueFull)]
    );
    assert!(t.arrive(1, 4, None).is_empty(), "other classes have the limit of the model");
}

#[test]
fn a_window_fires_when_its_time_is_up() {
    let options = BatchOptions { max_delay: Some(at_ms(2)), preferred: vec![4], ..BatchOptions::default() };
    let mut t = Timeline::new(Policy::new("triton", &options).unwrap());
    assert!(t.arrive(0, 1, None).is_empty());
    assert!(t.arrive(1, 2, None).is_empty());
    assert_eq!(t.router.next_wake(), Some(at_ms(2)));
    assert_eq!(dispatched(&t.feed(2, Event::Tick)).unwrap().1, [1, 2]);
}

#[test]
fn the_backlog_is_what_a_new_request_would_meet() {
    let mut t = Timeline::new(Policy::new("deadline", &BatchOptions::default()).unwrap());
    let backlog = t.router.backlogs()[0];
    assert_eq!((backlog.model, backlog.lanes, backlog.max_batch), (MODEL, 1, 8));
    assert_eq!((backlog.free_in, backlog.backlog, backlog.queued), (Nanos::ZERO, Nanos::ZERO, 0));
    assert!(backlog.single_time >= at_ms(10) && backlog.single_time < at_ms(13), "{backlog:?}");
    // 17 ms for 8 rows.
    assert!(backlog.row_time >= Nanos(2_100_000) && backlog.row_time < Nanos(2_700_000), "{backlog:?}");

    t.arrive(0, 0, Some(10));
    t.arrive(1, 1, Some(500));
    t.arrive(1, 2, Some(500));
    let backlog = t.router.backlogs()[0];
    assert!(backlog.free_in >= at_ms(9) && backlog.free_in < at_ms(12), "{backlog:?}");
    assert_eq!((backlog.queued, backlog.backlog), (2, Nanos(2 * backlog.row_time.0)));

    t.feed(2, Event::ModelDown(MODEL));
    assert!(t.router.backlogs().is_empty(), "a model that takes no requests has none");
}
