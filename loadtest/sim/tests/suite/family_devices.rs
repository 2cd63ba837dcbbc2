//! Families whose variants have gpulets of their own, under a fixed plan and under plans that follow the load.

use sim::{Report, Setup, Simulation};
use workload::Workload;

/// Milliseconds of a batch and of each of its rows on a whole device of two units; a row on half of it takes twice as long.
type Times = [(&'static str, f64, f64); 2];
const ROWS: Times = [("large", 0.0, 10.0), ("small", 0.0, 1.0)];
const BATCHES: Times = [("large", 15.0, 2.5), ("small", 3.0, 0.5)];
/// The large one has a device, the small one half of the other.
const PLAN: &str = r#"{"gpulets": [
    {"device": "toy-0", "first_unit": 0, "units": 2, "slots": [{"workload": "large", "batch": 16, "budget_us": 55000, "rate": 90}]},
    {"device": "toy-1", "first_unit": 0, "units": 1, "slots": [{"workload": "small", "batch": 16, "budget_us": 55000, "rate": 400}]}]}"#;

fn profiles(times: &Times) -> String {
    let mut text = String::new();
    for (model, fixed, row) in times {
        text.push_str(&format!(
            "{{\"profile\":{{\"version\":1,\"model\":\"{model}\",\"device\":\"toy\",\"engine\":\"test\",\"source\":\"synthesised\",\"units_total\":2}}}}\n"
        ));
        for (batch, units) in [(1_u32, 1_u32), (1, 2), (4, 1), (4, 2), (16, 1), (16, 2)] {
            let us = 1e3 * (fixed + row * f64::from(batch) * 2.0 / f64::from(units));
            text.push_str(&format!(
                "{{\"cell\":{{\"batch\":{batch},\"units\":{units},\"p50_us\":{us},\"p95_us\":{us},\"p99_us\":{us},\"count\":100}}}}\n"
            ));
        }
    }
    text
}

fn try_parse(
    times: &Times,
    (rate, arrivals): (f64, &str),
    plan: &str,
) -> Result<Workload, workload::WorkloadError> {
    let text = format!(
        r#"
        name = "family-devices"
        seed = 5
        duration = "60s"
        warmup = "5s"
        [devices.toy]
        count = 2
        memory = "16GiB"
        [partition]
        profiles = "toy.jsonl"
        {plan}
        [models.large]
        [models.small]
        [families.digits]
        slo = "110ms"
        rate = {rate}
        {arrivals}
        variants = {{ large = 0.98, small = 0.90 }}
        "#
    );
    let mut files = |name: &str| match name {
        "toy.jsonl" => Ok(profiles(times)),
        "plan.json" => Ok(PLAN.to_owned()),
        other => Err(format!("no file {other}")),
    };
    Workload::parse(&text, &mut files)
}

fn run(times: &Times, family: (f64, &str), plan: &str) -> Report {
    let workload = try_parse(times, family, plan).unwrap_or_else(|error| panic!("{error}"));
    let report = Simulation::new(&workload, &Setup::default().checked()).unwrap().run(&mut |_| {}).unwrap();
    assert_eq!(invariant::violations(), []);
    report
}

fn share(report: &Report, name: &str) -> f64 {
    let of = report.families[0].variants.iter().find(|variant| variant.name == name);
    of.map_or(0.0, |variant| variant.share)
}

#[test]
fn a_fixed_plan_serves_what_its_gpulets_carry_the_better_variant_first() {
    // 100 a second are what the large one answers on its device, 500 the small one on half of the other.
    let report = run(&ROWS, (60.0, ""), "plan = \"plan.json\"");
    assert!(share(&report, "large") > 0.99 && report.attainment > 0.99, "{:?}", report.families);
    let report = run(&ROWS, (400.0, ""), "plan = \"plan.json\"");
    assert!(report.attainment > 0.99, "{}", report.attainment);
    assert!((0.15..0.26).contains(&share(&report, "large")), "{:?}", report.families);
}

#[test]
fn plans_follow_the_load_of_the_variants() {
    let report = run(&ROWS, (150.0, ""), "");
    assert!(report.attainment > 0.97, "{}", report.attainment);
    assert!(share(&report, "large") > 0.5, "{:?}", report.families);
}

#[test]
fn batches_of_half_the_objective_leave_the_better_variant_busy_and_requests_in_time() {
    // 290 a second are what the large one answers in batches of 16, which take half of the objective.
    let report = run(&BATCHES, (600.0, ""), "plan = \"plan.json\"");
    assert!(report.attainment > 0.995, "{}: {:?}", report.attainment, report.requests);
    assert!(share(&report, "large") > 0.35, "{:?}", report.families);
    let bursts =
        run(&BATCHES, (600.0, "arrivals = { process = \"gamma\", cv = 4.0 }"), "plan = \"plan.json\"");
    assert!(bursts.attainment > 0.99, "{}: {:?}", bursts.attainment, bursts.requests);
}

#[test]
fn a_policy_for_variants_keeps_the_mean_quality_on_the_devices_that_it_needs() {
    for policy in ["tessera", "proteus"] {
        let of = |family: &str| {
            let report = run(&ROWS, (150.0, family), &format!("variants = \"{policy}\""));
            let devices = report.partition.as_ref().map_or(0.0, |figures| figures.devices_mean);
            (report.families[0].quality, report.attainment, devices)
        };
        // Requests get better variants than planned while there is time, so only devices show what was planned.
        let (_, attainment, devices) = of("");
        assert!(attainment > 0.97 && devices < 1.3, "{policy}: {attainment}, {devices}");
        let (quality, attainment, devices) = of("quality_mean = 0.97");
        assert!(
            quality > 0.965 && attainment > 0.97 && devices > 1.5,
            "{policy}: {quality}, {attainment}, {devices}"
        );
    }
}

#[test]
fn published_policies_serve_a_family_with_the_variant_that_its_user_picked() {
    for policy in ["infaas", "mark", "proportional", "iris"] {
        let report = run(
            &ROWS,
            (150.0, "quality_mean = 0.9"),
            &format!("variants = \"{policy}\"\nscaling = \"attainment\""),
        );
        assert!(report.attainment > 0.97, "{policy}: {}, {:?}", report.attainment, report.partition);
        assert!(share(&report, "small") > 0.9, "{policy}: {:?}", report.families);
    }
}

#[test]
fn an_unknown_policy_for_variants_is_refused() {
    let error = |partition: &str| {
        let parsed = try_parse(&ROWS, (150.0, ""), partition).unwrap_or_else(|error| panic!("{error}"));
        Simulation::new(&parsed, &Setup::default()).unwrap_err().to_string()
    };
    let found = error("variants = \"best\"");
    assert!(found.contains("partition.variants: expected one of tessera, infaas, "), "{found}");
    assert!(found.ends_with("got `best`"), "{found}");
}
