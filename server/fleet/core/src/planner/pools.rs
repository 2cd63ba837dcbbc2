//! Divides models into pools that suit each other.

/// A model as pools see it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    /// Index of the model.
    pub model: usize,
    /// Objective less the time of a batch of one row, in microseconds: what a request can wait.
    pub slack_us: f64,
    /// Time of a batch of one row, in microseconds.
    pub single_us: f64,
    /// Lane time of a row in microseconds, by the longest batch that is allowed: pairs in ascending order of that time.
    pub row_us: Vec<(f64, f64)>,
    /// Rows a second.
    pub rate: f64,
    /// Bytes on a node.
    pub bytes: u64,
    /// Nodes at least.
    pub nodes_min: usize,
    /// Whether it must not be with models of some tenants.
    pub has_rules: bool,
    /// Device types, as bits, on which a batch of one row meets its objective. All, if it does on none.
    pub types: u64,
}

impl Member {
    /// Lanes that it keeps busy, if its batches take at most `longest_us`.
    fn lanes(&self, longest_us: f64) -> f64 {
        let allowed = self.row_us.partition_point(|(time, _)| *time <= longest_us).saturating_sub(1);
        let row = self.row_us.get(allowed).map_or(0.0, |(_, row)| *row);
        self.rate * row / 1e6
    }
}

/// What a node of a pool can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capacity {
    pub models: usize,
    pub bytes: u64,
}

/// Lanes in reserve for a pool: this times the square root of the lanes that its load keeps busy (square-root staffing). Requests come
/// unevenly, and a pool of few lanes has less to even that out with.
const RESERVE: f64 = 0.7;

/// How much longer than the time that requests can wait the batches of a pool may be, if it has as many lanes: of two lanes that work
/// on long batches, one is free after half of a batch. More of it is better for a pool of many lanes and worse where its load is high.
const STRETCH: f64 = 2.0;

/// Lanes that members keep busy, with batches as long as the one that can wait least allows on one lane, and on several.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    one_lane: f64,
    several: f64,
}

impl Busy {
    fn add(&mut self, member: &Member, slack_us: f64) {
        self.one_lane += member.lanes(slack_us);
        self.several += member.lanes(slack_us * STRETCH);
    }

    fn of(members: &[Member]) -> Self {
        let slack = members.iter().map(|member| member.slack_us).fold(f64::INFINITY, f64::min);
        let mut busy = Self::default();
        members.iter().for_each(|member| busy.add(member, slack));
        busy
    }

    fn has_several(self) -> bool {
        staffed(self.one_lane) >= STRETCH
    }

    /// Lanes with the reserve.
    fn lanes(self) -> f64 {
        if self.has_several() { staffed(self.several).max(STRETCH) } else { staffed(self.one_lane) }
    }
}

/// Lanes with the reserve, of those that are busy.
fn staffed(busy: f64) -> f64 {
    busy + RESERVE * busy.sqrt()
}

/// A pool: a range of the members, and the lanes that it needs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pool {
    pub members: std::ops::Range<usize>,
    pub lanes: f64,
}

/// Lanes that members which share their lanes keep busy.
pub(super) fn lanes_busy(members: &[Member]) -> f64 {
    let busy = Busy::of(members);
    if busy.has_several() { busy.several } else { busy.one_lane }
}

/// Lanes for members that share their lanes, reserve included.
pub(super) fn lanes_for(members: &[Member]) -> f64 {
    Busy::of(members).lanes()
}

/// Members that share lanes or a node. Few members have rules, so a new one is compared with few.
#[derive(Clone, Debug, Default)]
pub(super) struct Together {
    all: Vec<usize>,
    with_rules: Vec<usize>,
}

impl Together {
    /// Whether a member and those that are there may be together.
    pub(super) fn takes(&self, member: &Member, excludes: impl Fn(usize, usize) -> bool) -> bool {
        let others = if member.has_rules { &self.all } else { &self.with_rules };
        !others.iter().any(|other| excludes(*other, member.model))
    }

    pub(super) fn add(&mut self, member: &Member) {
        self.all.push(member.model);
        if member.has_rules {
            self.with_rules.push(member.model);
        }
    }
}

