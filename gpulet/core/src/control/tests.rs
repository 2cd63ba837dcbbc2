//! The loop as its callers see it: load reports go in, plan requests and routing tables come out.

mod feedback;
mod interference_learning;
mod profile_correction;

use super::*;
use crate::id::ModelId;
use crate::interference::{Interference, NoInterference};
use crate::placement::Policy;
use crate::plan::{Gpulet, Slot};
use crate::problem::{Device, DeviceType};
use crate::profile::{Cell, Header, Line, Profile, Quantile, Source};
use crate::rollout::{Effect as Said, Event as Happened, Step, Switch};
use crate::scaling::Reason;
use crate::time::Micros;

const SECOND: Micros = Micros::from_secs(1);

/// 10 ms a batch of up to 8 on one unit, 5 ms on both.
fn profile(model: &str) -> Profile {
    profile_of(model, 10e3, 5e3)
}

/// A batch of up to 8 takes `one` microseconds on one unit and `both` on two.
fn profile_of(model: &str, one: f64, both: f64) -> Profile {
    let header = Header {
        version: 1,
        model: model.to_owned(),
        model_sha256: None,
        device: "toy".to_owned(),
        engine: "none".to_owned(),
        source: Source::TypedIn,
        note: String::new(),
        shapes: Vec::new(),
        units_total: 2,
        weights_bytes: None,
        load_us_per_row: 0.0,
    };
    let cell = |(batch, units, us)| {
        let (count, doubt, left_out) = (1, None, None);
        Line::Cell(Cell {
            batch,
            units,
            p50_us: us,
            p95_us: us,
            p99_us: us,
            count,
            doubt,
            left_out,
            predicted: None,
        })
    };
    let cells = [(1, 1, one), (8, 1, one), (1, 2, both), (8, 2, both)].map(cell);
    Profile::of_lines([Line::Profile(header)].into_iter().chain(cells)).unwrap().remove(0)
}

fn model(name: &str) -> Model {
    Model {
        name: name.to_owned(),
        model: name.to_owned(),
        slo_us: 50e3,
        batch_max: 8,
        profiles: Ok(Arc::from([profile(name)])),
        load_us: SECOND,
        may_leave: false,
        is_waited_for: false,
        replicas_min: 1,
        has_place: true,
        stages: Vec::new(),
    }
}

fn inputs(devices: usize) -> PlanningInputs {
    let kind = Arc::new(DeviceType {
        name: "toy".to_owned(),
        units: 2,
        sizes: vec![1, 2],
        gpulets_max: 2,
        base_bytes: 0,
        gpulet_bytes: 0,
    });
    let name = |at| format!("toy-{at}");
    let device = |at| Device {
        name: name(at).into(),
        device_type: Arc::clone(&kind),
        memory_bytes: 1 << 30,
        fault_domain: name(at),
        cost: 1.0,
    };
    PlanningInputs {
        devices: (0..devices).map(device).collect(),
        start: (0..devices)
            .map(|at| InitialGpulet { device: name(at).into(), first_unit: 0, units: 2 })
            .collect(),
        policy: Policy::default(),
        variants: VariantPolicy::default(),
        interference: Interference::NoInterference(NoInterference),
        quantile: Quantile::P99,
    }
}

/// A controller whose wishes come true at once.
struct Bench {
    controller: Controller,
    now: Micros,
    arrived: BTreeMap<String, u64>,
    switches: Vec<Switch>,
    /// Effects other than steps and switches.
    told: Vec<Effect>,
    /// Steps that fail, by the word of their model.
    fails: Option<&'static str>,
    /// No gpulet can be opened on this device.
    lost: Option<&'static str>,
}

impl Bench {
    fn new(devices: usize) -> Self {
        let options = ControlOptions {
            // Its rules are simple, published, and will not change.
            scaling: "gpulet".to_owned(),
            idle_us: None,
            period_us: SECOND,
            uses_learned: true,
            rollout: RolloutOptions { bake_us: Micros::ZERO, ..RolloutOptions::default() },
        };
        let controller = Controller::new(options, inputs(devices)).unwrap();
        let (arrived, switches, told) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { controller, now: Micros::ZERO, arrived, switches, told, fails: None, lost: None }
    }

