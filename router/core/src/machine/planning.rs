//! Policies that assign models to lanes ahead of time.

use invariant::expected;

use crate::batch::Session;
use crate::machine::Router;
use crate::{LaneClass, LaneId, ModelId};

impl Router {
    /// Asks planning policies for a new plan if an epoch has passed since the last one.
    pub(super) fn plan_if_due(&mut self) {
        if !self.next_plan.is_due(self.now) {
            return;
        }
        let planning = |model: &crate::model::Model| !model.retiring && model.policy.planning().is_some();
        let ids: Vec<ModelId> =
            self.models.iter().filter(|(_, model)| planning(model)).map(|(id, _)| id).collect();
        let epochs = ids.iter().filter_map(|&id| Some(self.model(id)?.policy.planning()?.epoch()));
        self.next_plan = self.next_plan.planned(self.now, epochs);
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
        let plan = first.policy.planning().map(|policy| policy.plan(&sessions, &lanes));
        for (&id, assignments) in members.iter().zip(plan.into_iter().flatten()) {
            if let Some(policy) = self.model_mut(id).and_then(|model| model.policy.planning_mut()) {
                policy.assign(assignments);
            }
        }
    }

    /// Plans at the next event, because models or lanes changed.
    pub(super) fn plan_soon(&mut self) {
        self.next_plan.soon(self.models.iter().map(|(_, model)| model).map(|model| &model.policy));
    }
}
