use proptest::prelude::*;

use super::*;

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

fn plan(models: &[(&str, Role)]) -> NodePlan {
    let planned = |(model, role): &(&str, Role)| PlannedModel {
        model: (*model).to_owned(),
        rate: if *role == Role::Serving { 10.0 } else { 0.0 },
        role: *role,
    };
    NodePlan { epoch: 1, models: models.iter().map(planned).collect(), gpulets: Vec::new() }
}

fn serving(models: &[&str]) -> NodePlan {
    let copies: Vec<(&str, Role)> = models.iter().map(|model| (*model, Role::Serving)).collect();
    plan(&copies)
}

fn plans<const N: usize>(plans: [(&str, NodePlan); N]) -> BTreeMap<String, NodePlan> {
    plans.into_iter().map(|(node, plan)| (node.to_owned(), plan)).collect()
}

/// A fleet whose nodes load everything that they are told to.
struct Fleet {
    moves: Moves,
    nodes: BTreeMap<String, MoveNode>,
    models: BTreeMap<String, MoveModel>,
    target: BTreeMap<String, NodePlan>,
    limit: usize,
    now: Duration,
}

impl Fleet {
    /// All of the plans in force is ready. A model takes one byte.
    fn new(space: usize, in_force: BTreeMap<String, NodePlan>) -> Self {
        let node = |(name, plan): (&String, &NodePlan)| {
            let ready = plan.models.iter().map(|planned| planned.model.clone()).collect();
            let node = MoveNode { models_max: space, memory_bytes: u64::MAX, ready, ..MoveNode::default() };
            (name.clone(), node)
        };
        let nodes = in_force.iter().map(node).collect();
        let moves = Moves::new(in_force);
        Self { moves, nodes, models: BTreeMap::new(), target: BTreeMap::new(), limit: 2, now: SECONDS(1) }
    }

    fn step(&mut self) -> Step {
        self.now += SECONDS(10);
        let transition = Transition {
            nodes: &self.nodes,
            models: &self.models,
            target: &self.target,
            per_minute: &[self.limit],
            excludes: &|_, _| false,
            allows: &|_, _| true,
        };
        self.moves.step(self.now, &BTreeMap::new(), &transition)
    }

    /// Nodes load and unload what their plans say.
    fn load(&mut self) {
        for (name, node) in &mut self.nodes {
            let plan = &self.moves.plans()[name];
            node.ready = plan.models.iter().map(|planned| planned.model.clone()).collect();
        }
    }

    fn models(&self, node: &str) -> Vec<&str> {
        self.moves.plans()[node].models.iter().map(|planned| planned.model.as_str()).collect()
    }

    fn serving(&self, model: &str) -> usize {
        let serves = |plan: &&NodePlan| plan.model(model).is_some_and(|own| own.role == Role::Serving);
        self.moves.plans().values().filter(serves).count()
    }

    fn ready_serving(&self, model: &str) -> usize {
        let serves = |(name, plan): &(&String, &NodePlan)| {
            plan.model(model).is_some_and(|own| own.role == Role::Serving)
                && self.nodes[*name].ready.contains(model)
        };
        self.moves.plans().iter().filter(serves).count()
    }
}

#[test]
fn a_copy_leaves_after_its_replacement_is_ready() {
    let mut fleet = Fleet::new(4, plans([("a", serving(&["x"])), ("b", serving(&[]))]));
    fleet.target = plans([("a", serving(&[])), ("b", serving(&["x"]))]);
    let step = fleet.step();
    assert_eq!((step.started, step.waiting), (1, 0));
    assert_eq!((fleet.models("a"), fleet.models("b")), (vec!["x"], vec!["x"]));
    fleet.step();
    assert_eq!(fleet.models("a"), ["x"], "the new copy is not ready");
    fleet.load();
    fleet.step();
    assert_eq!((fleet.models("a"), fleet.models("b")), (vec![], vec!["x"]));
}

#[test]
fn at_most_the_limit_is_started_in_any_minute() {
    let all = ["m0", "m1", "m2", "m3", "m4"];
    let mut fleet = Fleet::new(9, plans([("a", serving(&all)), ("b", serving(&[]))]));
    fleet.target = plans([("a", serving(&all)), ("b", serving(&all))]);
    let mut starts = Vec::new();
    for _ in 0..20 {
        let step = fleet.step();
        starts.extend(std::iter::repeat_n(fleet.now, step.started));
        fleet.load();
    }
    assert_eq!(starts.len(), 5);
    for at in &starts {
        let within = starts.iter().filter(|other| *other >= at && **other < *at + SECONDS(60)).count();
        assert!(within <= 2, "{starts:?}");
    }
}

