//! Copies of models in memory that their pools leave over.

use super::pools::{Capacity, Member};

/// How many times the models of a node a search for spares looks at, on both sides of its pool in the order of slack. Models further
/// away hardly ever suit.
const NEAR: usize = 3;

/// Spares as pairs of node and member. Each node gets, one at a time, the model that suits all it holds and has the most load for each of
/// its copies. A spare takes over when no node is left that serves its model. `held` has the members that serve on each node, and
/// `copies_max` the copies of a member at most.
pub(super) fn spares(
    members: &[Member],
    mut held: Vec<(usize, Vec<usize>)>,
    capacity: Capacity,
    copies_max: impl Fn(&Member) -> usize,
    excludes: impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let mut copies = vec![0_usize; members.len()];
    for member in held.iter().flat_map(|(_, members)| members) {
        if let Some(count) = copies.get_mut(*member) {
            *count += 1;
        }
    }
    let load = |member: &Member| {
        let row = member.row_us.last().map_or(0.0, |(_, row)| *row);
        member.rate * row
    };
    let mut spares = Vec::new();
    loop {
        let before = spares.len();
        for (node, models) in &mut held {
            let bytes: u64 =
                models.iter().filter_map(|model| members.get(*model)).map(|model| model.bytes).sum();
            if models.len() >= capacity.models {
                continue;
            }
            let suits = |number: usize| {
                let new = members.get(number)?;
                let count = copies.get(number).copied().unwrap_or_default();
                let fits = bytes.saturating_add(new.bytes) <= capacity.bytes
                    && !models.contains(&number)
                    && count < copies_max(new);
                let suit = fits
                    && models
                        .iter()
                        .filter_map(|other| members.get(*other))
                        .all(|other| new.suits(other) && !excludes(new.model, other.model));
                suit.then(|| (number, load(new) / count.max(1) as f64))
            };
            let near = NEAR * capacity.models;
            let range = match (models.iter().min(), models.iter().max()) {
                (Some(first), Some(last)) => {
                    first.saturating_sub(near)..last.saturating_add(near).min(members.len())
                }
                // A node that serves nothing takes any model first.
                _ => 0..members.len(),
            };
            let best = range
                .filter_map(suits)
                .max_by(|left, right| left.1.total_cmp(&right.1).then(right.0.cmp(&left.0)));
            let Some((number, _)) = best else { continue };
            if let Some(count) = copies.get_mut(number) {
                *count += 1;
            }
            models.push(number);
            spares.push((*node, number));
        }
        if spares.len() == before {
            return spares;
        }
    }
}
