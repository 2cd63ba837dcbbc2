//! The 255 mixes for which the plans of the gpulet authors' program are known: how many of them each policy serves on
//! one to four GPUs.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpulet_core::interference::{Gpulet as Regression, Interference};
use gpulet_core::placement::{Gpulet as GpuletPolicy, Policy};
use gpulet_core::plan::{Gpulet, Plan, Slot};
use gpulet_core::problem::{DeviceType, Problem, Workload};
use gpulet_core::profile::{Line, Profile};
use gpulet_core::validate::validate;

use crate::data::{Row, cell, count, number, rows, utilisation};
use crate::support::{assert_no_violations, devices, fifths, header, workload};

const MODELS: [&str; 4] = ["alexnet", "resnet50", "vgg19", "ssd"];
/// Factor of the authors' program on every time.
const SAFETY: f64 = 1.1;
const COEFFICIENTS: [f64; 5] =
    [-0.008_310_101_1, -0.086_101_666_1, -0.029_915_464_3, 0.135_191_486_6, 1.092_426_401_3];
const GPUS_MAX: usize = 4;

struct Oracle {
    mixes: Vec<Row>,
    profiles: Vec<Profile>,
    /// What the authors' program and its baselines decided.
    results: Vec<Row>,
}

/// Mixes that a policy places, places soundly, and places as the authors check it, on one to four GPUs.
#[derive(Debug, Default, PartialEq)]
struct Served {
    placed: [u32; GPUS_MAX],
    sound: [u32; GPUS_MAX],
    tolerable: [u32; GPUS_MAX],
}

fn profile(model: &str) -> Profile {
    let mut lines = vec![Line::Profile(header(model, 100))];
    let cells = rows("planner-profiles/profile_v100.csv");
    lines.extend(cells.iter().filter(|row| row["model"] == model).map(|row| {
        cell(count(row, "batch"), count(row, "partition_pct"), SAFETY * 1e3 * number(row, "latency_ms"))
    }));
    lines.extend(utilisation("planner-profiles/utilisation_v100.csv", model));
    Profile::of_lines(lines).unwrap().remove(0)
}

impl Oracle {
    fn read() -> Self {
        Self {
            mixes: rows("gpulet-oracle/problems_v100_6x.csv"),
            profiles: MODELS.map(profile).into(),
            results: rows("gpulet-oracle/results_v100_6x.csv"),
        }
    }

    fn problem(&self, mix: &Row, gpus: usize, relaxed: bool) -> Problem {
        let (late, rates, least) = if relaxed { (1.05, "rate", 0.95) } else { (1.0, "rate_inflated", 1.0) };
        let of = |model: &str| {
            let slo_ms = late * number(mix, &format!("slo_ms_{model}"));
            let rate = least * number(mix, &format!("{rates}_rps_{model}"));
            (rate > 0.0).then(|| Workload { name: model.to_owned(), ..workload(model, slo_ms, rate) })
        };
        let device_type = Arc::new(DeviceType { gpulets_max: 2, ..(*fifths()).clone() });
        let interference = Interference::Gpulet(Regression { coefficients: COEFFICIENTS });
        let workloads = MODELS.iter().filter_map(|model| of(model)).collect();
        Problem::new(devices(&device_type, gpus), workloads, self.profiles.clone(), interference).unwrap()
    }

    fn served(&self, policy: &Policy) -> Served {
        let mut served = Served::default();
        for mix in &self.mixes {
            for gpus in 1..=GPUS_MAX {
                let problem = self.problem(mix, gpus, false);
                let placed = policy.place(&problem);
                assert_no_violations();
                let Ok(plan) = placed else { continue };
                let tolerable = validate(&self.problem(mix, gpus, true), &plan).is_sound();
                served.placed[gpus - 1] += 1;
                served.sound[gpus - 1] += u32::from(validate(&problem, &plan).is_sound());
                served.tolerable[gpus - 1] += u32::from(tolerable);
            }
        }
        served
    }

    /// The results of one of the authors' configurations, with the problems and their plans.
    fn published<'a>(&'a self, config: &'a str) -> impl Iterator<Item = (&'a Row, Problem, Plan)> {
        let placed =
            self.results.iter().filter(move |row| row["config"] == config && row["schedulable"] == "yes");
        placed.map(|row| {
            let mix = self.mixes.iter().find(|mix| mix["mix_id"] == row["mix_id"]).unwrap();
            let problem = self.problem(mix, count(row, "gpus_offered").try_into().unwrap(), false);
            let plan = read_plan(&problem, &row["plan"]);
            (row, problem, plan)
        })
    }
}

