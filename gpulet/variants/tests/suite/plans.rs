//! What the planner finds.

use gpulet_core::placement::Policy;
use variant_plan::{Found, Question, plan, variant_costs};

use crate::fixture::World;

fn found(question: &Question) -> Option<Found> {
    plan(question, &Policy::default())
}

#[test]
fn without_a_quality_the_cheapest_variant_serves_and_leftovers_go_to_better_ones() {
    let question = World::default().question().unwrap();
    let found = found(&question).unwrap();
    let only_small = World { models: vec![("s", 1.0, 1.0, 0.90)], ..World::default() }.question().unwrap();
    let cheapest = plan(&only_small, &Policy::default()).unwrap();
    assert!(
        found.validation.cost <= cheapest.validation.cost + 1e-9,
        "{} {}",
        found.validation.cost,
        cheapest.validation.cost
    );
    assert!(found.mixes[0].quality(&question.demands()[0]) >= 0.90);
}

#[test]
fn a_mean_quality_is_reached_by_a_mix_and_costs_less_than_the_next_better_variant() {
    let world = World {
        quality_mean: 0.93,
        rate: 4_000.0,
        kinds: vec![("small", 4, 1.0, 1.0, 60)],
        ..World::default()
    };
    let question = world.question().unwrap();
    let mixed = found(&question).unwrap();
    let mean = mixed.mixes[0].quality(&question.demands()[0]);
    assert!(mean >= 0.93 - 1e-6, "mean quality {mean}");
    let better = World { quality_min: 0.95, quality_mean: 0.0, ..world }.question().unwrap();
    let better = plan(&better, &Policy::default()).unwrap();
    assert!(
        mixed.validation.cost < better.validation.cost,
        "{} {}",
        mixed.validation.cost,
        better.validation.cost
    );
}

#[test]
fn no_request_gets_less_than_the_quality_asked_for() {
    let question = World { quality_min: 0.95, ..World::default() }.question().unwrap();
    let found = found(&question).unwrap();
    assert!(found.plan.gpulets.iter().flat_map(|gpulet| &gpulet.slots).all(|slot| slot.workload != "s"));
    let served: f64 = found.plan.gpulets.iter().flat_map(|gpulet| &gpulet.slots).map(|slot| slot.rate).sum();
    assert!((served - 1_000.0).abs() < 1e-6, "{served} requests a second");
}

#[test]
fn more_quality_never_costs_less() {
    let mut last = 0.0;
    for quality in [0.0, 0.91, 0.93, 0.95, 0.97, 0.98] {
        let question = World { quality_mean: quality, rate: 2_000.0, ..World::default() }.question().unwrap();
        let cost = found(&question).unwrap().validation.cost;
        assert!(cost >= last - 1e-9, "{cost} for {quality}, {last} for less");
        last = cost;
    }
}

#[test]
fn a_short_objective_rules_out_slow_variants_on_slow_devices() {
    let question = World { slo_ms: 12.0, ..World::default() }.question().unwrap();
    let costs = variant_costs(&question);
    assert!(costs.iter().all(|cost| !(cost.model == "l" && cost.device_type == "small")), "{costs:?}");
    assert!(costs.iter().any(|cost| cost.model == "l" && cost.device_type == "large"), "{costs:?}");
}

#[test]
fn devices_that_do_not_suffice_give_no_plan() {
    let question = World { rate: 1e6, ..World::default() }.question().unwrap();
    assert_eq!(plan(&question, &Policy::default()), None);
}

#[test]
fn a_model_of_two_families_and_qualities_out_of_range_are_refused_by_name() {
    let world = World::default();
    let (problem, family) =
        (world.question().unwrap().problem().clone().with_workloads(Vec::new()).unwrap(), world.family());
    let twice = vec![family.clone(), variant_plan::Family { name: "other".to_owned(), ..family.clone() }];
    let error = Question::new(problem.clone(), twice, Default::default()).expect_err("twice");
    assert_eq!(
        error.to_string(),
        "families.other.variants: `s` is used twice: expected a model in one family only"
    );
    let high = variant_plan::Family { quality_mean: 0.99, ..family };
    let error = Question::new(problem, vec![high], Default::default()).expect_err("too high");
    assert_eq!(
        error.to_string(),
        "families.family.quality_mean: expected 0 to 0.98, the best variant's, got 0.99"
    );
}
