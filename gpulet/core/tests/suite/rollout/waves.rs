//! Changes that do not fit into memory at once, against every order there is.

use std::collections::{BTreeMap, BTreeSet};

use gpulet_core::plan::{Gpulet, Plan};
use gpulet_core::problem::Problem;
use gpulet_core::rollout::{Effect, Outcome, Proposal, Refusal};

use super::chance::Chance;
use super::plans::{
    self, BASE_BYTES, DEVICES, GPULET_BYTES, arena_bytes, gpulet, problem, slot, weights_bytes,
};
use super::script::{Script, outcomes, steps};
use super::world::model_of;

fn only(workload: &str, device: &str) -> Gpulet {
    gpulet(device, 0, 8, vec![slot(workload, 1, 10.0)])
}

#[test]
fn two_models_change_places_by_way_of_a_third_device() {
    // 285 bytes with `rank`, 235 with `hear`, 435 with both.
    let mut script = Script::new(problem(400));
    script.reach(vec![only("rank", "gpu0"), only("hear", "gpu1")]);
    let effects = script.propose(vec![only("hear", "gpu0"), only("rank", "gpu1")]);
    let refusal = outcomes(&effects);
    assert!(
        matches!(
            &refusal[..],
            [(2, Outcome::Refused { refusal: Refusal::Memory { needed_bytes: 400, has_bytes: 350, .. } })]
        ),
        "neither can go before the other has come: {refusal:?}"
    );
    let all = script.reach(vec![only("hear", "gpu0"), only("rank", "gpu2")]);
    assert_eq!(
        steps(&all),
        [
            "open 1.1",
            "prepare 1.1 dlrm 1",
            "verify 1.1 dlrm 1",
            "switch 2",
            "drop 0.1 dlrm",
            "close 0.1",
            "open 2.1",
            "prepare 2.1 whisper 1",
            "verify 2.1 whisper 1",
            "switch 3",
            "drop 0.2 whisper",
            "close 0.2",
        ]
    );
    assert_eq!(outcomes(&all), [(3, Outcome::Done)]);
    assert!(script.words().iter().any(|words| words.starts_with("wave 1 of 2")));
}

#[test]
fn an_idle_replica_goes_first() {
    let mut script = Script::new(problem(400));
    let replica = |device: &str, rate: f64| gpulet(device, 0, 8, vec![slot("rank", 1, rate)]);
    script.reach(vec![replica("gpu0", 10.0), replica("gpu1", 10.0)]);
    // Half of the rate is enough from now on, so a replica may go before `hear` takes its place.
    let all = script.reach(vec![replica("gpu0", 10.0), only("hear", "gpu1")]);
    let words = ["switch 2", "drop 0.2 dlrm", "close 0.2", "open 2.1", "prepare 2.1 whisper 1"];
    assert_eq!(steps(&all)[..5], words);
    assert_eq!(outcomes(&all), [(2, Outcome::Done)]);
}

#[test]
fn a_wave_that_fails_leaves_a_plan_that_serves() {
    let mut script = Script::new(problem(400));
    script.reach(vec![only("rank", "gpu0"), only("hear", "gpu1")]);
    let effects = script.propose(vec![only("hear", "gpu0"), only("rank", "gpu2")]);
    let all = script.carry_out(effects);
    let table = super::script::switch(&all);
    script.confirm(&table);
    let effects = script.wait();
    let effects =
        script.carry_out_but(effects, |step| matches!(step, gpulet_core::rollout::Step::Verify { .. }));
    assert!(matches!(&outcomes(&effects)[..], [(2, Outcome::Stopped { .. })]), "{effects:?}");
    assert!(script.machine.is_idle());
    let plan = Plan::new(vec![only("hear", "gpu1"), only("rank", "gpu2")]);
    assert_eq!(script.machine.plan(), plan);
}

/// A change of one place: what is there, and what will be.
type Item = (Option<Gpulet>, Option<Gpulet>);

fn items(from: &Plan, to: &Plan) -> (Vec<Gpulet>, Vec<Item>) {
    let models = |gpulet: &Gpulet| -> BTreeSet<&str> {
        gpulet.slots.iter().map(|slot| model_of(&slot.workload)).collect()
    };
    let mut old = from.gpulets.clone();
    let (mut same, mut items): (Vec<Gpulet>, Vec<Item>) = (Vec::new(), Vec::new());
    for new in &to.gpulets {
        let stays = old.iter().position(|old| {
            (&old.device, old.first_unit, old.units) == (&new.device, new.first_unit, new.units)
                && models(old) == models(new)
        });
        let before = stays.map(|at| old.remove(at));
        if before.as_ref() == Some(new) {
            same.push(new.clone());
        } else {
            items.push((before, Some(new.clone())));
        }
    }
    items.extend(old.into_iter().map(|old| (Some(old), None)));
    (same, items)
}

fn used(device: &str, exist: &[Vec<&Gpulet>]) -> u64 {
    let mut bytes = BASE_BYTES;
    let mut weights: BTreeSet<&str> = BTreeSet::new();
    for states in exist.iter().filter(|states| states.iter().any(|gpulet| gpulet.device == device)) {
        let mut batches: BTreeMap<&str, u32> = BTreeMap::new();
        for slot in states.iter().flat_map(|gpulet| &gpulet.slots) {
            let batch = batches.entry(model_of(&slot.workload)).or_insert(0);
            *batch = (*batch).max(slot.batch);
        }
        weights.extend(batches.keys());
        bytes += GPULET_BYTES + batches.values().map(|batch| arena_bytes(*batch)).sum::<u64>();
    }
    bytes + weights.into_iter().map(weights_bytes).sum::<u64>()
}

