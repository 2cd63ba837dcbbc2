//! Interference, learned while the loop runs.

use super::*;
use crate::interference::{Load, Runner};
use crate::rollout::GpuletId;

/// A batch of up to 8 rows takes 10 ms, whatever it runs on: two models of 420 rows a second need a unit each.
fn stiff(name: &str) -> Model {
    Model { profiles: Ok(Arc::from([profile_of(name, 10e3, 10e3)])), ..model(name) }
}

/// Two models on one device. A batch takes `off` times as long as its profile says, and `factor` times that while it is
/// co-located with another.
struct Pair {
    bench: Bench,
    factor: f64,
    off: f64,
    totals: BTreeMap<(GpuletId, ModelId), (u64, u64)>,
}

impl Pair {
    fn new(uses_learned: bool) -> Self {
        let mut bench = Bench::new(1);
        bench.controller.options.uses_learned = uses_learned;
        Self { bench, factor: 1.0, off: 1.0, totals: BTreeMap::new() }
    }

    /// One second with `rows` rows of each model, in batches of six.
    fn second(&mut self, rows: u64) {
        let alone_us = 10e3 * self.off;
        let active: Vec<(GpuletId, Gpulet)> =
            self.bench.controller.rollout().active().map(|(id, gpulet)| (id, gpulet.clone())).collect();
        for (id, gpulet) in &active {
            for slot in &gpulet.slots {
                let batches = rows / 6;
                let co_located = active.iter().any(|(other, _)| other != id);
                // Of each other's time, which grows by what they do to each other: b = n a (1 + b (f - 1)).
                let idle = batches as f64 * alone_us / 1e6;
                let busy = if co_located { idle / (1.0 - idle * (self.factor - 1.0)) } else { 0.0 };
                let time_us = batches as f64 * alone_us * (1.0 + busy * (self.factor - 1.0));
                let total = self.totals.entry((*id, number(&slot.workload))).or_default();
                total.0 += batches;
                total.1 += time_us as u64;
            }
        }
        let looked = ["a", "b"].map(|name| {
            let all = self.bench.arrived.entry(name.to_owned()).or_default();
            *all += rows;
            let counts = Counts { rows: *all, answered: *all, late: 0, failed: 0 };
            ModelLoad {
                model: stiff(name),
                seen: ModelCounts { number: number(name), counts, ..ModelCounts::default() },
            }
        });
        let ran = self.totals.iter().map(|(&(gpulet, number), &(batches, time_us))| BatchTotals {
            gpulet,
            number,
            rows: 6,
            batches,
            time_us: Micros(time_us),
        });
        let look = LoadReport { models: looked.to_vec(), ran: ran.collect(), ..LoadReport::default() };
        self.bench.handle(Event::Load(look));
        self.bench.now = self.bench.now.after(SECOND);
        self.bench.handle(Event::Rollout(Happened::Tick));
    }

    fn seconds(&mut self, count: usize) {
        (0..count).for_each(|_| self.second(420));
    }

    fn plans_asked(&self) -> u64 {
        self.bench.controller.questions
    }

    /// What the plan in force believes that `a` suffers from `b`.
    fn planned_factor(&self) -> f64 {
        let known = profile_of("a", 10e3, 10e3);
        let own = Runner { profile: &known, batch: 6, units: 1 };
        self.bench.controller.problem().unwrap().interference().slowdown(&own, &[&[Load::of(&own)]])
    }

    fn learned(&self) -> InterferenceEntry {
        self.bench.controller.interference().remove(0)
    }

    fn gpulets(&self) -> usize {
        self.bench.controller.rollout().active().count()
    }
}

fn number(name: &str) -> ModelId {
    ModelId(u32::from(name == "b"))
}

#[test]
fn interference_is_learned_and_used_by_plans() {
    let mut pair = Pair::new(true);
    pair.factor = 1.3;
    pair.seconds(120);
    assert_eq!(pair.gpulets(), 2, "{:#?}", pair.bench.controller.rollout().plan());
    let learned = pair.learned();
    assert_eq!((learned.device_type.as_str(), learned.used_by_plans), ("toy", true));
    assert!(learned.error.unwrap().mean_pct < 1.0, "{learned:?}");
    assert!(learned.error_uncorrected.unwrap().mean_pct > 10.0, "{learned:?}");
    let planned = pair.planned_factor();
    assert!((planned - 1.3).abs() < 0.05, "{planned}");
}

#[test]
fn learning_asks_for_a_plan_only_where_it_matters() {
    let mut learning = Pair::new(true);
    learning.seconds(120);
    let asked = learning.plans_asked();
    assert!((learning.planned_factor() - 1.0).abs() < 1e-9, "nothing is learned where nothing costs");
    learning.factor = 1.05;
    learning.seconds(120);
    assert_eq!(learning.plans_asked(), asked, "5 % are within what plans keep free");
    learning.factor = 1.4;
    learning.seconds(240);
    let more = learning.plans_asked() - asked;
    assert!((1..=4).contains(&more), "{more} plans");
    let planned = learning.planned_factor();
    assert!((planned - 1.4).abs() < 0.15, "{planned}");
    let asked = learning.plans_asked();
    learning.seconds(240);
    assert!(learning.plans_asked() <= asked + 1, "it settles");
}

#[test]
fn an_error_of_the_profile_does_not_count_as_interference() {
    let mut pair = Pair::new(true);
    pair.off = 1.25;
    // One model after the other has the device to itself, on one unit, before they run side by side.
    for name in ["a", "b"] {
        let mut gpulet = whole("toy-0", &["a", "b"]);
        gpulet.units = 1;
        gpulet.first_unit = number(name).0;
        let accepted =
            pair.bench.controller.accept(&[stiff("a"), stiff("b")], &Plan::new(vec![gpulet])).unwrap();
        pair.bench.handle(Event::OperatorPlan(accepted));
        pair.seconds(20);
    }
    pair.bench.handle(Event::Thaw);
    pair.seconds(120);
    assert_eq!(pair.gpulets(), 2);
    let learned = pair.learned();
    assert!(learned.used_by_plans && learned.error_uncorrected.unwrap().mean_pct < 1.0, "{learned:?}");
    assert!((pair.planned_factor() - 1.0).abs() < 0.02, "{}", pair.planned_factor());
}

#[test]
fn plans_that_are_to_believe_nothing_believe_nothing_and_the_error_is_known_all_the_same() {
    let mut pair = Pair::new(false);
    pair.factor = 1.3;
    pair.seconds(120);
    assert_eq!(pair.planned_factor(), 1.0);
    let learned = pair.learned();
    assert!(!learned.used_by_plans && learned.error_uncorrected.unwrap().mean_pct > 10.0, "{learned:?}");
}
