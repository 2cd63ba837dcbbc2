//! Devices that the control loop of the server partitions into gpulets while the simulation runs.

use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::placement::Policy;
use gpulet_core::plan::{Gpulet, Plan, Slot};
use gpulet_core::problem::{Device, DeviceType, Problem, Workload as Wanted};
use gpulet_core::profile::Profile;
use gpulet_core::validate::validate;
use sim::{Report, Setup, SimError, Simulation};
use workload::Workload;

use crate::support::checked;

/// Devices of four units on which a batch of b rows takes `fixed + row b` milliseconds on the whole, and in proportion
/// longer on less; one in a hundred takes `tail` times as long, by the profile.
fn profile(model: &str, fixed: f64, row: f64, tail: f64) -> String {
    let mut text = format!(
        "{{\"profile\":{{\"version\":1,\"model\":\"{model}\",\"device\":\"toy\",\"engine\":\"none\",\"source\":\"typed_in\",\"units_total\":4,\"weights_bytes\":1000000000}}}}\n"
    );
    for batch in [1, 2, 4, 8, 16] {
        for units in [1, 2, 4] {
            let p50 = 1e3 * (fixed + row * f64::from(batch)) * 4.0 / f64::from(units);
            let (p95, p99) = (p50.midpoint(tail * p50), tail * p50);
            text += &format!(
                "{{\"cell\":{{\"batch\":{batch},\"units\":{units},\"p50_us\":{p50},\"p95_us\":{p95},\"p99_us\":{p99},\"count\":100}}}}\n"
            );
        }
        text += &format!("{{\"arena\":{{\"batch\":{batch},\"bytes\":{}}}}}\n", 1_000_000 * batch);
    }
    text
}

/// Milliseconds of a batch and of each of its rows, of three models.
const MODELS: [(&str, f64, f64); 3] = [("vision", 3.0, 1.0), ("speech", 6.0, 1.5), ("text", 1.5, 0.5)];

fn profiles(tail: f64) -> String {
    MODELS.map(|(model, fixed, row)| profile(model, fixed, row, tail)).concat()
}

/// Requests of each second of four minutes: `low` of them, and up to `high` within 40 s before and behind `middle`.
fn hill(low: f64, high: f64, middle: f64) -> String {
    let rate = |second: u32| {
        let away = ((f64::from(second) - middle) / 40.0).clamp(-1.0, 1.0);
        let share = (std::f64::consts::PI * away).cos().midpoint(1.0);
        (low + (high - low) * share).round()
    };
    (0..240).map(|second| format!("{}\n", rate(second))).collect()
}

fn try_parse(text: &str, plan: &str) -> Result<Workload, workload::WorkloadError> {
    let mut files = |name: &str| match name {
        "toy.jsonl" => Ok(profiles(1.1)),
        "exact.jsonl" => Ok(profiles(1.0)),
        "plan.json" => Ok(plan.to_owned()),
        "vision.txt" => Ok(hill(150.0, 900.0, 70.0)),
        "speech.txt" => Ok(hill(75.0, 375.0, 130.0)),
        "text.txt" => Ok(hill(250.0, 1_500.0, 190.0)),
        _ => Err(format!("no file {name}")),
    };
    Workload::parse(text, &mut files)
}

