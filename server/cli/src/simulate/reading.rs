//! Reads workload files and the traces and profiles that they name.

use std::path::Path;

use anyhow::Context as _;
use node::files::read_text;
use workload::{Lines, NODES_MAX, Workload, WorkloadError, random};

/// Largest workload file.
const WORKLOAD_BYTES: u64 = 16 << 20;
/// Largest trace or profile.
const TRACE_BYTES: u64 = 2 << 30;

/// Kinds of random workloads with a fleet.
const FLEET: &str = "fleet";
const UNEQUAL_FLEET: &str = "unequal-fleet";

/// Text of a workload, and the workload.
#[derive(Clone, Debug)]
pub struct WorkloadFile {
    pub text: String,
    pub workload: Workload,
}

/// Reads the workload file, or draws the random workload `random:SEED`, `fleet:NODES:SEED` or `unequal-fleet:NODES:SEED`.
pub fn read_or_draw(path: &Path) -> anyhow::Result<WorkloadFile> {
    let name = path.to_str().unwrap_or_default();
    let kinds = [FLEET, UNEQUAL_FLEET].into_iter();
    let mut named = kinds.filter_map(|kind| Some((kind, name.strip_prefix(kind)?.strip_prefix(':')?)));
    if let Some((kind, named)) = named.next() {
        let numbers =
            named.split_once(':').and_then(|(nodes, seed)| Some((nodes.parse().ok()?, seed.parse().ok()?)));
        let known =
            numbers.filter(|(nodes, seed)| (1..=NODES_MAX).contains(nodes) && *seed <= random::SEED_MAX);
        let (nodes, seed) = known.with_context(|| {
            format!("`{kind}:{named}`: expected 1 to {NODES_MAX} nodes and a seed, like `{kind}:100:1`")
        })?;
        let text = match kind {
            FLEET => random::fleet_document(seed, nodes),
            _ => random::unequal_fleet_document(seed, nodes),
        };
        let workload = parse(&text, path)?;
        return Ok(WorkloadFile { text, workload });
    }
    match path.to_str().and_then(|name| name.strip_prefix("random:")) {
        Some(seed) => {
            let known = seed.parse().ok().filter(|seed| *seed <= random::SEED_MAX);
            let most = random::SEED_MAX;
            let seed = known.with_context(|| format!("`random:{seed}`: expected a seed from 0 to {most}"))?;
            Ok(draw(seed)?)
        }
        None => read(path),
    }
}

/// The random workload of a seed.
pub fn draw(seed: u64) -> Result<WorkloadFile, WorkloadError> {
    let text = random::document(seed);
    let workload = parse(&text, Path::new(&format!("random:{seed}")))?;
    Ok(WorkloadFile { text, workload })
}

/// Reads a workload. Paths in it are relative to its folder.
pub fn read(path: &Path) -> anyhow::Result<WorkloadFile> {
    let text = read_text(path, WORKLOAD_BYTES)?;
    let workload = parse(&text, path)?;
    Ok(WorkloadFile { text, workload })
}

/// Parses the text of a workload as if it were in the file `path`.
pub fn parse(text: &str, path: &Path) -> Result<Workload, WorkloadError> {
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let mut files =
        |name: &str| read_text(&folder.join(name), TRACE_BYTES).map_err(|error| format!("{error:#}"));
    let shown = path.display().to_string();
    let workload = Workload::parse(text, &mut files).map_err(|error| error.named(&shown))?;
    // The parts that `gpulet-core` reads.
    match sim::check(&workload) {
        Err(sim::SimError::Workload(mut fault)) if fault.file.is_empty() => {
            fault.line = Lines::of(text).find(&fault.field);
            fault.file = shown;
            Err(fault)
        }
        Err(sim::SimError::Workload(fault)) => Err(fault),
        _ => Ok(workload),
    }
}

