//! A thousand random changes of plans under load, with everything failing that can.

use std::collections::BTreeMap;

use super::world::{Trouble, World};

const CHANGES: u64 = 1_000;
/// Fewer without optimisation, so that the suite stays short.
const SEEDS: u64 = if cfg!(debug_assertions) { 2 } else { 12 };

fn storm(seed: u64, memory_bytes: u64, trouble: Trouble) -> World {
    let mut world = World::new(seed, memory_bytes, trouble, CHANGES);
    world.run();
    world.assert_answered();
    let ended: u64 = world.tally.outcomes.values().sum();
    assert_eq!(ended, CHANGES + 1, "every proposal ends once");
    world
}

fn add(sum: &mut BTreeMap<&'static str, u64>, outcomes: &BTreeMap<&'static str, u64>) {
    for (word, count) in outcomes {
        *sum.entry(word).or_insert(0) += count;
    }
}

#[test]
fn nothing_is_lost_while_everything_fails() {
    let mut sum = BTreeMap::new();
    for seed in 0..SEEDS {
        // From plenty of memory to so little that most changes need several waves.
        let memory_bytes = 500 + 300 * (seed % 4);
        let world = storm(seed, memory_bytes, Trouble::MUCH);
        println!("seed {seed}, {memory_bytes} bytes, peak {}: {:?}", world.devices.peak_bytes, world.tally);
        assert!(world.tally.answered > 10_000 && world.tally.incidents > 0, "{:?}", world.tally);
        add(&mut sum, &world.tally.outcomes);
    }
    for word in ["done", "unchanged", "refused", "superseded", "failed", "rolled back", "stopped"] {
        assert!(sum.get(word).is_some_and(|count| *count >= 10), "{word}: {sum:?}");
    }
}

#[test]
fn without_trouble_every_plan_gets_through_or_is_refused_for_memory() {
    let mut sum = BTreeMap::new();
    for seed in 100..104 {
        let world = storm(seed, 2_000, Trouble::NONE);
        println!("seed {seed}: {} sessions reused, {:?}", world.devices.reused, world.tally);
        assert!(world.devices.reused > 1_000, "{} sessions reused", world.devices.reused);
        add(&mut sum, &world.tally.outcomes);
    }
    for word in ["failed", "rolled back", "stopped", "refused"] {
        assert!(!sum.contains_key(word), "{sum:?}");
    }
}

#[test]
fn little_memory_makes_waves_and_refusals_and_loses_nothing() {
    let world = storm(7, 550, Trouble::NONE);
    println!("peak {}: {:?}", world.devices.peak_bytes, world.tally);
    let waves = world.machine.proposals().0 < world.tally.switches;
    let refused = world.tally.outcomes.get("refused").copied().unwrap_or(0);
    let done = world.tally.outcomes.get("done").copied().unwrap_or(0);
    assert!(refused > 10 && done > 100 && (waves || world.tally.switches > done), "{:?}", world.tally);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let run = |seed| {
        let world = storm(seed, 800, Trouble::MUCH);
        let history: Vec<_> = world.machine.history().cloned().collect();
        (world.log, world.tally, serde_json::to_string(&history).unwrap())
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3).0, run(4).0);
}