#[test]
fn first_copies_and_those_of_failed_nodes_are_not_limited() {
    let three = ["m0", "m1", "m2"];
    let mut fleet =
        Fleet::new(9, plans([("a", serving(&three)), ("b", serving(&three)), ("c", serving(&[]))]));
    fleet.target = fleet.moves.plans().clone();
    fleet.step();
    fleet.nodes.remove("b");
    fleet.target = plans([("a", serving(&["m0", "m1", "m2", "new"])), ("c", serving(&three))]);
    let step = fleet.step();
    assert_eq!((step.started, step.waiting), (4, 0), "{step:?}");
    // A copy that the load asks for is limited; those up to the least number of copies are not.
    fleet.load();
    fleet.models = ["m0", "m1"].map(|model| (model.to_owned(), MoveModel { bytes: 0, copies_min: 3 })).into();
    fleet.nodes.extend(["d", "e", "f"].map(|name| (name.to_owned(), fleet.nodes["a"].clone())));
    fleet.target.extend(plans([
        ("d", serving(&["m0", "m1"])),
        ("e", serving(&["m2"])),
        ("f", serving(&["m2", "new"])),
    ]));
    let step = fleet.step();
    assert_eq!((step.started, step.waiting), (4, 1), "{step:?}");
}

#[test]
fn models_that_swap_full_nodes_make_a_detour_over_a_third_one() {
    let in_force =
        plans([("a", serving(&["x"])), ("b", serving(&["y"])), ("c", plan(&[("y", Role::Spare)]))]);
    let mut fleet = Fleet::new(1, in_force);
    fleet.target =
        plans([("a", serving(&["y"])), ("b", serving(&["x"])), ("c", plan(&[("y", Role::Spare)]))]);
    for _ in 0..40 {
        let step = fleet.step();
        assert_eq!(step.blocked, 0);
        assert!(fleet.serving("x") >= 1 && fleet.serving("y") >= 1);
        fleet.load();
    }
    assert_eq!((fleet.models("a"), fleet.models("b"), fleet.models("c")), (vec!["y"], vec!["x"], vec!["y"]));
}

#[test]
fn what_cannot_move_is_counted_as_blocked_and_goes_on_serving() {
    let mut fleet = Fleet::new(1, plans([("a", serving(&["x"])), ("b", serving(&["y"]))]));
    fleet.target = plans([("a", serving(&["y"])), ("b", serving(&["x"]))]);
    let step = fleet.step();
    assert_eq!((step.started, step.waiting, step.blocked), (0, 2, 2));
    assert_eq!((fleet.models("a"), fleet.models("b")), (vec!["x"], vec!["y"]));
}

#[test]
fn a_spare_serves_at_once_and_stays_until_a_copy_that_serves_is_ready() {
    let mut fleet = Fleet::new(
        4,
        plans([("a", serving(&["x"])), ("b", plan(&[("x", Role::Spare)])), ("c", serving(&[]))]),
    );
    fleet.nodes.remove("a");
    fleet.target = plans([("b", serving(&[])), ("c", serving(&["x"]))]);
    fleet.step();
    assert_eq!((fleet.models("b"), fleet.models("c")), (vec!["x"], vec!["x"]));
    fleet.load();
    fleet.step();
    assert_eq!((fleet.models("b"), fleet.models("c")), (vec![], vec!["x"]));
    fleet.target = plans([("b", serving(&["x"])), ("c", serving(&["x"]))]);
    fleet.step();
    fleet.load();
    // A model that is not wanted leaves at once.
    fleet.target = plans([("b", serving(&[])), ("c", serving(&[]))]);
    fleet.step();
    assert_eq!(fleet.serving("x"), 0);
}

const MODELS: usize = 7;
const NODES: usize = 6;
const SPACE: usize = 4;

/// By node, the models it has: at most as many as it has space for.
fn any_plans() -> impl Strategy<Value = Vec<Vec<(usize, bool)>>> {
    let copies = prop::collection::btree_map(0..MODELS, any::<bool>(), 0..=SPACE);
    prop::collection::vec(copies.prop_map(|copies| copies.into_iter().collect()), NODES)
}

