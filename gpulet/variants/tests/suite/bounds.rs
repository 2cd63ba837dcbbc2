//! Properties: plans keep what was asked, and none costs less than the lower bound.

use gpulet_core::placement::Policy;
use gpulet_core::validate::validate;
use proptest::prelude::*;
use variant_plan::{Fluid, plan, published};

use crate::fixture::{Kind, Model, World};

fn worlds() -> impl Strategy<Value = World<'static>> {
    let names = ["a", "b", "c"];
    let kind = (1_u32..=4, 0.5_f64..4.0, 0.2_f64..4.0, 1_usize..=8);
    let kinds = prop::collection::vec(kind, 1..=3).prop_map(move |kinds| {
        let named = kinds.into_iter().zip(names);
        named
            .map(|((units, speed, cost, count), name)| (name, units, speed, cost, count))
            .collect::<Vec<Kind<'static>>>()
    });
    let names = ["p", "q", "r", "s"];
    let model = (0.5_f64..5.0, 0.5_f64..8.0, 0.5_f64..1.0);
    let models = prop::collection::vec(model, 1..=4).prop_map(move |models| {
        let named = models.into_iter().zip(names);
        named
            .map(|((fixed, row, quality), name)| (name, fixed, row, quality))
            .collect::<Vec<Model<'static>>>()
    });
    (kinds, models, 20.0_f64..200.0, 10.0_f64..1_500.0, 0.0_f64..1.0, 0.0_f64..1.0).prop_map(
        |(kinds, models, slo_ms, rate, least, mean)| {
            let best = models.iter().map(|model| model.3).fold(0.0, f64::max);
            World {
                kinds,
                models,
                slo_ms,
                rate,
                quality_min: least * best,
                quality_mean: mean * best,
                ..World::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn plans_are_sound_have_the_quality_and_cost_at_least_the_bound(world in worlds()) {
        let question = world.question().unwrap();
        let bound = Fluid::cheapest(&question, 1.0);
        if let Some(found) = plan(&question, &Policy::default()) {
            let again = validate(&found.problem, &found.plan);
            prop_assert!(again.is_sound(), "{:?}", again.violations);
            let demand = &question.demands()[0];
            prop_assert!(found.mixes[0].quality(demand) >= world.quality_mean - 1e-5);
            let served: f64 = found.plan.gpulets.iter().flat_map(|gpulet| &gpulet.slots).map(|slot| slot.rate).sum();
            prop_assert!((served - world.rate).abs() < 1e-6 * world.rate);
            let bound = bound.expect("a plan is a solution of the program");
            prop_assert!(again.cost >= bound.cost * (1.0 - 1e-5), "cost {}, bound {}", again.cost, bound.cost);
        }
    }

    #[test]
    fn published_policies_serve_all_with_the_quality_or_have_no_plan(world in worlds()) {
        let question = world.question().unwrap();
        for name in published::names() {
            let Some(proposal) = published::propose(name, &question) else { continue };
            let slots: Vec<_> = proposal.plan.gpulets.iter().flat_map(|gpulet| &gpulet.slots).collect();
            let served: f64 = slots.iter().map(|slot| slot.rate).sum();
            prop_assert!(served >= world.rate * (1.0 - 1e-6), "{name} serves {served} of {}", world.rate);
            let quality = |name: &str| world.models.iter().find(|model| model.0 == name).map_or(0.0, |model| model.3);
            let mean = slots.iter().map(|slot| slot.rate * quality(&slot.workload)).sum::<f64>() / served;
            prop_assert!(mean >= world.quality_mean - 1e-4, "{name}: mean quality {mean}");
            let validation = validate(&proposal.problem, &proposal.plan);
            prop_assert!(validation.is_sound(), "{name}: {:?}", validation.violations);
        }
    }
}
