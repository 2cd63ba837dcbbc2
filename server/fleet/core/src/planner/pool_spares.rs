//! Copies of models in memory that their pools leave over.

use std::collections::BTreeSet;

use super::pools::{Capacity, Member, Together};

/// How many times the models of a node a search for spares looks at, on both sides of its pool in the order of slack. Models further
/// away hardly ever suit.
const NEAR: usize = 3;
/// Spares of a model. One takes over only after all nodes that serve the model are lost, and each has to be loaded.
const SPARES_MAX: usize = 4;

/// A node, the members on its device type, what serves there and what it has in force.
pub(super) struct Held<'a> {
    pub node: usize,
    pub members: &'a [Member],
    pub serving: Vec<usize>,
    pub in_force: BTreeSet<usize>,
}

/// A node with what it holds.
struct Holder<'a> {
    node: usize,
    members: &'a [Member],
    /// What it has in force.
    in_force: BTreeSet<usize>,
    models: BTreeSet<usize>,
    together: Together,
    bytes: u64,
    /// Longest batch of one row, and shortest time that a request can wait, of all its models.
    single_us: f64,
    slack_us: f64,
    /// Whether a search found no model for it. Later ones would not either: it holds no less, and others have no fewer copies.
    is_full: bool,
}

impl<'a> Holder<'a> {
    fn new((node, members): (usize, &'a [Member]), in_force: BTreeSet<usize>) -> Self {
        Self {
            node,
            members,
            in_force,
            models: BTreeSet::new(),
            together: Together::default(),
            bytes: 0,
            single_us: 0.0,
            slack_us: f64::INFINITY,
            is_full: false,
        }
    }

    fn add(&mut self, number: usize, member: &Member) {
        self.models.insert(number);
        self.together.add(member);
        self.bytes = self.bytes.saturating_add(member.bytes);
        self.single_us = self.single_us.max(member.single_us);
        self.slack_us = self.slack_us.min(member.slack_us);
    }

    /// Models to look at: those that it has in force, or those near its own in the order of slack.
    fn candidates(
        &self,
        in_force: bool,
        capacity: Capacity,
        count: usize,
    ) -> Box<dyn Iterator<Item = usize> + '_> {
        let near = NEAR * capacity.models;
        match (self.models.first(), self.models.last()) {
            _ if in_force => Box::new(self.in_force.iter().copied()),
            (Some(first), Some(last)) => {
                Box::new(first.saturating_sub(near)..last.saturating_add(near).min(count))
            }
            // A node that serves nothing takes any model first.
            _ => Box::new(0..count),
        }
    }

    /// Whether no batch of one row makes requests of another model late, and there is memory.
    fn takes(
        &self,
        number: usize,
        member: &Member,
        capacity: Capacity,
        excludes: impl Fn(usize, usize) -> bool,
    ) -> bool {
        self.models.len() < capacity.models
            && self.bytes.saturating_add(member.bytes) <= capacity.bytes
            && member.single_us <= self.slack_us
            && self.single_us <= member.slack_us
            && !self.models.contains(&number)
            && self.together.takes(member, excludes)
    }
}

/// Spares as pairs of node and member. Each node gets, one at a time, the model that suits all it holds and has the most load for each of
/// its copies, and those first that it has in force. A spare takes over when no node is left that serves its model. `copies_max`: the copies
/// of a member at most. `members` are on the mean lane.
pub(super) fn spares(
    members: &[Member],
    held: Vec<Held<'_>>,
    capacity: Capacity,
    copies_max: impl Fn(&Member) -> usize,
    excludes: impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let mut copies = vec![0_usize; members.len()];
    let mut holders = Vec::with_capacity(held.len());
    for Held { node, members, serving, in_force } in held {
        let mut holder = Holder::new((node, members), in_force);
        for number in serving {
            if let Some((member, count)) = members.get(number).zip(copies.get_mut(number)) {
                holder.add(number, member);
                *count += 1;
            }
        }
        holders.push(holder);
    }
    let most: Vec<usize> = members
        .iter()
        .zip(&copies)
        .map(|(member, serving)| copies_max(member).min(serving + SPARES_MAX))
        .collect();
    let load = |member: &Member| {
        let row = member.row_us.last().map_or(0.0, |(_, row)| *row);
        member.rate * row
    };
    let mut spares = Vec::new();
    for stays in [true, false] {
        holders.iter_mut().for_each(|holder| holder.is_full = false);
        loop {
            let before = spares.len();
            for holder in holders.iter_mut().filter(|holder| !holder.is_full) {
                let suits = |number: usize| {
                    let (member, count) = holder.members.get(number).zip(copies.get(number))?;
                    let takes =
                        count < most.get(number)? && holder.takes(number, member, capacity, &excludes);
                    takes.then(|| (number, member, load(member) / *count.max(&1) as f64))
                };
                let numbers = holder.candidates(stays, capacity, members.len());
                let suiting = numbers.filter_map(suits);
                let best =
                    suiting.max_by(|left, right| left.2.total_cmp(&right.2).then(right.0.cmp(&left.0)));
                let Some((number, member, _)) = best else {
                    holder.is_full = true;
                    continue;
                };
                if let Some(count) = copies.get_mut(number) {
                    *count += 1;
                }
                holder.add(number, member);
                spares.push((holder.node, number));
            }
            if spares.len() == before {
                break;
            }
        }
    }
    spares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(model: usize, single_ms: f64, slack_ms: f64) -> Member {
        let single_us = 1e3 * single_ms;
        let row_us = vec![(single_us, single_us)];
        let (rate, bytes, nodes_min) = (100.0 - model as f64, 1, 1);
        Member {
            model,
            slack_us: 1e3 * slack_ms,
            single_us,
            row_us,
            rate,
            bytes,
            nodes_min,
            has_rules: model == 3,
            types: 1,
        }
    }

    /// Nodes 0 to 9 serve model 0, the others model 1.
    fn planned(members: &[Member], capacity: Capacity) -> Vec<(usize, usize)> {
        let in_force = |node: usize| if node == 7 { BTreeSet::from([2]) } else { BTreeSet::new() };
        let held = |node: usize| Held { node, members, serving: vec![node / 10], in_force: in_force(node) };
        let held = (0..20).map(held).collect();
        let excludes = |left: usize, right: usize| left.max(right) == 3 && left.min(right) == 0;
        spares(members, held, capacity, |_| usize::MAX, excludes)
    }

    #[test]
    fn spares_fill_memory_up_to_a_number_for_each_model_and_only_where_they_suit() {
        // Model 2 would be late behind a batch of model 1. Models 0 and 3 must not be together.
        let members = [member(0, 1.0, 5.0), member(1, 8.0, 50.0), member(2, 1.0, 6.0), member(3, 1.0, 50.0)];
        let ample = planned(&members, Capacity { models: 100, bytes: 100 });
        let of = |model: usize| ample.iter().filter(move |(_, spare)| *spare == model).map(|(node, _)| *node);
        assert_eq!((of(0).count(), of(1).count()), (0, 0), "{ample:?}");
        assert_eq!((of(2).count(), of(3).count()), (SPARES_MAX, SPARES_MAX), "{ample:?}");
        assert!(of(2).all(|node| node < 10) && of(3).all(|node| node >= 10), "{ample:?}");
        assert!(of(2).any(|node| node == 7), "a spare stays where it is: {ample:?}");
        assert!(planned(&members, Capacity { models: 1, bytes: 100 }).is_empty());
        assert!(planned(&members, Capacity { models: 100, bytes: 1 }).is_empty());
    }
}
