//! Random plans: gpulets opened, loaded, resized and closed in any order.

use std::collections::BTreeSet;

use cuda_standin::{Control, Kind, Shape, with_driver};
use gpulet::Partition;
use gpulet_cuda::{CudaDevice, CudaOptions, UnitRange};
use models::LoadOptions;
use models::engine::Session;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::stage::{model, open, sms_of, take};

#[derive(Clone, Debug)]
enum Step {
    Open {
        first: u32,
        count: u32,
    },
    Load {
        which: usize,
    },
    /// A new gpulet is opened before the old one is closed, as a rollout does it.
    Resize {
        which: usize,
        first: u32,
        count: u32,
    },
    CloseHandle {
        which: usize,
    },
    CloseSessions {
        which: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0_u32..16, 1_u32..=16);
    let which = 0_usize..8;
    let step = prop_oneof![
        3 => range().prop_map(|(first, count)| Step::Open { first, count }),
        3 => which.clone().prop_map(|which| Step::Load { which }),
        2 => (which.clone(), range()).prop_map(|(which, (first, count))| Step::Resize { which, first, count }),
        2 => which.clone().prop_map(|which| Step::CloseHandle { which }),
        1 => which.prop_map(|which| Step::CloseSessions { which }),
    ];
    prop::collection::vec(step, 1..40)
}

struct Lane {
    units: UnitRange,
    handle: Option<std::sync::Arc<dyn Partition>>,
    sessions: Vec<Box<dyn Session>>,
}

struct Server {
    device: CudaDevice,
    lanes: Vec<Lane>,
}

impl Server {
    fn open(&mut self, first: u32, count: u32) {
        let grid = self.device.grid();
        let units = grid.range(first % grid.units(), count.min(grid.units() - first % grid.units())).unwrap();
        let handle = open(&self.device, 0, units.first(), units.count());
        self.lanes.push(Lane { units, handle: Some(handle), sessions: Vec::new() });
    }

    fn apply(&mut self, step: &Step) {
        let place = |which: usize| which % self.lanes.len().max(1);
        match *step {
            Step::Open { first, count } if self.lanes.len() < 8 => self.open(first, count),
            Step::Load { which } => {
                let place = place(which);
                if let Some(Lane { handle: Some(handle), sessions, .. }) = self.lanes.get_mut(place) {
                    sessions.push(handle.load(&model("m"), &LoadOptions::default()).unwrap());
                }
            }
            Step::Resize { which, first, count } if !self.lanes.is_empty() => {
                let place = place(which);
                self.open(first, count);
                self.lanes.remove(place);
            }
            Step::CloseHandle { which } => {
                let place = place(which);
                if let Some(lane) = self.lanes.get_mut(place) {
                    lane.handle = None;
                }
            }
            Step::CloseSessions { which } => {
                let place = place(which);
                if let Some(lane) = self.lanes.get_mut(place) {
                    lane.sessions.clear();
                }
            }
            Step::Open { .. } | Step::Resize { .. } => {}
        }
        self.lanes.retain(|lane| lane.handle.is_some() || !lane.sessions.is_empty());
    }

    /// Checks that every session runs on the SMs of its units.
    fn check(&mut self, control: &Control, idle_max: usize) {
        let mut ran: Vec<(UnitRange, BTreeSet<u32>)> = Vec::new();
        for lane in &mut self.lanes {
            for session in &mut lane.sessions {
                let sms: BTreeSet<u32> = sms_of(&mut **session).into_iter().collect();
                assert_eq!(u32::try_from(sms.len()).unwrap(), self.device.grid().sms(lane.units));
                ran.push((lane.units, sms));
            }
        }
        for (index, (units, sms)) in ran.iter().enumerate() {
            for (others, other_sms) in &ran[index + 1..] {
                if units.first() < others.end() && others.first() < units.end() {
                    assert!(!sms.is_disjoint(other_sms));
                } else {
                    assert!(sms.is_disjoint(other_sms), "{units} and {others} run on the same SMs");
                }
            }
        }
        let contexts = usize::try_from(control.alive(Kind::Green)).unwrap();
        assert!(contexts <= self.lanes.len() + idle_max && contexts >= self.lanes.len());
        assert_eq!(control.violations(), Vec::<String>::new());
    }
}

fn random_plans(test: &str, shape: Shape) {
    with_driver(test, shape, |control| {
        let config = Config { cases: 128, failure_persistence: None, ..Config::default() };
        let plans = (steps(), 0_usize..6);
        let result = TestRunner::new(config).run(&plans, |(steps, idle_contexts)| {
            let (device, _) = take(&CudaOptions { idle_contexts, ..CudaOptions::default() });
            let mut server = Server { device, lanes: Vec::new() };
            for step in &steps {
                server.apply(step);
                server.check(control, idle_contexts);
            }
            drop(server);
            prop_assert_eq!(control.everything(), Vec::new());
            Ok(())
        });
        if let Err(problem) = result {
            panic!("{problem}");
        }
    });
}

#[test]
fn plans_on_132_sms_never_share_an_sm_without_sharing_a_unit() {
    let test = "random::plans_on_132_sms_never_share_an_sm_without_sharing_a_unit";
    random_plans(test, Shape::default());
}

#[test]
fn plans_on_an_odd_device_never_share_an_sm_without_sharing_a_unit() {
    let test = "random::plans_on_an_odd_device_never_share_an_sm_without_sharing_a_unit";
    random_plans(test, Shape { primary_events: false, ..Shape::with_sms(37, 4, 2) });
}
