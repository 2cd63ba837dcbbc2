//! Drives the state machine one event at a time.

use std::collections::VecDeque;

use gpulet_core::plan::{Gpulet, Plan};
use gpulet_core::problem::Problem;
use gpulet_core::rollout::{
    Effect, Epoch, Event, GpuletId, Outcome, Proposal, Rollout, RolloutOptions, Step, StepId, Switch,
};
use gpulet_core::time::Micros;

use crate::support::assert_no_violations;

pub struct Script {
    pub machine: Rollout,
    pub now: Micros,
    pub problem: Problem,
}

impl Script {
    pub fn new(problem: Problem) -> Self {
        Self { machine: Rollout::new(RolloutOptions::default()).unwrap(), now: Micros::ZERO, problem }
    }

    /// Reports an event `span_us` later.
    pub fn tell_after(&mut self, span_us: u64, event: Event) -> Vec<Effect> {
        self.now = self.now.after(Micros(span_us));
        let mut effects = Vec::new();
        self.machine.handle(self.now, event, &mut effects);
        self.machine.check().unwrap();
        assert_no_violations();
        effects
    }

    pub fn tell(&mut self, event: Event) -> Vec<Effect> {
        self.tell_after(1_000, event)
    }

    pub fn proposal(&self, gpulets: Vec<Gpulet>) -> Proposal {
        Proposal::new(&Plan::new(gpulets), &self.problem).unwrap()
    }

    pub fn propose(&mut self, gpulets: Vec<Gpulet>) -> Vec<Effect> {
        let proposal = self.proposal(gpulets);
        self.tell(Event::Propose(proposal))
    }

    /// Completes steps, the oldest first, until the machine requests no more. Returns all effects in order.
    pub fn carry_out(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        self.carry_out_but(effects, |_| false)
    }

    /// The same, but the steps that `fails` names fail.
    pub fn carry_out_but(&mut self, mut effects: Vec<Effect>, fails: impl Fn(&Step) -> bool) -> Vec<Effect> {
        let (mut all, mut asked) = (Vec::new(), VecDeque::new());
        loop {
            asked.extend(all_steps(&effects));
            all.append(&mut effects);
            let Some((id, step)) = asked.pop_front() else { return all };
            let reason = "no".to_owned();
            let event =
                if fails(&step) { Event::StepFailed { step: id, reason } } else { Event::StepDone(id) };
            effects = self.tell(event);
        }
    }

    /// Confirms a switch; every draining gpulet is idle immediately.
    pub fn confirm(&mut self, switch: &Switch) -> Vec<Effect> {
        let mut effects = self.tell(Event::Switched { epoch: switch.epoch });
        for id in &switch.draining {
            effects.extend(self.tell(Event::Drained(*id)));
        }
        effects
    }

    /// Lets time pass until the next deadline.
    pub fn wait(&mut self) -> Vec<Effect> {
        let wake = self.machine.next_wake().unwrap();
        self.tell_after(wake.since(self.now).0, Event::Tick)
    }

    /// Runs a proposal to the end of its bake time, without failures. Returns all effects in order.
    pub fn reach(&mut self, gpulets: Vec<Gpulet>) -> Vec<Effect> {
        let effects = self.propose(gpulets);
        let mut all = self.carry_out(effects);
        while let Some(switch) =
            all.iter().rev().find_map(as_switch).filter(|_| !self.machine.is_idle()).cloned()
        {
            all.extend(self.confirm(&switch));
            let effects = self.wait();
            all.extend(self.carry_out(effects));
        }
        all
    }

    pub fn ids(&self) -> Vec<String> {
        self.machine.active().map(|(id, _)| id.to_string()).collect()
    }

    pub fn words(&self) -> Vec<String> {
        self.machine.history().map(|entry| entry.message.clone()).collect()
    }
}

/// The steps in the effects, in order.
pub fn all_steps(effects: &[Effect]) -> impl DoubleEndedIterator<Item = (StepId, Step)> {
    effects.iter().filter_map(|effect| match effect {
        Effect::Step { id, step, .. } => Some((*id, step.clone())),
        _ => None,
    })
}

/// The last step in the effects, if there is one.
pub fn step(effects: &[Effect]) -> Option<(StepId, Step)> {
    all_steps(effects).next_back()
}

pub fn as_switch(effect: &Effect) -> Option<&Switch> {
    match effect {
        Effect::Switch { switch, .. } => Some(switch),
        _ => None,
    }
}

/// The last switch in the effects.
pub fn switch(effects: &[Effect]) -> Switch {
    effects.iter().rev().find_map(as_switch).unwrap().clone()
}

pub fn outcomes(effects: &[Effect]) -> Vec<(u64, Outcome)> {
    let of = |effect: &Effect| match effect {
        Effect::Ended { proposal, outcome } => Some((proposal.0, outcome.clone())),
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

/// Steps as short text: `open 0.1`, `prepare 0.1 bert 4`.
pub fn steps(effects: &[Effect]) -> Vec<String> {
    let of = |effect: &Effect| match effect {
        Effect::Step { step, .. } => Some(match step {
            Step::Open { gpulet, .. } => format!("open {gpulet}"),
            Step::Prepare { gpulet, model, batch } => format!("prepare {gpulet} {model} {batch}"),
            Step::Verify { gpulet, model, batch } => format!("verify {gpulet} {model} {batch}"),
            Step::Shrink { gpulet, model, batch } => format!("shrink {gpulet} {model} {batch}"),
            Step::CloseSession { gpulet, model } => format!("drop {gpulet} {model}"),
            Step::Close { gpulet } => format!("close {gpulet}"),
        }),
        Effect::Switch { switch, .. } => Some(format!("switch {}", switch.epoch)),
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

pub fn id(epoch: u64, number: u64) -> GpuletId {
    GpuletId { epoch: Epoch(epoch), number }
}

pub fn needs_a_plan(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::PlanNeeded { .. }))
}

pub fn incidents(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Incident { .. })).count()
}
