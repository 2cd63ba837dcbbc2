//! Roll-outs of new versions in virtual time, with the decision code of the server.

use std::collections::VecDeque;
use std::time::Duration;

use router_core::{ModelId, Nanos, Outcome, Reason};
use version_rollout::{Arm, Ending, Event, Rollout, Settings};
use workload::{RolloutPlan, VersionDraws, Workload};

use crate::inflight::{Part, Request};
use crate::report::RolloutFigures;
use crate::units::seconds;

/// All roll-outs of a run, by model.
#[derive(Debug, Default)]
pub(crate) struct Rollouts {
    models: Vec<Option<ModelRollout>>,
    /// Models of the router's numbers that follow those of the workload.
    canaries: Vec<u32>,
    /// Requests to run on canaries too.
    pub mirrors: VecDeque<Request>,
}

/// The roll-out of one model.
#[derive(Debug)]
struct ModelRollout {
    plan: RolloutPlan,
    settings: Settings,
    canary: ModelId,
    /// `None` until the new version is loaded.
    core: Option<Rollout>,
    draws: VersionDraws,
    ended_at: Option<u64>,
}

impl Rollouts {
    pub(crate) fn new(workload: &Workload) -> Self {
        let (mut rollouts, default) = (Self::default(), Settings::default());
        for (number, model) in (0..).zip(&workload.models) {
            let canary = workload.models.len().saturating_add(rollouts.canaries.len());
            rollouts.models.push(model.rollout.as_ref().map(|plan| {
                rollouts.canaries.push(number);
                ModelRollout {
                    settings: Settings {
                        canary: plan.canary.unwrap_or(default.canary),
                        bake: plan.bake.map_or(default.bake, Duration::from_nanos),
                        samples: plan.samples.unwrap_or(default.samples),
                        compare: plan.compare.unwrap_or(default.compare),
                        agreement: plan.agreement.unwrap_or(default.agreement),
                        tenants: u16::try_from(workload.tenants.len()).unwrap_or(u16::MAX).max(1),
                    },
                    plan: plan.clone(),
                    canary: ModelId(u32::try_from(canary).unwrap_or(u32::MAX)),
                    core: None,
                    draws: VersionDraws::new(plan.version, workload.seed, &model.name),
                    ended_at: None,
                }
            }));
        }
        rollouts
    }

    /// The models whose new versions follow in the router's numbers, in their order.
    pub(crate) fn canaries(&self) -> &[u32] {
        &self.canaries
    }

    /// The workload's model of a number of the router, and whether it is its new version.
    pub(crate) fn model_of(&self, id: ModelId) -> (u32, bool) {
        let models = u32::try_from(self.models.len()).unwrap_or(u32::MAX);
        match id.0.checked_sub(models).and_then(|canary| self.canaries.get(canary as usize)) {
            Some(&model) => (model, true),
            None => (id.0, false),
        }
    }

    /// Batch times of a model's new version as a multiple of the old ones.
    pub(crate) fn time_factor(&self, model: u32) -> f64 {
        let rollout = self.models.get(model as usize).and_then(Option::as_ref);
        rollout.map_or(1.0, |rollout| rollout.plan.version.time)
    }

