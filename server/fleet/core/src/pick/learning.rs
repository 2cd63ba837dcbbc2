//! What a picker learns: from what nodes say, and from the plan.

use std::collections::BTreeSet;
use std::time::Duration;

use invariant::expected;
use router_core::batch::Policy;
use router_core::{
    Event, LaneClass, LaneClassTimes, LaneId, LaneSpec, LaneUp, ModelId, ModelLanes, ModelMove, ModelSpec,
    ProfilePoint, Switch,
};

use super::flight::Lane;
use super::nodes::{Division, divide};
use super::{DEVICE_TYPES_MAX, LANES_MAX, NodeNumber, Picker, QUEUE_MAX, ROW_BYTES, TooMany, Update, nanos};
use crate::batch_times::BatchTimes;
use crate::view::ModelView;

impl Picker {
    /// Takes what a node says.
    ///
    /// # Errors
    /// If there are too many models or lanes; the others are taken.
    pub fn seen(&mut self, now: Duration, node: NodeNumber, update: &Update) -> Result<(), TooMany> {
        let mut outcome = Ok(());
        if update.complete {
            let listed: BTreeSet<&str> = update.models.iter().map(|(name, _)| name.as_str()).collect();
            let unlisted =
                |(name, number): (&String, &u32)| (!listed.contains(name.as_str())).then_some(*number);
            let unlisted: Vec<u32> = self.model_numbers.iter().filter_map(unlisted).collect();
            unlisted.into_iter().for_each(|model| self.model_removed(node, model));
        }
        for name in &update.removed {
            if let Some(model) = self.model_numbers.get(name).copied() {
                self.model_removed(node, model);
            }
        }
        let Some(state) = expected!(self.nodes.get_mut(node.0 as usize), "pick.unknown_node") else {
            return outcome;
        };
        let was_used = state.takes(now, &self.settings);
        (state.heard, state.was_lost, state.draining) = (Some(now), false, update.draining);
        self.is_changed |= was_used != state.takes(now, &self.settings);
        for (name, view) in &update.models {
            let seen = self.know_model(name).and_then(|model| self.model_seen(now, node, model, view));
            outcome = outcome.and(seen);
        }
        self.redivide(now);
        outcome
    }

    fn model_removed(&mut self, node: NodeNumber, model: u32) {
        if let Some(state) = self.nodes.get_mut(node.0 as usize) {
            self.is_changed |= state.models.remove(&model).is_some();
        }
        if let Some(model) = self.models.get_mut(model as usize) {
            model.weights.seen(node, false);
        }
    }

    fn model_seen(
        &mut self,
        now: Duration,
        node: NodeNumber,
        model: u32,
        view: &ModelView,
    ) -> Result<(), TooMany> {
        if !view.ready || view.lanes == 0 {
            self.model_removed(node, model);
            return Ok(());
        }
        let Some(state) = expected!(self.nodes.get_mut(node.0 as usize), "pick.unknown_node") else {
            return Ok(());
        };
        self.is_changed |= state.models.insert(model, view.pool) != Some(view.pool);
        let known = state.pools.get(&view.pool).map_or(0, Vec::len);
        if known != view.lanes as usize {
            self.lanes_seen(now, node, (view.pool, view.lanes))?;
        }
        self.times_seen(now, node, model, view);
        Ok(())
    }

    /// A pool of lanes of a node has another size.
    fn lanes_seen(
        &mut self,
        now: Duration,
        node: NodeNumber,
        (pool, lanes): (u32, u32),
    ) -> Result<(), TooMany> {
        let fresh = lanes.saturating_sub(u32::try_from(self.free_lanes.len()).unwrap_or(u32::MAX));
        let to = self.next_lane.checked_add(fresh).filter(|to| *to <= LANES_MAX).ok_or(TooMany)?;
        let Some(state) = expected!(self.nodes.get_mut(node.0 as usize), "pick.unknown_node") else {
            return Ok(());
        };
        let kept = self.free_lanes.len().saturating_sub(lanes as usize);
        let mut new = self.free_lanes.split_off(kept);
        new.extend((self.next_lane..to).map(LaneId));
        self.next_lane = to;
        let device_type = state.device_type;
        let old = state.pools.insert(pool, new.clone()).unwrap_or_default();
        self.is_changed = true;
        self.lanes_removed(now, &old);
        self.flight.lanes.extend(new.iter().map(|lane| (*lane, Lane::new(node, device_type))));
        let up = |lane: &LaneId| LaneUp { spec: LaneSpec::new(*lane, device_type), after: Vec::new() };
        let switch = Switch { up: new.iter().map(up).collect(), drain: Vec::new(), models: Vec::new() };
        self.feed(now, Event::Switch(&switch));
        Ok(())
    }

