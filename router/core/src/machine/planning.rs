//! Policies that assign models to lanes ahead of time.

use invariant::expected;

use crate::batch::Session;
use crate::machine::Router;
use crate::{LaneClass, LaneId, ModelId, Nanos};

/// Time from a change of models or lanes to the next plan: Nexus' beacon interval.
const FIRST_LOOK: Nanos = Nanos::from_millis(1_000);

impl Router {
    /// Asks planning policies for a new plan if an epoch has passed since the last one.
    pub(super) fn plan_if_due(&mut self) {
        if self.plan_at.is_none_or(|at| at > self.now) {
            return;
        }
        let planning = |model: &crate::model::Model| !model.retiring && model.policy.epoch().is_some();
        let ids = (0..).map(ModelId).zip(&self.models);
        let ids: Vec<ModelId> =
            ids.filter(|(_, model)| model.as_ref().is_some_and(planning)).map(|(id, _)| id).collect();
        let epoch = ids.iter().filter_map(|&id| self.model(id)?.policy.epoch()).min();
        // New models have no rate yet.
        let changed = self.plan_at == Some(Nanos::ZERO);
        let wait = |epoch: Nanos| if changed { epoch.min(FIRST_LOOK) } else { epoch };
        self.plan_at = epoch.map(|epoch| self.now.after(wait(epoch)));
        for (position, &leader) in ids.iter().enumerate() {
            let group = |&id: &ModelId| {
                let (model, leader) = (self.model(id)?, self.model(leader)?);
                (model.pool == leader.pool && model.policy.is_kin(&leader.policy)).then_some(id)
            };
            let members: Vec<ModelId> = ids.iter().filter_map(group).collect();
            // Each group is planned once, by its first member.
            if ids.iter().take(position).any(|id| members.contains(id)) {
                continue;
            }
            self.plan(&members);
        }
    }

    fn plan(&mut self, members: &[ModelId]) {
        let first = members.first().and_then(|&id| self.model(id));
        let Some(first) = expected!(first, "router.planned_model_unknown") else { return };
        let lanes: Vec<LaneId> =
            self.pools.get(first.pool).map(|pool| pool.up.iter().collect()).unwrap_or_default();
        let sessions: Vec<Session<'_>> = members
            .iter()
            .filter_map(|&id| {
                let model = self.model(id)?;
                let lane_class = self.pools.get(model.pool).and_then(|pool| pool.lane_classes.first());
                Some(Session {
                    rate: model.rate.per_second(self.now),
                    slo: model.slo,
                    max_batch: model.largest,
                    row_bytes: model.row_bytes,
                    cost: model
                        .costs
                        .on(lane_class.map_or_else(LaneClass::default, |(lane_class, _)| *lane_class)),
                })
            })
            .collect();
        let plan = first.policy.plan(&sessions, &lanes);
        for (&id, assignments) in members.iter().zip(plan) {
            if let Some(model) = self.model_mut(id) {
                model.policy.assign(assignments);
            }
        }
    }

    /// Plans at the next event, because models or lanes changed.
    pub(super) fn plan_soon(&mut self) {
        let plans = |model: &crate::model::Model| model.policy.epoch().is_some();
        if self.models.iter().flatten().any(plans) {
            self.plan_at = Some(Nanos::ZERO);
        }
    }
}
