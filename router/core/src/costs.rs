//! Batch times of a model on lanes of different classes.

use smallvec::SmallVec;

use crate::{CostModel, LaneClass, Nanos, ProfilePoint};

/// Lane classes that are told apart. Beyond this many, new ones use the times of the class measured first.
const CLASSES_MAX: usize = 256;

/// Batch times of one model by lane class. A class without measurements uses the times of the class measured first,
/// until its own first batches ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Costs {
    first: (LaneClass, CostModel),
    others: SmallVec<[(LaneClass, CostModel); 0]>,
}

impl Costs {
    /// A model whose profile was measured on lanes of one class.
    pub(crate) fn new(lane_class: LaneClass, profile: &[ProfilePoint]) -> Self {
        Self { first: (lane_class, CostModel::from_profile(profile)), others: SmallVec::new() }
    }

    /// Batch times on lanes of a class.
    pub(crate) fn on(&self, lane_class: LaneClass) -> &CostModel {
        if self.first.0 == lane_class {
            return &self.first.1;
        }
        self.others.iter().find(|(known, _)| *known == lane_class).map_or(&self.first.1, |(_, cost)| cost)
    }

    /// Adds a profile of a lane class. It is used where nothing has been measured yet.
    pub(crate) fn know(&mut self, lane_class: LaneClass, profile: &[ProfilePoint]) {
        if !self.knows(lane_class) && !profile.is_empty() && self.others.len() < CLASSES_MAX {
            self.others.push((lane_class, CostModel::from_profile(profile)));
        }
    }

    /// Learns from a batch that ran on a lane of a class.
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