    /// Takes the device type of a node. Batches of a model are planned with its times on each type. Nodes whose type was never said
    /// are taken as alike.
    ///
    /// # Errors
    /// If there are too many types. The node keeps the one that it had.
    pub fn device_type(&mut self, now: Duration, node: NodeNumber, name: &str) -> Result<(), TooMany> {
        let device_type = match self.device_types.get(name) {
            Some(known) => *known,
            None => {
                let number = self.device_types.len();
                let number =
                    u32::try_from(number).ok().filter(|_| number < DEVICE_TYPES_MAX).ok_or(TooMany)?;
                self.device_types.insert(name.to_owned(), LaneClass(number));
                LaneClass(number)
            }
        };
        let Some(state) = expected!(self.nodes.get_mut(node.0 as usize), "pick.unknown_node") else {
            return Ok(());
        };
        if std::mem::replace(&mut state.device_type, device_type) == device_type {
            return Ok(());
        }
        let pools: Vec<(u32, u32)> = state
            .pools
            .iter()
            .map(|(pool, lanes)| (*pool, u32::try_from(lanes.len()).unwrap_or(0)))
            .collect();
        let outcome = pools.into_iter().try_for_each(|pool| self.lanes_seen(now, node, pool));
        self.redivide(now);
        outcome
    }

    /// The router gets to know a model with the times of the first node that has measured it, and those on another device type with the
    /// times of the first node of that type. It learns from there.
    fn times_seen(&mut self, now: Duration, node: NodeNumber, model: u32, view: &ModelView) {
        let device_type = self.nodes.get(node.0 as usize).map(|node| node.device_type).unwrap_or_default();
        let Some(entry) = expected!(self.models.get_mut(model as usize), "pick.unknown_model") else {
            return;
        };
        entry.weights.seen(node, true);
        if entry.times.contains_key(&device_type) {
            return;
        }
        let Some(times) = BatchTimes::measured(view) else { return };
        let is_first = entry.times.is_empty();
        entry.times.insert(device_type, times);
        let point = |(rows, time)| ProfilePoint { rows, row_bytes: ROW_BYTES, time: nanos(time) };
        let profile: Vec<ProfilePoint> = times.sizes().map(point).collect();
        if !is_first {
            let lanes = ModelLanes::Only(entry.lanes.iter().copied().collect());
            let times = vec![LaneClassTimes { lane_class: device_type, profile }];
            let moves = vec![ModelMove { model: ModelId(model), lanes, times }];
            return self.feed(now, Event::Switch(&Switch { models: moves, ..Switch::default() }));
        }
        let spec = ModelSpec {
            model: ModelId(model),
            max_batch: times.max_batch,
            queue_limit: QUEUE_MAX,
            class_limits: Vec::new(),
            rate_limit: Default::default(),
            policy: Policy::default(),
            lanes: ModelLanes::Only(Vec::new()),
            profile,
            measured_on: device_type,
            preemptible: false,
        };
        self.is_changed = true;
        self.feed(now, Event::ModelUp(&spec));
    }

    /// The connection to a node broke. Its lanes are not used until it says something again.
    pub fn lost(&mut self, now: Duration, node: NodeNumber) {
        let Some(state) = expected!(self.nodes.get_mut(node.0 as usize), "pick.unknown_node") else { return };
        (state.heard, state.was_lost) = (None, true);
        state.models.clear();
        let lanes: Vec<LaneId> = std::mem::take(&mut state.pools).into_values().flatten().collect();
        self.is_changed = true;
        self.redivide(now);
        self.lanes_removed(now, &lanes);
    }

    fn lanes_removed(&mut self, now: Duration, lanes: &[LaneId]) {
        for lane in lanes {
            self.flight.remove_lane(*lane);
            self.feed(now, Event::LaneDown(*lane));
        }
        self.free_lanes.extend(lanes);
    }

    /// Takes the planned rate of a model on a node, in rows a second, for the time without views.
    ///
    /// # Errors
    /// If the picker knows too many models.
    pub fn planned(&mut self, node: NodeNumber, model: &str, rate: f64) -> Result<(), TooMany> {
        let model = self.know_model(model)?;
        if let Some(node) = self.nodes.get_mut(node.0 as usize) {
            self.is_changed |= match rate > 0.0 {
                true => node.planned.insert(model),
                false => node.planned.remove(&model),
            };
        }
        if let Some(model) = self.models.get_mut(model as usize) {
            model.weights.planned(node, rate);
        }
        Ok(())
    }

    /// Moves the models to the lanes that this picker uses now.
    pub(super) fn redivide(&mut self, now: Duration) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let mut wanted = divide(&self.nodes, &self.model_names, now, &self.settings, &self.peers);
        let mut moves = Vec::new();
        for (number, model) in (0..).zip(&mut self.models) {
            let Division { owner, lanes } = wanted.remove(&number).unwrap_or_default();
            model.owner = owner.filter(|owner| *owner != self.settings.number);
            if !model.times.is_empty() && model.lanes != lanes {
                let to = ModelLanes::Only(lanes.iter().copied().collect());
                moves.push(ModelMove { model: ModelId(number), lanes: to, times: Vec::new() });
                model.lanes = lanes;
            }
        }
        if !moves.is_empty() {
            let switch = Switch { up: Vec::new(), drain: Vec::new(), models: moves };
            self.feed(now, Event::Switch(&switch));
        }
    }
}