    fn handle(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut effects = Vec::new();
            self.controller.handle(self.now, event, &mut effects);
            self.controller.rollout().check().unwrap();
            assert_eq!(invariant::violations(), []);
            for effect in effects {
                match effect {
                    Effect::Plan(question) => events.push(Event::Planned(question.answer())),
                    Effect::Rollout(Said::Step { id, step, .. }) => {
                        let fails = match &step {
                            Step::Prepare { model, .. } => self.fails == Some(model),
                            Step::Open { device, .. } => self.lost == Some(device.as_str()),
                            _ => false,
                        };
                        let reason = "planted".to_owned();
                        let happened = match fails {
                            true => Happened::StepFailed { step: id, reason },
                            false => Happened::StepDone(id),
                        };
                        events.push(Event::Rollout(happened));
                    }
                    Effect::Rollout(Said::Switch { switch, .. }) => {
                        let drained = switch.draining.iter().map(|id| Event::Rollout(Happened::Drained(*id)));
                        events.extend(drained);
                        events.push(Event::Rollout(Happened::Switched { epoch: switch.epoch }));
                        self.switches.push(switch);
                    }
                    other => self.told.push(other),
                }
            }
        }
    }

    /// Reports `rates` further requests of each model, answered in time, and advances the clock by one second.
    fn look(&mut self, rates: &[(&str, u64)]) {
        let looked = (0..).zip(rates).map(|(number, (name, rate))| {
            let all = self.arrived.entry((*name).to_owned()).or_default();
            *all += rate;
            let counts = Counts { rows: *all, answered: *all, late: 0, failed: 0 };
            ModelLoad {
                model: model(name),
                seen: ModelCounts { number: ModelId(number), counts, ..ModelCounts::default() },
            }
        });
        let models = looked.collect();
        self.handle(Event::Load(LoadReport { models, ..LoadReport::default() }));
        self.now = self.now.after(SECOND);
        self.handle(Event::Rollout(Happened::Tick));
    }

    fn devices(&self) -> usize {
        self.controller.rollout().plan().devices().len()
    }

    fn no_plans(&self) -> usize {
        self.told.iter().filter(|told| matches!(told, Effect::NoPlan { .. })).count()
    }
}

#[test]
fn it_begins_with_what_it_finds_and_then_follows_the_load_both_ways() {
    let mut bench = Bench::new(4);
    bench.look(&[("a", 0), ("b", 0)]);
    let found = &bench.switches[0];
    assert_eq!((found.active.len(), found.active[0].gpulet.slots.len()), (4, 2), "every model everywhere");
    for _ in 0..60 {
        bench.look(&[("a", 20), ("b", 20)]);
    }
    assert_eq!(bench.devices(), 1, "{:#?}", bench.controller.rollout().plan());
    for _ in 0..60 {
        bench.look(&[("a", 20), ("b", 3_000)]);
    }
    assert!(bench.devices() >= 2, "{:#?}", bench.controller.rollout().plan());
    let known = bench.controller.latest().model("b").unwrap();
    assert!(known.target > 2_500.0, "{known:?}");
    assert!(bench.controller.latest().decisions().any(|moved| moved.model == "b" && moved.to > 2_000.0));
    for _ in 0..120 {
        bench.look(&[("a", 20), ("b", 20)]);
    }
    assert_eq!(bench.devices(), 1, "{:#?}", bench.controller.rollout().plan());
}

#[test]
fn what_does_not_fit_is_served_in_part_and_said() {
    let mut bench = Bench::new(1);
    for _ in 0..60 {
        bench.look(&[("a", 100_000)]);
    }
    let share = bench.controller.latest().share();
    assert!(share > 0.0 && share < 0.1, "{share}");
    assert_eq!(bench.devices(), 1);
}

