use std::sync::Arc;

use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::problem::{Device, DeviceType, Workload};
use gpulet_core::profile::Profile;
use proptest::prelude::*;

use super::*;
use crate::node_plan::Role;

const NONE: Interference = Interference::NoInterference(NoInterference);

fn profile(name: &str, single_us: f64, row_us: f64) -> Profile {
    let times = [1_u32, 2, 4, 8].map(|batch| (batch, single_us + row_us * f64::from(batch - 1)));
    Profile::undivided(name, "lane", 1, times).unwrap()
}

fn nodes(count: usize, models_max: u32) -> Vec<FleetNode> {
    let lane = Arc::new(DeviceType::undivided("lane"));
    let device = |number: usize| Device {
        name: format!("lane-{number}").into(),
        device_type: Arc::clone(&lane),
        memory_bytes: 1 << 20,
        fault_domain: String::new(),
        cost: 1.0,
    };
    let zones = ["a", "b", "c"];
    let node = |number: usize| FleetNode {
        name: format!("node-{number}"),
        zone: zones[number % 3].to_owned(),
        devices: vec![device(0), device(1)],
        models_max,
        accepts: true,
    };
    (0..count).map(node).collect()
}

fn model(name: &str, slo_ms: f64, rate: f64) -> Workload {
    Workload {
        name: name.to_owned(),
        model: name.to_owned(),
        tenant: String::new(),
        not_with: Vec::new(),
        slo_us: 1e3 * slo_ms,
        rate,
        headroom: 1.0,
        replicas_min: 1,
        batch_max: 8,
    }
}

struct Fleet {
    nodes: Vec<FleetNode>,
    models: Vec<Workload>,
    profiles: Vec<Profile>,
    in_force: BTreeMap<String, NodePlan>,
    sharing: Sharing,
    rules: Rules,
}

impl Fleet {
    /// Models whose times and objectives are spread over a factor of ten.
    fn new(nodes_count: usize, models: usize) -> Self {
        let spread = |at: usize, prime: usize| (at.wrapping_mul(prime) % 1_000) as f64 / 1_000.0;
        let single = |at: usize| 1_000.0 * 10.0_f64.powf(spread(at, 7_919));
        Self {
            nodes: nodes(nodes_count, 16),
            models: (0..models)
                .map(|at| {
                    model(&format!("m{at:03}"), (4.0 + 6.0 * spread(at, 104_729)) * single(at) / 1e3, 40.0)
                })
                .collect(),
            profiles: (0..models)
                .map(|at| profile(&format!("m{at:03}"), single(at), single(at) / 4.0))
                .collect(),
            in_force: BTreeMap::new(),
            sharing: Sharing::Lanes,
            rules: Rules::default(),
        }
    }

    fn plan(&self) -> Result<FleetPlan, NotPlanned> {
        plan(
            &Inputs {
                sharing: self.sharing,
                nodes: &self.nodes,
                models: &self.models,
                profiles: &self.profiles,
                interference: &NONE,
                in_force: &self.in_force,
                rules: &self.rules,
            },
            7,
        )
    }

    /// Plans, and puts the plan in force.
    fn follow(&mut self) -> FleetPlan {
        let plan = self.plan().unwrap();
        self.in_force = plan.nodes.clone();
        plan
    }
}

fn serving<'a>(plan: &'a FleetPlan, model: &'a str) -> Vec<&'a str> {
    let has = |plan: &NodePlan| plan.model(model).is_some_and(|planned| planned.role == Role::Serving);
    plan.nodes.iter().filter(|(_, plan)| has(plan)).map(|(name, _)| name.as_str()).collect()
}

fn check(fleet: &Fleet, plan: &FleetPlan) {
    for (name, node) in &plan.nodes {
        let known = fleet.nodes.iter().find(|known| known.name == *name).unwrap();
        assert_eq!(node.epoch, 7);
        assert!(node.models.len() <= known.models_max as usize, "{name} has too many models");
        assert!(known.accepts || node.models.is_empty(), "{name} accepts nothing");
        assert!(
            node.models.windows(2).all(|pair| pair[0].model < pair[1].model),
            "{name}: each model once, by name"
        );
    }
    for model in &fleet.models {
        let planned = plan.nodes.values().filter_map(|node| node.model(&model.name));
        let rate: f64 = planned.map(|planned| planned.rate).sum();
        assert!((rate - model.rate).abs() < 1e-6 * model.rate.max(1.0), "{}: {rate}", model.name);
        assert!(!serving(plan, &model.name).is_empty(), "{} is nowhere", model.name);
    }
}

