use std::time::Duration;

use fleet_kubernetes::leader::inputs::NodeState;
use fleet_kubernetes::resources::model::{Model, ModelSpec, Objective, Profile};
use fleet_kubernetes::resources::node_plan::{Device as Reported, NodePlanSpec, NodePlanStatus};
use fleet_kubernetes::resources::serving_pool::{PlannerPolicy, ServingPool};
use fleet_picker::follow::Listener as _;
use fleet_picker::nodes::Endpoint;

use super::*;

fn node(name: &str) -> NodeState {
    let device = Reported { name: "gpu".to_owned(), units: 1, memory_bytes: Some(1_000) };
    NodeState {
        name: name.to_owned(),
        labels: BTreeMap::new(),
        alive: true,
        generation: Some(1),
        plan: NodePlanSpec::default(),
        status: NodePlanStatus { devices: vec![device], ..NodePlanStatus::default() },
    }
}

fn model(name: &str, change: impl FnOnce(&mut ModelSpec)) -> Arc<Model> {
    let mut model = Model::new(
        name,
        ModelSpec {
            source: None,
            objective: Objective { slo: "100ms".to_owned() },
            class: 1,
            tenant: "default".to_owned(),
            min_replicas: 1,
            max_replicas: None,
            placement: None,
            rate: None,
            memory_bytes: Some(100),
            profile: None,
        },
    );
    change(&mut model.spec);
    Arc::new(model)
}

/// A model with batches of 10 ms for one row and 1 ms for each further one.
fn profiled(name: &str, rate: f64) -> Arc<Model> {
    model(name, |spec| {
        let (fixed, per_row) = ("9ms".to_owned(), "1ms".to_owned());
        spec.profile = Some(Profile { fixed, per_row, max_batch: 16 });
        spec.rate = Some(rate);
    })
}

/// A fleet whose nodes have in force what they are told.
struct World {
    planner: FleetPlanner,
    inputs: Inputs,
}

impl World {
    fn new(models: Vec<Arc<Model>>, nodes: usize) -> Self {
        let nodes = (0..nodes).map(|number| node(&format!("n{number}"))).collect();
        let inputs = Inputs { epoch: 3, now: Duration::from_secs(1), pools: Vec::new(), models, nodes };
        Self { planner: FleetPlanner::default(), inputs }
    }

    fn pool(&mut self, change: impl FnOnce(&mut ServingPoolSpec)) {
        let mut pool = ServingPool::new("all", ServingPoolSpec::standard());
        change(&mut pool.spec);
        self.inputs.pools = vec![Arc::new(pool)];
    }

    fn plan(&mut self) -> Plans {
        self.inputs.now += Duration::from_secs(15);
        let plans = self.planner.plan(&self.inputs);
        for node in &mut self.inputs.nodes {
            if let Some(plan) = plans.nodes.get(&node.name) {
                node.plan = NodePlanSpec::from_core(plan, &BTreeMap::new());
                node.status.ready = plan.models.iter().map(|planned| planned.model.clone()).collect();
            }
        }
        plans
    }

    fn settle(&mut self) -> Plans {
        (0..30).for_each(|_| drop(self.plan()));
        self.plan()
    }
}

fn serving(plans: &Plans, model: &str) -> usize {
    let serves = |plan: &&NodePlan| plan.model(model).is_some_and(|own| own.role == Role::Serving);
    plans.nodes.values().filter(serves).count()
}

fn copies(plans: &Plans, model: &str) -> usize {
    plans.nodes.values().filter(|plan| plan.model(model).is_some()).count()
}

#[test]
fn times_that_cannot_be_used_are_told_and_the_model_has_its_copies() {
    let wrong = |slo: &str, fixed: &str| {
        model("x", |spec| {
            spec.objective.slo = slo.to_owned();
            let (fixed, per_row) = (fixed.to_owned(), "1ms".to_owned());
            (spec.profile, spec.rate) = (Some(Profile { fixed, per_row, max_batch: 16 }), Some(900.0));
        })
    };
    for (model, field) in
        [(wrong("0.0001us", "9ms"), "objective.slo: "), (wrong("100ms", "0.0001us"), "profile.fixed: ")]
    {
        let plans = World::new(vec![model], 4).settle();
        assert!(plans.unplaced["x"].starts_with(field), "{plans:?}");
        assert!(plans.unplaced["x"].contains("whole nanoseconds, got `0.0001us`"), "{plans:?}");
        assert_eq!(serving(&plans, "x"), 1);
    }
}

