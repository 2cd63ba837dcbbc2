//! Models and lanes that come and go, and the end.

use smallvec::SmallVec;

use crate::config::{LaneSpec, ModelLanes, ModelSpec};
use crate::event::{Effect, Effects, Outcome, Reason};
use crate::lane::Lane;
use crate::machine::Router;
use crate::model::Model;
use crate::{LaneId, ModelId, Nanos};

impl Router {
    pub(super) fn model_up(&mut self, spec: &ModelSpec) {
        if spec.model.0 >= self.config.max_models || self.model(spec.model).is_some() {
            return;
        }
        let lanes = self.lanes_up(&spec.lanes);
        let index = spec.model.0 as usize;
        if index >= self.models.len() {
            self.models.resize_with(index + 1, || None);
        }
        if let Some(entry) = self.models.get_mut(index) {
            *entry = Some(Model::new(spec, lanes));
        }
    }

    pub(super) fn model_down(&mut self, id: ModelId, effects: &mut Effects) {
        if let Some(model) = self.model_mut(id) {
            model.retiring = true;
        }
        self.retire_if_done(id, effects);
    }

    pub(super) fn retire_if_done(&mut self, id: ModelId, effects: &mut Effects) {
        let done = |model: &Model| model.retiring && model.unfinished() == 0 && model.queues.is_empty();
        if !self.model(id).is_some_and(done) {
            return;
        }
        if let Some(entry) = self.models.get_mut(id.0 as usize) {
            *entry = None;
        }
        effects.0.push(Effect::Retired(id));
    }

    fn lanes_up(&self, runs_on: &ModelLanes) -> u32 {
        let up =
            (0..).map(LaneId).zip(&self.lanes).filter(|(id, lane)| lane.is_some() && runs_on.contain(*id));
        u32::try_from(up.count()).unwrap_or(u32::MAX)
    }

    pub(super) fn lane_up(&mut self, spec: LaneSpec) {
        if spec.lane.0 >= self.config.max_lanes || spec.depth == 0 || self.lane(spec.lane).is_some() {
            return;
        }
        let index = spec.lane.0 as usize;
        if index >= self.lanes.len() {
            self.lanes.resize_with(index + 1, || None);
        }
        if let Some(entry) = self.lanes.get_mut(index) {
            *entry = Some(Lane { depth: spec.depth, holding: SmallVec::new(), last_report: Nanos::ZERO });
        }
        if let Err(position) = self.free_lanes.binary_search(&spec.lane) {
            self.free_lanes.insert(position, spec.lane);
        }
        self.count_lanes();
    }

    pub(super) fn lane_down(&mut self, id: LaneId, effects: &mut Effects) {
        let Some(lane) = self.lanes.get_mut(id.0 as usize).and_then(Option::take) else { return };
        self.free_lanes.retain(|free| *free != id);
        self.count_lanes();
        for slot in lane.holding {
            let Some(batch_id) = self.batches.at(slot).map(|batch| batch.id) else { continue };
            let Some((_, batch)) = self.batches.take(batch_id) else { continue };
            if let Some(model) = self.model_mut(batch.model) {
                model.in_flight =
                    model.in_flight.saturating_sub(u32::try_from(batch.members.len()).unwrap_or(u32::MAX));
            }
            for &member in &batch.members {
                self.finish(member, Outcome::Failed, Reason::LaneDied, effects);
            }
            self.retire_if_done(batch.model, effects);
        }
        self.refuse_without_lane(effects);
    }

    fn count_lanes(&mut self) {
        for index in 0..self.models.len() {
            let id = ModelId(u32::try_from(index).unwrap_or(u32::MAX));
            let lanes = self.model(id).map_or(0, |model| self.lanes_up(&model.runs_on));
            if let Some(model) = self.model_mut(id) {
                model.lanes = lanes;
            }
            self.model_changed(id);
        }
    }

    fn refuse_without_lane(&mut self, effects: &mut Effects) {
        let stranded = |&(_, queue): &(u32, &crate::queue::Queue)| {
            self.model(queue.model).is_none_or(|model| model.lanes == 0)
        };
        let slots: Vec<u32> =
            self.queues.iter().filter(stranded).flat_map(|(_, queue)| queue.slots()).collect();
        self.refuse(&slots, Reason::NoLane, effects);
    }

    pub(super) fn refuse_all_queued(&mut self, effects: &mut Effects) {
        let slots: Vec<u32> = self.queues.iter().flat_map(|(_, queue)| queue.slots()).collect();
        self.refuse(&slots, Reason::Draining, effects);
    }

    fn refuse(&mut self, slots: &[u32], reason: Reason, effects: &mut Effects) {
        for &slot in slots {
            let Some(id) = self.requests.at(slot).map(|request| request.id) else { continue };
            self.unqueue(slot);
            self.finish(id, Outcome::Refused, reason, effects);
        }
    }
}