#[test]
fn every_model_gets_nodes_and_a_plan_that_suffices_stays() {
    let mut fleet = Fleet::new(30, 45);
    let plan = fleet.follow();
    check(&fleet, &plan);
    assert!(plan.share > 1.0 && plan.devices_wanted < 60, "{} wanted", plan.devices_wanted);
    assert!(plan.devices_least > 0.0 && plan.devices_least < plan.devices_wanted as f64);
    let again = fleet.follow();
    assert_eq!((again.loads, &again.nodes), (0, &plan.nodes));
    // A rate that grows a little moves little.
    fleet.models[3].rate *= 1.5;
    let more = fleet.follow();
    check(&fleet, &more);
    assert!(more.loads <= 40, "{} of {} copies were loaded", more.loads, 30 * 16);
}

#[test]
fn a_node_that_fails_or_is_emptied_has_its_models_elsewhere() {
    let mut fleet = Fleet::new(12, 20);
    let before = fleet.follow();
    fleet.nodes[4].accepts = false;
    let removed = fleet.nodes.remove(7);
    let after = fleet.follow();
    check(&fleet, &after);
    assert!(!after.nodes.contains_key(&removed.name));
    let moved: usize = after.loads;
    assert!(moved <= before.nodes.len() * 8, "{moved} copies were loaded");
}

#[test]
fn copies_are_spread_over_failure_domains() {
    let mut fleet = Fleet::new(9, 6);
    fleet.models.iter_mut().for_each(|model| model.replicas_min = 3);
    let plan = fleet.follow();
    for model in &fleet.models {
        let zones: BTreeSet<&str> = serving(&plan, &model.name)
            .into_iter()
            .filter_map(|node| fleet.nodes.iter().find(|known| known.name == node))
            .map(|node| node.zone.as_str())
            .collect();
        assert_eq!(zones.len(), 3, "{}", model.name);
    }
}

#[test]
fn models_that_must_not_meet_do_not_share_nodes() {
    let mut fleet = Fleet::new(9, 6);
    for (number, model) in fleet.models.iter_mut().enumerate() {
        model.tenant = format!("tenant-{}", number % 2);
        model.not_with = vec![format!("tenant-{}", (number + 1) % 2)];
    }
    let plan = fleet.follow();
    check(&fleet, &plan);
    for node in plan.nodes.values() {
        let tenants: BTreeSet<usize> =
            node.models.iter().map(|planned| planned.model[1..].parse::<usize>().unwrap() % 2).collect();
        assert!(tenants.len() <= 1, "{node:?}");
    }
}

#[test]
fn models_are_only_where_they_may_be() {
    for spread in [Spread::All, Spread::Few] {
        let mut fleet = Fleet::new(12, 10);
        fleet.rules.spread = spread;
        let names =
            |numbers: &[usize]| numbers.iter().map(|at| format!("node-{at}")).collect::<BTreeSet<_>>();
        let of = |model: usize, nodes: &[usize]| (format!("m{model:03}"), names(nodes));
        // The first two exclude each other, the next two must share the only node of the last one.
        fleet.rules.nodes =
            [of(0, &[3, 4]), of(1, &[5]), of(2, &[7, 8]), of(3, &[8, 9]), of(4, &[8])].into_iter().collect();
        let plan = fleet.follow();
        check(&fleet, &plan);
        for (model, nodes) in &fleet.rules.nodes {
            for (node, plan) in plan.nodes.iter().filter(|(_, plan)| plan.model(model).is_some()) {
                assert!(nodes.contains(node), "{model} is on {node}: {plan:?}");
            }
        }
        let again = fleet.follow();
        assert_eq!((again.loads, &again.nodes), (0, &plan.nodes), "{spread:?}");
        fleet.rules.nodes.insert("m005".to_owned(), names(&[30]));
        assert!(
            fleet.plan().unwrap_err().to_string().contains("no node that accepts models may have `m005`")
        );
    }
    // One node for all: the rules of each of its models hold.
    let mut fleet = Fleet::new(1, 3);
    fleet.rules.nodes = [("m001".to_owned(), BTreeSet::from(["node-0".to_owned()]))].into();
    check(&fleet, &fleet.plan().unwrap());
}

