use super::*;
use crate::commands::Command;
use crate::testing::Cli;
use clap::Parser as _;
use serde_json::Value;

pub(super) const SMALL: &str = r#"
name = "small"
about = "two models, a moment"
seed = 5
duration = "3s"
warmup = "1s"
[lanes]
count = 2
[models.resnet]
count = 2
slo = "25ms"
profile = { alpha = "1.053ms", beta = "5.072ms", max_batch = 16 }
rate = 200.0
"#;

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("small.toml"), text).unwrap();
        Self { folder }
    }

    fn arguments(&self, flags: &[&str]) -> SimulateArgs {
        let file = self.folder.path().join("small.toml").display().to_string();
        let words = [&["tessera", "simulate", &file, "--threads", "1"], flags].concat();
        match Cli::try_parse_from(words).unwrap().command {
            Some(Command::Simulate(arguments)) => arguments,
            other => panic!("expected simulate, got {other:?}"),
        }
    }

    fn study(&self, flags: &[&str]) -> anyhow::Result<Study> {
        study(&self.arguments(flags), false)
    }

    fn json(&self, flags: &[&str]) -> Value {
        serde_json::from_str(&report::json(&self.study(flags).unwrap()).unwrap()).unwrap()
    }
}

#[test]
fn mistakes_are_named_with_their_place() {
    let bench = Bench::new(SMALL);
    for (flags, said) in [
        (&["--policy", "deadlin"][..], "--policy: unknown policy `deadlin`, expected one of deadline, "),
        (
            &["--policy", "deadline:max_delay=1ms"],
            "--policy: max_delay: policy `deadline` has no use for it, remove it",
        ),
        (&["--rate-scale", "0"], "--rate-scale: expected a factor above 0, got 0"),
        (&["--rate-scale", "-1"], "--rate-scale: expected a factor above 0, got -1"),
        (&["--lanes", "0"], "--lanes: expected 1 to 65536, got 0"),
    ] {
        let error = bench.study(flags).unwrap_err().to_string();
        assert!(error.starts_with(said), "{flags:?}: {error}");
    }
    for (from, to, said) in [
        (
            "25ms",
            "6ms",
            "small.toml:11: models.resnet.slo: 6ms cannot be met: a request of 1 row(s) alone takes 6.125ms",
        ),
        ("rate = 200.0", "rate = 0.0", "small.toml:13: models.resnet.rate: "),
        ("[lanes]", "[lane]", "small.toml:7: "),
        ("seed = 5", "seed = ", "small.toml:4"),
    ] {
        let error = Bench::new(&SMALL.replace(from, to)).study(&[]).unwrap_err().to_string();
        assert!(error.contains(said), "{to}: {error}");
    }
    let mut missing = bench.arguments(&[]);
    missing.workload = bench.folder.path().join("missing.toml");
    assert!(format!("{:#}", study(&missing, false).unwrap_err()).contains("missing.toml`: No such file"));
}

#[test]
fn wrong_usage_is_refused_before_anything_runs() {
    for flags in [
        &["--seeds", "0"][..],
        &["--threads", "0"],
        &["--max-events", "0"],
        &["--rate-scale", "much"],
        &["--compare", "--policy", "triton"],
        &["--polcy", "triton"],
    ] {
        let words = [&["tessera", "simulate", "w.toml"], flags].concat();
        assert!(Cli::try_parse_from(words).is_err(), "{flags:?}");
    }
    assert!(Cli::try_parse_from(["tessera", "simulate"]).is_err(), "a workload is required");
}

