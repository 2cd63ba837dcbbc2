use std::fs;
use std::path::Path;

use clap::Parser as _;

use crate::commands::Command;
use crate::testing::Cli;

/// A profile of one and two stages, layers and requests.
fn data(folder: &Path) {
    let profile =
        "operator_parallel,pipeline_stages,batch,stage,latency_s\n1,1,1,0,0.1\n1,2,1,0,0.05\n1,2,1,1,0.055\n";
    fs::write(folder.join("profile.csv"), profile).unwrap();
    let layers = "name,latency_s,memory_bytes,output_bytes\na,0.01,100,8\nb,0.03,100,4\nc,0.02,100,0\n";
    fs::write(folder.join("layers.csv"), layers).unwrap();
    fs::write(folder.join("requests.csv"), "at_s,model\n0.0,0\n0.01,1\n0.5,0\n").unwrap();
}

fn report(folder: &Path, line: &str) -> anyhow::Result<String> {
    let line = line.replace("DATA", folder.to_str().unwrap());
    let parsed = Cli::try_parse_from(["tessera", "parallel"].into_iter().chain(line.split(' ')))?;
    let Some(Command::Parallel(arguments)) = parsed.command else { panic!("expected parallel") };
    super::report(&arguments)
}

const PLACE: &str =
    "place --profile DATA/profile.csv --weights 100B --models 2 --devices 2 --memory 100B --rate 8";

#[test]
fn every_search_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path());
    for (line, searches) in [
        (
            format!("{PLACE} --policy all"),
            &["alpaserve", "replication", "model-parallel", "optimum", "verdict:"][..],
        ),
        (
            "split --layers DATA/layers.csv --device 1:1KiB --device 2:1KiB".to_owned(),
            &["optimum", "ap2", "even"],
        ),
        (
            "layout --machine a6000x4 --machine a5000x2 --machine a4000x2 --duration 20s".to_owned(),
            &["optimum", "whole-machines", "symmetric", "hexgen", "best-groups"],
        ),
    ] {
        let found = report(folder.path(), &line).unwrap();
        for search in searches {
            assert!(found.lines().any(|line| line.starts_with(search)), "{search}:\n{found}");
        }
    }
}

#[test]
fn json_has_every_run() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path());
    let json = |line: &str| -> serde_json::Value {
        serde_json::from_str(&report(folder.path(), line).unwrap()).unwrap()
    };
    let placed = json(&format!("{PLACE} --seeds 2 --json"));
    assert_eq!(placed["runs"].as_array().unwrap().len(), 4, "{placed}");
    assert!(placed["runs"][0]["stage_clocks"]["attainment"].as_f64().unwrap() <= 1.0, "{placed}");
    assert!(placed["verdict"]["outcome"].is_string(), "{placed}");
    let split =
        json("split --layers DATA/layers.csv --device 1:1KiB --device 1:1KiB --policy optimum --json");
    assert_eq!(split[0]["stages"][0]["to"], 2, "{split}");
    let layout = json("layout --machine a6000x4 --policy symmetric --json");
    assert_eq!(layout.as_array().unwrap().len(), 3, "{layout}");
}

#[test]
fn given_requests_replace_random_ones() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path());
    let line = format!("{PLACE} --requests DATA/requests.csv --duration 1s --json --policy replication");
    let found: serde_json::Value = serde_json::from_str(&report(folder.path(), &line).unwrap()).unwrap();
    assert_eq!(found["runs"][0]["stage_clocks"]["requests"], 3, "{found}");
    assert_eq!(found["runs"][0]["stage_clocks"]["attainment"], 1.0, "{found}");
}

#[test]
fn mistakes_name_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path());
    for (line, problem) in [
        (
            format!("{PLACE} --policy alpaca"),
            "expected one of alpaserve, replication, model-parallel, optimum, all",
        ),
        (format!("{PLACE} --weights 1B"), "`--weights`: expected one for each of 1 profiles, got 2"),
        (format!("{PLACE} --cv 0"), "expected a number above 0"),
        (
            "place --profile DATA/layers.csv --weights 1B".to_owned(),
            "expected a table with the columns operator_parallel",
        ),
        ("place --profile DATA/none.csv --weights 1B".to_owned(), "cannot read"),
        (
            "split --layers DATA/layers.csv --device fast".to_owned(),
            "expected speed and memory, such as `1:16GiB`",
        ),
        (
            "split --layers DATA/layers.csv --device 1:150B --device 1:150B --policy optimum".to_owned(),
            "does not fit: expected every stage to fit the memory of its device",
        ),
        (
            "split --layers DATA/layers.csv --device 1:1KiB --stages 2".to_owned(),
            "`stages`: expected a number from 1 to 1, got 2",
        ),
        ("layout --machine h900x4".to_owned(), "expected one of a6000, a5000, a4000, v100, a100, got `h900`"),
        ("layout --machine a6000".to_owned(), "expected a type and a number of GPUs, such as `a6000x4`"),
    ] {
        let found = format!("{:#}", report(folder.path(), &line).unwrap_err());
        assert!(found.contains(problem), "{line}: {found}");
    }
}