#[test]
fn few_nodes_serve_and_the_others_hold_spares() {
    let mut fleet = Fleet::new(12, 6);
    fleet.models.iter_mut().for_each(|model| model.rate = 10.0);
    fleet.rules.spread = Spread::Few;
    let plan = fleet.follow();
    check(&fleet, &plan);
    assert!(plan.devices_used < 24, "{} devices are used", plan.devices_used);
    assert!(plan.nodes.values().all(|node| !node.models.is_empty()), "{plan:?}");
    fleet.models.iter_mut().for_each(|model| model.rate *= 20.0);
    let more = fleet.follow();
    check(&fleet, &more);
    assert!(more.devices_used > plan.devices_used && more.devices_wanted > plan.devices_wanted);
    assert!(more.lanes_busy > 0.0 && more.lanes_busy < more.devices_wanted as f64);
}

#[test]
fn no_model_has_more_copies_than_it_may() {
    let mut fleet = Fleet::new(12, 4);
    fleet.rules.copies_max = [("m001".to_owned(), 2), ("m002".to_owned(), 1)].into();
    let plan = fleet.follow();
    check(&fleet, &plan);
    for (model, most) in &fleet.rules.copies_max {
        assert!(plan.nodes.values().filter(|node| node.model(model).is_some()).count() <= *most, "{model}");
    }
    let again = fleet.follow();
    assert_eq!((again.loads, &again.nodes), (0, &plan.nodes));
}

/// A fleet of two device types. Every third node is fast and costs four times as much, the others take four times as long.
fn unequal(nodes: usize, models: usize) -> Fleet {
    let mut fleet = Fleet::new(nodes, models);
    let fast = Arc::new(DeviceType::undivided("fast"));
    for node in fleet.nodes.iter_mut().step_by(3) {
        let devices = node.devices.iter_mut();
        devices.for_each(|device| (device.device_type, device.cost) = (Arc::clone(&fast), 4.0));
    }
    let faster = fleet.profiles.iter().map(|profile| {
        let time = |rows| profile.latency_us(gpulet_core::profile::Quantile::P99, rows, 1).unwrap() / 4.0;
        Profile::undivided(profile.model(), "fast", 1, [1, 2, 4, 8].map(|rows| (rows, time(rows)))).unwrap()
    });
    fleet.profiles.extend(faster.collect::<Vec<_>>());
    fleet
}

fn is_fast(node: &str) -> bool {
    node.trim_start_matches("node-").parse::<usize>().unwrap().is_multiple_of(3)
}

#[test]
fn models_that_slow_devices_are_too_slow_for_are_on_fast_ones() {
    let mut fleet = unequal(30, 30);
    let tight: BTreeSet<String> = (0..6).map(|number| format!("m{:03}", number * 5)).collect();
    for (model, profile) in fleet.models.iter_mut().zip(&fleet.profiles) {
        if tight.contains(&model.name) {
            let single = profile.latency_us(gpulet_core::profile::Quantile::P99, 1, 1).unwrap();
            model.slo_us = single * 0.9;
        }
    }
    let plan = fleet.follow();
    check(&fleet, &plan);
    for model in &tight {
        assert!(serving(&plan, model).into_iter().all(is_fast), "{model}: {:?}", serving(&plan, model));
        let spares = plan.nodes.iter().filter(|(_, node)| node.model(model).is_some());
        assert!(spares.clone().all(|(name, _)| is_fast(name)), "{model} is a spare where it is too slow");
    }
    assert!(plan.nodes.values().all(|node| !node.models.is_empty()), "slow nodes serve the others");
    let again = fleet.follow();
    assert_eq!((again.loads, &again.nodes), (0, &plan.nodes));
    // One fast node must do for all of them, and no node for slow ones is left.
    fleet.nodes.truncate(1);
    fleet.nodes[0].models_max = 64;
    check(&fleet, &fleet.plan().unwrap());
}