#[test]
fn the_answer_has_its_shape_and_adds_up() {
    let answer = Bench::new(SMALL).json(&[
        "--policy",
        "deadline",
        "--policy",
        "triton:max_delay=2ms,preferred=4",
        "--seeds",
        "3",
    ]);
    assert_eq!(
        (&answer["workload"], &answer["lanes"], &answer["models"]),
        (&"small".into(), &2.into(), &2.into())
    );
    assert_eq!(answer["seeds"], serde_json::json!([5, 6, 7]));
    assert!(answer["bound"]["goodput"].as_f64().unwrap() > 300.0);
    let policies = answer["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 2);
    let goodput = |policy: &Value| policy["goodput"]["mean"].as_f64().unwrap();
    assert!(goodput(&policies[0]) >= goodput(&policies[1]), "best first");
    for policy in policies {
        assert!(policy["goodput"]["margin"].as_f64().is_some() && policy["capacity"].is_null());
        assert_eq!(policy["seeds"].as_array().unwrap().len(), 3);
        let requests = &policy["report"]["requests"];
        let count = |key: &str| requests[key].as_u64().unwrap();
        let refused: u64 =
            requests["refused"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        let ends = count("good")
            + count("late")
            + count("expired")
            + count("failed")
            + count("unfinished")
            + refused;
        assert_eq!(count("offered"), ends, "{requests}");
        assert_eq!(policy["report"]["hash"], policy["seeds"][0]["hash"]);
        assert_ne!(policy["seeds"][0]["hash"], policy["seeds"][1]["hash"]);
    }
}

#[test]
fn the_table_has_a_line_for_each_policy_and_the_bound_below() {
    let bench = Bench::new(SMALL);
    let text = report::text(
        &bench
            .study(&["--policy", "deadline", "--policy", "triton", "--rate-scale", "3", "--find-capacity"])
            .unwrap(),
    );
    assert!(text.starts_with("small: 2 models on 2 lanes, SLO 25 ms, 3 s, seed 5\n"), "{text}");
    for word in ["goodput/s", "p99.9 ms", "capacity/s", "not in time", "no policy can answer more than "] {
        assert!(text.contains(word), "{word} in {text}");
    }
    for policy in ["deadline", "triton"] {
        assert!(text.lines().any(|line| line.starts_with(policy)), "{policy} in {text}");
    }
}

#[test]
fn standings_tie_unless_every_seed_says_otherwise() {
    let flags = ["--policy", "deadline", "--policy", "nanily", "--rate-scale", "3", "--seeds", "3"];
    let study = Bench::new(SMALL).study(&flags).unwrap();
    let [best, last] = study.standings.as_slice() else { panic!("expected two") };
    assert!(best.ties(best) && !best.ties(last) && !last.ties(best));
    assert!(study.standings.iter().all(|standing| standing.goodput.mean <= study.bound.goodput));
    let offered = study.bound.offered_rate;
    assert!(study.standings.iter().all(|standing| (standing.offered - offered).abs() < 1e-6 * offered));
}

#[test]
fn a_run_stopped_at_its_limit_says_where() {
    let study = Bench::new(SMALL).study(&["--max-events", "300"]).unwrap();
    let text = report::text(&study);
    assert!(text.contains("note: deadline: stopped at its bound of 300 events, after 0."), "{text}");
}

#[test]
fn the_same_command_gives_the_same_bytes_whatever_the_threads() {
    let bench = Bench::new(SMALL);
    let page = |threads: &str| {
        let path = bench.folder.path().join(format!("{threads}.html"));
        let mut arguments = bench.arguments(&[
            "--policy",
            "deadline",
            "--policy",
            "triton",
            "--seeds",
            "2",
            "--find-capacity",
        ]);
        arguments.threads = Some(threads.parse().unwrap());
        arguments.report = Some(path.clone());
        let study = study(&arguments, false).unwrap();
        write_report(&study, &command(&arguments), &path).unwrap();
        (std::fs::read_to_string(path).unwrap(), report::json(&study).unwrap(), report::text(&study))
    };
    let alone = page("1");
    assert_eq!(alone, page("3"));
    assert!(
        alone.0.contains("Attainment against offered rate")
            && alone.0.contains("--find-capacity --report report.html")
    );
    assert!(!alone.0.contains("href=") && !alone.0.contains("<script"));
}

#[test]
fn every_invariant_holds_under_every_policy() {
    let study =
        Bench::new(&SMALL.replace("rate = 200.0", "rate = 400.0")).study(&["--compare", "--check"]).unwrap();
    assert!(study.standings.len() >= router_core::batch::Policy::ALL.len());
}

#[test]
fn a_command_is_quoted_for_a_shell() {
    let arguments = Bench::new(SMALL).arguments(&[
        "--policy",
        "triton:preferred=4|8",
        "--rate-scale",
        "1.5",
        "--lanes",
        "3",
    ]);
    assert!(
        command(&arguments)
            .ends_with(" --policy 'triton:preferred=4|8' --rate-scale 1.5 --lanes 3 --report report.html")
    );
}

/// Two devices, two models, one of which gets more for a while.
const PARTITIONED: &str = r#"
name = "partitioned"
seed = 3
duration = "40s"
warmup = "5s"
[devices.toy]
count = 2
memory = "1GiB"
[partition]
profiles = ["toy.jsonl"]
[models.light]
slo = "60ms"
rate = 40.0
[models.heavy]
slo = "120ms"
rate = 20.0
arrivals = { process = "flash", at = "15s", lasts = "10s", factor = 4.0 }
"#;

/// Both models on two units, twice as fast as on one.
fn toy_profiles() -> String {
    let mut text = String::new();
    for (model, row) in [("light", 1.0), ("heavy", 4.0)] {
        text += &format!(
            "{{\"profile\":{{\"version\":1,\"model\":\"{model}\",\"device\":\"toy\",\"engine\":\"none\",\"source\":\"typed_in\",\"units_total\":2}}}}\n"
        );
        for (batch, units) in [(1, 1), (8, 1), (1, 2), (8, 2)] {
            let us = 1e3 * (2.0 + row * f64::from(batch)) * 2.0 / f64::from(units);
            text += &format!(
                "{{\"cell\":{{\"batch\":{batch},\"units\":{units},\"p50_us\":{us},\"p95_us\":{us},\"p99_us\":{us},\"count\":9}}}}\n"
            );
        }
    }
    text
}

fn partitioned(text: &str) -> Bench {
    let bench = Bench::new(text);
    std::fs::write(bench.folder.path().join("toy.jsonl"), toy_profiles()).unwrap();
    bench
}

#[test]
fn devices_are_repartitioned_as_the_load_changes() {
    let bench = partitioned(PARTITIONED);
    let study = bench.study(&["--check"]).unwrap();
    let text = report::text(&study);
    assert!(
        text.starts_with(
            "partitioned: 2 models on up to 2 toy, repartitioned as the load changes, SLO 60 to 120 ms"
        ),
        "{text}"
    );
    for said in
        ["device hours", "tessera", "attainment", "of 2 ", "devices used by deadline: ", "note: co-located"]
    {
        assert!(text.contains(said), "{said}\n{text}");
    }
    let json = bench.json(&[]);
    let partition = &json["policies"][0]["report"]["partition"];
    assert_eq!(partition["devices"], 2);
    assert!(partition["device_seconds"].as_f64().unwrap() > 30.0, "{partition}");
    assert!(!partition["gpulets"].as_array().unwrap().is_empty());
    let page = bench.folder.path().join("page.html");
    write_report(&study, "tessera simulate partitioned.toml", &page).unwrap();
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains("Devices and their gpulets") && page.contains("2 devices partitioned into gpulets")
    );
}

#[test]
fn placements_and_scalers_stand_side_by_side() {
    let bench = partitioned(PARTITIONED);
    let study =
        bench.study(&["--scaling", "attainment", "--scaling", "static", "--placement", "temporal"]).unwrap();
    let mut labels: Vec<&str> = study.standings.iter().map(|standing| standing.label.as_str()).collect();
    labels.sort_unstable();
    assert_eq!(labels, ["temporal, attainment", "temporal, static"]);
    let text = report::text(&study);
    assert!(text.contains("static") && !text.contains("devices used by"), "{text}");
    assert!(study.bound.attainment > 0.999, "{:?}", study.bound);
}

#[test]
fn mistakes_in_devices_are_named_with_their_place() {
    for (from, to, said) in [
        ("slo = \"60ms\"", "slo = \"2ms\"", "small.toml:12: models.light.slo: cannot be met"),
        (
            "[partition]",
            "[partition]\npolicy = \"best\"",
            "small.toml:10: partition.policy: expected one of ",
        ),
        ("[models.light]", "[models.lite]", "small.toml:11: models.lite.model: no profile of `lite` on toy"),
    ] {
        let error = partitioned(&PARTITIONED.replace(from, to)).study(&[]).unwrap_err().to_string();
        assert!(error.contains(said), "{to}: {error}");
    }
    let bench = partitioned(PARTITIONED);
    std::fs::write(bench.folder.path().join("toy.jsonl"), "{}\n").unwrap();
    let error = bench.study(&[]).unwrap_err().to_string();
    assert!(error.starts_with("toy.jsonl:1: "), "{error}");
    for (flags, said) in [
        (&["--scaling", "up"][..], "--scaling: expected one of attainment, "),
        (&["--placement", "best"], "--placement: expected one of tessera, "),
        (&["--lanes", "3"], "--lanes: the lanes of a workload with [partition]"),
    ] {
        let error = partitioned(PARTITIONED).study(flags).unwrap_err().to_string();
        assert!(error.starts_with(said), "{flags:?}: {error}");
    }
    let error = Bench::new(SMALL).study(&["--scaling", "static"]).unwrap_err().to_string();
    assert!(error.starts_with("--scaling: expected a workload with [devices]"), "{error}");
}

#[test]
fn a_fleet_is_compared_with_one_machine_and_flags_without_use_are_refused() {
    let text = SMALL.replace("[models.resnet]", "[fleet]\nnodes = 2\n\n[models.resnet]");
    let bench = Bench::new(&text);
    let run = |flags: &[&str]| run(&bench.arguments(flags), &Environment::default());
    assert!(run(&["--compare", "--json"]).is_ok());
    for (flags, said) in [
        (&["--find-capacity"][..], "--find-capacity: not available for a workload with [fleet]"),
        (&["--seeds", "3"], "--seeds: not available"),
        (&["--policy", "symphony"], "--policy: not available"),
    ] {
        let error = run(flags).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
    }
}