fn rate(workload: &str, active: &[&Gpulet]) -> f64 {
    let slots = active.iter().flat_map(|gpulet| &gpulet.slots);
    slots.filter(|slot| slot.workload == workload).map(|slot| slot.rate).sum()
}

/// Whether there is any order of waves at all, by trying them all.
fn an_order_exists(from: &Plan, to: &Plan, memory_bytes: u64) -> bool {
    let (same, items) = items(from, to);
    let all = (1_u32 << items.len()) - 1;
    let active = |mask: u32| -> Vec<&Gpulet> {
        let mut active: Vec<&Gpulet> = same.iter().collect();
        for (at, (before, after)) in items.iter().enumerate() {
            active.extend(if mask >> at & 1 == 1 { after } else { before });
        }
        active
    };
    let sound = |mask: u32| {
        let now = active(mask);
        let apart = now.iter().enumerate().all(|(at, one)| {
            now.iter().skip(at + 1).all(|other| {
                one.device != other.device
                    || one.first_unit >= other.first_unit + other.units
                    || other.first_unit >= one.first_unit + one.units
            })
        });
        let (old, new) = (active(0), active(all));
        let kept = plans::WORKLOADS
            .iter()
            .all(|(name, _)| rate(name, &now) >= rate(name, &old).min(rate(name, &new)) - 1e-6);
        apart && kept
    };
    let fits = |done: u32, wave: u32| {
        let mut exist: Vec<Vec<&Gpulet>> = same.iter().map(|gpulet| vec![gpulet]).collect();
        let mut grows: BTreeSet<&str> = BTreeSet::new();
        for (at, (before, after)) in items.iter().enumerate() {
            let (is_done, in_wave) = (done >> at & 1 == 1, wave >> at & 1 == 1);
            let mut states = Vec::new();
            if !is_done {
                states.extend(before);
            }
            if is_done || in_wave {
                states.extend(after);
            }
            if let (true, Some(after)) = (in_wave, after) {
                let less = |slot: &gpulet_core::plan::Slot| {
                    before.as_ref().is_none_or(|before| {
                        before.slots.iter().all(|old| {
                            model_of(&old.workload) != model_of(&slot.workload) || old.batch < slot.batch
                        })
                    })
                };
                if before.is_none() || after.slots.iter().any(less) {
                    grows.insert(&after.device);
                }
            }
            exist.push(states);
        }
        DEVICES.iter().all(|device| !grows.contains(device) || used(device, &exist) <= memory_bytes)
    };
    let mut reached = BTreeSet::from([0]);
    let mut open = vec![0_u32];
    while let Some(done) = open.pop() {
        for next in (0..=all).filter(|next| next & done == done && *next != done) {
            if !reached.contains(&next) && sound(next) && fits(done, next & !done) {
                reached.insert(next);
                open.push(next);
            }
        }
    }
    reached.contains(&all)
}

/// Two plans that each fit. The second repartitions devices, moves every gpulet to the next device, or both.
fn pair(chance: &mut Chance, problem: &Problem) -> (Plan, Plan) {
    let sound = |plan: &Plan| {
        plan.gpulets.iter().all(|gpulet| gpulet.window.is_none()) && Proposal::new(plan, problem).is_ok()
    };
    loop {
        let from = plans::fresh(chance);
        let mut to = if chance.hits(300) { plans::fresh(chance) } else { plans::moved_on(from.clone()) };
        if chance.hits(500) {
            let device = *chance.pick(&DEVICES).unwrap();
            to.gpulets.retain(|gpulet| gpulet.device != device);
            let replaced = plans::fresh(chance).gpulets.into_iter().filter(|gpulet| gpulet.device == device);
            to = Plan::new(to.gpulets.into_iter().chain(replaced).collect());
        }
        if from.gpulets.len() > 1 && sound(&from) && sound(&to) {
            return (from, to);
        }
    }
}

#[test]
fn a_plan_is_refused_only_if_no_order_of_steps_fits() {
    let (mut refused, mut waves, mut tried) = (0, 0, 0);
    let mut chance = Chance::new(11);
    let mut seen = 0;
    while tried < 1_500 {
        seen += 1;
        assert!(seen < 200_000, "plans are too large for this test: {tried}");
        let memory_bytes = chance.between(350, 700);
        let tight = problem(memory_bytes);
        let (from, to) = pair(&mut chance, &tight);
        let changes = items(&from, &to).1.len();
        if changes == 0 || changes > 7 {
            continue;
        }
        tried += 1;
        let mut script = Script::new(tight);
        script.reach(from.gpulets.clone());
        let effects = script.propose(to.gpulets.clone());
        let is_refused = matches!(&outcomes(&effects)[..], [(_, Outcome::Refused { .. })]);
        assert_eq!(
            !is_refused,
            an_order_exists(&from, &to, memory_bytes),
            "{memory_bytes} bytes: {effects:?}\n{from:#?}\n{to:#?}"
        );
        refused += usize::from(is_refused);
        if !is_refused {
            let mut all = script.carry_out(effects);
            let switches = finish(&mut script, &mut all);
            assert_eq!(script.machine.plan(), to);
            waves += usize::from(switches > 1);
        }
    }
    assert!(refused > 50 && waves > 50, "of {tried} changes {refused} refused, {waves} in waves");
}

fn finish(script: &mut Script, all: &mut Vec<Effect>) -> usize {
    let mut switches = 0;
    while !script.machine.is_idle() {
        let table = super::script::switch(all);
        switches += 1;
        script.confirm(&table);
        let effects = script.wait();
        *all = script.carry_out(effects);
    }
    switches
}
