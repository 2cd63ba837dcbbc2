//! The control loop with a policy for families: loads go in, plans come out.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpulet_core::control::{
    ControlOptions, Controller, Counts, Effect, Event, Family, FamilyVariant, InitialGpulet, LoadReport,
    Model, ModelCounts, ModelLoad, PlanningInputs, VariantPolicy,
};
use gpulet_core::id::ModelId;
use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::placement::Policy;
use gpulet_core::profile::Quantile;
use gpulet_core::rollout::{self, RolloutOptions};
use gpulet_core::time::Micros;
use gpulet_core::validate::validate;
use variant_plan::{LivePolicy, live_policies};

use crate::fixture::World;

const SECOND: Micros = Micros::from_secs(1);

/// A controller whose steps succeed at once.
struct Bench<'a> {
    world: World<'a>,
    controller: Controller,
    now: Micros,
    arrived: BTreeMap<String, u64>,
    waiting: Option<&'static str>,
    no_plan: Vec<String>,
    switches: usize,
}

impl<'a> Bench<'a> {
    fn new(world: World<'a>, policy: &str, scaling: &str) -> Option<Self> {
        let devices = world.devices();
        let inputs = PlanningInputs {
            start: devices
                .iter()
                .map(|device| InitialGpulet {
                    device: device.name.clone(),
                    first_unit: 0,
                    units: device.device_type.units,
                })
                .collect(),
            devices,
            policy: Policy::default(),
            variants: VariantPolicy(Some(Arc::new(LivePolicy::named(policy)?))),
            interference: Interference::NoInterference(NoInterference),
            quantile: Quantile::P99,
        };
        let options = ControlOptions {
            scaling: scaling.to_owned(),
            idle_us: None,
            period_us: SECOND,
            uses_learned: false,
            rollout: RolloutOptions { bake_us: Micros::ZERO, ..RolloutOptions::default() },
        };
        let controller = Controller::new(options, inputs).ok()?;
        let (arrived, no_plan) = (BTreeMap::new(), Vec::new());
        Some(Self { world, controller, now: Micros::ZERO, arrived, waiting: None, no_plan, switches: 0 })
    }

    fn handle(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut effects = Vec::new();
            self.controller.handle(self.now, event, &mut effects);
            assert_eq!(invariant::violations(), []);
            for effect in effects {
                match effect {
                    Effect::Plan(question) => events.push(Event::Planned(question.answer())),
                    Effect::Rollout(rollout::Effect::Step { id, .. }) => {
                        events.push(Event::Rollout(rollout::Event::StepDone(id)));
                    }
                    Effect::Rollout(rollout::Effect::Switch { switch, .. }) => {
                        let drained = switch.draining.iter();
                        events.extend(drained.map(|id| Event::Rollout(rollout::Event::Drained(*id))));
                        events.push(Event::Rollout(rollout::Event::Switched { epoch: switch.epoch }));
                        self.switches += 1;
                    }
                    Effect::NoPlan { reason } => self.no_plan.push(reason),
                    _ => {}
                }
            }
        }
    }

    /// One second in which `rate` requests came for the family, answered in time by the variants as they are planned.
    fn second(&mut self, rate: u64) {
        let profiles = self.world.profiles().unwrap_or_default();
        let plan = self.controller.rollout().plan();
        let planned = |name: &str| -> f64 { plan.slots_of(name).map(|(_, slot)| slot.rate).sum() };
        let total: f64 = self.world.models.iter().map(|model| planned(model.0)).sum();
        let mut models = Vec::new();
        for (number, (name, ..)) in (0_u32..).zip(&self.world.models) {
            let part = if total > 0.0 { planned(name) / total } else { 1.0 / self.world.models.len() as f64 };
            let all = self.arrived.entry((*name).to_owned()).or_default();
            *all += (rate as f64 * part).round() as u64;
            let counts = Counts { rows: *all, answered: *all, late: 0, failed: 0 };
            let waiting = u64::from(self.waiting == Some(name));
            models.push(ModelLoad {
                model: Model {
                    name: (*name).to_owned(),
                    model: (*name).to_owned(),
                    slo_us: 1e3 * self.world.slo_ms,
                    batch_max: 16,
                    profiles: Ok(profiles.iter().filter(|one| one.model() == *name).cloned().collect()),
                    load_us: SECOND,
                    may_leave: true,
                    is_waited_for: waiting > 0,
                    replicas_min: 1,
                    has_place: plan.slots_of(name).next().is_some(),
                    stages: Vec::new(),
                },
                seen: ModelCounts { number: ModelId(number), counts, waiting, ..ModelCounts::default() },
            });
        }
        let variants = self.world.models.iter();
        let variants =
            variants.map(|(name, .., quality)| FamilyVariant { name: (*name).to_owned(), quality: *quality });
        let family = Family {
            name: "family".to_owned(),
            slo_us: 1e3 * self.world.slo_ms,
            quality_min: self.world.quality_min,
            quality_mean: self.world.quality_mean,
            variants: variants.collect(),
        };
        self.handle(Event::Load(LoadReport { models, families: vec![family], ..LoadReport::default() }));
        self.now = self.now.after(SECOND);
        self.handle(Event::Rollout(rollout::Event::Tick));
    }

    fn seconds(&mut self, count: u32, rate: u64) {
        for _ in 0..count {
            self.second(rate);
        }
    }

    fn uses(&self, model: &str) -> bool {
        self.controller.rollout().plan().slots_of(model).next().is_some()
    }

    fn devices(&self) -> usize {
        self.controller.rollout().plan().devices().len()
    }

    /// Planned mean quality, and whether the plan keeps every objective and rate.
    fn quality(&self) -> (f64, bool) {
        let plan = self.controller.rollout().plan();
        let (mut all, mut sum) = (0.0, 0.0);
        for (name, .., quality) in &self.world.models {
            let rate: f64 = plan.slots_of(name).map(|(_, slot)| slot.rate).sum();
            all += rate;
            sum += rate * quality;
        }
        let is_sound = self.controller.problem().is_some_and(|problem| validate(problem, &plan).is_sound());
        (sum / all, is_sound)
    }
}

