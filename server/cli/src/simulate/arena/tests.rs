use super::*;
use crate::simulate::tests::SMALL;

fn arena(folder: &Path, threads: u16) -> anyhow::Result<(String, String)> {
    let out = folder.join("docs").join(format!("arena{threads}.md"));
    let arguments = ArenaArgs {
        workloads: folder.to_owned(),
        out: Some(out.clone()),
        random: None,
        seed: 0,
        json: false,
        seeds: 2,
        threads: Some(threads),
    };
    run(&arguments, &Environment::default())?;
    let plot = out.with_extension("").join("small.svg");
    Ok((fs::read_to_string(&out)?, fs::read_to_string(plot)?))
}

#[test]
fn the_page_has_every_policy_and_is_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("small.toml"), SMALL).unwrap();
    fs::write(folder.path().join("notes.txt"), "no workload").unwrap();
    let (page, plot) = arena(folder.path(), 1).unwrap();
    for (name, _) in router_core::batch::Policy::ALL {
        assert!(page.contains(&format!("| `{name}` | ")), "{name} in {page}");
        assert!(plot.contains(name), "{name} in the plot");
    }
    for part in [
        "arena --seeds 2",
        "## small",
        "Two models, a moment.",
        "| capacity/s | burst at 90 % of ours |",
        "Ranking: ",
        "(arena1/small.svg)",
        "No policy can answer more than ",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let (again, plot_again) = arena(folder.path(), 3).unwrap();
    assert_eq!((page.replace("arena1", "arena3"), plot), (again, plot_again));
}

#[test]
fn bursts_and_capacities_are_for_traffic_that_is_the_same_at_all_times() {
    let parse = |text: &str| reading::parse(text, Path::new("small.toml")).unwrap();
    let diurnal = format!("{SMALL}arrivals = {{ process = \"diurnal\", period = \"1s\", low = 0.5 }}\n");
    let gamma = format!("{SMALL}arrivals = {{ process = \"gamma\", cv = 2.0 }}\n");
    for (text, stationary, bursts) in [(SMALL, true, true), (&diurnal, false, false), (&gamma, true, false)] {
        let file = reading::WorkloadFile { text: text.to_owned(), workload: parse(text) };
        assert_eq!(is_stationary(&file.workload), stationary);
        let burst = burst::workload(&file, Path::new("small.toml")).unwrap();
        assert_eq!(burst.is_some(), bursts);
        if let Some(burst) = burst {
            assert_eq!((burst.models[1].process(), burst.models[1].mean_rate()), ("flash", 200.0));
        }
    }
}

#[test]
fn a_folder_without_workloads_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = arena(folder.path(), 1).unwrap_err().to_string();
    assert!(error.contains("has no workload: expected files that end in .toml"), "{error}");
    fs::write(folder.path().join("other.toml"), SMALL).unwrap();
    let error = arena(folder.path(), 1).unwrap_err().to_string();
    assert!(error.ends_with("other.toml: name: expected `other` like the file, got `small`"), "{error}");
    let error = format!("{:#}", arena(&folder.path().join("missing"), 1).unwrap_err());
    assert!(error.starts_with("--workloads: cannot read "), "{error}");
}

/// The workloads that are checked in.
fn standard() -> Vec<PathBuf> {
    workloads(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../loadtest/arena")).unwrap()
}

#[test]
fn the_standard_workloads_are_sound_and_near_what_lanes_can_do() {
    let files = standard();
    assert_eq!(files.len(), 9, "{files:?}");
    for path in files {
        let workload = reading::read(&path).unwrap().workload;
        assert_eq!(workload.name, stem(&path));
        assert!((1.0..=600.0).contains(&(workload.warmup as f64 / 1e9)), "{}", workload.name);
        let bound = sim::bound(&workload).unwrap();
        assert!(bound.attainment > 0.95, "{}: no policy can do well: {bound:?}", workload.name);
    }
}

#[test]
fn the_checked_in_page_is_about_these_workloads_and_policies() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/arena.md");
    let text = fs::read_to_string(&page).unwrap();
    let again = "run `tessera arena` again";
    for path in standard() {
        let name = stem(&path);
        assert!(text.contains(&format!("\n## {name}\n")), "{name} is missing: {again}");
        assert!(
            page.with_extension("").join(format!("{name}.svg")).exists(),
            "{name}.svg is missing: {again}"
        );
    }
    for (name, summary) in router_core::batch::Policy::ALL {
        assert!(text.contains(&format!("| `{name}` | {summary} |")), "{name} has changed: {again}");
    }
}