/// Changes from the command line.
pub fn adapt(
    mut workload: Workload,
    rate_scale: Option<f64>,
    lanes: Option<u32>,
) -> anyhow::Result<Workload> {
    if let Some(lanes) = lanes {
        let most = workload::LANES_MAX;
        anyhow::ensure!(
            workload.partition.is_none(),
            "--lanes: the lanes of a workload with [partition] are its gpulets: change `count` in [devices]"
        );
        anyhow::ensure!((1..=most).contains(&lanes), "--lanes: expected 1 to {most}, got {lanes}");
        if let Some(change) = workload.lanes.changes.iter().find(|change| change.lane >= lanes) {
            let lane = change.lane;
            anyhow::bail!(
                "--lanes: the workload has a failure of lane {lane}: expected more than {lane} lanes, got {lanes}"
            );
        }
        let of_models = workload.models.iter().filter_map(|model| Some((model, model.lanes.as_ref()?)));
        for (model, of_model) in of_models {
            if let Some(lane) = of_model.iter().find(|lane| **lane >= lanes) {
                let model = &model.group;
                anyhow::bail!(
                    "--lanes: models.{model}.lanes has lane {lane}: expected more than {lane} lanes, got {lanes}"
                );
            }
        }
        workload.lanes.count = lanes;
    }
    match rate_scale {
        Some(factor) => {
            workload.scaled(factor).map_err(|error| anyhow::anyhow!("--rate-scale: {}", error.problem))
        }
        None => Ok(workload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const ONE: &str = "name = \"w\"\nduration = \"1s\"\n[lanes]\ncount = 4\n[[lanes.failures]]\nlane = 2\nfrom = \"0.1s\"\n[models.m]\nslo = \"25ms\"\nrate = 10.0\nprofile = { file = \"profiles/m.csv\" }\n";

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("profiles")).unwrap();
        fs::write(folder.path().join("profiles/m.csv"), "batch,milliseconds\n1,6\n8,12\n").unwrap();
        fs::write(folder.path().join("one.toml"), ONE).unwrap();
        folder
    }

    #[test]
    fn files_are_relative_to_the_workload() {
        let folder = folder();
        let workload = read(&folder.path().join("one.toml")).unwrap().workload;
        assert_eq!(workload.models[0].profiled().unwrap().time(8), 12_000_000);
        assert_eq!(adapt(workload.clone(), Some(2.0), None).unwrap().models[0].mean_rate(), 20.0);
        for (factor, lanes, said) in [
            (Some(0.0), None, "--rate-scale: expected a factor above 0, got 0"),
            (Some(f64::NAN), None, "--rate-scale: expected a factor above 0, got NaN"),
            (None, Some(0), "--lanes: expected 1 to 65536, got 0"),
            (
                None,
                Some(2),
                "--lanes: the workload has a failure of lane 2: expected more than 2 lanes, got 2",
            ),
        ] {
            assert_eq!(adapt(workload.clone(), factor, lanes).unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn random_workloads_are_drawn_by_their_seed() {
        let drawn = read_or_draw(Path::new("random:37")).unwrap();
        assert_eq!((drawn.workload.name.as_str(), drawn.workload.seed), ("random-37", 37));
        for seed in ["", "x", "-1", "9223372036854775808"] {
            let error = read_or_draw(Path::new(&format!("random:{seed}"))).unwrap_err().to_string();
            assert_eq!(error, format!("`random:{seed}`: expected a seed from 0 to 9223372036854765807"));
        }
    }

    #[test]
    fn faults_name_the_file_the_line_and_the_key() {
        let folder = folder();
        let path = folder.path().join("one.toml");
        let shown = path.display();
        fs::write(&path, ONE.replace("25ms", "5ms")).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("{shown}:9: models.m.slo: 5ms cannot be met: a request of 1 row(s) alone takes 6ms")
        );
        fs::write(&path, ONE.replace("m.csv", "missing.csv")).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains(":11: models.m.profile.file: cannot read `profiles/missing.csv`"), "{error}");
        fs::write(folder.path().join("profiles/m.csv"), "batch,milliseconds\n1,6\n8,5\n").unwrap();
        fs::write(&path, ONE).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.starts_with("profiles/m.csv:3: "), "{error}");
        let error = format!("{:#}", read(&folder.path().join("missing.toml")).unwrap_err());
        assert!(error.contains("missing.toml`: No such file"), "{error}");
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("is not a file"), "{error}");
    }
}
