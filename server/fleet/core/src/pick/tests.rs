use super::*;
use proptest::prelude::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A model that takes 10 ms a batch and 1 ms more for each further row, on one lane.
fn view() -> ModelView {
    ModelView {
        ready: true,
        lanes: 1,
        // 17 ms for 8 rows.
        row_time: Duration::from_micros(2_125),
        single_time: ms(10),
        max_batch: 8,
        ..ModelView::default()
    }
}

fn update(models: &[&str]) -> Update {
    let models = models.iter().map(|name| ((*name).to_owned(), view())).collect();
    Update { complete: true, draining: false, models, removed: Vec::new() }
}

fn picker(nodes: u32) -> Picker {
    let mut picker = Picker::new(Settings::default()).unwrap();
    for number in 0..nodes {
        let node = picker.node(&format!("node-{number}")).unwrap();
        picker.seen(Duration::ZERO, node, &update(&["m"])).unwrap();
    }
    picker
}

fn request(key: u64, deadline: Option<Duration>) -> Request<'static> {
    Request { key, model: "m", rows: 1, deadline, class: 0, is_asked: false }
}

/// Keys that were sent, with their first node and batch.
fn sent(picker: &mut Picker) -> Vec<(u64, u32, u64)> {
    let sent = |effect| match effect {
        Effect::Send { key, nodes, basis: Basis::Batch { id, .. } } => (key, nodes[0].0, id),
        other => panic!("{other:?}"),
    };
    picker.take_effects().into_iter().map(sent).collect()
}

fn keys(picker: &mut Picker) -> Vec<u64> {
    sent(picker).into_iter().map(|(key, _, _)| key).collect()
}

#[test]
fn requests_that_wait_for_a_lane_go_out_as_one_batch() {
    let mut picker = picker(1);
    let first = picker.arrive(ms(0), &request(1, Some(ms(200)))).unwrap();
    assert_eq!(keys(&mut picker), [1], "an idle lane gets the first request at once");
    for key in 2..=4 {
        picker.arrive(ms(1), &request(key, Some(ms(200)))).unwrap();
    }
    assert_eq!(picker.take_effects(), []);
    picker.ended(ms(8), first);
    let batch = sent(&mut picker);
    assert_eq!(batch.iter().map(|(key, _, _)| *key).collect::<Vec<_>>(), [2, 3, 4]);
    assert!(batch.iter().all(|(_, _, id)| *id == batch[0].2), "{batch:?}");
}

#[test]
fn the_next_batch_goes_out_before_the_answer_is_back() {
    let mut picker = picker(1);
    let first = picker.arrive(ms(0), &request(1, Some(ms(200)))).unwrap();
    let second = picker.arrive(ms(1), &request(2, Some(ms(200)))).unwrap();
    assert_eq!(sent(&mut picker).len(), 1);
    let wake = picker.next_wake().unwrap();
    assert_eq!(wake, ms(10), "the way there and back is in both directions of the expected end");
    picker.tick(wake);
    assert_eq!(keys(&mut picker), [2]);
    picker.arrive(ms(11), &request(3, Some(ms(200)))).unwrap();
    picker.tick(ms(150));
    assert_eq!(picker.take_effects(), [], "a lane has no more than the batch that runs and the next one");
    picker.ended(ms(151), first);
    picker.tick(ms(162));
    assert_eq!(sent(&mut picker).len(), 1);
    picker.ended(ms(162), second);
    assert_eq!(picker.unfinished(), 1);
}

#[test]
fn the_client_may_leave_while_its_request_waits() {
    let mut picker = picker(1);
    let first = picker.arrive(ms(0), &request(1, None)).unwrap();
    let second = picker.arrive(ms(1), &request(2, None)).unwrap();
    picker.ended(ms(2), second);
    picker.ended(ms(2), second);
    picker.ended(ms(9), first);
    assert_eq!(keys(&mut picker), [1]);
    assert_eq!(picker.unfinished(), 0);
}

#[test]
fn a_deadline_that_cannot_be_met_is_refused_with_the_reason() {
    let mut picker = picker(1);
    picker.arrive(ms(0), &request(1, Some(ms(15)))).unwrap();
    picker.arrive(ms(1), &request(2, Some(ms(12)))).unwrap();
    picker.tick(ms(12));
    let refused = picker.take_effects();
    let refused = refused.iter().filter_map(|effect| match effect {
        Effect::Refuse { key, reason } => Some((*key, *reason)),
        _ => None,
    });
    let refused: Vec<_> = refused.collect();
    assert_eq!(refused, [(2, NotPicked::Router(Reason::DeadlineUnmeetable))]);
}