#[test]
fn after_a_failure_it_pauses_and_goes_on_from_the_plan_in_force() {
    let mut bench = Bench::new(4);
    for _ in 0..60 {
        bench.look(&[("a", 20), ("b", 20)]);
    }
    bench.fails = Some("b");
    let mut before = Plan::default();
    let failed = |bench: &Bench| {
        let failure = |told: &&Effect| {
            let Effect::Rollout(Said::Ended { outcome, .. }) = told else { return false };
            matches!(outcome, Outcome::Failed { reason } if reason.contains("planted"))
        };
        bench.told.iter().filter(failure).count()
    };
    for _ in 0..60 {
        if failed(&bench) == 0 {
            before = bench.controller.rollout().plan();
            bench.look(&[("a", 20), ("b", 3_000)]);
        }
    }
    assert_eq!(failed(&bench), 1);
    for _ in 0..4 {
        bench.look(&[("a", 20), ("b", 3_000)]);
    }
    assert_eq!(failed(&bench), 1, "nothing is tried for ten seconds");
    assert!(bench.controller.latest().problem().unwrap().contains("planted"));
    assert_eq!(bench.controller.rollout().plan(), before);
    bench.fails = None;
    for _ in 0..8 {
        bench.look(&[("a", 20), ("b", 3_000)]);
    }
    assert_ne!(bench.controller.rollout().plan(), before, "then it goes on");
}

/// The device dies under load: its gpulets fail, and no gpulet can be opened on it.
#[test]
fn a_lost_device_leaves_the_plan_and_is_used_again_when_it_is_back() {
    let load: [(&str, u64); 2] = [("a", 1_200), ("b", 1_200)];
    let mut bench = Bench::new(2);
    for _ in 0..60 {
        bench.look(&load);
    }
    assert_eq!(bench.devices(), 2, "{:#?}", bench.controller.rollout().plan());
    bench.lost = Some("toy-1");
    let active = bench.controller.rollout().active();
    let dead: Vec<_> =
        active.filter(|(_, gpulet)| gpulet.device == "toy-1").map(|(gpulet, _)| gpulet).collect();
    for gpulet in dead {
        bench.handle(Event::Rollout(Happened::Fault { gpulet, reason: "its lane ended".to_owned() }));
    }
    for _ in 0..3 {
        bench.look(&load);
    }
    let models = |bench: &Bench, device: &str| {
        let gpulets = bench.controller.rollout().plan().gpulets;
        let there = gpulets.iter().filter(|gpulet| gpulet.device == device);
        there.flat_map(|gpulet| &gpulet.slots).map(|slot| slot.workload.clone()).collect::<BTreeSet<_>>()
    };
    assert_eq!(
        (models(&bench, "toy-0").len(), models(&bench, "toy-1").len()),
        (2, 0),
        "within three seconds"
    );
    assert!(bench.controller.latest().share() < 1.0, "one device is too small");
    let lost: Vec<_> = bench.controller.lost_devices().cloned().collect();
    assert_eq!((lost.len(), lost[0].device.as_str(), lost[0].reason.as_str()), (1, "toy-1", "planted"));
    let there = Plan::new(vec![whole("toy-0", &["a"]), whole("toy-1", &["b"])]);
    let refused = bench.controller.accept(&[model("a"), model("b")], &there).unwrap_err();
    assert_eq!(refused.to_string(), "device `toy-1` is lost: planted");
    for _ in 0..30 {
        bench.look(&load);
    }
    let losses =
        |bench: &Bench| bench.told.iter().filter(|told| matches!(told, Effect::DeviceLost(_))).count();
    assert_eq!(losses(&bench), 3, "tried again after 10 and 20 seconds, and the plan in force stays");
    assert_eq!(models(&bench, "toy-0").len(), 2);
    bench.lost = None;
    for _ in 0..45 {
        bench.look(&load);
    }
    assert_eq!((bench.devices(), bench.controller.lost_devices().count()), (2, 0));
    assert!(bench.told.iter().any(|told| matches!(told, Effect::DeviceBack { device } if device == "toy-1")));
}