#[test]
fn models_share_fast_nodes_if_there_are_few() {
    // One fast node, and ten models that need it, whose times and objectives do not suit each other.
    let mut fleet = unequal(3, 12);
    let slow: Vec<f64> = fleet
        .profiles
        .iter()
        .take(12)
        .map(|profile| profile.latency_us(gpulet_core::profile::Quantile::P99, 1, 1).unwrap())
        .collect();
    for (model, single) in fleet.models.iter_mut().zip(&slow).take(10) {
        (model.slo_us, model.rate) = (0.9 * single, 20.0);
    }
    let plan = fleet.follow();
    check(&fleet, &plan);
    for model in fleet.models.iter().take(10) {
        let nodes = serving(&plan, &model.name);
        assert!(nodes.iter().all(|node| is_fast(node)), "{}: {nodes:?}", model.name);
    }
    let again = fleet.follow();
    assert_eq!((again.loads, &again.nodes), (0, &plan.nodes));
}

#[test]
fn few_nodes_are_the_cheapest_ones() {
    let used = |fast_cost: f64| {
        let mut fleet = unequal(30, 6);
        fleet.rules.spread = Spread::Few;
        fleet.models.iter_mut().for_each(|model| model.rate *= 8.0);
        let devices = fleet.nodes.iter_mut().flat_map(|node| &mut node.devices);
        devices.filter(|device| device.device_type.name == "fast").for_each(|device| device.cost = fast_cost);
        let plan = fleet.follow();
        check(&fleet, &plan);
        let serves = |node: &&NodePlan| node.models.iter().any(|planned| planned.role == Role::Serving);
        let used = plan.nodes.iter().filter(|(_, node)| serves(node)).map(|(name, _)| is_fast(name));
        let (fast, slow): (Vec<bool>, Vec<bool>) = used.partition(|is_fast| *is_fast);
        (fast.len(), slow.len())
    };
    let ((fast, no_slow), (no_fast, slow)) = (used(1.0), used(100.0));
    assert_eq!((no_slow, no_fast), (0, 0));
    assert!(fast > 0 && slow > fast, "{fast} fast or {slow} slow nodes");
}

#[test]
fn lanes_of_a_node_are_of_one_device_type() {
    let mut fleet = unequal(6, 4);
    fleet.nodes[3].devices[0].device_type = Arc::new(DeviceType::undivided("lane"));
    let error = fleet.plan().unwrap_err().to_string();
    assert!(
        error.contains("nodes.node-3: expected lanes of one device type, got `lane` and `fast`"),
        "{error}"
    );
}

#[test]
fn what_does_not_fit_is_an_error_that_says_so() {
    let mut fleet = Fleet::new(2, 40);
    assert!(fleet.plan().unwrap_err().to_string().contains("40 models do not fit on 2 nodes"));
    fleet.profiles.remove(3);
    fleet.nodes = nodes(20, 16);
    assert!(fleet.plan().unwrap_err().to_string().contains("no profile of `m003`"));
    fleet.nodes.clear();
    assert!(fleet.plan().is_err());
}

#[test]
fn partitioned_devices_are_one_problem_of_all_nodes() {
    let mut fleet = Fleet::new(30, 8);
    fleet.sharing = Sharing::Gpulets;
    let plan = fleet.follow();
    check(&fleet, &plan);
    assert!(plan.nodes.values().any(|node| !node.gpulets.is_empty()));
    assert!(
        plan.nodes.values().flat_map(|node| &node.gpulets).all(|gpulet| gpulet.device.starts_with("lane-"))
    );
    let again = fleet.follow();
    assert_eq!((again.loads, again.nodes), (0, plan.nodes));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Random changes of rates and nodes: every plan keeps the budgets and serves every model.
    #[test]
    fn plans_keep_the_budgets(
        size in (6_usize..20, 3_usize..25),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0.2_f64..4.0, any::<bool>()), 1..5),
    ) {
        let mut fleet = Fleet::new(size.0, size.1);
        for (index, factor, empties) in changes {
            let plan = fleet.follow();
            check(&fleet, &plan);
            let number = index.index(fleet.models.len());
            fleet.models[number].rate *= factor;
            let open = fleet.nodes.iter().filter(|node| node.accepts).count();
            if empties && open > 5 {
                let number = index.index(fleet.nodes.len());
                fleet.nodes[number].accepts = false;
            }
        }
    }
}