/// Divides members, in ascending order of slack, into the pools that need the fewest lanes in all. A batch of one row in a pool leaves
/// all its models enough time, where the first of the pool's lanes is free after its share of a batch; if `mixes`, that is not asked for.
/// `per_pool`: lanes that each pool counts in addition.
pub(super) fn divided(
    members: &[Member],
    lanes_per_node: f64,
    capacity: Capacity,
    (mixes, per_pool): (bool, f64),
    excludes: impl Fn(usize, usize) -> bool,
) -> Option<Vec<Pool>> {
    let count = members.len();
    // By index: fewest lanes for the members from there on, lanes of their first pool, and its end.
    let mut best = vec![(f64::INFINITY, 0.0, count); count + 1];
    if let Some(last) = best.last_mut() {
        last.0 = 0.0;
    }
    for from in (0..count).rev() {
        let first = members.get(from)?;
        let (mut busy, mut longest, mut bytes, mut nodes_min) = (Busy::default(), 0.0_f64, 0_u64, 1_usize);
        let mut found = (f64::INFINITY, 0.0, from + 1);
        let mut pool = Together::default();
        for (to, member) in members.iter().enumerate().skip(from).take(capacity.models.max(1)) {
            longest = longest.max(member.single_us);
            bytes = bytes.saturating_add(member.bytes);
            if bytes > capacity.bytes || !pool.takes(member, &excludes) {
                break;
            }
            pool.add(member);
            busy.add(member, first.slack_us);
            nodes_min = nodes_min.max(member.nodes_min);
            let lanes = busy.lanes().max(lanes_per_node * nodes_min as f64);
            // More members need no fewer lanes.
            if lanes + per_pool >= found.0 {
                break;
            }
            if to > from && !mixes && longest > first.slack_us * lanes.max(1.0) {
                continue;
            }
            let total = lanes + per_pool + best.get(to + 1).map_or(f64::INFINITY, |rest| rest.0);
            if total < found.0 {
                found = (total, lanes, to + 1);
            }
        }
        if let Some(entry) = best.get_mut(from) {
            *entry = found;
        }
    }
    best.first().filter(|first| first.0.is_finite())?;
    let mut pools = Vec::new();
    let mut from = 0;
    while from < count {
        let (_, lanes, to) = *best.get(from)?;
        pools.push(Pool { members: from..to, lanes });
        from = to;
    }
    Some(pools)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(model: usize, single_ms: f64, slack_ms: f64) -> Member {
        let single_us = 1e3 * single_ms;
        let row_us = vec![(single_us, single_us), (2.0 * single_us, single_us / 2.0)];
        Member {
            model,
            slack_us: 1e3 * slack_ms,
            single_us,
            row_us,
            rate: 100.0,
            bytes: 1,
            nodes_min: 1,
            has_rules: false,
            types: 1,
        }
    }

    const LARGE: Capacity = Capacity { models: 100, bytes: 100 };

    fn sizes(members: &[Member], capacity: Capacity, mixes: bool) -> Option<Vec<usize>> {
        let pools = divided(members, 1.0, capacity, (mixes, 0.0), |_, _| false)?;
        Some(pools.into_iter().map(|pool| pool.members.len()).collect())
    }

    #[test]
    fn a_long_batch_and_a_short_objective_share_lanes_only_if_there_are_several() {
        let members = |rate: f64| {
            let members =
                [member(0, 1.0, 5.0), member(1, 1.0, 6.0), member(2, 20.0, 80.0), member(3, 20.0, 90.0)];
            let alone = |member: &Member| vec![(member.single_us, member.single_us)];
            members.map(|member| Member { rate, row_us: alone(&member), ..member })
        };
        assert_eq!(sizes(&members(10.0), LARGE, false), Some(vec![2, 2]));
        assert_eq!(sizes(&members(400.0), LARGE, false), Some(vec![4]), "a lane is free soon enough");
        let members = members(10.0);
        assert_eq!(sizes(&members, LARGE, true).map(|sizes| sizes.iter().sum::<usize>()), Some(4));
    }

    #[test]
    fn pools_fit_into_the_memory_of_a_node() {
        let members: Vec<Member> = (0..6).map(|model| member(model, 1.0, 10.0)).collect();
        let pools = sizes(&members, Capacity { models: 4, bytes: 100 }, false).unwrap();
        assert!(pools.iter().all(|size| *size <= 4) && pools.iter().sum::<usize>() == 6, "{pools:?}");
        assert_eq!(sizes(&members, Capacity { models: 4, bytes: 0 }, false), None, "no model fits");
    }

    #[test]
    fn batches_are_as_long_as_the_tightest_model_allows() {
        let member = member(0, 1.0, 5.0);
        assert!(member.lanes(2_000.0) < member.lanes(1_000.0));
        assert_eq!(member.lanes(0.0), member.lanes(1_000.0), "one row always runs");
    }
}
