//! Checks of the architecture: which crate may use which, and how long files may be.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// All allowed dependencies between our crates (ARCHITECTURE.md).
const ALLOWED: &[(&str, &[&str])] = &[
    ("oip", &[]),
    ("invariant", &[]),
    ("router-core", &["invariant"]),
    ("gpulet-core", &["invariant"]),
    ("lane-plan", &["gpulet-core", "router-core"]),
    ("version-rollout", &[]),
    ("fleet-core", &["gpulet-core", "invariant", "router-core"]),
    ("fleet-kubernetes", &["fleet-core", "gpulet-core", "invariant", "model-store"]),
    ("fleet-picker", &["fleet-core", "invariant", "router-core", "units"]),
    ("fleet-cli", &["fleet-core", "fleet-kubernetes", "fleet-picker", "gpulet-core", "invariant", "units"]),
    ("units", &[]),
    ("identity", &[]),
    ("telemetry", &[]),
    ("job-core", &["invariant"]),
    ("job-formats", &["oip"]),
    ("jobs", &["invariant", "job-core", "job-formats"]),
    ("model-store", &[]),
    ("device-sections", &["gpulet-core", "units"]),
    ("workload", &["device-sections", "units"]),
    ("charts", &[]),
    (
        "sim",
        &[
            "charts",
            "device-sections",
            "fleet-core",
            "gpulet-core",
            "invariant",
            "lane-plan",
            "router-core",
            "variant-plan",
            "version-rollout",
            "workload",
        ],
    ),
    ("colocation", &["invariant"]),
    ("model-parallel", &["invariant", "workload"]),
    ("variant-plan", &["gpulet-core"]),
    ("estimator", &[]),
    ("tuning", &["estimator"]),
    ("loadtest", &["charts", "oip", "sim", "workload"]),
    ("model-split", &[]),
    ("models", &["model-split", "oip", "units"]),
    ("gpulet", &["models", "oip"]),
    ("gpulet-cuda", &["gpulet", "models", "oip"]),
    ("cuda-standin", &[]),
    ("gpucheck", &["gpulet", "gpulet-core", "gpulet-cuda", "models", "oip", "workload"]),
    ("gpulet-worker", &["gpulet", "models", "oip"]),
    ("router", &["router-core", "gpulet", "invariant", "oip"]),
    (
        "node",
        &[
            "variant-plan",
            "version-rollout",
            "router",
            "router-core",
            "gpulet",
            "gpulet-core",
            "gpulet-cuda",
            "gpulet-worker",
            "device-sections",
            "identity",
            "telemetry",
            "lane-plan",
            "models",
            "model-store",
            "oip",
            "invariant",
            "units",
        ],
    ),
    (
        "cli",
        &[
            "charts",
            "colocation",
            "device-sections",
            "identity",
            "node",
            "router",
            "router-core",
            "gpulet",
            "gpulet-core",
            "gpulet-cuda",
            "model-parallel",
            "variant-plan",
            "estimator",
            "tuning",
            "model-split",
            "models",
            "job-formats",
            "jobs",
            "oip",
            "loadtest",
            "sim",
            "units",
            "version-rollout",
            "workload",
        ],
    ),
    (
        "server",
        &[
            "identity",
            "telemetry",
            "node",
            "cli",
            "router",
            "router-core",
            "gpulet",
            "job-formats",
            "jobs",
            "models",
            "oip",
            "sim",
            "units",
            "workload",
        ],
    ),
    ("e2e", &["oip", "router-core", "models", "gpulet", "router", "server"]),
];

/// Crates without I/O and the folders they live in.
const PURE: &[(&str, &str)] = &[
    ("oip", "models/oip"),
    ("router-core", "router/core"),
    ("gpulet-core", "gpulet/core"),
    ("lane-plan", "router/lanes"),
    ("version-rollout", "router/rollout"),
    ("fleet-core", "server/fleet/core"),
    ("job-core", "server/jobs/core"),
    ("model-split", "models/split"),
    ("units", "models/units"),
    ("device-sections", "gpulet/sections"),
    ("workload", "loadtest/workload"),
    ("colocation", "loadtest/colocation"),
    ("model-parallel", "gpulet/parallel"),
    ("variant-plan", "gpulet/variants"),
    ("estimator", "gpulet/estimator"),
    ("tuning", "gpulet/tuning"),
    ("charts", "server/charts"),
];
/// What these crates must not use: runtimes, sockets, files, clocks, ambient randomness. A generator with an explicit
/// seed is allowed.
const IMPURE: &[&str] = &[
    "tokio",
    "axum",
    "hyper",
    "tonic",
    "tower",
    "rustix",
    "libc",
    "nix",
    "tempfile",
    "getrandom",
    "crossbeam-channel",
    "parking_lot",
    "dashmap",
    "chrono",
    "time",
    "metrics",
    "tracing",
];

