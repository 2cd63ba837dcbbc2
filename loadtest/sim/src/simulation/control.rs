//! The control loop in virtual time: when it ticks, how long its steps take, and which events it receives.

use std::collections::VecDeque;

use gpulet_core::control::{Effect, Event, LoadReport, ModelLoad, PlanRejected};
use gpulet_core::rollout::{self, DeviceId, Epoch, GpuletId, Step, StepId, Switch};
use gpulet_core::time::Micros;
use lane_plan::Version;
use router_core::{LaneId, ModelId};

use super::Simulation;
use crate::error::{Breach, SimError};
use crate::partition::{OpenGpulet, Partitioned};
use crate::units::MICROSECOND;

/// The error of a control loop that cannot start.
fn cannot_begin(field: &str, problem: String) -> SimError {
    let (file, line, field) = (String::new(), None, field.to_owned());
    SimError::Workload(workload::WorkloadError { file, line, field, problem })
}

/// The control loop, for an event that only a control loop causes.
fn control_loop(partition: &mut Option<Box<Partitioned>>) -> Option<&mut Partitioned> {
    if partition.is_none() {
        invariant::violated!("sim.control_event_without_devices");
    }
    partition.as_deref_mut()
}

impl Simulation {
    /// Applies the plan with which the run begins: a fixed plan, or one that the control loop makes.
    pub(super) fn begin_control(&mut self) -> Result<(), SimError> {
        // A workload without devices has no control loop.
        let Some(partition) = &self.partition else { return Ok(()) };
        let refused = |why: PlanRejected| cannot_begin("partition.plan", why.to_string());
        let first = match &partition.control_inputs.plan {
            Some(plan) => {
                let accepted = partition.controller.accept(&partition.control_inputs.models, plan);
                Event::OperatorPlan(accepted.map_err(refused)?)
            }
            None => self.look_of(partition),
        };
        self.control(first).map_err(|breach| self.broken(breach))?;
        // The first rollout takes no virtual time: a server completes it before it is ready.
        while let Some(((_, _), event)) = self.partition.as_mut().and_then(|one| one.due.pop_first()) {
            self.control(Event::Rollout(event)).map_err(|breach| self.broken(breach))?;
        }
        let Some(partition) = control_loop(&mut self.partition) else { return Ok(()) };
        partition.look_at = partition.control_inputs.options.period_us.0.saturating_mul(MICROSECOND);
        if partition.controller.rollout().epoch() == Epoch::default() {
            let reason = partition.controller.latest().problem().unwrap_or("no reason was given").to_owned();
            return Err(cannot_begin("partition", format!("no plan to begin with: {reason}")));
        }
        Ok(())
    }

    /// Reports a completed step to the control loop, or ticks the rollout.
    pub(super) fn step_ends(&mut self) -> Result<(), Breach> {
        let now = self.now;
        let Some(partition) = control_loop(&mut self.partition) else { return Ok(()) };
        let event = match partition.due.first_entry() {
            Some(first) if first.key().0 <= now => first.remove(),
            _ => rollout::Event::Tick,
        };
        self.control(Event::Rollout(event))
    }

    /// Reports the load to the control loop, and schedules the next tick.
    pub(super) fn look(&mut self) -> Result<(), Breach> {
        let Some(partition) = control_loop(&mut self.partition) else { return Ok(()) };
        let period = partition.control_inputs.options.period_us.0.saturating_mul(MICROSECOND);
        partition.look_at = self.now.saturating_add(period);
        let look = self.partition.as_deref().map(|partition| self.look_of(partition));
        look.map_or(Ok(()), |look| self.control(look))
    }

    fn look_of(&self, partition: &Partitioned) -> Event {
        let snapshot = self.router.snapshot();
        let looked = (0..).zip(partition.control_inputs.models.iter().zip(&partition.counts));
        let looked = looked.map(|(number, (model, counts))| {
            let seen = lane_plan::load_of(&snapshot, ModelId(number), *counts, 0);
            ModelLoad { model: model.clone(), seen }
        });
        let families = partition.control_inputs.families.clone();
        let models = looked.collect();
        Event::Load(LoadReport { models, families, ran: partition.ran(), ..LoadReport::default() })
    }

    /// Passes the router's events about lanes to the control loop immediately.
    pub(super) fn tell_control(&mut self) -> Result<(), Breach> {
        while let Some(event) = self.partition.as_mut().and_then(|one| one.said.pop_front()) {
            self.control(Event::Rollout(event))?;
        }
        Ok(())
    }