#[test]
fn without_any_device_it_says_so_and_goes_on_when_one_is_back() {
    let mut bench = Bench::new(1);
    bench.look(&[("a", 10)]);
    bench.lost = Some("toy-0");
    let dead: Vec<_> = bench.controller.rollout().active().map(|(gpulet, _)| gpulet).collect();
    for gpulet in dead {
        bench.handle(Event::Rollout(Happened::Fault { gpulet, reason: "its lane ended".to_owned() }));
    }
    for _ in 0..20 {
        bench.look(&[("a", 10)]);
    }
    assert_eq!(bench.devices(), 0);
    assert_eq!(bench.controller.latest().problem(), Some("every device is lost"));
    bench.lost = None;
    for _ in 0..45 {
        bench.look(&[("a", 10)]);
    }
    assert_eq!(bench.devices(), 1);
}

#[test]
fn a_model_without_a_profile_is_said_once_and_stops_nothing() {
    let mut bench = Bench::new(1);
    let mut unknown = model("a");
    unknown.profiles = Err("model `a`: no profile of it".to_owned());
    let seen = ModelCounts::default();
    for _ in 0..3 {
        let models = vec![ModelLoad { model: unknown.clone(), seen }];
        bench.handle(Event::Load(LoadReport { models, ..LoadReport::default() }));
        bench.now = bench.now.after(SECOND);
    }
    assert_eq!(bench.no_plans(), 1);
    assert_eq!(bench.controller.latest().problem(), Some("model `a`: no profile of it"));
    for _ in 0..12 {
        bench.look(&[("a", 10)]);
    }
    assert_eq!(bench.devices(), 1, "it has one by now");
}

fn whole(device: &str, names: &[&str]) -> Gpulet {
    let slot = |name: &&str| Slot { workload: (*name).to_owned(), batch: 4, budget_us: 5e3, rate: 10.0 };
    let slots: Vec<Slot> = names.iter().map(slot).collect();
    let duty_us = (slots.len() > 1).then_some(10e3);
    Gpulet { device: device.into(), first_unit: 0, units: 2, window: None, duty_us, slots }
}

#[test]
fn an_operators_plan_stays_until_it_is_thawed() {
    let mut bench = Bench::new(2);
    bench.look(&[("a", 10), ("b", 10)]);
    let models = [model("a"), model("b")];
    let plan = Plan::new(vec![whole("toy-0", &["a"]), whole("toy-1", &["b"])]);
    let accepted = bench.controller.accept(&models, &plan).unwrap();
    bench.handle(Event::OperatorPlan(accepted));
    bench.now = bench.now.after(SECOND);
    bench.handle(Event::Rollout(Happened::Tick));
    let answers = |bench: &Bench| -> Vec<bool> {
        let answer = |told: &Effect| match told {
            Effect::OperatorPlanEnded { answer, .. } => Some(answer.is_ok()),
            _ => None,
        };
        bench.told.iter().filter_map(answer).collect()
    };
    assert_eq!(answers(&bench), [true]);
    for _ in 0..60 {
        bench.look(&[("a", 5_000), ("b", 10)]);
    }
    assert_eq!(bench.controller.rollout().plan(), plan, "whatever the load does");
    bench.handle(Event::Thaw);
    for _ in 0..60 {
        bench.look(&[("a", 5_000), ("b", 10)]);
    }
    assert_ne!(bench.controller.rollout().plan(), plan);
}

#[test]
fn an_impossible_operator_plan_is_rejected_with_the_reason() {
    let bench = Bench::new(1);
    let models = [model("a"), model("b")];
    let refused =
        |plan: Vec<Gpulet>| bench.controller.accept(&models, &Plan::new(plan)).unwrap_err().to_string();
    let incomplete = refused(vec![whole("toy-0", &["a"])]);
    assert_eq!(incomplete, "gpulets: model `b` has no slot: expected one at least");
    let elsewhere = refused(vec![whole("toy-7", &["a", "b"])]);
    assert!(elsewhere.contains("toy-7"), "{elsewhere}");
}

