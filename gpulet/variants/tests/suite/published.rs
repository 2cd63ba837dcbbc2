//! Rules of published policies on tables made for them.

use gpulet_core::validate::validate;
use variant_plan::{Question, published};

use crate::fixture::World;

/// Devices used of each type, by policy.
fn devices(name: &str, question: &Question) -> Vec<(String, usize)> {
    let Some(proposal) = published::propose(name, question) else { return Vec::new() };
    let mut used: Vec<(String, usize)> = Vec::new();
    for device in proposal.plan.devices() {
        let kind = device.split('-').next().unwrap_or_default().to_owned();
        match used.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => used.push((kind, 1)),
        }
    }
    used
}

/// A row takes 10 ms on the one and 4 ms on the other, a batch nothing more: 100 and 250 requests a second.
fn table(rate: f64, costs: (f64, f64), counts: (usize, usize)) -> World<'static> {
    World {
        kinds: vec![("slow", 1, 1.0, costs.0, counts.0), ("fast", 1, 2.5, costs.1, counts.1)],
        models: vec![("m", 0.0, 10.0, 1.0)],
        slo_ms: 400.0,
        rate,
        ..World::default()
    }
}

#[test]
fn proportional_adds_the_lowest_cost_for_its_rate_and_sends_by_rate() {
    // 1/100 against 2/250 a request: the fast one is cheaper, three serve 750.
    assert_eq!(
        devices("proportional", &table(750.0, (1.0, 2.0), (9, 9)).question().unwrap()),
        [("fast".to_owned(), 3)]
    );
    // Only two exist, so the third is slow, and so are the others that are lacking.
    let question = table(640.0, (1.0, 2.0), (9, 2)).question().unwrap();
    assert_eq!(devices("proportional", &question), [("fast".to_owned(), 2), ("slow".to_owned(), 2)]);
    let proposal = published::propose("proportional", &question).unwrap();
    let rate = |device: &str| {
        let own = proposal.plan.gpulets.iter().find(|gpulet| gpulet.device.as_str() == device);
        own.map_or(0.0, |gpulet| gpulet.slots[0].rate)
    };
    assert!(
        (rate("fast-0") / rate("slow-0") - 2.5).abs() < 1e-9,
        "{} and {}",
        rate("fast-0"),
        rate("slow-0")
    );
}

#[test]
fn mark_starts_instances_until_a_fifth_more_is_served() {
    assert_eq!(
        devices("mark", &table(620.0, (1.0, 2.0), (9, 9)).question().unwrap()),
        [("fast".to_owned(), 3)]
    );
    assert_eq!(
        devices("mark", &table(630.0, (1.0, 2.0), (9, 9)).question().unwrap()),
        [("fast".to_owned(), 4)]
    );
    assert_eq!(
        devices("mark", &table(620.0, (1.0, 3.0), (9, 9)).question().unwrap()),
        [("slow".to_owned(), 8)]
    );
}

#[test]
fn proteus_mixes_variants_on_whole_devices_at_the_lowest_cost() {
    // 100 or 400 a second on a device of cost 1. For 210 with mean quality 0.9, 105 % of it, both get a half: two devices for the good
    // one, one for the other. All with the good one needs three as well, so the quality may be better than asked.
    let world = World {
        kinds: vec![("d", 1, 1.0, 1.0, 9)],
        models: vec![("good", 0.0, 10.0, 1.0), ("fair", 0.0, 2.5, 0.8)],
        slo_ms: 400.0,
        rate: 380.0,
        quality_mean: 0.9,
        ..World::default()
    };
    assert_eq!(devices("proteus", &world.question().unwrap()), [("d".to_owned(), 3)]);
    let all_good = World { quality_mean: 1.0, ..world };
    assert_eq!(devices("proteus", &all_good.question().unwrap()), [("d".to_owned(), 4)]);
}

#[test]
fn infaas_takes_the_fastest_variant_and_upgrades_where_replicas_cost_more() {
    // Slow devices answer one row in 10 ms, fast ones in 4 ms: INFaaS starts on a fast one although it costs five times more.
    assert_eq!(
        devices("infaas", &table(100.0, (1.0, 5.0), (9, 9)).question().unwrap()),
        [("fast".to_owned(), 1)]
    );
    // A variant with the least latency of one row but little throughput: four replicas more cost 4, one of the other 1.
    let world = World {
        kinds: vec![("d", 1, 1.0, 1.0, 9)],
        models: vec![("quick", 0.0, 8.0, 1.0), ("batched", 9.0, 1.0, 1.0)],
        slo_ms: 200.0,
        rate: 450.0,
        ..World::default()
    };
    let proposal = published::propose("infaas", &world.question().unwrap()).unwrap();
    assert!(
        proposal.plan.gpulets.iter().all(|gpulet| gpulet.slots.iter().all(|slot| slot.workload == "batched"))
    );
    assert_eq!(proposal.plan.gpulets.len(), 1);
}

#[test]
fn infaas_and_iris_share_devices_and_fill_workers_to_80_percent() {
    let world = table(85.0, (1.0, 9.0), (9, 0));
    let slow = World { kinds: vec![("slow", 1, 1.0, 1.0, 9)], ..world };
    assert_eq!(devices("iris", &slow.question().unwrap()), [("slow".to_owned(), 1)]);
    assert_eq!(devices("infaas", &slow.question().unwrap()), [("slow".to_owned(), 2)]);
}

#[test]
fn every_policy_has_a_line_about_it_and_unknown_names_have_none() {
    assert!(published::names().all(|name| published::about(name).is_some()));
    assert_eq!(published::about("none"), None);
    assert_eq!(published::propose("none", &World::default().question().unwrap()), None);
    for name in published::names() {
        let proposal = published::propose(name, &World::default().question().unwrap()).unwrap();
        assert!(validate(&proposal.problem, &proposal.plan).is_sound(), "{name}");
    }
}
