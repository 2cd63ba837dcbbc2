//! What a model's batches cost on lanes of different kinds.

use smallvec::SmallVec;

use crate::{CostModel, LaneKind, Nanos, ProfilePoint};

/// Kinds of lanes that are told apart; beyond that, the one measured first stands in for what is new.
const KINDS_MAX: usize = 256;

/// Batch times of one model by the kind of lane. What is not known of a kind is taken from the kind that it was measured
/// on first: wrong until the first batches ran there, and better than nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Costs {
    first: (LaneKind, CostModel),
    others: SmallVec<[(LaneKind, CostModel); 0]>,
}

impl Costs {
    /// Measured on one kind of lane.
    pub(crate) fn new(kind: LaneKind, profile: &[ProfilePoint]) -> Self {
        Self { first: (kind, CostModel::from_profile(profile)), others: SmallVec::new() }
    }

    /// On lanes of a kind.
    pub(crate) fn on(&self, kind: LaneKind) -> &CostModel {
        if self.first.0 == kind {
            return &self.first.1;
        }
        self.others.iter().find(|(known, _)| *known == kind).map_or(&self.first.1, |(_, cost)| cost)
    }

    /// A profile of lanes of a kind, believed where nothing has been measured there.
    pub(crate) fn know(&mut self, kind: LaneKind, profile: &[ProfilePoint]) {
        if !self.knows(kind) && !profile.is_empty() && self.others.len() < KINDS_MAX {
            self.others.push((kind, CostModel::from_profile(profile)));
        }
    }

    /// A batch has run on a lane of a kind.
    pub(crate) fn observe(&mut self, kind: LaneKind, rows: u32, row_bytes: u64, time: Nanos) {
        if !self.knows(kind) && self.others.len() < KINDS_MAX {
            self.others.push((kind, CostModel::default()));
        }
        let other = self.others.iter_mut().find(|(known, _)| *known == kind);
        let cost = other.map_or(&mut self.first.1, |(_, cost)| cost);
        cost.observe(rows, row_bytes, time);
    }

    fn knows(&self, kind: LaneKind) -> bool {
        self.first.0 == kind || self.others.iter().any(|(known, _)| *known == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: LaneKind = LaneKind(8);
    const SMALL: LaneKind = LaneKind(2);

    fn profile(micros: u64) -> [ProfilePoint; 1] {
        [ProfilePoint { rows: 1, row_bytes: 64, time: Nanos::from_micros(micros) }]
    }

    #[test]
    fn each_kind_of_lane_is_learned_apart() {
        let mut costs = Costs::new(LARGE, &profile(100));
        let expected = |costs: &Costs, kind| costs.on(kind).expected(1, 64).unwrap();
        assert_eq!(expected(&costs, SMALL), Nanos::from_micros(100), "the kind that is known stands in");
        costs.know(SMALL, &profile(400));
        costs.know(SMALL, &profile(900));
        assert_eq!(expected(&costs, SMALL), Nanos::from_micros(400), "what is known is not forgotten");
        for _ in 0..200 {
            costs.observe(SMALL, 1, 64, Nanos::from_micros(500));
            costs.observe(LaneKind(4), 1, 64, Nanos::from_micros(220));
        }
        assert_eq!(expected(&costs, LARGE), Nanos::from_micros(100));
        assert!(expected(&costs, SMALL) > Nanos::from_micros(490));
        assert_eq!(expected(&costs, LaneKind(4)), Nanos::from_micros(220));
    }

    #[test]
    fn kinds_are_bounded() {
        let mut costs = Costs::new(LaneKind::default(), &profile(100));
        for kind in 1..2_000 {
            costs.observe(LaneKind(kind), 1, 64, Nanos::from_micros(100));
        }
        assert_eq!(costs.others.len(), KINDS_MAX);
        assert!(costs.on(LaneKind(1_999)).expected(1, 64).is_some());
    }
}
