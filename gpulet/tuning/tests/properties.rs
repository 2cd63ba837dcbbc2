//! What every search promises.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use tuning::{
    BATCHES, Choice, Engine, Measured, Measurement, Objective, Settings, Space, Surface, WORDS, search,
};

/// A machine on which rows take a fixed and a variable time, and knobs have effects that the seed decides.
fn trial(space: &Space, index: usize, seed: u64) -> Option<Measurement> {
    let of = space.get(index)?;
    let mixed = |value: u64| {
        let mixed = (value ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        0.7 + 0.6 * ((mixed >> 40) as f64 / (1 << 24) as f64)
    };
    let (setup, _) = space.parts(index);
    if (setup as u64 + seed).is_multiple_of(17) {
        return None;
    }
    let batch = f64::from(of.batch);
    let time_us = (200.0 * mixed(u64::from(of.setup.lanes)) + 100.0 * batch) * mixed(setup as u64 * 31);
    let rows_per_s = 1e6 * f64::from(of.setup.lanes.min(2)) * batch / time_us;
    let p99_us = 1.1 * 1e6 * f64::from(of.setup.lanes) * batch / rows_per_s;
    Some(Measurement { p99_us, rows_per_s })
}

fn path(
    word: &str,
    space: &Space,
    slo_us: f64,
    seed: u64,
    trials: usize,
    others: &[Surface],
) -> (Vec<usize>, Measured) {
    let objective = Objective { slo_us };
    let mut chosen = search(word, &Settings { space, objective, seed, others }).unwrap();
    let (mut path, mut measured) = (Vec::new(), Measured::default());
    while path.len() < trials {
        let Choice::Try(index) = chosen.next(&measured) else { break };
        assert!(index < space.len(), "{word} leaves the space");
        assert!(!measured.contains(index), "{word} tries a configuration again");
        path.push(index);
        measured.add(index, trial(space, index, seed));
    }
    (path, measured)
}

fn surface(space: &Space, seed: u64) -> Surface {
    (0..space.len()).filter_map(|index| Some((index, trial(space, index, seed)?))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn no_search_tries_twice_and_the_same_seed_gives_the_same_path(
        seed in 0_u64..1_000, slo_us in 100.0_f64..20_000.0, cores in 1_u32..4,
    ) {
        let space = Space::new(cores, &BATCHES, &Engine::EACH);
        let others = [surface(&space, seed + 1), surface(&space, seed + 2)];
        for (word, _) in WORDS {
            let one = path(word, &space, slo_us, seed, 40, &others);
            let other = path(word, &space, slo_us, seed, 40, &others);
            prop_assert_eq!(&one.0, &other.0, "{}", word);
        }
    }

    #[test]
    fn a_search_without_a_stop_of_its_own_ends_with_the_best(seed in 0_u64..1_000, slo_us in 300.0_f64..20_000.0) {
        let space = Space::new(2, &[1, 2, 4], &Engine::EACH);
        let others = [surface(&space, seed + 1)];
        let all: Measured = {
            let mut all = Measured::default();
            (0..space.len()).for_each(|index| all.add(index, trial(&space, index, seed)));
            all
        };
        for (word, _) in WORDS.iter().filter(|(word, _)| *word != "tessera") {
            let (tried, measured) = path(word, &space, slo_us, seed, space.len() + 1, &others);
            prop_assert_eq!(tried.len(), space.len(), "{}", word);
            let best = |of: &Measured| of.best(Objective { slo_us }).map(|(_, capacity)| capacity);
            prop_assert_eq!(best(&measured), best(&all), "{}", word);
        }
    }
}

#[test]
fn a_search_goes_on_from_what_a_file_has() {
    let space = Space::new(2, &BATCHES, &Engine::EACH);
    let others = [surface(&space, 9)];
    for (word, _) in WORDS {
        let objective = Objective { slo_us: 5_000.0 };
        let (_, mut measured) = path(word, &space, objective.slo_us, 3, 12, &others);
        let settings = Settings { space: &space, objective, seed: 3, others: &others };
        let mut again = search(word, &settings).unwrap();
        for _ in 0..8 {
            let Choice::Try(index) = again.next(&measured) else { break };
            assert!(!measured.contains(index), "{word}");
            measured.add(index, trial(&space, index, 3));
        }
    }
}

#[test]
fn an_empty_space_and_unknown_words_are_told() {
    let empty = Space::new(2, &[], &Engine::EACH);
    let others = [Surface::new()];
    for (word, _) in WORDS {
        let settings =
            Settings { space: &empty, objective: Objective { slo_us: 1.0 }, seed: 1, others: &others };
        match search(word, &settings) {
            Ok(mut search) => assert!(matches!(search.next(&Measured::default()), Choice::Stop(_)), "{word}"),
            Err(reason) => assert!(reason.contains("--from"), "{word}: {reason}"),
        }
    }
    let settings = Settings { space: &empty, objective: Objective { slo_us: 1.0 }, seed: 1, others: &[] };
    let said = search("annealing", &settings).err().unwrap();
    assert!(said.contains("expected one of `tessera`") && said.contains("got `annealing`"), "{said}");
}