#[test]
fn every_policy_follows_a_family_up_and_down_and_keeps_its_quality() {
    for policy in live_policies() {
        let world = World { quality_mean: 0.95, ..World::default() };
        let mut bench = Bench::new(world, policy, "gpulet").unwrap();
        bench.seconds(60, 100);
        let few = bench.devices();
        let (quality, is_sound) = bench.quality();
        assert!(is_sound && quality >= 0.95 - 1e-6, "{policy}: {quality}, {:?}", bench.no_plan);
        bench.seconds(60, 1_000);
        let many = bench.devices();
        let (quality, is_sound) = bench.quality();
        assert!(is_sound && quality >= 0.95 - 1e-6, "{policy}: {quality}, {:?}", bench.no_plan);
        bench.seconds(120, 100);
        assert!(few < many && bench.devices() <= few + 1, "{policy}: {few}, {many}, {}", bench.devices());
        assert_eq!(bench.no_plan, Vec::<String>::new(), "{policy}");
        let known = bench.controller.latest().model("family").unwrap();
        assert!(known.rate > 90.0 && known.target >= 100.0, "{policy}: {known:?}");
        assert!(bench.controller.latest().model("s").unwrap().reason.contains("plan of its family"));
    }
}

#[test]
fn infaas_upgrades_where_replicas_of_the_fastest_variant_cost_too_much() {
    // The fastest variant serves few requests on any device; another one is slower for one request, but batches.
    let world = World {
        kinds: vec![("gpu", 1, 1.0, 1.0, 8)],
        models: vec![("quick", 0.0, 5.0, 0.9), ("batched", 12.0, 0.2, 0.9)],
        slo_ms: 100.0,
        ..World::default()
    };
    let mut bench = Bench::new(world, "infaas", "infaas").unwrap();
    bench.seconds(30, 50);
    assert!(bench.uses("quick") && !bench.uses("batched"), "{:?}", bench.controller.rollout().plan());
    bench.seconds(60, 700);
    let family = bench.controller.latest().model("family");
    assert!(
        bench.uses("batched") && !bench.uses("quick"),
        "{family:?} {:?}",
        bench.controller.rollout().plan()
    );
}

#[test]
fn too_few_devices_lower_the_mean_quality_before_the_rate() {
    for policy in ["tessera", "proteus"] {
        let world = World {
            kinds: vec![("small", 4, 1.0, 1.0, 2)],
            quality_mean: 0.98,
            slo_ms: 150.0,
            ..World::default()
        };
        let mut bench = Bench::new(world, policy, "gpulet").unwrap();
        bench.seconds(60, 60);
        let (before, _) = bench.quality();
        bench.seconds(60, 500);
        let (after, is_sound) = bench.quality();
        assert!(is_sound && bench.controller.latest().share() == 1.0, "{policy}: {:?}", bench.no_plan);
        assert!(before > 0.98 - 1e-6 && after < 0.97, "{policy}: {before}, {after}");
        bench.seconds(120, 60);
        assert!(bench.quality().0 > 0.98 - 1e-6, "{policy}: {}", bench.quality().0);
    }
}

#[test]
fn a_steady_load_changes_no_plan() {
    for policy in live_policies() {
        let world = World { quality_mean: 0.94, ..World::default() };
        let mut bench = Bench::new(world, policy, "gpulet").unwrap();
        bench.seconds(60, 700);
        let before = bench.switches;
        for second in 0..120 {
            bench.second(690 + 20 * (second % 2));
        }
        assert_eq!(bench.switches, before, "{policy}");
    }
}

#[test]
fn requests_for_one_variant_get_it_a_gpulet_whatever_the_policy_chose() {
    let mut bench = Bench::new(World::default(), "tessera", "gpulet").unwrap();
    bench.seconds(60, 200);
    let left_out = ["l", "m", "s"].into_iter().find(|name| !bench.uses(name)).unwrap();
    bench.waiting = Some(left_out);
    bench.seconds(3, 200);
    assert!(bench.uses(left_out), "{:?}", bench.no_plan);
    bench.waiting = None;
    bench.seconds(30, 200);
    assert!(!bench.uses(left_out));
}
