//! Devices with interference between gpulets, and a control loop that has to learn it.

use sim::report::PartitionFigures;
use sim::{Report, Setup, SimError, Simulation};
use workload::Workload;

use crate::support::checked;

/// Devices of four units, as in `partition.rs`; the models use the memory more or less.
fn profiles() -> String {
    let mut text = String::new();
    for (model, fixed, row, bandwidth) in
        [("vision", 3.0, 1.0, 0.9), ("speech", 6.0, 1.5, 0.5), ("text", 1.5, 0.5, 0.1)]
    {
        text += &format!(
            "{{\"profile\":{{\"version\":1,\"model\":\"{model}\",\"device\":\"toy\",\"engine\":\"none\",\"source\":\"typed_in\",\"units_total\":4,\"weights_bytes\":1000000000}}}}\n"
        );
        for batch in [1, 2, 4, 8, 16] {
            for units in [1, 2, 3, 4] {
                // Three units are as good as four: more than that a model cannot use.
                let p50 = 1e3 * (fixed + row * f64::from(batch)) * 3.0 / f64::from(units.min(3));
                let (p95, p99) = (1.02 * p50, 1.05 * p50);
                text += &format!(
                    "{{\"cell\":{{\"batch\":{batch},\"units\":{units},\"p50_us\":{p50},\"p95_us\":{p95},\"p99_us\":{p99},\"count\":100}}}}\n"
                );
            }
        }
        text +=
            &format!("{{\"utilisation\":{{\"batch\":1,\"cache\":{bandwidth},\"bandwidth\":{bandwidth}}}}}\n");
    }
    text
}

fn parse(text: &str) -> Result<Workload, workload::WorkloadError> {
    let mut files = |name: &str| match name {
        "toy.jsonl" => Ok(profiles()),
        _ => Err(format!("no file {name}")),
    };
    Workload::parse(text, &mut files)
}

/// Three models at steady rates on three devices that two gpulets share at most, for four minutes of which the last two count.
fn steady(devices: &str, believed: &str, noise: &str) -> Workload {
    let text = format!(
        r#"
        name = "contention"
        seed = 11
        duration = "240s"
        warmup = "120s"
        [devices.toy]
        count = 3
        memory = "16GiB"
        gpulets_max = 2
        {devices}
        [partition]
        profiles = "toy.jsonl"
        interference = "{believed}"
        [lanes.noise]
        {noise}
        [models.vision]
        slo = "25ms"
        rate = 300.0
        [models.speech]
        slo = "40ms"
        rate = 150.0
        [models.text]
        slo = "15ms"
        rate = 400.0
        "#
    );
    parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn try_run(workload: &Workload, setup: &Setup) -> Result<Report, SimError> {
    Simulation::new(workload, setup)?.run(&mut |_| {})
}

fn run(workload: &Workload) -> (Report, PartitionFigures) {
    let report = try_run(workload, &checked("deadline")).unwrap_or_else(|error| panic!("{error}"));
    let figures = report.partition.clone().unwrap();
    println!(
        "{:.4} in time, {:.2} devices, {} tables, {:?}",
        report.attainment, figures.devices_mean, figures.changes, figures.interference
    );
    (report, figures)
}

/// A co-located batch costs a fifth, and up to 60 % more the more it uses the memory.
const COSTLY: &str = "interference = { model = \"gpulet\", coefficients = [0.0, 0.6, 0.0, 0.0, 1.2] }";

#[test]
fn learned_interference_predicts_latency_and_keeps_objectives_that_plans_without_it_miss() {
    let (ignorant, told) = run(&steady(COSTLY, "none", ""));
    let (report, figures) = run(&steady(COSTLY, "learned", ""));
    let [known] = figures.interference.as_slice() else { panic!("{figures:?}") };
    assert!(known.used_by_plans && known.error.unwrap().mean_pct < 5.0, "{known:?}");
    assert!(known.error_uncorrected.unwrap().mean_pct > 15.0, "{known:?}");
    // What it costs is known where nothing is done about it too.
    let unheeded = &told.interference.first().unwrap();
    assert!(!unheeded.used_by_plans && unheeded.observations > 200, "{unheeded:?}");
    assert!(unheeded.error.unwrap().mean_pct < 5.0, "{unheeded:?}");
    assert!(report.attainment >= 0.99, "{}", report.attainment);
    assert!(ignorant.attainment < 0.95, "{}", ignorant.attainment);
    assert!(figures.changes < 12, "{} tables in four minutes", figures.changes);
}

#[test]
fn without_interference_plans_that_use_what_was_learned_cost_nothing() {
    let (learned, ignorant) = (run(&steady("", "learned", "")), run(&steady("", "none", "")));
    assert_eq!(learned.0.hash, ignorant.0.hash);
    // The controller takes lanes slower than their profiles for lanes under contention, which errs on the safe side.
    let noise = "cv = 0.2\nspread = 0.1";
    let (learned, ignorant) = (run(&steady("", "learned", noise)), run(&steady("", "none", noise)));
    assert!(learned.0.attainment >= ignorant.0.attainment.min(0.99));
}

#[test]
fn the_same_seed_gives_the_same_bytes_under_contention() {
    let workload = steady(COSTLY, "learned", "cv = 0.05").lasting(60_000_000_000).unwrap();
    let once = try_run(&workload, &Setup::default()).unwrap();
    assert_eq!(once, try_run(&workload, &Setup::default()).unwrap());
    let without = steady("", "learned", "cv = 0.05").lasting(60_000_000_000).unwrap();
    assert_ne!(once.hash, try_run(&without, &Setup::default()).unwrap().hash);
}

#[test]
fn mistakes_are_named_by_their_key() {
    let good = "name = \"x\"\nduration = \"10s\"\n[devices.toy]\nmemory = \"16GiB\"\ninterference = \"none\"\n[partition]\nprofiles = \"toy.jsonl\"\n[models.vision]\nslo = \"50ms\"\nrate = 10.0\n";
    let told = |text: &str| match parse(text).map(|workload| try_run(&workload, &Setup::default())) {
        Err(error) => error.to_string(),
        Ok(Err(error)) => error.to_string(),
        Ok(Ok(_)) => "nothing".to_owned(),
    };
    assert_eq!(told(good), "nothing");
    for (from, to, said) in [
        (
            "\"none\"",
            "\"gpulett\"",
            "devices.toy.interference: unknown model `gpulett`, did you mean `gpulet`?",
        ),
        (
            "\"none\"",
            "\"learned\"",
            "devices.toy.interference: unknown model `learned`, expected one of none, ",
        ),
        ("\"none\"", "3", "devices.toy.interference: expected a word like \"none\", or a table with `model`"),
        (
            "\"none\"",
            "\"igniter\"",
            "devices.toy.interference: model `igniter` needs a coefficients line of `vision`",
        ),
        (
            "\"none\"",
            "{ model = \"gpulet\", coefficients = [1.0] }",
            "devices.toy.interference.coefficients: model `gpulet` needs 5 numbers",
        ),
        (
            "[partition]",
            "[partition]\ninterference = \"gpulet\"",
            "partition.interference: expected `learned` or `none`, got `gpulet`",
        ),
    ] {
        let told = told(&good.replace(from, to));
        assert!(told.contains(said), "{to}: {told}\nexpected {said}");
    }
}
