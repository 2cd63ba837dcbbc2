use std::fs;
use std::path::Path;

use clap::Parser as _;

use crate::commands::Command;
use crate::testing::Cli;

/// Two kernels of a forward pass and two of a training iteration of ResNet50, and two training jobs, from the published lists.
fn data(folder: &Path) {
    let lists = folder.join("model_kernels");
    fs::create_dir(&lists).unwrap();
    let header = "Name,Profile,Memory_footprint,SM_usage,Duration\n";
    let write = |name: &str, rows: &str| fs::write(lists.join(name), format!("{header}{rows}")).unwrap();
    write("resnet50_4_fwd.csv", "Conv,1,0,98,100480\nBatchNorm,0,0,64,40480\n");
    write("resnet50_32_fb1.csv", "Conv,1,0,52,368477\nBatchNorm,0,0,171,21887\n");
    let jobs = "workload,seconds,peak_memory_mb,iterations\ngooglenet_25_1min,73.123,756.1,1015\nvgg19_100_10min,618.245,12024.1,778\n";
    fs::write(folder.join("workloads.csv"), jobs).unwrap();
}

fn report(folder: &Path, line: &str) -> anyhow::Result<String> {
    let line = line.replace("DATA", folder.to_str().unwrap());
    let parsed = Cli::try_parse_from(["tessera", "colocate"].into_iter().chain(line.split(' ')))?;
    let Some(Command::Colocate(arguments)) = parsed.command else { panic!("expected colocate") };
    super::report(&arguments)
}

#[test]
fn every_comparison_lists_every_policy() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path());
    let kernels = report(
        folder.path(),
        "kernels --data DATA --online resnet50 --best-effort resnet50-training --duration 2s",
    )
    .unwrap();
    for word in ["alone", "orion", "reef", "reef-policy", "streams", "tgs", "muxflow"] {
        assert!(kernels.lines().any(|line| line.starts_with(&format!("{word} "))), "{word}:\n{kernels}");
    }
    let jobs = report(folder.path(), "jobs --data DATA/workloads.csv --seeds 2").unwrap();
    for word in ["fifo", "srtf", "fair", "pack"] {
        assert!(jobs.lines().any(|line| line.starts_with(word)), "{word}:\n{jobs}");
    }
    let cluster = report(folder.path(), "cluster --data DATA --gpus 2 --jobs 1 --duration 2s").unwrap();
    for word in ["muxflow", "in-order", "random", "oracle"] {
        assert!(cluster.lines().any(|line| line.starts_with(word)), "{word}:\n{cluster}");
    }
}

#[test]
fn json_has_every_run() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path());
    for line in [
        "kernels --data DATA --online resnet50 --best-effort resnet50-training --duration 2s --policy orion --seeds 2 --json",
        "jobs --data DATA/workloads.csv --policy srtf --seeds 2 --json",
        "cluster --data DATA --gpus 1 --jobs 1 --duration 2s --policy muxflow --seeds 2 --json",
    ] {
        let runs: serde_json::Value = serde_json::from_str(&report(folder.path(), line).unwrap()).unwrap();
        let seeds: Vec<_> =
            runs.as_array().unwrap().iter().map(|run| run["seed"].as_u64().unwrap()).collect();
        assert_eq!(seeds, [1, 2], "{line}");
    }
}

#[test]
fn mistakes_name_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path());
    for (line, problem) in [
        (
            "kernels --data DATA --online vgg --best-effort resnet50",
            "`--online`: expected one of resnet50-training, resnet50, got `vgg`",
        ),
        (
            "kernels --data DATA --online resnet50 --best-effort bert",
            "`--best-effort`: expected one of resnet50-training, resnet50, got `bert`",
        ),
        (
            "kernels --data DATA --online resnet50 --best-effort resnet50 --policy orian",
            "expected one of alone, orion, reef,",
        ),
        (
            "kernels --data DATA --online resnet50 --best-effort resnet50 --warm-up 60s",
            "`--warm-up`: expected less than `--duration`",
        ),
        (
            "jobs --data DATA/workloads.csv --policy lifo",
            "expected one of fifo, srtf, fair, pack, all, got `lifo`",
        ),
        ("cluster --data DATA --policy best", "expected one of muxflow, in-order, random, oracle, all"),
        ("jobs --data DATA/none.csv", "cannot read"),
    ] {
        let found = format!("{:#}", report(folder.path(), line).unwrap_err());
        assert!(found.contains(problem), "{line}: {found}");
    }
}