#[test]
fn copies_without_a_rate_stay_where_they_are_until_their_node_fails() {
    let plain = |name: &str| model(name, |_| {});
    let mut world = World::new(vec![plain("x"), plain("y"), plain("z")], 2);
    let first = world.plan();
    assert_eq!((serving(&first, "x"), serving(&first, "y"), serving(&first, "z")), (1, 1, 1));
    assert_eq!((first.moves.started, first.moves.waiting), (3, 0));
    assert_eq!((first.need.share, first.need.devices_wanted), (1.0, 1));
    world.inputs.models.push(plain("w"));
    let more = world.plan();
    assert_eq!(more.moves.started, 1, "{more:?}");
    world.inputs.nodes[0].alive = false;
    let after = world.plan();
    assert!(!after.nodes.contains_key("n0"), "a failed node keeps its plan");
    assert!(["w", "x", "y", "z"].iter().all(|model| serving(&after, model) == 1), "{after:?}");
    world.inputs.nodes.clear();
    let none = world.plan();
    assert_eq!(none.unplaced["x"], "minReplicas is 1, and 0 nodes fit its constraints");
    assert!(none.need.share.is_finite() && none.need.devices_wanted == 1);
}

#[test]
fn a_model_with_more_load_gets_more_nodes_and_others_hold_spares() {
    let mut world = World::new(vec![profiled("busy", 10.0), profiled("idle", 1.0)], 6);
    let quiet = world.settle();
    let before = serving(&quiet, "busy");
    assert!(copies(&quiet, "busy") > before, "the other nodes hold spares: {quiet:?}");
    world.inputs.models[0] = profiled("busy", 1_500.0);
    let loaded = world.settle();
    assert!(serving(&loaded, "busy") > before, "{loaded:?}");
    assert!(loaded.need.devices_wanted > quiet.need.devices_wanted);
    assert!(loaded.need.devices_busy > 1.0 && loaded.moves.waiting == 0);
    // The same inputs give the same plans.
    assert_eq!(world.plan().nodes, loaded.nodes);
}

#[test]
fn moves_stay_within_the_limit_of_the_pool() {
    let models: Vec<_> = (0..8).map(|number| profiled(&format!("m{number}"), 20.0)).collect();
    let mut world = World::new(models, 8);
    world.pool(|pool| (pool.policy, pool.moves_per_minute) = (PlannerPolicy::Spread, 3));
    let first = world.plan();
    assert!(first.moves.waiting > 0 && first.moves.started <= 8 + 3, "{:?}", first.moves);
    let mut started = Vec::new();
    loop {
        let plans = world.plan();
        started.push(plans.moves.started);
        if plans.moves.waiting == 0 {
            break;
        }
        assert!(started.len() < 400, "{:?}", plans.moves);
    }
    assert!(started.windows(4).all(|minute| minute.iter().sum::<usize>() <= 3), "{started:?}");
}

#[test]
fn constraints_hold_and_what_cannot_be_placed_is_told() {
    let mut world = World::new(Vec::new(), 4);
    world.inputs.nodes[2].labels.insert("disk".to_owned(), "ssd".to_owned());
    let only = |name: &str| {
        let mut model = (*profiled(name, 5.0)).clone();
        let selector = BTreeMap::from([("disk".to_owned(), "ssd".to_owned())]);
        model.spec.placement = Some(fleet_kubernetes::resources::model::Placement {
            node_selector: selector,
            not_with: vec!["other".to_owned()],
        });
        Arc::new(model)
    };
    let other = model("other", |spec| {
        (spec.tenant, spec.min_replicas) = ("other".to_owned(), 3);
        spec.max_replicas = Some(3);
    });
    let huge = model("huge", |spec| spec.memory_bytes = Some(5_000));
    world.inputs.models = vec![huge, only("fast"), other, profiled("free", 5.0)];
    let plans = world.settle();
    for (node, plan) in &plans.nodes {
        assert!(plan.model("fast").is_none() || node == "n2", "{plans:?}");
        assert!(plan.model("fast").is_none() || plan.model("other").is_none(), "{plans:?}");
    }
    assert_eq!(plans.unplaced["huge"], "minReplicas is 1, and 0 nodes fit its constraints");
    assert!(serving(&plans, "free") >= 1 && copies(&plans, "other") <= 3);
    assert!(plans.problem.is_none() || plans.need.share == 0.0, "{plans:?}");
}

