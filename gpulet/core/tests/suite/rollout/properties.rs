//! Short random sequences of events. Proptest shrinks those that fail.

use gpulet_core::plan::Plan;
use gpulet_core::rollout::{Effect, Epoch, Event, GpuletId, StepId, Switch};
use proptest::prelude::*;

use super::chance::Chance;
use super::plans::{self, DEVICES, problem};
use super::script::{Script, as_switch, outcomes};

/// One action of the environment.
#[derive(Clone, Copy, Debug)]
enum Move {
    Propose(u64),
    Answer {
        good: bool,
    },
    /// No answer arrives before the next deadline or the end of the bake time.
    Silence,
    /// A draining gpulet becomes idle, if there is one.
    Drained(u8),
    Fault(u8),
    Late(u8),
    DeviceRemoved(u8),
    Abort,
    Freeze,
    Thaw,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => any::<u64>().prop_map(Move::Propose),
        30 => prop::bool::weighted(0.9).prop_map(|good| Move::Answer { good }),
        4 => Just(Move::Silence),
        6 => any::<u8>().prop_map(Move::Drained),
        1 => any::<u8>().prop_map(Move::Fault),
        1 => any::<u8>().prop_map(Move::Late),
        1 => any::<u8>().prop_map(Move::DeviceRemoved),
        1 => Just(Move::Abort),
        1 => Just(Move::Freeze),
        1 => Just(Move::Thaw),
    ];
    prop::collection::vec(one, 1..120)
}

/// What the machine waits for.
#[derive(Default)]
struct Waiting {
    step: Option<StepId>,
    switch: Option<Switch>,
    draining: Vec<GpuletId>,
    in_force: Epoch,
    ended: Vec<u64>,
}

struct Run {
    script: Script,
    waiting: Waiting,
    plan: Plan,
}

impl Run {
    fn tell(&mut self, event: Event) {
        let effects = self.script.tell(event);
        self.note(&effects);
    }

    fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Step { id, .. } = effect {
                (self.waiting.step, self.waiting.switch) = (Some(*id), None);
            }
            if let Some(switch) = as_switch(effect) {
                (self.waiting.step, self.waiting.switch) = (None, Some(switch.clone()));
            }
        }
        self.waiting.ended.extend(outcomes(effects).into_iter().map(|(number, _)| number));
    }

    fn pick(&self, from: &[GpuletId], at: u8) -> Option<GpuletId> {
        if from.is_empty() { None } else { from.get(usize::from(at) % from.len()).copied() }
    }

    fn answer(&mut self, good: bool) {
        if let Some(step) = self.waiting.step.take() {
            let reason = "no".to_owned();
            self.tell(if good { Event::StepDone(step) } else { Event::StepFailed { step, reason } });
        } else if let Some(switch) = self.waiting.switch.take() {
            let (epoch, in_force) = (switch.epoch, self.waiting.in_force);
            if !good {
                return self.tell(Event::SwitchFailed { epoch, in_force, reason: "no".to_owned() });
            }
            self.waiting.in_force = epoch;
            self.waiting.draining.retain(|id| !switch.active.iter().any(|active| active.id == *id));
            self.waiting.draining.extend(switch.draining);
            self.tell(Event::Switched { epoch });
        }
    }

    fn make(&mut self, one: Move) {
        let known: Vec<GpuletId> = self.script.machine.known().collect();
        let reason = "random".to_owned();
        match one {
            Move::Propose(seed) => {
                let (plan, proposal) =
                    plans::random(&mut Chance::new(seed), &self.plan, &self.script.problem);
                self.plan = plan;
                self.tell(Event::Propose(proposal));
            }
            Move::Answer { good } => self.answer(good),
            Move::Silence => {
                if self.script.machine.next_wake().is_some() {
                    let effects = self.script.wait();
                    self.note(&effects);
                }
            }
            Move::Drained(at) => {
                if let Some(id) = self.pick(&self.waiting.draining, at) {
                    self.waiting.draining.retain(|other| *other != id);
                    self.tell(Event::Drained(id));
                }
            }
            Move::Fault(at) => {
                if let Some(gpulet) = self.pick(&known, at) {
                    self.tell(Event::Fault { gpulet, reason });
                }
            }
            Move::Late(at) => {
                if let Some(gpulet) = self.pick(&known, at) {
                    self.tell(Event::Late { gpulet, reason });
                }
            }
            Move::DeviceRemoved(at) => {
                let device = DEVICES[usize::from(at) % DEVICES.len()].to_owned();
                self.tell(Event::DeviceRemoved { device: device.into(), reason });
            }
            Move::Abort => self.tell(Event::Abort),
            Move::Freeze => self.tell(Event::Freeze),
            Move::Thaw => self.tell(Event::Thaw),
        }
    }

    /// Completes everything in progress, without further failures.
    fn end(&mut self) {
        for _ in 0..2_000 {
            if self.script.machine.is_idle() {
                return;
            }
            if self.waiting.step.is_some() || self.waiting.switch.is_some() {
                self.answer(true);
            }
            if !self.waiting.draining.is_empty() {
                self.make(Move::Drained(0));
            }
            if self.waiting.step.is_none()
                && self.waiting.switch.is_none()
                && self.waiting.draining.is_empty()
            {
                self.make(Move::Silence);
            }
        }
        panic!("it does not end: {:#?}", self.script.machine.snapshot());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn whatever_happens_it_ends_with_one_plan_and_nothing_else(memory in 600_u64..2_500, moves in moves()) {
        let mut run = Run { script: Script::new(problem(memory)), waiting: Waiting::default(), plan: Plan::default() };
        for one in moves {
            run.make(one);
        }
        run.end();
        let machine = &run.script.machine;
        let active: Vec<GpuletId> = machine.active().map(|(id, _)| id).collect();
        prop_assert_eq!(machine.known().collect::<Vec<_>>(), active);
        prop_assert_eq!(machine.epoch(), run.waiting.in_force);
        let mut ended = run.waiting.ended;
        ended.sort_unstable();
        prop_assert_eq!(ended, (1..=machine.proposals().0).collect::<Vec<_>>());
    }
}