    /// When something happens next without a request.
    pub(crate) fn next(&self) -> Option<u64> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let next = |rollout: &ModelRollout| match &rollout.core {
            None => Some(rollout.plan.at),
            Some(core) => core.next_tick().map(nanos),
        };
        self.models.iter().flatten().filter_map(next).min()
    }

    /// Begins and ends the roll-outs that are due.
    pub(crate) fn tick(&mut self, now: u64) {
        for rollout in self.models.iter_mut().flatten() {
            let time = Duration::from_nanos(now);
            match &mut rollout.core {
                None if rollout.plan.at <= now => rollout.core = Some(Rollout::new(rollout.settings, time)),
                None => {}
                Some(core) if core.next_tick().is_some_and(|tick| tick <= time) => {
                    rollout.handle(now, Event::Tick)
                }
                Some(_) => {}
            }
        }
    }

    /// The number of the router that a request of a model gets, and its part.
    pub(crate) fn route(&mut self, model: u32, tenant: u16) -> (ModelId, Part) {
        let stable = ModelId(model);
        let Some(rollout) = self.models.get_mut(model as usize).and_then(Option::as_mut) else {
            return (stable, Part::None);
        };
        let Some(core) = &mut rollout.core else { return (stable, Part::None) };
        match core.route(tenant) {
            Arm::Canary => (rollout.canary, Part::Canary),
            Arm::Stable => (stable, Part::Stable { mirrored: core.mirrors(tenant) }),
        }
    }

    /// The number of the router that a request runs on to compare outputs, while both versions get requests.
    pub(crate) fn canary(&self, model: u32) -> Option<ModelId> {
        let rollout = self.models.get(model as usize)?.as_ref()?;
        let is_baking = rollout.core.as_ref().is_some_and(|core| core.verdict().is_none());
        is_baking.then_some(rollout.canary)
    }

    /// Counts the end of a request. Returns how its client sees it: a canary fails on requests that the router knows as done.
    pub(crate) fn ended(
        &mut self,
        now: u64,
        request: &Request,
        (outcome, reason): (Outcome, Reason),
    ) -> (Outcome, Reason) {
        let as_it_was = (outcome, reason);
        let Some(rollout) = self.models.get_mut(request.model as usize).and_then(Option::as_mut) else {
            return as_it_was;
        };
        let arm = match request.part {
            Part::None | Part::Variant(_) | Part::Stage { .. } => return as_it_was,
            Part::Mirror => {
                let tenant = request.tenant;
                let event = if outcome == Outcome::Done {
                    let agrees = !(rollout.draws.fails(tenant) || rollout.draws.differs(tenant));
                    Event::Compared { tenant, agrees }
                } else {
                    Event::NotCompared
                };
                rollout.handle(now, event);
                return as_it_was;
            }
            Part::Stable { .. } => Arm::Stable,
            Part::Canary => Arm::Canary,
        };
        let fails = outcome == Outcome::Done && arm == Arm::Canary && rollout.draws.fails(request.tenant);
        let seen = if fails { (Outcome::Failed, Reason::EngineFailed) } else { as_it_was };
        let in_time = request.deadline.is_none_or(|deadline| Nanos(now) <= deadline);
        let ending = match seen.0 {
            Outcome::Done if in_time => Some(Ending::InTime),
            Outcome::Failed => Some(Ending::Failed),
            _ if reason == Reason::Quota => None,
            _ => Some(Ending::Late),
        };
        if let Some(ending) = ending {
            rollout.handle(now, Event::Ended { arm, tenant: request.tenant, ending });
        }
        if request.part == (Part::Stable { mirrored: true }) {
            if outcome == Outcome::Done {
                let mirror = Request { part: Part::Mirror, deadline: None, arrived: now, ..*request };
                self.mirrors.push_back(mirror);
            } else {
                rollout.handle(now, Event::NotCompared);
            }
        }
        seen
    }

    /// How the roll-outs ended.
    pub(crate) fn figures(&self, workload: &Workload) -> Vec<RolloutFigures> {
        let models = workload.models.iter().zip(&self.models);
        let figures = models.filter_map(|(model, rollout)| {
            let rollout = rollout.as_ref()?;
            let core = rollout.core.as_ref()?;
            let tenant = core.verdict().and_then(|verdict| verdict.tenant());
            let tenant = tenant.and_then(|tenant| workload.tenants.get(usize::from(tenant)));
            Some(RolloutFigures {
                model: model.name.clone(),
                state: core.state(),
                cause: core.verdict().map(|verdict| verdict.cause().to_string()),
                tenant: tenant.map(|tenant| tenant.name.clone()),
                at_s: seconds(rollout.plan.at),
                ended_s: rollout.ended_at.map(seconds),
                figures: *core.figures(),
            })
        });
        figures.collect()
    }
}

impl ModelRollout {
    fn handle(&mut self, now: u64, event: Event) {
        let Some(core) = &mut self.core else { return };
        if core.handle(Duration::from_nanos(now), event).is_some() {
            self.ended_at = Some(now);
        }
    }
}
