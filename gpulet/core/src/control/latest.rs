//! The last observations and decisions, and the reasons why rates moved: bounded, oldest forgotten first.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::Model;
use crate::plan::Plan;
use crate::rollout::Outcome;
use crate::scaling::{Decision, ModelObservation, Reason, Standby, Target};
use crate::time::Micros;

/// Number of decisions that are remembered.
const DECISIONS: usize = 256;

/// Relative change of a rate below which it is not recorded.
const WORTH_TELLING: f64 = 0.01;

/// A change of a model's planned rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecisionEntry {
    /// Microseconds on the caller's clock.
    pub at_us: Micros,
    /// Name of the model.
    pub model: String,
    /// Old rate, requests a second.
    pub from: f64,
    /// New rate, requests a second.
    pub to: f64,
    /// Reason of the change.
    pub reason: String,
}

/// A model at the last evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelLatest {
    /// Requests a second that arrived.
    pub rate: f64,
    /// Requests a second that are planned for.
    pub target: f64,
    /// Reason of the target.
    pub reason: String,
    /// Part of the ended requests that were answered in time, from 0 to 1; none if no request ended.
    pub attainment: Option<f64>,
    /// Whether it gets no gpulet.
    pub is_unplaced: bool,
    /// Time of its last request, microseconds.
    pub asked_us: Micros,
}

/// The last observations and decisions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latest {
    at_us: Micros,
    /// Seconds between the last evaluation and the one before.
    seconds: f64,
    models: BTreeMap<String, ModelLatest>,
    /// The models at the evaluation before the last.
    before: BTreeMap<String, ModelLatest>,
    decisions: VecDeque<DecisionEntry>,
    share: Option<f64>,
    problem: Option<String>,
}

impl Latest {
    /// The model at the last evaluation.
    pub fn model(&self, name: &str) -> Option<&ModelLatest> {
        self.models.get(name)
    }

    /// Why rates moved, oldest first; the last 256 moves of at least 1 %.
    pub fn decisions(&self) -> impl Iterator<Item = &DecisionEntry> {
        self.decisions.iter()
    }

    /// Share of every target that the last plan was made for, 1 before the first.
    pub fn share(&self) -> f64 {
        self.share.unwrap_or(1.0)
    }

    /// Why the load has no plan, if planning failed.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub(super) fn target(&self, model: &str) -> Option<f64> {
        self.models.get(model).map(|known| known.target)
    }

    /// Time of each model's last request, microseconds.
    pub(super) fn asked_us(&self) -> BTreeMap<String, Micros> {
        self.models.iter().map(|(name, known)| (name.clone(), known.asked_us)).collect()
    }

    pub(super) fn is_unplaced(&self, model: &str) -> bool {
        self.models.get(model).is_some_and(|known| known.is_unplaced)
    }

    /// Records an evaluation of the load and the rates that were decided, of models and families by name.
    pub(super) fn looked<'a>(
        &mut self,
        names: impl Iterator<Item = &'a String>,
        observed: &[ModelObservation],
        decision: &Decision,
    ) {
        self.seconds = decision.now.since(self.at_us).as_secs_f64().max(1e-3);
        self.at_us = decision.now;
        self.before = std::mem::take(&mut self.models);
        for ((name, observed), target) in names.zip(observed).zip(&decision.targets) {
            self.record(name, observed, target);
        }
    }

    /// Records what the plan in force gives to the variants of families, which have no targets of their own.
    pub(super) fn variants(&mut self, models: &[Model], observed: &[ModelObservation], plan: &Plan) {
        for (model, observed) in models.iter().zip(observed) {
            if self.models.contains_key(&model.name) {
                continue;
            }
            let rate =
                plan.slots_of(&model.name).map(|(_, slot)| slot.rate).fold(0.0, |sum, rate| sum + rate);
            let target = Target { rate, standby: Standby::Ready, reason: Reason::Variant };
            self.record(&model.name, observed, &target);
        }
    }

    fn record(&mut self, name: &str, observed: &ModelObservation, target: &Target) {
        let before = self.before.get(name);
        let from = before.map_or(0.0, |known| known.target);
        let reason = target.reason.to_string();
        if (target.rate - from).abs() > WORTH_TELLING * from {
            let (at_us, model, to) = (self.at_us, name.to_owned(), target.rate);
            if self.decisions.len() >= DECISIONS {
                self.decisions.pop_front();
            }
            self.decisions.push_back(DecisionEntry { at_us, model, from, to, reason: reason.clone() });
        }
        let rate = observed.arrivals as f64 / self.seconds;
        let asked_us = match before {
            _ if observed.arrivals > 0 => self.at_us,
            Some(known) => known.asked_us,
            None => Micros::ZERO,
        };
        let now = ModelLatest {
            rate,
            target: target.rate,
            reason,
            attainment: observed.attainment,
            is_unplaced: target.standby != Standby::Ready,
            asked_us,
        };
        self.models.insert(name.to_owned(), now);
    }

    /// Records that a plan was made for `share` of every target.
    pub(super) fn planned(&mut self, share: f64) {
        self.share = Some(share);
        self.problem = None;
    }

    /// Records that no plan could be made. Returns whether the reason is new.
    pub(super) fn cannot_plan(&mut self, reason: &str) -> bool {
        let news = self.problem.as_deref() != Some(reason);
        self.problem = Some(reason.to_owned());
        news
    }

    /// Records how a proposal ended.
    pub(super) fn ended(&mut self, outcome: &Outcome) {
        let reason = outcome.reason();
        if reason.is_some() {
            self.problem = reason;
        }
    }
}
