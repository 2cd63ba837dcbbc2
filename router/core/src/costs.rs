//! What a model's batches cost on lanes of different kinds.

use smallvec::SmallVec;

use crate::{CostModel, LaneClass, Nanos, ProfilePoint};

/// Kinds of lanes that are told apart; beyond that, the one measured first stands in for what is new.
const CLASSES_MAX: usize = 256;

/// Batch times of one model by the lane class. What is not known of a lane class is taken from the lane class that it was measured
/// on first: wrong until the first batches ran there, and better than nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Costs {
    first: (LaneClass, CostModel),
    others: SmallVec<[(LaneClass, CostModel); 0]>,
}

impl Costs {
    /// Measured on one lane class.
    pub(crate) fn new(lane_class: LaneClass, profile: &[ProfilePoint]) -> Self {
        Self { first: (lane_class, CostModel::from_profile(profile)), others: SmallVec::new() }
    }

    /// On lanes of a lane class.
    pub(crate) fn on(&self, lane_class: LaneClass) -> &CostModel {
        if self.first.0 == lane_class {
            return &self.first.1;
        }
        self.others.iter().find(|(known, _)| *known == lane_class).map_or(&self.first.1, |(_, cost)| cost)
    }

    /// A profile of lanes of a lane class, believed where nothing has been measured there.
    pub(crate) fn know(&mut self, lane_class: LaneClass, profile: &[ProfilePoint]) {
        if !self.knows(lane_class) && !profile.is_empty() && self.others.len() < CLASSES_MAX {
            self.others.push((lane_class, CostModel::from_profile(profile)));
        }
    }

    /// A batch has run on a lane of a lane class.
    pub(crate) fn observe(&mut self, lane_class: LaneClass, rows: u32, row_bytes: u64, time: Nanos) {
        if !self.knows(lane_class) && self.others.len() < CLASSES_MAX {
            self.others.push((lane_class, CostModel::default()));
        }
        let other = self.others.iter_mut().find(|(known, _)| *known == lane_class);
        let cost = other.map_or(&mut self.first.1, |(_, cost)| cost);
        cost.observe(rows, row_bytes, time);
    }

    fn knows(&self, lane_class: LaneClass) -> bool {
        self.first.0 == lane_class || self.others.iter().any(|(known, _)| *known == lane_class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: LaneClass = LaneClass(8);
    const SMALL: LaneClass = LaneClass(2);

    fn profile(micros: u64) -> [ProfilePoint; 1] {
        [ProfilePoint { rows: 1, row_bytes: 64, time: Nanos::from_micros(micros) }]
    }

    #[test]
    fn each_kind_of_lane_is_learned_apart() {
        let mut costs = Costs::new(LARGE, &profile(100));
        let expected = |costs: &Costs, lane_class| costs.on(lane_class).expected(1, 64).unwrap();
        assert_eq!(
            expected(&costs, SMALL),
            Nanos::from_micros(100),
            "the lane_class that is known stands in"
        );
        costs.know(SMALL, &profile(400));
        costs.know(SMALL, &profile(900));
        assert_eq!(expected(&costs, SMALL), Nanos::from_micros(400), "what is known is not forgotten");
        for _ in 0..200 {
            costs.observe(SMALL, 1, 64, Nanos::from_micros(500));
            costs.observe(LaneClass(4), 1, 64, Nanos::from_micros(220));
        }
        assert_eq!(expected(&costs, LARGE), Nanos::from_micros(100));
        assert!(expected(&costs, SMALL) > Nanos::from_micros(490));
        assert_eq!(expected(&costs, LaneClass(4)), Nanos::from_micros(220));
    }

    #[test]
    fn kinds_are_bounded() {
        let mut costs = Costs::new(LaneClass::default(), &profile(100));
        for lane_class in 1..2_000 {
            costs.observe(LaneClass(lane_class), 1, 64, Nanos::from_micros(100));
        }
        assert_eq!(costs.others.len(), CLASSES_MAX);
        assert!(costs.on(LaneClass(1_999)).expected(1, 64).is_some());
    }
}