#[test]
fn a_pool_uses_no_more_devices_than_its_replicas() {
    let mut world = World::new(vec![profiled("m", 3_000.0)], 5);
    let all = world.settle();
    assert!(serving(&all, "m") > 2);
    world.pool(|pool| pool.replicas = Some(2));
    let fewer = world.settle();
    assert_eq!(copies(&fewer, "m"), 2, "{fewer:?}");
    assert!(fewer.need.share < 1.0 && fewer.need.devices_wanted > 2, "{:?}", fewer.need);
}

/// A server says the microseconds of a batch of one row and of a row in the largest batch of its model.
fn heard(observed: &Observed, number: u64, [single_us, row_us]: [u64; 2], max_batch: u32, rate: f64) {
    let name = format!("n{number}");
    let node = Endpoint { name, http: String::new(), grpc: String::new(), device_type: String::new() };
    let mut signals = fleet_picker::follow::Signals { complete: true, ..Default::default() };
    let mut one = fleet_picker::follow::ModelSignals { ready: true, lanes: 1, ..Default::default() };
    (one.model, one.single_us, one.row_us) = ("m".to_owned(), single_us, row_us);
    (one.max_batch, one.rate) = (max_batch, rate);
    signals.models.push(one);
    observed.heard(&Arc::new(node), signals);
}

#[test]
fn the_cheaper_pool_serves_and_nodes_of_a_type_have_the_times_of_that_type() {
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let pool = |name: &str, device_cost: f64| {
        let node_selector = BTreeMap::from([label("pool", name)]);
        Arc::new(ServingPool::new(
            name,
            ServingPoolSpec { node_selector, device_cost, ..ServingPoolSpec::standard() },
        ))
    };
    let served = |costs: [f64; 2]| {
        let mut world = World::new(vec![model("m", |spec| spec.rate = Some(300.0))], 8);
        for (number, node) in world.inputs.nodes.iter_mut().enumerate() {
            let name = if number < 4 { "fast" } else { "slow" };
            node.labels = [label("pool", name), label("tessera.dev/device-type", name)].into();
        }
        world.inputs.pools = vec![pool("fast", costs[0]), pool("slow", costs[1])];
        let observed = world.planner.observed.clone();
        observed.follow_nodes();
        for number in 0..8_u64 {
            // Batches of 8 take twice as long as those of 1.
            let single_us = if number < 4 { 4_000 } else { 16_000 };
            heard(&observed, number, [single_us, single_us / 4], 8, 0.0);
        }
        let plans = world.settle();
        assert_eq!(plans.problem, None);
        let serves = |number: usize| {
            let plan = plans.nodes[&format!("n{number}")].model("m").cloned();
            plan.is_some_and(|own| own.role == Role::Serving)
        };
        [(0..4).filter(|number| serves(*number)).count(), (4..8).filter(|number| serves(*number)).count()]
    };
    assert_eq!(served([10.0, 1.0]), [0, 3]);
    assert_eq!(served([1.0, 1.0]), [1, 0]);
}

#[test]
fn rates_and_batch_times_come_from_servers_and_refused_requests_from_pickers() {
    let mut world = World::new(vec![model("m", |spec| spec.min_replicas = 0)], 6);
    assert_eq!(copies(&world.settle(), "m"), 0, "no client asks for it");
    let observed = world.planner.observed.clone();
    observed.follow_nodes();
    observed.demanded("picker", BTreeMap::from([("m".to_owned(), 400.0)]));
    let asked = world.settle();
    assert_eq!(serving(&asked, "m"), 1, "a copy, until batches are measured: {asked:?}");
    for number in 0..6 {
        heard(&observed, number, [10_000, 5_000], 4, 60.0);
    }
    let measured = world.settle();
    assert!(serving(&measured, "m") > 2, "400 rows of 5 ms keep two lanes busy: {measured:?}");
    // A new leader that hears nothing keeps the copies.
    world.planner = FleetPlanner::default();
    world.planner.observed.follow_nodes();
    world.inputs.epoch += 1;
    assert_eq!(serving(&world.settle(), "m"), serving(&measured, "m"));
}
