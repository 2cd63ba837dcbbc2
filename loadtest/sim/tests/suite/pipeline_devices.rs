//! Pipelines whose stages have gpulets, under a fixed plan and under plans that follow the load.

use router_core::batch::{BatchOptions, Policy};
use sim::{Report, Setup, SimError, Simulation};
use workload::Workload;

/// Milliseconds of a batch and of each of its rows on one of the two units of a device; both take half as long.
const DET: (&str, f64, f64) = ("det", 8.0, 2.0);
const REC: (&str, f64, f64) = ("rec", 4.0, 1.0);

fn profiles(models: &[(&str, f64, f64)]) -> String {
    let mut text = String::new();
    for (model, fixed, row) in models {
        text.push_str(&format!(
            "{{\"profile\":{{\"version\":1,\"model\":\"{model}\",\"device\":\"toy\",\"engine\":\"test\",\"source\":\"synthesised\",\"units_total\":2}}}}\n"
        ));
        for batch in [1_u32, 2, 4, 8, 16] {
            for units in [1_u32, 2] {
                let us = 1e3 * (fixed + row * f64::from(batch)) / f64::from(units);
                text.push_str(&format!(
                    "{{\"cell\":{{\"batch\":{batch},\"units\":{units},\"p50_us\":{us},\"p95_us\":{us},\"p99_us\":{us},\"count\":100}}}}\n"
                ));
            }
        }
    }
    text
}

/// A gpulet of a unit for each of these.
fn plan(slots: &[&str]) -> String {
    let gpulet = |(number, workload): (usize, &&str)| {
        let (device, unit) = (number / 2, number % 2);
        let slot =
            format!("{{\"workload\": \"{workload}\", \"batch\": 16, \"budget_us\": 40000, \"rate\": 100}}");
        format!("{{\"device\": \"toy-{device}\", \"first_unit\": {unit}, \"units\": 1, \"slots\": [{slot}]}}")
    };
    let gpulets: Vec<String> = slots.iter().enumerate().map(gpulet).collect();
    format!("{{\"gpulets\": [{}]}}", gpulets.join(", "))
}

