//! The capability to assign models to lanes for an epoch.

use super::Policy;
use crate::{CostModel, LaneId, Nanos};

/// Time from a change of models or lanes to the next plan: Nexus' beacon interval.
const FIRST_LOOK: Nanos = Nanos::from_millis(1_000);

/// A model as a planning policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// Rows a second that arrive.
    pub rate: f64,
    /// From arrival to deadline; zero while no request with a deadline was seen.
    pub slo: Nanos,
    /// The model's largest batch in rows.
    pub max_batch: u32,
    /// Payload bytes a row.
    pub row_bytes: u64,
    /// What its batches cost.
    pub cost: &'a CostModel,
}

/// A planning policy's answer for one model on one lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assignment {
    /// Lane that serves the model.
    pub lane: LaneId,
    /// Rows a second that it gets there.
    pub rate: f64,
    /// Rows a batch.
    pub batch: u32,
}

/// Plans which models share which lanes, and binds each request to a lane at arrival. Nexus (Shen et al., SOSP 2019)
/// needs it: squishy bin packing of models onto lanes.
pub trait Plans {
    /// How often it plans.
    fn epoch(&self) -> Nanos;

    /// Distributes the models of a group, which have this policy and the same lanes: for each session, in the order given,
    /// where it runs.
    fn plan(&self, sessions: &[Session<'_>], lanes: &[LaneId]) -> Vec<Vec<Assignment>>;

    /// Takes up its model's part of the plan.
    fn assign(&mut self, assignments: Vec<Assignment>);

    /// The lane that the next request is bound to; `None` leaves it to all lanes of the model.
    fn bind(&mut self) -> Option<LaneId>;

    /// A batch of its model was handed to a lane.
    fn fired(&mut self, now: Nanos, lane: LaneId);
}

/// When the planning policies of a router plan again; never without such policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NextPlan(Option<Nanos>);

impl NextPlan {
    pub(crate) fn is_due(self, now: Nanos) -> bool {
        self.0.is_some_and(|at| at <= now)
    }

    /// Models or lanes changed, so that the policies plan at the next event, if one of them plans.
    pub(crate) fn soon<'a>(&mut self, mut policies: impl Iterator<Item = &'a Policy>) {
        if policies.any(|policy| policy.planning().is_some()) {
            self.0 = Some(Nanos::ZERO);
        }
    }

    /// They plan now, the next time after the shortest epoch. New models have no rate yet, so after a change it comes
    /// earlier.
    #[must_use]
    pub(crate) fn planned(self, now: Nanos, epochs: impl Iterator<Item = Nanos>) -> Self {
        let changed = self.0 == Some(Nanos::ZERO);
        let wait = |epoch: Nanos| if changed { epoch.min(FIRST_LOOK) } else { epoch };
        Self(epochs.min().map(|epoch| now.after(wait(epoch))))
    }
}