fn named(copies: &[Vec<(usize, bool)>]) -> BTreeMap<String, NodePlan> {
    let of = |(number, copies): (usize, &Vec<(usize, bool)>)| {
        let role = |spare: bool| if spare { Role::Spare } else { Role::Serving };
        let names: Vec<(String, Role)> =
            copies.iter().map(|(model, spare)| (format!("m{model}"), role(*spare))).collect();
        let copies: Vec<(&str, Role)> = names.iter().map(|(name, role)| (name.as_str(), *role)).collect();
        (format!("n{number}"), plan(&copies))
    };
    copies.iter().enumerate().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Plans and nodes change at random, loads take random time. In every step budgets hold, copies leave after their replacements, and
    /// starts are limited. When nothing changes any more, the plans that are wanted come into force.
    #[test]
    fn every_step_is_safe_and_the_last_plans_come_into_force(
        in_force in any_plans(),
        targets in prop::collection::vec((any_plans(), 0..8_usize, prop::option::of(0..NODES)), 1..4),
        delays in prop::collection::vec(0..3_u8, 50),
        limit in 1..4_usize,
    ) {
        let mut fleet = Fleet::new(SPACE, named(&in_force));
        fleet.limit = limit;
        let free = MoveNode { models_max: SPACE, memory_bytes: u64::MAX, ..MoveNode::default() };
        fleet.nodes.insert("free".to_owned(), free.clone());
        fleet.nodes.insert("free-2".to_owned(), free);
        let last = targets.len() - 1;
        let mut delays = delays.into_iter().cycle();
        let mut limited: Vec<Duration> = Vec::new();
        for (number, (target, steps, failing)) in targets.into_iter().enumerate() {
            if let Some(failing) = failing {
                fleet.nodes.remove(&format!("n{failing}"));
            }
            fleet.target = named(&target);
            let wanted = |fleet: &Fleet, model: &str| {
                let serves = |(node, plan): &(&String, &NodePlan)| {
                    fleet.nodes.contains_key(*node) && plan.model(model).is_some_and(|own| own.role == Role::Serving)
                };
                fleet.target.iter().filter(serves).count()
            };
            for round in 0..if number == last { 900 } else { steps } {
                let before: Vec<(usize, usize)> = (0..MODELS).map(|model| {
                    let name = format!("m{model}");
                    let lives = |fleet: &Fleet| {
                        let plans = fleet.moves.plans().iter().filter(|(node, _)| fleet.nodes.contains_key(*node));
                        plans.filter(|(_, plan)| plan.model(&name).is_some_and(|own| own.role == Role::Serving)).count()
                    };
                    let ready = fleet.moves.plans().iter().filter(|(node, plan)| {
                        fleet.nodes.get(*node).is_some_and(|node| node.ready.contains(&name))
                            && plan.model(&name).is_some_and(|own| own.role == Role::Serving)
                    });
                    (lives(&fleet), ready.count())
                }).collect();
                let held = fleet.moves.held.clone();
                let step = fleet.step();
                for (name, plan) in &step.plans {
                    prop_assert!(plan.models.len() <= fleet.nodes[name].models_max, "{name}: {plan:?}");
                }
                let mut due = 0;
                for (model, (serving, ready)) in before.into_iter().enumerate() {
                    let name = format!("m{model}");
                    let wanted = wanted(&fleet, &name);
                    if wanted == 0 {
                        continue;
                    }
                    prop_assert!(serving == 0 || fleet.serving(&name) > 0, "{name} lost its last copy");
                    prop_assert!(fleet.ready_serving(&name) >= ready.min(1), "{name} lost its last ready copy");
                    let kept = fleet.moves.floor[&name].min(ready);
                    prop_assert!(fleet.ready_serving(&name) >= kept, "{name}: a copy left before its replacement was ready");
                    due += held.get(&name).copied().unwrap_or(0).max(1).saturating_sub(serving);
                }
                limited.extend(std::iter::repeat_n(fleet.now, step.started.saturating_sub(due)));
                let lately = limited.iter().filter(|at| **at + SECONDS(60) > fleet.now).count();
                prop_assert!(lately <= limit, "{lately} limited starts in a minute, {step:?}");
                // One node finishes its loads later than another.
                for (name, node) in &mut fleet.nodes {
                    let plan = &step.plans[name];
                    node.ready.retain(|model| plan.model(model).is_some());
                    for planned in &plan.models {
                        // In the end, every load succeeds.
                        if delays.next() == Some(0) || round >= 30 && round % 4 == 0 {
                            node.ready.insert(planned.model.clone());
                        }
                    }
                }
            }
        }
        for (name, plan) in fleet.moves.plans() {
            let copies = |plan: &NodePlan| {
                plan.models.iter().map(|own| (own.model.clone(), own.role)).collect::<BTreeMap<_, _>>()
            };
            let target = fleet.target.get(name).cloned().unwrap_or_default();
            prop_assert_eq!(copies(plan), copies(&target), "{} does not have its plan", name);
        }
    }
}