fn parse(text: &str, plan: &str) -> Workload {
    let mut files = |name: &str| match name {
        "toy.jsonl" => Ok(profiles(&[DET, REC])),
        "plan.json" => Ok(plan.to_owned()),
        other => Err(format!("no file {other}")),
    };
    Workload::parse(text, &mut files).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn try_run(workload: &Workload, setup: &Setup) -> Result<Report, SimError> {
    let report = Simulation::new(workload, setup)?.run(&mut |_| {})?;
    let requests = &report.requests;
    let ended =
        requests.good + requests.late + requests.refused_in_all() + requests.expired + requests.failed;
    assert_eq!(requests.offered, ended, "every request ends once: {requests:?}");
    assert_eq!(invariant::violations(), []);
    Ok(report)
}

fn run(text: &str, plan: &str) -> Report {
    try_run(&parse(text, plan), &Setup::default().checked()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const PIPELINE: &str = r#"
    [pipelines.ocr]
    slo = "300ms"
    stages = [{ model = "det", fan_out = 2.5 }, { model = "rec", from = "det" }]
"#;

fn on_devices(count: u32, partition: &str, traffic: &str) -> String {
    format!(
        r#"
        name = "pipeline-devices"
        seed = 5
        duration = "60s"
        warmup = "5s"
        [devices.toy]
        count = {count}
        memory = "16GiB"
        [partition]
        profiles = "toy.jsonl"
        {partition}
        [models.det]
        [models.rec]
        {PIPELINE}
        {traffic}
        "#
    )
}

/// The same on lanes of their own: two for `det`, and one for `rec`.
fn on_lanes(traffic: &str) -> String {
    format!(
        r#"
        name = "pipeline-devices"
        seed = 5
        duration = "60s"
        warmup = "5s"
        [lanes]
        count = 3
        [models.det]
        lanes = [0, 1]
        profile = {{ alpha = "2ms", beta = "8ms", max_batch = 16 }}
        [models.rec]
        lanes = [2]
        profile = {{ alpha = "1ms", beta = "4ms", max_batch = 16 }}
        {PIPELINE}
        {traffic}
        "#
    )
}

#[test]
fn a_fixed_plan_serves_as_equal_lanes_do() {
    for (rate, least, most) in [(80.0, 0.99, 1.0), (350.0, 0.5, 0.99)] {
        for split in ["even", "nexus"] {
            let traffic = format!("rate = {rate}\nsplit = \"{split}\"");
            let lanes = run(&on_lanes(&traffic), "");
            let device = on_devices(2, "plan = \"plan.json\"", &traffic);
            let device = run(&device, &plan(&["det", "rec", "det"]));
            assert!((least..=most).contains(&lanes.attainment), "{rate}: {}", lanes.attainment);
            let latency = |report: &Report| {
                let latency = report.latency_ms.as_ref().unwrap();
                (latency.p50, latency.p99, latency.mean)
            };
            // By Nexus, shares come of the costs of all gpulets that the devices allow, instead of the lanes that there are.
            if split == "even" {
                assert_eq!(lanes.requests, device.requests, "{rate}");
                assert_eq!(latency(&lanes), latency(&device), "{rate}");
            } else {
                assert!((lanes.attainment - device.attainment).abs() < 0.05, "{rate}");
            }
        }
    }
}

#[test]
fn a_plan_may_name_stages_as_tessera_plan_does() {
    let text = on_devices(2, "plan = \"plan.json\"", "rate = 80.0");
    let by_model = run(&text, &plan(&["det", "det", "rec"]));
    let by_stage = run(&text, &plan(&["ocr.det", "ocr.det", "ocr.rec"]));
    assert_eq!((by_model.requests, by_model.hash), (by_stage.requests, by_stage.hash));
}

#[test]
fn a_plan_without_a_gpulet_for_a_stage_is_refused_by_name() {
    let text = on_devices(2, "plan = \"plan.json\"", "rate = 80.0");
    let error = try_run(&parse(&text, &plan(&["det", "det"])), &Setup::default()).unwrap_err().to_string();
    let expected =
        "partition.plan: gpulets: model `rec` has no slot: expected one at least, or one for ocr.rec";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_share_that_no_gpulet_can_keep_is_refused_by_name() {
    let text = on_devices(2, "", "rate = 80.0\nsplit = { det = 0.01, rec = 0.9 }");
    let error = try_run(&parse(&text, ""), &Setup::default()).unwrap_err().to_string();
    let expected =
        "pipelines.ocr.split: stage `det` has 3.000 ms of the objective: expected enough for a row of `det`";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn plans_follow_a_load_that_doubles_and_attainment_recovers() {
    let run = |arrivals: &str| {
        let text = on_devices(8, "", &format!("rate = 250.0\narrivals = {{ {arrivals} }}"));
        let times = "\"120s\"\n        warmup = \"60s\"";
        let text = text.replace("\"60s\"\n        warmup = \"5s\"", times);
        try_run(&parse(&text, ""), &Setup::default()).unwrap()
    };
    let mean = |report: &Report| report.partition.as_ref().unwrap().devices_mean;
    let (before, after) = (
        run("process = \"poisson\""),
        run("process = \"flash\", at = \"40s\", lasts = \"80s\", factor = 2.0"),
    );
    println!(
        "{:.4} on {:.2} devices, {:.4} on {:.2}",
        before.attainment,
        mean(&before),
        after.attainment,
        mean(&after)
    );
    assert!(before.attainment > 0.99, "{}", before.attainment);
    assert!(after.attainment > 0.99, "{}: from 20 s after the load doubled", after.attainment);
    assert!(mean(&after) > 1.4 * mean(&before), "{} and {}", mean(&after), mean(&before));
}

#[test]
fn the_simulation_chooses_how_objectives_are_divided_on_devices() {
    let text = on_devices(6, "", "rate = 150.0\nsplit = \"plan\"");
    let report = run(&text, "");
    assert!(
        report.attainment > 0.98 && report.splits.len() == 1,
        "{} {:?}",
        report.attainment,
        report.splits
    );
}

/// Pseudo-random numbers: xorshift64*.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

/// Two pipelines of up to four stages of two models, with any fan-out and early answers, and a burst in the middle. One of the models
/// has requests of its own.
fn random(seed: u64) -> String {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (seed + 1));
    let mut text = String::new();
    for pipeline in ["one", "two"] {
        let mut stages: Vec<String> = Vec::new();
        for stage in 0..1 + dice.below(4) {
            let model = ["det", "rec"][dice.below(2) as usize];
            let from =
                if stage == 0 { String::new() } else { format!(", from = \"s{}\"", dice.below(stage)) };
            let fan_out = [0.0, 0.5, 1.0, 1.0, 2.3, 20.0][dice.below(6) as usize];
            let answers = [0.0, 0.0, 0.3][dice.below(3) as usize];
            stages.push(format!(
                "{{ name = \"s{stage}\", model = \"{model}\"{from}, fan_out = {fan_out:.1}, answers = {answers:.1} }}"
            ));
        }
        let deadlines = ["end_to_end", "static", "per_stage"][dice.below(3) as usize];
        let split = ["even", "nexus"][dice.below(2) as usize];
        let (slo, rate) = (250 + dice.below(500), 10 + dice.below(60));
        let factor = 1 + dice.below(4);
        text.push_str(&format!(
            "[pipelines.{pipeline}]\nslo = \"{slo}ms\"\nrate = {rate}.0\nsplit = \"{split}\"\ndeadlines = \"{deadlines}\"\n\
             arrivals = {{ process = \"flash\", at = \"8s\", lasts = \"6s\", factor = {factor}.0 }}\nstages = [{}]\n",
            stages.join(", ")
        ));
    }
    let own = 1 + dice.below(50);
    format!(
        "name = \"random-pipelines\"\nseed = {seed}\nduration = \"20s\"\n[devices.toy]\ncount = 4\nmemory = \"16GiB\"\n\
         [partition]\nprofiles = \"toy.jsonl\"\nload = \"200ms\"\n[models.det]\nslo = \"300ms\"\nrate = 1.0\n\
         [models.rec]\nslo = \"200ms\"\nrate = {own}.0\n{text}"
    )
}

#[test]
fn every_request_ends_once_whatever_the_policy_while_plans_change() {
    let mut changes = 0;
    for (seed, (policy, _)) in (0_u64..).zip(Policy::ALL.iter().cycle().take(36)) {
        let setup = Setup::named(policy, &BatchOptions::default()).unwrap().checked();
        let report = try_run(&parse(&random(seed), ""), &setup);
        let report = report.unwrap_or_else(|error| panic!("{seed}: {policy}: {error}\n{}", random(seed)));
        changes += report.partition.as_ref().unwrap().changes;
    }
    assert!(changes > 36, "plans changed {changes} times");
}