    /// Processes one event of the control loop, and every event that follows from it at this moment.
    fn control(&mut self, event: Event) -> Result<(), Breach> {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let (now, check) = (self.now, self.setup.check);
            let Some(partition) = control_loop(&mut self.partition) else { return Ok(()) };
            let mut effects = Vec::new();
            partition.controller.handle(Micros(now / MICROSECOND), event, &mut effects);
            if check {
                let checked = partition.controller.rollout().check();
                checked.map_err(|broken| Breach { id: "G3", detail: broken.to_string() })?;
            }
            for effect in effects {
                self.do_effect(effect, &mut events)?;
            }
            let said = self.partition.as_mut().map(|one| std::mem::take(&mut one.said)).unwrap_or_default();
            events.extend(said.into_iter().map(Event::Rollout));
        }
        Ok(())
    }

    fn do_effect(&mut self, effect: Effect, events: &mut VecDeque<Event>) -> Result<(), Breach> {
        let Some(partition) = control_loop(&mut self.partition) else { return Ok(()) };
        match effect {
            Effect::Plan(question) => {
                let answer = question.answer();
                if let Ok(proposed) = &answer.result {
                    partition.record.planned(proposed.planned.share);
                }
                events.push_back(Event::Planned(answer));
            }
            Effect::Rollout(rollout::Effect::Step { id, step, .. }) => self.step(id, &step)?,
            Effect::Rollout(rollout::Effect::Switch { switch, .. }) => {
                let happened = self.switch(&switch)?;
                events.push_back(Event::Rollout(happened));
            }
            Effect::Rollout(rollout::Effect::Ended { outcome, .. }) => partition.record.ended(&outcome),
            Effect::NoPlan { reason } => partition.record.no_plan(&reason),
            // Gpulets of simulated devices always open.
            Effect::DeviceLost(_)
            | Effect::DeviceBack { .. }
            | Effect::Rollout(rollout::Effect::CannotOpen { .. }) => {
                invariant::violated!("sim.simulated_device_lost");
            }
            Effect::Rollout(rollout::Effect::Incident { .. } | rollout::Effect::PlanNeeded { .. })
            | Effect::OperatorPlanEnded { .. }
            | Effect::OperatorPlanReleased
            | Effect::Evicted { .. } => {}
        }
        Ok(())
    }

    /// Starts a step and schedules its completion.
    fn step(&mut self, id: StepId, step: &Step) -> Result<(), Breach> {
        let now = self.now;
        let is_begun =
            self.partition.as_ref().is_some_and(|one| one.controller.rollout().epoch() > Epoch::default());
        let (time, failure) = match step {
            Step::Open { gpulet, device, first_unit, units } => {
                self.open(*gpulet, device, *first_unit, *units)
            }
            Step::Close { gpulet } => {
                self.close(*gpulet)?;
                (0, None)
            }
            Step::Prepare { gpulet, model, .. } => (self.load_time(*gpulet, model), None),
            Step::Verify { gpulet, model, batch } => (self.verify_time(*gpulet, model, *batch), None),
            Step::CloseSession { gpulet, model } => {
                let entry = self.partition.as_mut().and_then(|one| one.open_gpulets.get_mut(*gpulet));
                if !entry.is_some_and(|entry| entry.sessions.remove(model)) {
                    invariant::violated!("sim.closed_session_unknown");
                }
                (0, None)
            }
            Step::Shrink { .. } => (0, None),
        };
        let Some(partition) = control_loop(&mut self.partition) else { return Ok(()) };
        let event = match failure {
            Some(reason) => rollout::Event::StepFailed { step: id, reason },
            None => rollout::Event::StepDone(id),
        };
        partition.later(now.saturating_add(if is_begun { time } else { 0 }), event);
        Ok(())
    }

    fn open(
        &mut self,
        gpulet: GpuletId,
        device: &DeviceId,
        first_unit: u32,
        units: u32,
    ) -> (u64, Option<String>) {
        let (now, window) = (self.now, self.figures.window);
        let Some(partition) = control_loop(&mut self.partition) else { return (0, None) };
        let Some(kind) = partition.control_inputs.kind_of(device).map(|kind| kind.name.clone()) else {
            return (0, Some(format!("device `{device}` is not there")));
        };
        let entry = OpenGpulet {
            gpulet,
            device: device.clone(),
            kind,
            first_unit,
            units,
            is_known: false,
            is_up: false,
            sessions: std::collections::BTreeSet::new(),
        };
        let lane = partition.open_gpulets.open(entry);
        partition.record.uses(now, window, &partition.open_gpulets.devices());
        match lane {
            Ok(_) => (partition.control_inputs.open, None),
            Err(error) => (0, Some(error.to_string())),
        }
    }

    fn close(&mut self, gpulet: GpuletId) -> Result<(), Breach> {
        let (now, window) = (self.now, self.figures.window);
        let Some(partition) = control_loop(&mut self.partition) else { return Ok(()) };
        // A gpulet that could not be opened is closed too.
        let Some((lane, entry)) = partition.open_gpulets.close(gpulet) else { return Ok(()) };
        partition.forget(lane);
        partition.record.uses(now, window, &partition.open_gpulets.devices());
        let (running, _) = self.lanes.go_down(lane, now);
        Breach::unless(running.is_none(), "G3", || format!("gpulet {gpulet} was closed while it worked"))?;
        if entry.is_up {
            self.figures.lanes(now, 0, -1);
        }
        if entry.is_known { self.feed(router_core::Event::LaneDown(LaneId(lane))) } else { Ok(()) }
    }

    /// Nanoseconds to load a model onto a gpulet; 0 if it is loaded already.
    fn load_time(&mut self, gpulet: GpuletId, model: &str) -> u64 {
        let Some(partition) = control_loop(&mut self.partition) else { return 0 };
        let (time, entry) =
            (partition.control_inputs.load.get(model), partition.open_gpulets.get_mut(gpulet));
        let Some((time, entry)) = time.copied().zip(entry) else {
            invariant::violated!("sim.load_of_unknown_model");
            return 0;
        };
        if entry.sessions.insert(model.to_owned()) { time } else { 0 }
    }

    /// Nanoseconds that verifying a model with one batch takes.
    fn verify_time(&mut self, gpulet: GpuletId, model: &str, batch: u32) -> u64 {
        let Some(partition) = control_loop(&mut self.partition) else { return 0 };
        let number = partition.control_inputs.models.iter().position(|known| known.model == model);
        let time = number.zip(partition.open_gpulets.get_mut(gpulet)).and_then(|(number, entry)| {
            partition.control_inputs.time(number, &entry.kind, entry.units, batch)
        });
        time.unwrap_or_else(|| {
            invariant::violated!("sim.verified_batch_without_profile");
            0
        })
    }

    /// Switches the router to the lanes of a plan, and returns the outcome.
    fn switch(&mut self, switch: &Switch) -> Result<rollout::Event, Breach> {
        let now = self.now;
        let Some(partition) = control_loop(&mut self.partition) else { return Ok(rollout::Event::Tick) };
        let in_force = partition.controller.rollout().epoch();
        let failed = |reason: String| rollout::Event::SwitchFailed { epoch: switch.epoch, in_force, reason };
        let known = (0..).zip(partition.control_inputs.models.iter().zip(&self.workload.models));
        let versions: Vec<Version<'_>> = known
            .map(|(number, (model, of))| Version {
                id: ModelId(number),
                model,
                row_bytes: Some(of.row_bytes),
            })
            .collect();
        let lane = |gpulet: GpuletId| partition.open_gpulets.lane_of(gpulet).map(LaneId);
        let lanes = match lane_plan::lanes_of(switch, lane, &versions, &mut partition.classes) {
            Ok(lanes) => lanes,
            Err(error) => return Ok(failed(error.to_string())),
        };
        let mut newly = 0;
        for active in &switch.active {
            let lane = partition.open_gpulets.lane_of(active.id);
            let Some((lane, entry)) = lane.zip(partition.open_gpulets.get_mut(active.id)) else {
                invariant::violated!("sim.active_gpulet_without_lane");
                continue;
            };
            newly += i32::from(!std::mem::replace(&mut entry.is_up, true));
            entry.is_known = true;
            self.lanes.come_up(lane);
        }
        self.figures.lanes(now, 0, newly);
        self.feed(router_core::Event::Switch(&lanes))?;
        let Some(partition) = control_loop(&mut self.partition) else { return Ok(rollout::Event::Tick) };
        Ok(match partition.switched.take() {
            Some(Ok(())) => {
                partition.record.switched(now, switch);
                rollout::Event::Switched { epoch: switch.epoch }
            }
            Some(Err(reason)) => failed(reason),
            None => failed("the router said nothing".to_owned()),
        })
    }

    /// Stores the router's answer to the last switch.
    pub(super) fn answer_switch(&mut self, answer: Result<(), String>) {
        if let Some(partition) = control_loop(&mut self.partition) {
            partition.switched = Some(answer);
        }
    }

    /// Records that a lane is drained: it holds no batch any more.
    pub(super) fn lane_rests(&mut self, lane: LaneId) {
        let now = self.now;
        let Some(partition) = control_loop(&mut self.partition) else { return };
        let gpulet = partition.open_gpulets.get(lane.0).map(|entry| entry.gpulet);
        let entry = gpulet.and_then(|gpulet| partition.open_gpulets.get_mut(gpulet));
        let Some((gpulet, entry)) = gpulet.zip(entry) else {
            return invariant::violated!("sim.idle_lane_without_gpulet");
        };
        if std::mem::take(&mut entry.is_up) {
            self.figures.lanes(now, 0, -1);
        }
        partition.said.push_back(rollout::Event::Drained(gpulet));
    }
}