#[test]
fn batches_are_planned_with_the_times_of_each_device_type() {
    let mut picker = Picker::new(Settings::default()).unwrap();
    // Slow nodes take 40 ms for a row. Their type is known before the signals, or after them.
    let slow = ModelView { single_time: ms(40), row_time: Duration::from_micros(8_500), ..view() };
    let slow = Update { models: vec![("m".to_owned(), slow)], ..update(&[]) };
    let nodes = ["fast", "slow", "slow-late"].map(|name| picker.node(name).unwrap());
    picker.device_type(ms(0), nodes[1], "slow").unwrap();
    picker.seen(ms(0), nodes[1], &slow).unwrap();
    picker.seen(ms(0), nodes[0], &update(&["m"])).unwrap();
    picker.seen(ms(0), nodes[2], &slow).unwrap();
    picker.device_type(ms(0), nodes[2], "slow").unwrap();
    for (key, deadline) in [(1, 30), (2, 90), (3, 90)] {
        picker.arrive(ms(0), &request(key, Some(ms(deadline)))).unwrap();
    }
    let places: Vec<(u64, u32)> = sent(&mut picker).into_iter().map(|(key, node, _)| (key, node)).collect();
    assert_eq!(places, [(1, 0), (2, 1), (3, 2)], "only the fast node is fast enough for the first request");
    // All lanes are busy. The fast one is free first.
    picker.arrive(ms(1), &request(4, Some(ms(35)))).unwrap();
    let wake = picker.next_wake().unwrap();
    assert_eq!(wake, ms(10));
    picker.tick(wake);
    assert_eq!(sent(&mut picker).into_iter().map(|(key, node, _)| (key, node)).collect::<Vec<_>>(), [(4, 0)]);
    let types =
        (2..=DEVICE_TYPES_MAX).map(|number| picker.device_type(ms(2), nodes[0], &format!("type-{number}")));
    assert_eq!(types.filter(|known| known.is_err()).count(), 1, "types are bounded");
}

#[test]
fn without_views_the_rates_of_the_plan_decide_at_once() {
    let mut picker = Picker::new(Settings::default()).unwrap();
    for (name, rate) in [("a", 10.0), ("b", 30.0)] {
        let node = picker.node(name).unwrap();
        picker.planned(node, "m", rate).unwrap();
    }
    let mut counts = [0; 2];
    for key in 0..8 {
        assert_eq!(picker.arrive(ms(key), &request(key, None)), None, "nothing to wait for");
        for effect in picker.take_effects() {
            let Effect::Send { nodes, basis: Basis::Weights, .. } = effect else { panic!("{effect:?}") };
            counts[nodes[0].0 as usize] += 1;
        }
    }
    assert_eq!(counts, [2, 6]);
    picker.arrive(ms(9), &Request { model: "unknown", ..request(9, None) });
    assert_eq!(picker.take_effects(), [Effect::Refuse { key: 9, reason: NotPicked::UnknownModel }]);
}

#[test]
fn a_node_that_loads_a_model_again_keeps_its_planned_rate() {
    let mut picker = Picker::new(Settings::default()).unwrap();
    // The time of a batch is not known yet, so the rates decide.
    let unmeasured = ModelView { single_time: Duration::ZERO, ..view() };
    let said = |ready| Update {
        models: vec![("m".to_owned(), ModelView { ready, ..unmeasured })],
        ..Update::default()
    };
    for (name, rate) in [("a", 10.0), ("b", 30.0)] {
        let node = picker.node(name).unwrap();
        picker.planned(node, "m", rate).unwrap();
        picker.seen(ms(0), node, &said(false)).unwrap();
    }
    picker.arrive(ms(1), &request(0, None));
    assert_eq!(picker.take_effects(), [Effect::Refuse { key: 0, reason: NotPicked::NoNode }], "both said no");
    (0..2).for_each(|node| picker.seen(ms(2), NodeNumber(node), &said(true)).unwrap());
    for key in 1..=8 {
        assert_eq!(picker.arrive(ms(3), &request(key, None)), None);
    }
    let effects = picker.take_effects();
    let to_b = |effect: &&Effect| matches!(effect, Effect::Send { nodes, .. } if nodes[0] == NodeNumber(1));
    assert_eq!(effects.iter().filter(to_b).count(), 6, "{effects:?}");
}

#[test]
fn silent_lost_and_draining_nodes_get_nothing() {
    let mut picker = picker(3);
    let nodes = [0, 1, 2].map(NodeNumber);
    picker.lost(ms(1), nodes[0]);
    picker.seen(ms(1), nodes[1], &Update { draining: true, ..update(&["m"]) }).unwrap();
    for key in 0..4 {
        picker.arrive(ms(2), &request(key, None));
    }
    assert!(sent(&mut picker).iter().all(|(_, node, _)| *node == 2));
    let silent = Settings::default().stale_after + ms(200);
    picker.seen(silent, nodes[0], &update(&["m"])).unwrap();
    picker.tick(silent);
    for key in 4..8 {
        picker.arrive(silent, &request(key, None));
    }
    assert!(sent(&mut picker).iter().all(|(_, node, _)| *node == 0), "node 2 said nothing for too long");
}

