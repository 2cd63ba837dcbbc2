//! Searches an order: greedily, and then, for few changes, exhaustively.

use std::collections::VecDeque;

use super::state::{PutOff, State, Subset};

/// Largest number of changes for the exhaustive search: 3^10 waves.
const SEARCHED_MAX: usize = 10;

/// Greedy search: each wave makes as many changes as possible. On failure, returns the changes that were made.
pub(super) fn greedy(state: &State) -> Result<Vec<Vec<usize>>, Subset> {
    let count = state.items.len();
    let mut done: Subset = vec![false; count];
    let mut waves = Vec::new();
    while done.contains(&false) {
        let Some(wave) = next(state, &done) else { return Err(done) };
        for (done, in_wave) in done.iter_mut().zip(&wave) {
            *done |= in_wave;
        }
        waves.push(members(&wave));
    }
    Ok(waves)
}

fn members(wave: &Subset) -> Vec<usize> {
    wave.iter().enumerate().filter(|(_, in_wave)| **in_wave).map(|(at, _)| at).collect()
}

fn next(state: &State, done: &Subset) -> Option<Subset> {
    let left: Subset = done.iter().map(|done| !done).collect();
    for put_off in [PutOff::Largest, PutOff::Device, PutOff::Smallest] {
        let mut wave = left.clone();
        state.reduce(done, &mut wave, put_off);
        if wave.contains(&true) && state.is_legal(done, &wave) {
            return Some(wave);
        }
    }
    let mut wave = left;
    state.only_removals(&mut wave);
    state.reduce(done, &mut wave, PutOff::Largest);
    (wave.contains(&true) && state.is_legal(done, &wave)).then_some(wave)
}

/// The fewest waves that reach the plan, if any do and there are few enough changes to try every order.
pub(super) fn exhaustive(state: &State) -> Option<Vec<Vec<usize>>> {
    let count = state.items.len();
    if count > SEARCHED_MAX {
        return None;
    }
    let all = (1_usize << count) - 1;
    let subset = |mask: usize| -> Subset { (0..count).map(|at| mask >> at & 1 == 1).collect() };
    let mut came_from: Vec<Option<usize>> = vec![None; all + 1];
    let mut open = VecDeque::from([0_usize]);
    while let Some(done) = open.pop_front() {
        if done == all {
            break;
        }
        let left = all & !done;
        let mut wave = left;
        while wave > 0 {
            let reached = done | wave;
            if came_from.get(reached).is_some_and(Option::is_none)
                && state.is_legal(&subset(done), &subset(wave))
            {
                if let Some(from) = came_from.get_mut(reached) {
                    *from = Some(done);
                }
                open.push_back(reached);
            }
            wave = (wave - 1) & left;
        }
    }
    let mut waves = Vec::new();
    let mut at = all;
    while at > 0 {
        // Not every plan can be reached.
        let from = came_from.get(at).copied().flatten()?;
        waves.push(members(&subset(at & !from)));
        at = from;
    }
    waves.reverse();
    Some(waves)
}
