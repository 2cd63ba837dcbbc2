//! Pipelines in problem files.

use super::*;

const PIPELINE: &str = "\
profiles = \"profiles/*.jsonl\"
interference = \"none\"

[devices.cpu]
count = 4
memory = \"1GiB\"

[pipelines.both]
slo = \"210ms\"
rate = 10
stages = [{ model = \"light\", fan_out = 3 }, { model = \"heavy\", from = \"light\" }]
";

fn stages(answer: &Value) -> Vec<Value> {
    answer["pipelines"][0]["stages"].as_array().unwrap().clone()
}

#[test]
fn the_objective_is_divided_so_that_the_fewest_devices_are_needed() {
    let answer = Bench::new(PIPELINE).json(&[]);
    let pipeline = &answer["pipelines"][0];
    assert_eq!(pipeline["split"], "fewest_devices");
    let (planned, even) = (pipeline["devices"].as_f64().unwrap(), pipeline["devices_even"].as_f64().unwrap());
    let stages = stages(&answer);
    let share = |at: usize| stages[at]["share"].as_f64().unwrap();
    assert!(planned < even, "{planned} {even}");
    assert!((share(0) + share(1) - 1.0).abs() < 1e-9, "the whole objective is used");
    assert_eq!((&stages[0]["rows"], &stages[1]["rows"]), (&1.0.into(), &3.0.into()));
    let workloads = answer["workloads"].as_array().unwrap();
    assert_eq!((&workloads[1]["name"], &workloads[1]["rate"]), (&"both.heavy".into(), &30.0.into()));
    assert!((workloads[1]["slo_us"].as_f64().unwrap() - 2.1e5 * share(1)).abs() < 1e-3);
    assert_eq!(answer["policies"][0]["sound"], true);
    // No other split in steps of 1 % needs less.
    for percent in 1..100 {
        let split = format!(
            "split = {{ light = {}, heavy = {} }}",
            percent as f64 / 100.0,
            (100 - percent) as f64 / 100.0
        );
        let given = Bench::new(&format!("{PIPELINE}{split}\n")).json(&[]);
        let devices = given["pipelines"][0]["devices"].as_f64().unwrap_or(f64::INFINITY);
        assert!(devices >= planned - 1e-9, "{split}: {devices} {planned}");
    }
}

#[test]
fn the_explanation_has_the_split_to_copy() {
    let text = Bench::new(PIPELINE).answer(&["--explain"]);
    assert!(
        text.contains(
            "both: 10 requests per second within 210 ms, divided so that its stages need the fewest devices"
        ),
        "{text}"
    );
    let split = text.lines().find_map(|line| line.trim().strip_prefix("split = ")).unwrap();
    let copied = Bench::new(&format!("{PIPELINE}split = {split}\n"));
    let answer = copied.json(&[]);
    assert_eq!(answer["pipelines"][0]["split"], "given");
    assert_eq!(answer["policies"][0]["sound"], true, "the printed split is planned too");
}

#[test]
fn a_stage_without_work_is_planned_too() {
    let answer = Bench::new(&PIPELINE.replace("fan_out = 3", "fan_out = 0")).json(&[]);
    assert_eq!(
        (&answer["pipelines"][0]["split"], &answer["policies"][0]["sound"]),
        (&"fewest_devices".into(), &true.into())
    );
    assert!(stages(&answer)[1]["share"].as_f64().unwrap() > 0.0);
}

#[test]
fn an_objective_that_no_split_meets_is_said() {
    let bench = Bench::new(&PIPELINE.replace("210ms", "21ms"));
    let answer = bench.json(&[]);
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("pipelines.both.split: no split meets the objective"), "{warning}");
    assert_eq!(
        (&answer["pipelines"][0]["split"], &answer["pipelines"][0]["devices"]),
        (&"even".into(), &Value::Null)
    );
}

#[test]
fn errors_name_the_pipeline() {
    for (from, to, said) in [
        (
            "model = \"heavy\"",
            "model = \"heavi\"",
            "small.toml:11: pipelines.both.stages: `heavi`: no profile of this model, did you mean `heavy`?",
        ),
        ("rate = 10", "rate = -1", "small.toml:10: pipelines.both.rate: expected"),
        ("rate = 10", "rate = 10\nheadroom = 0.5", "small.toml:11: pipelines.both.headroom: expected"),
        ("210ms", "0ms", "small.toml:9: pipelines.both.slo: expected more than 0"),
        (
            "rate = 10",
            "rate = 10\nsplit = { light = 0.5 }",
            "pipelines.both.split: expected a share above 0 and at most 1 for stage `heavy`",
        ),
        ("rate = 10", "rate = 10\nrates = 1", "pipelines.both.rates: unknown"),
        (
            "from = \"light\"",
            "from = \"heavy\"",
            "`heavy`: from: `heavy`: expected the name of an earlier stage",
        ),
    ] {
        let mistake = Bench::new(&PIPELINE.replacen(from, to, 1)).mistake(&[]);
        assert!(mistake.contains(said), "{to}: {mistake}");
    }
}
