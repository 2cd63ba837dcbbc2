//! Tests of what a chooser adds to the picker.

use std::collections::BTreeSet;

use fleet_core::view::ModelView;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn endpoint(name: &str) -> Arc<Endpoint> {
    Arc::new(Endpoint {
        name: name.to_owned(),
        http: format!("{name}:8000"),
        grpc: format!("{name}:8001"),
        device_type: String::new(),
    })
}

fn view() -> ModelView {
    ModelView {
        ready: true,
        lanes: 1,
        row_time: MS,
        single_time: MS * 5,
        max_batch: 8,
        ..ModelView::default()
    }
}

fn update(models: &[&str]) -> Update {
    let models = models.iter().map(|model| ((*model).to_owned(), view())).collect();
    Update { complete: true, models, ..Update::default() }
}

fn asked(key: u64, model: Option<&str>) -> Asked {
    Asked {
        key,
        model: model.map(str::to_owned),
        runs: true,
        rows: 1,
        timeout: None,
        class: 0,
        is_asked: false,
    }
}

struct World {
    chooser: Chooser,
    nodes: Vec<NodeNumber>,
}

impl World {
    fn new(names: &[&str], options: Options) -> Self {
        let mut chooser = Chooser::new(options).unwrap();
        let nodes = names.iter().map(|name| chooser.added(Duration::ZERO, endpoint(name)).unwrap()).collect();
        Self { chooser, nodes }
    }

    fn seen(&mut self, node: usize, models: &[&str]) {
        assert!(self.chooser.seen(MS, self.nodes[node], &update(models)));
    }

    /// Answers to a request and to those that waited, in order.
    fn ask(&mut self, now: Duration, asked: &Asked) -> Vec<(u64, Answer)> {
        match self.chooser.arrive(now, asked) {
            Some(answer) => vec![(asked.key, answer)],
            None => self.answers(),
        }
    }

    fn answers(&mut self) -> Vec<(u64, Answer)> {
        let mut answers = Vec::new();
        self.chooser.take_decisions(|decision| match decision {
            Decision::Answer(key, answer) => answers.push((key, answer)),
            other => panic!("no other picker is listed: {other:?}"),
        });
        answers
    }

    /// Names of the nodes, and the choice, of a single answer.
    fn sent(&mut self, now: Duration, asked: &Asked) -> (Vec<String>, Choice) {
        match self.ask(now, asked).as_slice() {
            [(key, Answer::Send { nodes, choice, .. })] if *key == asked.key => {
                (nodes.iter().map(|node| node.name.clone()).collect(), *choice)
            }
            other => panic!("expected one sent request, got {other:?}"),
        }
    }

    fn refused(&mut self, model: &str) -> NotPicked {
        match self.ask(MS * 2, &asked(99, Some(model))).as_slice() {
            [(99, Answer::Refuse(reason))] => *reason,
            other => panic!("expected one refused request, got {other:?}"),
        }
    }
}

#[test]
fn an_unknown_model_is_refused_only_once_all_nodes_said_what_they_have() {
    let mut world = World::new(&["a", "b"], Options::default());
    assert_eq!(world.sent(MS, &asked(1, Some("x"))), (vec!["a".into(), "b".into()], Choice::Any));
    world.seen(1, &["m"]);
    // The node that is heard comes first: it forwards to a node that has the model.
    assert_eq!(world.sent(MS, &asked(2, Some("x"))), (vec!["b".into(), "a".into()], Choice::Any));
    world.seen(0, &[]);
    assert_eq!(world.refused("x"), NotPicked::UnknownModel);
    world.chooser.lost(MS, world.nodes[0]);
    assert_eq!(world.sent(MS, &asked(3, Some("x"))).1, Choice::Any);
    world.chooser.removed(MS, world.nodes[0]);
    assert_eq!(world.refused("x"), NotPicked::UnknownModel);
}

#[test]
fn a_model_whose_only_node_starts_again_is_not_ready_instead_of_unknown() {
    let mut world = World::new(&["a", "b"], Options::default());
    world.chooser.planned(world.nodes[0], "m", 5.0);
    assert_eq!(world.sent(MS, &asked(1, Some("m"))).0[0], "a", "the plan names it before it was heard");
    world.seen(0, &["m"]);
    world.seen(1, &["x"]);
    world.chooser.lost(MS, world.nodes[0]);
    assert_eq!(world.refused("m"), NotPicked::NoNode);
    world.chooser.lost(MS, world.nodes[1]);
    assert_eq!(
        world.sent(MS, &asked(2, Some("m"))).1,
        Choice::Any,
        "this picker may be the one without a network"
    );
}

#[test]
fn requests_that_run_no_model_go_to_a_node_that_has_it() {
    let mut world = World::new(&["a", "b"], Options::default());
    world.seen(0, &["x"]);
    world.seen(1, &["m"]);
    let metadata = |key, model| Asked { runs: false, ..asked(key, Some(model)) };
    for key in 1..4 {
        assert_eq!(world.sent(MS, &metadata(key, "m")), (vec!["b".into()], Choice::Weights));
    }
    assert_eq!(world.ask(MS, &metadata(4, "y")), [(4, Answer::Refuse(NotPicked::UnknownModel))]);
}