fn parse(text: &str, plan: &str) -> Workload {
    try_parse(text, plan).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn run(workload: &Workload, setup: &Setup) -> Report {
    try_run(workload, setup).unwrap_or_else(|error| panic!("{error}"))
}

fn try_run(workload: &Workload, setup: &Setup) -> Result<Report, SimError> {
    Simulation::new(workload, setup)?.run(&mut |_| {})
}

/// Each model in turn gets several times its traffic, as recorded second by second.
fn shifting(partition: &str, noise: &str) -> Workload {
    let arrivals = |model: &str| {
        format!(
            "arrivals = {{ process = \"trace\", format = \"counts-per-second\", file = \"{model}.txt\", repeat = false }}"
        )
    };
    let [vision, speech, text] = ["vision", "speech", "text"].map(arrivals);
    let text = format!(
        r#"
        name = "shifting"
        seed = 5
        duration = "240s"
        warmup = "20s"
        [devices.toy]
        count = 4
        memory = "16GiB"
        [partition]
        profiles = "toy.jsonl"
        {partition}
        [lanes.noise]
        {noise}
        [models.vision]
        slo = "100ms"
        {vision}
        [models.speech]
        slo = "150ms"
        {speech}
        [models.text]
        slo = "60ms"
        {text}
        "#
    );
    parse(&text, "")
}

#[test]
fn a_mix_that_shifts_is_served_on_fewer_devices_than_there_are() {
    let workload = shifting("", "");
    let report = run(&workload, &checked("deadline"));
    let own = report.partition.as_ref().unwrap();
    let requests = &report.requests;
    let ended = requests.good + requests.late + requests.refused_in_all() + requests.expired;
    assert_eq!((requests.offered, requests.failed, report.lost), (ended, 0, 0), "no request is lost");
    println!(
        "{:.4} in time, {:.2} devices on average, {} at most, {} tables",
        report.attainment, own.devices_mean, own.devices_most, own.changes
    );
    assert!(report.attainment >= 0.99, "{requests:?}");
    assert!(report.models.iter().all(|model| model.attainment > 0.98), "{:?}", report.models);
    assert!(own.changes >= 6, "{}", own.changes);
    assert_eq!((own.devices, own.failures, own.problem.as_deref()), (4, 0, None));
    assert!(own.devices_mean >= 1.0 && own.devices_most <= 4 && own.share_least == 1.0, "{own:?}");
    assert!((own.device_seconds / 220.0 - own.devices_mean).abs() < 1e-6, "the window is 220 s");
    for (at, one) in own.gpulets.iter().enumerate() {
        for other in own.gpulets.iter().skip(at + 1).filter(|other| other.device == one.device) {
            let apart = one.first_unit + one.units <= other.first_unit
                || other.first_unit + other.units <= one.first_unit
                || one.to_s <= other.from_s
                || other.to_s <= one.from_s;
            assert!(apart, "{one:?}\n{other:?}");
        }
    }

    let fixed = Setup { scaling: Some("static".to_owned()), ..checked("deadline") };
    let fixed = run(&workload, &fixed).partition.unwrap();
    assert_eq!(fixed.scaling, "static");
    assert!(
        own.device_seconds < 0.8 * fixed.device_seconds,
        "{} of {}",
        own.device_seconds,
        fixed.device_seconds
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let workload = shifting("", "cv = 0.05").lasting(100_000_000_000).unwrap();
    let setup = Setup::default();
    let report = run(&workload, &setup);
    assert_eq!(report, run(&workload, &setup));
    assert_ne!(report.hash, run(&workload.with_seed(6), &setup).hash);
}

#[test]
fn noise_and_stalls_and_short_bake_times_break_no_promise() {
    for (seed, policy) in [(1, "deadline"), (2, "triton"), (3, "nexus")] {
        let noise = "cv = 0.2\nspread = 0.2\nstalls = { every = \"5s\", time = \"50ms\" }";
        let workload = shifting("bake_time = \"100ms\"\nload = \"3s\"\nperiod = \"500ms\"", noise);
        let workload = workload.with_seed(seed).lasting(130_000_000_000).unwrap();
        let report = run(&workload, &checked(policy));
        assert_eq!((report.requests.failed, report.requests.unfinished), (0, 0), "{policy}");
        assert!(report.partition.unwrap().changes > 3, "{policy}");
    }
}

/// The plan's own words for a slot.
fn slot(workload: &str, batch: u32, budget_us: f64, rate: f64) -> Slot {
    Slot { workload: workload.to_owned(), batch, budget_us, rate }
}

fn gpulet(device: &str, first_unit: u32, units: u32, slots: Vec<Slot>) -> Gpulet {
    let duty_us = (slots.len() > 1).then(|| slots.iter().map(|slot| slot.budget_us).sum());
    Gpulet { device: device.into(), first_unit, units, window: None, duty_us, slots }
}

/// Two devices, each model at an even rate, and a plan that is in force all the time; every batch takes exactly as long as it was planned with.
fn planned(plan: &Plan, rates: [f64; 3], slos_ms: [f64; 3]) -> Workload {
    let models = MODELS.iter().zip(rates).zip(slos_ms).map(|(((model, ..), rate), slo)| {
        format!(
            "[models.{model}]\nslo = \"{slo}ms\"\nrate = {rate:?}\narrivals = {{ process = \"uniform\" }}\n"
        )
    });
    let has_windows = plan.gpulets.iter().any(|gpulet| gpulet.window.is_some());
    let policy = if has_windows { "fast-gshare" } else { "tessera" };
    let text = format!(
        "name = \"planned\"\nduration = \"60s\"\nseed = 3\n[devices.toy]\ncount = 2\nmemory = \"16GiB\"\n[partition]\nprofiles = \"exact.jsonl\"\nplan = \"plan.json\"\npolicy = \"{policy}\"\n{}",
        models.collect::<String>()
    );
    parse(&text, &serde_json::to_string(plan).unwrap())
}

fn problem(rates: [f64; 3], slos_ms: [f64; 3]) -> Problem {
    let kind = std::sync::Arc::new(DeviceType {
        name: "toy".to_owned(),
        units: 4,
        sizes: (1..=4).collect(),
        gpulets_max: 48,
        base_bytes: 0,
        gpulet_bytes: 0,
    });
    let device = |at: u32| Device {
        name: format!("toy-{at}").into(),
        device_type: std::sync::Arc::clone(&kind),
        memory_bytes: 16 << 30,
        fault_domain: format!("toy-{at}"),
        cost: 1.0,
    };
    let wanted = MODELS.iter().zip(rates).zip(slos_ms).map(|(((model, ..), rate), slo_ms)| Wanted {
        name: (*model).to_owned(),
        model: (*model).to_owned(),
        tenant: String::new(),
        not_with: Vec::new(),
        slo_us: 1e3 * slo_ms,
        rate,
        headroom: 1.0,
        replicas_min: 1,
        batch_max: 16,
    });
    let interference = Interference::NoInterference(NoInterference);
    let profiles = Profile::read(&profiles(1.0)).unwrap();
    Problem::new(vec![device(0), device(1)], wanted.collect(), profiles, interference).unwrap()
}

/// The longest time to an answer that the validator predicts for each model.
fn promises(problem: &Problem, plan: &Plan) -> [f64; 3] {
    let judgement = validate(problem, plan);
    assert!(judgement.is_sound(), "{:?}", judgement.violations);
    MODELS.map(|(model, ..)| {
        let own = judgement.slots.iter().filter(|slot| slot.workload == model);
        own.map(|slot| slot.worst_us / 1e3).fold(0.0, f64::max)
    })
}

fn keeps_its_promise(plan: &Plan, rates: [f64; 3], slos_ms: [f64; 3]) {
    let workload = planned(plan, rates, slos_ms);
    let promises = promises(&problem(rates, slos_ms), plan);
    // Not those that refuse what their margins for surprises do not cover: a promise may leave no margin.
    for policy in ["deadline", "triton"] {
        let report = run(&workload, &checked(policy));
        assert_eq!(report.requests.good, report.requests.offered, "{policy}: {:?}", report.requests);
        let figures = report.partition.as_ref().unwrap();
        assert_eq!((figures.changes, figures.plan.as_deref()), (1, Some("plan.json")), "{policy}");
        for (model, promise) in report.models.iter().zip(promises) {
            println!("{policy}: {} {:?} ms at p99, {promise:.1} ms promised", model.name, model.p99_ms);
        }
        if policy == "triton" {
            // `triton` never delays a batch, as the prediction assumes. Other policies may wait until the deadline.
            let worst = report.latency_ms.unwrap().max;
            let most = promises.iter().copied().fold(0.0, f64::max);
            assert!(worst <= most, "{worst} of {most} ms");
            for (model, promise) in report.models.iter().zip(promises) {
                // Two digits of a histogram.
                assert!(
                    model.p99_ms.unwrap() <= promise * 1.01,
                    "{}: {:?} of {promise}",
                    model.name,
                    model.p99_ms
                );
            }
        }
    }
}

#[test]
fn a_plan_of_shares_keeps_what_the_validator_predicts() {
    let (rates, slos) = ([100.0, 60.0, 150.0], [60.0, 120.0, 40.0]);
    let plan = Plan::new(vec![
        gpulet("toy-0", 0, 2, vec![slot("vision", 4, 20e3, 100.0)]),
        gpulet("toy-0", 2, 2, vec![slot("text", 4, 10e3, 150.0)]),
        gpulet("toy-1", 0, 4, vec![slot("speech", 8, 30e3, 60.0)]),
    ]);
    keeps_its_promise(&plan, rates, slos);
}

#[test]
fn a_plan_of_time_slices_keeps_what_the_validator_predicts() {
    let (rates, slos) = ([60.0, 30.0, 80.0], [80.0, 120.0, 60.0]);
    let cycle =
        vec![slot("vision", 4, 10e3, 60.0), slot("speech", 2, 12e3, 30.0), slot("text", 4, 6e3, 80.0)];
    keeps_its_promise(&Plan::new(vec![gpulet("toy-0", 0, 4, cycle)]), rates, slos);
}

#[test]
fn the_plan_of_a_policy_keeps_what_the_validator_predicts() {
    for (rates, slos) in [
        ([60.0, 30.0, 100.0], [60.0, 90.0, 40.0]),
        ([150.0, 20.0, 250.0], [50.0, 120.0, 30.0]),
        ([20.0, 90.0, 40.0], [80.0, 100.0, 60.0]),
    ] {
        let problem = problem(rates, slos);
        for policy in ["tessera", "temporal", "igniter", "fast-gshare"] {
            let Ok(plan) = Policy::named(policy).unwrap().place(&problem) else { continue };
            println!("{policy} {plan:?}");
            keeps_its_promise(&plan, rates, slos);
        }
    }
}

#[test]
fn mistakes_are_named_by_their_key() {
    let good = "name = \"x\"\nduration = \"10s\"\n[devices.toy]\ncount = 2\nmemory = \"16GiB\"\n[partition]\nprofiles = \"toy.jsonl\"\n[models.vision]\nslo = \"50ms\"\nrate = 10.0\n";
    let told = |text: &str, plan: &str| match try_parse(text, plan) {
        Err(error) => error.to_string(),
        Ok(workload) => match try_run(&workload, &Setup::default()) {
            Err(error) => error.to_string(),
            Ok(report) => panic!("expected a fault\n{text}\n{:?}", report.requests),
        },
    };
    run(&parse(good, ""), &checked("deadline"));
    for (from, to, said) in [
        ("count = 2", "count = 0", "workload.toml:4: devices.toy.count: expected 1 or more"),
        ("16GiB", "16", "workload.toml:5: devices.toy.memory: expected a size such as `16MiB`"),
        ("16GiB", "100MiB", "partition: no plan to begin with: device `toy-0`: 1016000000 bytes needed"),
        ("toy.jsonl", "missing.jsonl", "workload.toml:7: partition.profiles: cannot read `missing.jsonl`"),
        (
            "memory = ",
            "kind = \"tpu\"\nmemory = ",
            "devices.toy.kind: no profile of a device `tpu`: expected one of toy",
        ),
        (
            "memory = ",
            "sizes = [2, 1]\nmemory = ",
            "devices.toy.sizes: expected ascending numbers from 1 to 4",
        ),
        ("memory = ", "units = 5\nmemory = ", "models.vision.slo: cannot be met"),
        ("[partition]", "[partition]\npolicy = \"best\"", "partition.policy: expected one of tessera, "),
        ("[partition]", "[partition]\nquota_limit = 1.5", "partition.quota_limit: expected 0 to 1, got 1.5"),
        ("[partition]", "[partition]\nscaling = \"up\"", "partition.scaling: expected one of attainment, "),
        (
            "[partition]",
            "[partition]\nperiod = \"1ms\"",
            "workload.toml:7: partition.period: expected 10ms to",
        ),
        (
            "[partition]",
            "[partition]\nperid = \"1s\"",
            "workload.toml:7: partition.perid: unknown key, did you mean `period`?",
        ),
        ("[models.vision]", "[models.visio]", "models.visio.model: no profile of `visio` on toy"),
        ("50ms", "3ms", "models.vision.slo: cannot be met"),
        ("rate = 10.0", "rate = 10.0\nrows = 17", "models.vision.rows: expected 1 to 16 rows"),
        (
            "rate = 10.0",
            "rate = 10.0\nprofile = { alpha = \"1ms\", beta = \"1ms\", max_batch = 4 }",
            "workload.toml:11: models.vision.profile: set together with [devices]",
        ),
        (
            "[models.vision]",
            "[lanes]\ncount = 3\n[models.vision]",
            "workload.toml:9: lanes.count: set together with [devices]",
        ),
        ("[partition]\nprofiles = \"toy.jsonl\"\n", "", "workload.toml: partition.profiles: missing"),
        (
            "[devices.toy]\ncount = 2\nmemory = \"16GiB\"\n",
            "",
            "workload.toml: devices: expected at least one section",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        let told = told(&good.replace(from, to), "");
        assert!(told.starts_with(said), "{to}: {told}\nexpected {said}");
    }
    let with_plan = good.replace("[partition]", "[partition]\nplan = \"plan.json\"");
    let elsewhere = Plan::new(vec![gpulet("toy-7", 0, 4, vec![slot("vision", 4, 10e3, 1.0)])]);
    for (plan, said) in [
        ("{}", "plan.json:1: gpulets: missing field `gpulets`"),
        ("nonsense", "plan.json:1: gpulets: "),
        ("{\"gpulets\": []}", "partition.plan: gpulets: model `vision` has no slot"),
        (&serde_json::to_string(&elsewhere).unwrap(), "partition.plan: "),
    ] {
        let told = told(&with_plan, plan);
        assert!(told.starts_with(said), "{plan}: {told}");
    }
    let lone = "name = \"x\"\nduration = \"10s\"\n[models.vision]\nslo = \"50ms\"\nrate = 10.0\nload = \"1s\"\nprofile = { alpha = \"1ms\", beta = \"1ms\", max_batch = 4 }\n";
    assert!(told(lone, "").starts_with("workload.toml:6: models.vision.load: of use with [devices] only"));
}

#[test]
fn a_model_that_is_slower_than_its_profile_gets_the_devices_that_it_needs() {
    let steady = |bias: f64| {
        let text = format!(
            "name = \"slower\"\nduration = \"180s\"\nwarmup = \"60s\"\nseed = 7\n[devices.toy]\ncount = 4\nmemory = \"16GiB\"\n\
             [partition]\nprofiles = \"toy.jsonl\"\n[lanes.noise]\nbias = {bias}\ncv = 0.03\n[models.vision]\nslo = \"100ms\"\nrate = 700.0\n"
        );
        let report = run(&parse(&text, ""), &checked("deadline"));
        let devices = report.partition.as_ref().unwrap().devices_mean;
        println!("{bias} times the profile: {:.4} in time on {devices:.2} devices", report.attainment);
        (report.attainment, devices)
    };
    let (as_profiled, slower) = (steady(1.0), steady(1.7));
    assert!(slower.0 >= 0.98 && slower.0 >= as_profiled.0 - 0.02, "{as_profiled:?} {slower:?}");
    assert!(slower.1 > as_profiled.1, "{as_profiled:?} {slower:?}");
}