#[test]
fn a_node_may_come_back_as_often_as_it_likes() {
    let mut picker = picker(1);
    let node = NodeNumber(0);
    for round in 0..70_000 {
        let now = ms(round);
        picker.lost(now, node);
        picker.seen(now, node, &update(&["m"])).unwrap();
    }
    picker.arrive(ms(70_000), &request(1, None)).unwrap();
    assert_eq!(keys(&mut picker), [1]);
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { model: u8, rows: u32, slack: Option<u8> },
    End(prop::sample::Index),
    Seen { node: u8, models: u8, draining: bool },
    Lost(u8),
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u8..3, 1_u32..10, prop::option::of(1_u8..100))
            .prop_map(|(model, rows, slack)| Step::Arrive { model, rows, slack }),
        6 => any::<prop::sample::Index>().prop_map(Step::End),
        2 => (0_u8..4, 0_u8..8, prop::bool::weighted(0.1))
            .prop_map(|(node, models, draining)| Step::Seen { node, models, draining }),
        1 => (0_u8..4).prop_map(Step::Lost),
        4 => (0_u8..30).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever nodes do, each request is sent or refused exactly once, and none is left.
    #[test]
    fn each_request_is_sent_or_refused_once(steps in prop::collection::vec(step(), 1..120)) {
        let mut picker = Picker::new(Settings::default()).unwrap();
        for number in 0..4 {
            let node = picker.node(&format!("node-{number}")).unwrap();
            picker.planned(node, "m0", 1.0).unwrap();
        }
        let (mut now, mut key) = (Duration::ZERO, 0_u64);
        let mut decided: BTreeMap<u64, u32> = BTreeMap::new();
        let mut open: Vec<(u64, Ticket)> = Vec::new();
        let settle = |picker: &mut Picker, decided: &mut BTreeMap<u64, u32>, open: &mut Vec<(u64, Ticket)>| {
            for effect in picker.take_effects() {
                let key = match effect {
                    Effect::Send { key, nodes, .. } => {
                        assert!(!nodes.is_empty());
                        key
                    }
                    Effect::Refuse { key, .. } => {
                        open.retain(|(known, _)| *known != key);
                        key
                    }
                    other => panic!("there is one picker: {other:?}"),
                };
                *decided.entry(key).or_default() += 1;
            }
        };
        for step in steps {
            match step {
                Step::Arrive { model, rows, slack } => {
                    let deadline = slack.map(|slack| now + ms(slack.into()));
                    let model = format!("m{model}");
                    key += 1;
                    let request = Request { key, model: &model, rows, deadline, class: 0, is_asked: false };
                    open.extend(picker.arrive(now, &request).map(|ticket| (key, ticket)));
                }
                Step::End(index) => {
                    let sent: Vec<(u64, Ticket)> =
                        open.iter().filter(|(key, _)| decided.contains_key(key)).copied().collect();
                    if !sent.is_empty() {
                        let (key, ticket) = *index.get(&sent);
                        open.retain(|(known, _)| *known != key);
                        picker.ended(now, ticket);
                    }
                }
                Step::Seen { node, models, draining } => {
                    let names: Vec<String> = (0..3).filter(|model| models >> model & 1 == 1).map(|model| format!("m{model}")).collect();
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    picker.seen(now, NodeNumber(node.into()), &Update { draining, ..update(&names) }).unwrap();
                }
                Step::Lost(node) => picker.lost(now, NodeNumber(node.into())),
                Step::Wait(millis) => {
                    now += ms(millis.into());
                    picker.tick(now);
                }
            }
            settle(&mut picker, &mut decided, &mut open);
        }
        // Everything that was sent is answered, until nothing waits.
        for _ in 0..10_000 {
            let sent: Vec<(u64, Ticket)> = open.iter().filter(|(key, _)| decided.contains_key(key)).copied().collect();
            open.retain(|(key, _)| !decided.contains_key(key));
            sent.iter().for_each(|(_, ticket)| picker.ended(now, *ticket));
            now += ms(5);
            picker.tick(now);
            settle(&mut picker, &mut decided, &mut open);
            if picker.unfinished() == 0 {
                break;
            }
        }
        prop_assert_eq!(picker.unfinished(), 0);
        prop_assert_eq!(decided.len() as u64, key);
        prop_assert!(decided.values().all(|count| *count == 1), "{:?}", decided);
        prop_assert_eq!(invariant::violations(), []);
    }
}