#[test]
fn without_a_node_the_gateway_chooses() {
    let mut world = World::new(&[], Options::default());
    for model in [None, Some("m")] {
        assert_eq!(world.sent(MS, &asked(1, model)), (vec![], Choice::Any));
    }
}

#[test]
fn a_model_that_no_node_takes_goes_to_any_node_while_one_drains() {
    let mut world = World::new(&["a", "b"], Options::default());
    world.seen(0, &["m"]);
    world.seen(1, &[]);
    let draining = Update { draining: true, ..Update::default() };
    assert!(world.chooser.seen(MS, world.nodes[0], &draining));
    assert_eq!(world.sent(MS, &asked(1, Some("m"))), (vec!["b".into(), "a".into()], Choice::Any));
    let stopped = Update { models: vec![("m".into(), ModelView { ready: false, ..view() })], ..update(&[]) };
    assert!(world.chooser.seen(MS, world.nodes[0], &stopped));
    assert_eq!(world.refused("m"), NotPicked::NoNode);
}

#[test]
fn requests_without_a_model_go_to_each_node_in_turn() {
    let mut world = World::new(&["a", "b", "c", "d"], Options::default());
    (0..3).for_each(|node| world.seen(node, &["m"]));
    let firsts: Vec<String> = (0..4).map(|key| world.sent(MS, &asked(key, None)).0.remove(0)).collect();
    assert_eq!(firsts, ["a", "b", "c", "a"]);
}

#[test]
fn batches_of_different_pickers_and_runs_have_different_ids() {
    let mut ids = BTreeSet::new();
    for (number, run) in [(0, 7), (1, 7), (1, 8)] {
        let picker = Settings { number, ..Settings::default() };
        let mut world = World::new(&["a"], Options { picker, run, ..Options::default() });
        world.seen(0, &["m"]);
        let (_, choice) = world.sent(MS * 2, &asked(1, Some("m")));
        let Choice::Batch { id, rows: 1 } = choice else { panic!("expected a batch, got {choice:?}") };
        ids.insert(id);
    }
    assert_eq!(ids.len(), 3);
}

#[test]
fn the_objective_is_the_deadline_of_requests_without_one() {
    let objectives = [("m".to_owned(), MS * 2)].into();
    let mut world = World::new(&["a"], Options { objectives, ..Options::default() });
    world.seen(0, &["m", "free"]);
    let later = Asked { timeout: Some(MS * 50), ..asked(2, Some("m")) };
    assert!(matches!(world.sent(MS * 2, &later).1, Choice::Batch { .. }));
    // A batch takes 5 ms.
    assert_eq!(world.refused("m"), NotPicked::Router(router_core::Reason::DeadlineUnmeetable));
}

#[test]
fn a_request_that_waits_is_released_and_its_lane_stays_usable() {
    let mut world = World::new(&["a"], Options::default());
    world.seen(0, &["m"]);
    let mut keys = 1..;
    let waiting = loop {
        let key = keys.next().unwrap();
        if world.ask(MS * 2, &asked(key, Some("m"))).is_empty() {
            break key;
        }
    };
    let answer = world.chooser.release(MS * 3, waiting);
    assert!(
        matches!(&answer, Answer::Send { nodes, choice: Choice::Any, .. } if nodes.len() == 1),
        "{answer:?}"
    );
    (1..waiting).for_each(|key| world.chooser.ended(MS * 4, key));
    assert!(world.answers().is_empty(), "a released request is not answered twice");
    assert!(matches!(world.sent(MS * 20, &asked(waiting + 1, Some("m"))).1, Choice::Batch { .. }));
}

#[test]
fn a_ticket_ends_by_itself_in_the_end_and_only_kept_ones_end_by_name() {
    let mut world = World::new(&["a"], Options::default());
    world.seen(0, &["m"]);
    assert_eq!(world.ask(MS * 2, &asked(1, Some("m"))).len(), 1);
    world.chooser.done(MS * 2, 1);
    assert_eq!(world.chooser.tickets.len(), 1, "it belongs to a stream");
    world.chooser.keep(MS * 2, 1);
    world.chooser.tick(TICKET_TIMEOUT);
    assert_eq!(world.chooser.take_expired(), 0);
    let mut now = TICKET_TIMEOUT + MS * 2;
    assert!(world.chooser.next_wake().unwrap() <= now);
    world.chooser.tick(now);
    assert_eq!((world.chooser.take_expired(), world.chooser.tickets.len()), (1, 0));
    world.seen(0, &["m"]);
    now += MS;
    let before = world.chooser.seen(now, world.nodes[0], &update(&["m"]));
    assert!(before);
    assert_eq!(world.ask(now, &asked(2, Some("m"))).len(), 1);
    world.chooser.keep(now, 2);
    world.chooser.done(now, 2);
    world.chooser.tick(now + TICKET_TIMEOUT);
    assert_eq!(world.chooser.take_expired(), 0, "it was reported");
}