#[test]
fn an_answer_that_comes_too_late_changes_nothing() {
    let mut bench = Bench::new(2);
    let models = vec![ModelLoad { model: model("a"), seen: ModelCounts::default() }];
    let mut effects = Vec::new();
    bench.controller.handle(
        Micros::ZERO,
        Event::Load(LoadReport { models: models.clone(), ..LoadReport::default() }),
        &mut effects,
    );
    let Some(Effect::Plan(old)) = effects.pop() else { panic!("{effects:?}") };
    bench.controller.handle(
        SECOND,
        Event::Load(LoadReport { models, ..LoadReport::default() }),
        &mut effects,
    );
    let Some(Effect::Plan(new)) = effects.pop() else { panic!("{effects:?}") };
    bench.handle(Event::Planned(old.answer()));
    assert!(bench.controller.rollout().is_idle() && bench.switches.is_empty());
    bench.handle(Event::Planned(new.refused(NoPlan::Busy)));
    assert!(bench.switches.is_empty() && bench.told.is_empty());
    bench.look(&[("a", 1)]);
    assert_eq!(bench.switches.len(), 1, "it is requested again at the next evaluation");
}

#[test]
fn plans_for_lanes_have_no_windows_even_where_those_would_be_cheapest() {
    let has_windows = |plan: &Plan| plan.gpulets.iter().any(|gpulet| gpulet.window.is_some());
    // `wide` needs both units for six tenths of the time, because it is much slower on one. The others need one each for
    // three tenths.
    let known = [("wide", 36e3, 9e3, 520.0), ("left", 9e3, 9e3, 250.0), ("right", 9e3, 9e3, 250.0)];
    let profiles = known.map(|(name, one, both, _)| profile_of(name, one, both));
    let models: Vec<Model> = profiles
        .iter()
        .map(|profile| Model {
            slo_us: 60e3,
            profiles: Ok(Arc::from([profile.clone()])),
            ..model(profile.model())
        })
        .collect();
    let rates = known.map(|(name, .., rate)| (name.to_owned(), rate));
    let targets = Targets { rates: BTreeMap::from(rates), ..Targets::default() };
    let mut inputs = inputs(3);
    for device in &mut inputs.devices {
        device.device_type = Arc::new(DeviceType { gpulets_max: 8, ..(*device.device_type).clone() });
    }
    let planned = inputs.plan((&models, &[]), &targets, None).unwrap();
    assert!(!has_windows(&planned.plan) && planned.share == 1.0, "{planned:?}");
    let asked = &planned.problem;
    let (devices, workloads) = (asked.devices().to_vec(), asked.workloads().to_vec());
    let free = Problem::new(devices, workloads, profiles.to_vec(), asked.interference().clone()).unwrap();
    let freely = Policy::default().place(&free).unwrap();
    assert!(has_windows(&freely), "where it may, the policy takes them: {freely:?}");
    assert!(freely.devices().len() < planned.plan.devices().len());
}

#[test]
fn the_start_plan_stays_until_the_scaler_has_seen_the_load() {
    let mut bench = Bench::new(4);
    for second in 1..=60 {
        bench.look(&[("a", 20), ("b", 2_000)]);
        let known = bench.controller.latest().model("b").unwrap();
        // The scaler decides every 20 s, and does not know the load before.
        if second < 20 {
            assert_eq!(bench.devices(), 4, "second {second}: a plan for no load");
            assert_eq!(known.reason.as_str(), Reason::Watching.to_string());
        }
        assert!(bench.devices() >= 2, "second {second}: {known:?}");
    }
    assert!(bench.devices() < 4, "{:#?}", bench.controller.rollout().plan());
}

#[test]
fn a_few_requests_are_a_load_too() {
    let mut bench = Bench::new(4);
    for second in 0..60 {
        bench.look(&[("a", u64::from(second % 5 == 0)), ("b", 0)]);
    }
    assert_eq!(bench.devices(), 1, "{:#?}", bench.controller.latest().model("a"));
}

#[test]
fn without_requests_the_start_plan_is_followed_at_once() {
    let mut bench = Bench::new(4);
    for _ in 0..3 {
        bench.look(&[("a", 0), ("b", 0)]);
    }
    assert_eq!(bench.devices(), 1);
}