/// Reads a plan of the authors' program. Each slot gets its share of the rate and of the cycle.
fn read_plan(problem: &Problem, text: &str) -> Plan {
    let mut gpulets = Vec::new();
    for (device, text) in problem.devices().iter().zip(text.split('|')) {
        let mut first_unit = 0;
        for text in text.split(';').filter(|text| !text.is_empty()) {
            let [units, duty_ms, slots] = text.split(':').collect::<Vec<_>>()[..] else { panic!("{text}") };
            let units: u32 = units.parse().unwrap();
            let slots = slots.split('+').map(|slot| {
                let (model, batch) = slot.split_once('*').unwrap();
                Slot { workload: model.to_owned(), batch: batch.parse().unwrap(), budget_us: 1.0, rate: 0.0 }
            });
            let slots: Vec<Slot> = slots.collect();
            let duty_us = (slots.len() > 1).then(|| 1e3 * duty_ms.parse::<f64>().unwrap());
            gpulets.push(Gpulet {
                device: device.name.clone(),
                first_unit,
                units,
                window: None,
                duty_us,
                slots,
            });
            first_unit += units;
        }
    }
    let mut plan = Plan::new(gpulets);
    let predicted = validate(problem, &plan).slots;
    let mut capacities: BTreeMap<String, f64> = BTreeMap::new();
    for slot in &predicted {
        *capacities.entry(slot.workload.clone()).or_default() += slot.capacity;
    }
    let slots = plan.gpulets.iter_mut().flat_map(|gpulet| &mut gpulet.slots);
    for (slot, predicted) in slots.zip(&predicted) {
        let workload = problem.workloads().iter().find(|workload| workload.name == slot.workload).unwrap();
        slot.budget_us = predicted.co_located_us;
        slot.rate = workload.rate * predicted.capacity / capacities[&slot.workload];
    }
    plan
}

/// `cargo test --release -p gpulet-core --test suite oracle -- --ignored --nocapture` prints the table of the README.
#[test]
#[ignore = "needs the data folder"]
fn mixes_served_on_one_to_four_gpus() {
    let oracle = Oracle::read();
    let named = |name| Policy::named(name).unwrap();
    let released = Policy::Gpulet(GpuletPolicy { released: true });
    println!(
        "| policy | placed on 1, 2, 3, 4 GPUs | of these sound | of these tolerable |\n|---|---|---|---|"
    );
    let policies = [
        ("temporal", named("temporal")),
        ("gpulet", named("gpulet")),
        ("gpulet, released", released),
        ("tessera", named("tessera")),
    ];
    let served = policies.map(|(name, policy)| {
        let served = oracle.served(&policy);
        let cell = |counts: [u32; GPUS_MAX]| counts.map(|count| count.to_string()).join(", ");
        let cells = [served.placed, served.sound, served.tolerable].map(cell);
        println!("| `{name}` | {} |", cells.join(" | "));
        served
    });
    let [_, sound, released, ours] = served;
    assert_eq!((sound.placed, sound.sound), ([14, 70, 164, 230], [14, 70, 164, 230]));
    assert_eq!((released.placed, released.tolerable), ([15, 74, 162, 230], [15, 74, 161, 228]));
    assert_eq!((ours.placed, ours.sound), ([14, 75, 187, 248], [14, 75, 187, 248]));
}

/// Neither of the variants falls behind the authors' program: the released one places every mix that the program
/// places, and the default policy every mix for which the program, or one of its baselines, has a sound plan.
#[test]
#[ignore = "needs the data folder"]
fn what_the_authors_program_serves_is_served() {
    let oracle = Oracle::read();
    let released = Policy::Gpulet(GpuletPolicy { released: true });
    for config in ["gpulet-int", "gpulet-noint", "greedy", "timeshare"] {
        let (mut all, mut sound) = (0, 0);
        for (row, problem, plan) in oracle.published(config) {
            all += 1;
            let at = format!("{config}: mix {} on {} GPUs", row["mix_id"], row["gpus_offered"]);
            if config == "gpulet-int" {
                assert!(released.place(&problem).is_ok(), "{at}");
            }
            if validate(&problem, &plan).is_sound() {
                sound += 1;
                let ours = Policy::default().place(&problem);
                assert!(ours.is_ok_and(|plan| validate(&problem, &plan).is_sound()), "{at}");
            }
        }
        println!("{config}: {all} plans, {sound} of them sound");
    }
}

/// With other objectives and rates than the mixes have, no plan of a sound policy is refused by the validator, and ours
/// serves whatever another policy serves soundly.
#[test]
#[ignore = "needs the data folder"]
fn other_objectives_and_rates_are_planned_soundly() {
    let oracle = Oracle::read();
    let mut planned = 0;
    for (at, mix) in oracle.mixes.iter().enumerate().step_by(8) {
        for (slower, busier) in [(0.6, 0.5), (0.8, 0.7), (1.5, 1.3), (2.5, 2.0), (4.0, 3.0)] {
            let mut mix = mix.clone();
            for model in MODELS {
                for (column, factor) in [("slo_ms", slower), ("rate_inflated_rps", busier)] {
                    let value = factor * number(&mix, &format!("{column}_{model}"));
                    mix.insert(format!("{column}_{model}"), value.to_string());
                }
            }
            let problem = oracle.problem(&mix, 1 + at % 6, false);
            let places = ["temporal", "gpulet", "igniter", "exact", "tessera"].map(|name| {
                let placed = Policy::named(name).unwrap().place(&problem);
                assert_no_violations();
                let validation = placed.ok().map(|plan| validate(&problem, &plan));
                let sound = validation.as_ref().is_none_or(|validation| validation.is_sound());
                assert!(sound, "{name}: mix {}, {slower}, {busier}: {validation:#?}", mix["mix_id"]);
                planned += u32::from(validation.is_some());
                validation.map(|validation| validation.devices_used)
            });
            let [others @ .., ours] = places;
            let fewest = others.into_iter().flatten().min();
            assert!(
                fewest.is_none_or(|fewest| ours.is_some_and(|ours| ours <= fewest)),
                "{others:?} {ours:?}"
            );
        }
    }
    println!("{planned} plans, all sound");
    assert!(planned > 300, "{planned}");
}
