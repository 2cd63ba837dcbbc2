//! Evaluates the load: what it was, which gpulets are late, which rates to plan for, and whether to plan.

use super::streams::Streams;
use super::{Controller, Effect, LoadReport, Model, ModelLoad, Scaling};
use crate::control::plan_request::PlanRequest;
use crate::plan::Gpulet;
use crate::rollout;
use crate::scaling::{Autoscaler, ModelObservation, Observation, ScalingOptions, StandbyAfter};
use crate::time::Micros;

/// Attainment below which a model is late although the plan has the capacity for its load.
const LATE_BELOW: f64 = 0.5;

impl Controller {
    /// Evaluates the load, and requests a plan if one is needed.
    pub(super) fn look(&mut self, now: Micros, look: LoadReport, effects: &mut Vec<Effect>) {
        self.reserved = look.reserved;
        self.families = if self.inputs.variants.0.is_some() { look.families } else { Vec::new() };
        let observed = self.watch.look(&look.models, &self.capacity);
        let has_learned = self.learn(now, &look.models, &look.ran);
        self.report_late(now, &look.models, &observed, effects);
        self.replan |= self.adjust(&look.models, &look.ran);
        let models: Vec<Model> = self.corrected(look.models);
        let streams = Streams::of(&models, &self.families);
        if let Err(reason) = self.rescale(&models, &streams) {
            return self.pause(now, reason, effects);
        }
        let Some(scaling) = &mut self.scaling else {
            return invariant::violated!("control.load_without_scaler");
        };
        if let Some(change_us) = self.change_time.takes_us() {
            scaling.scaler.set_change_time(change_us);
        }
        // Whether a device is back is seen only by a plan that uses it.
        self.replan |= self.lost.try_due(now);
        let seen = streams.observed(&observed);
        // The policy may have left it out; requests that name it must not wait for a change of the load.
        self.replan |= models.iter().any(|model| {
            let variants = self.families.iter().flat_map(|family| &family.variants);
            let is_variant = || variants.clone().any(|variant| variant.name == model.name);
            model.is_waited_for && !model.has_place && is_variant()
        });
        let decision = scaling.scaler.decide(&Observation { now, models: &seen });
        // Before the scaler recommends rates, a plan would be one for no load.
        self.replan |= self.is_start_plan && !scaling.scaler.is_watching();
        let missed = |name: &str| models.iter().any(|model| model.name == name && model.is_waited_for);
        let before = self.evicted.len();
        self.evicted.retain(|name| !missed(name));
        let wanted = decision.is_change || self.replan || has_learned || self.evicted.len() < before;
        self.latest.looked(streams.names(), &seen, &decision);
        self.latest.variants(&models, &observed, &self.rollout.plan());
        let early = self.not_before_us.is_some_and(|at| now < at);
        self.replan = wanted;
        if wanted && !early && self.may_plan() {
            self.questions = self.questions.saturating_add(1);
            self.believe();
            let question = PlanRequest {
                number: self.questions,
                inputs: self.inputs_in_use(),
                targets: self.targets(),
                families: self.families.clone(),
                asked_us: self.latest.asked_us(),
                current: self.rollout.plan(),
                models,
            };
            effects.push(Effect::Plan(Box::new(question)));
        }
    }

    /// Reports gpulets to the rollout whose models miss their objectives although the load is below the plan's
    /// capacity.
    fn report_late(
        &mut self,
        now: Micros,
        models: &[ModelLoad],
        observed: &[ModelObservation],
        effects: &mut Vec<Effect>,
    ) {
        let period_s = self.options.period_us.as_secs_f64();
        for (looked, seen) in models.iter().zip(observed) {
            // A model without answers has no attainment.
            let Some(attainment) = seen.attainment.filter(|attainment| *attainment < LATE_BELOW) else {
                continue;
            };
            // The load is too high, not the plan too slow.
            if seen.arrivals as f64 > seen.capacity * period_s {
                continue;
            }
            let name = &looked.model.name;
            let serves = |gpulet: &Gpulet| gpulet.slots.iter().any(|slot| slot.workload == *name);
            let active = self.rollout.active();
            let late: Vec<_> = active.filter(|(_, gpulet)| serves(gpulet)).map(|(id, _)| id).collect();
            let reason = format!("{:.0} % of the answers of `{name}` in time", 100.0 * attainment);
            for gpulet in late {
                self.process(now, rollout::Event::Late { gpulet, reason: reason.clone() }, effects);
            }
        }
    }

    /// Creates a scaler for the current models and families. Known ones keep their targets.
    fn rescale(&mut self, models: &[Model], streams: &Streams) -> Result<(), String> {
        let same = |scaling: &Scaling| scaling.names.iter().eq(streams.names());
        if self.scaling.as_ref().is_some_and(same) {
            return Ok(());
        }
        let services = streams.services(models)?;
        let names: Vec<String> = streams.names().cloned().collect();
        let planned: Vec<f64> = names.iter().map(|name| self.latest.target(name).unwrap_or(0.0)).collect();
        let standby = self.options.idle_us.map(|idle_us| StandbyAfter { warm_us: idle_us, cold_us: idle_us });
        let options = ScalingOptions { standby, ..ScalingOptions::default() };
        let scaler = Autoscaler::new(&self.options.scaling, &services, options, &planned);
        let scaler = scaler.map_err(|error| format!("partition.scaling: {error}"))?;
        self.scaling = Some(Scaling { names, scaler });
        self.replan = true;
        Ok(())
    }
}