const LINES_MAX: usize = 800;

fn metadata() -> Metadata {
    MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Normal dependencies of each of our crates.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    let arrows = metadata.workspace_packages().into_iter().map(|package| {
        let uses = package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
        (package.name.to_string(), uses.map(|dependency| dependency.name.clone()).collect())
    });
    arrows.collect()
}

#[test]
fn only_the_allowed_arrows_exist() {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let arrows = arrows();
    for (package, uses) in &arrows {
        let may = allowed
            .get(package.as_str())
            .unwrap_or_else(|| panic!("crate `{package}` is not in the list of arrows"));
        for used in uses.iter().filter(|used| arrows.contains_key(*used)) {
            assert!(may.contains(&used.as_str()), "forbidden arrow: {package} uses {used}");
        }
    }
    assert_eq!(arrows.len(), ALLOWED.len(), "the list of arrows names a crate that does not exist");
}

/// Crates that a serving binary must not link.
const TOOLS: &[&str] = &[
    "cli",
    "colocation",
    "loadtest",
    "model-parallel",
    "estimator",
    "tuning",
    "sim",
    "workload",
    "fleet-kubernetes",
    "fleet-picker",
    "fleet-cli",
    "kube",
];

#[test]
fn serving_needs_no_tools() {
    let metadata = metadata();
    let required = |package: &str| -> Vec<String> {
        let found = metadata.workspace_packages().into_iter().find(|found| found.name == package);
        let dependencies = found.map(|found| found.dependencies.as_slice()).unwrap_or_default();
        let normal = dependencies.iter().filter(|used| used.kind == DependencyKind::Normal && !used.optional);
        normal.map(|used| used.name.clone()).collect()
    };
    let mut reached = BTreeSet::from(["server".to_owned()]);
    let mut open = vec!["server".to_owned()];
    while let Some(package) = open.pop() {
        open.extend(required(&package).into_iter().filter(|used| reached.insert(used.clone())));
    }
    assert!(reached.contains("node"));
    for tool in TOOLS {
        assert!(!reached.contains(*tool), "a server without the feature `tools` links {tool}");
    }
    let mut files = Vec::new();
    rust_files(&root().join("server/src"), &mut files);
    for file in files.iter().filter(|file| !file.ends_with("server/src/main.rs")) {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(!text.contains("cli::"), "{}: only main.rs may use the tools", file.display());
    }
}

#[test]
fn pure_crates_use_nothing_impure() {
    let arrows = arrows();
    for (package, folder) in PURE {
        for impure in IMPURE {
            assert!(!arrows[*package].contains(*impure), "pure crate {package} uses {impure}");
        }
        let folder = root().join(folder);
        let source = std::fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        assert!(source.contains("#![forbid(unsafe_code)]"), "{package} does not forbid unsafe code");
        let lints = std::fs::read_to_string(folder.join("clippy.toml")).unwrap();
        assert!(lints.contains("std::time::Instant::now"), "{package} does not ban the clock");
    }
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            rust_files(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

#[test]
fn files_stay_short_enough_to_read() {
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    let mut lengths: Vec<_> =
        files.iter().map(|path| (std::fs::read_to_string(path).unwrap().lines().count(), path)).collect();
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2].0;
    println!("{} files, median {median} lines; the longest:", lengths.len());
    for (lines, path) in lengths.iter().rev().take(10) {
        println!("{lines:5}  {}", path.strip_prefix(root()).unwrap().display());
    }
    let (longest, path) = lengths.last().unwrap();
    assert!(*longest <= LINES_MAX, "{} has {longest} lines, at most {LINES_MAX}", path.display());
    assert!(median <= 200, "the median file has {median} lines, at most 200");
}
