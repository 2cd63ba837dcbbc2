use node::config::Sources;

use super::*;
use crate::commands::Command;
use crate::testing::Cli;
use clap::Parser as _;
use gpulet_core::profile::{Line, Profile, Quantile, RowShape, Source as Origin};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// A repository with `steady`, which takes 300 us and 100 us a row, and `alone`, which has no batches; and a file.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.put("steady", &model(4, "alpha_us = 300\nbeta_us = 100"));
        place.put("alone", &model(0, "alpha_us = 400"));
        place
    }

    fn put(&self, name: &str, description: &str) {
        let folder = self.0.path().join("models").join(name).join("1");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("model.toml"), description).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("p.jsonl")
    }

    fn profiles(&self) -> Vec<Profile> {
        Profile::read(&fs::read_to_string(self.file()).unwrap()).unwrap()
    }

    /// Cells by model, batch and cores.
    fn cells(&self) -> BTreeMap<(String, u32, u32), Line> {
        let cells = self.profiles().into_iter().flat_map(|profile| {
            let model = profile.model().to_owned();
            profile.lines().into_iter().filter_map(move |line| match line {
                Line::Cell(ref cell) => Some(((model.clone(), cell.batch, cell.units), line)),
                _ => None,
            })
        });
        cells.collect()
    }

    fn arguments(&self, more: &[&str]) -> ProfileArgs {
        let (models, file) = (self.0.path().join("models"), self.file());
        let (models, file) = (models.to_str().unwrap(), file.to_str().unwrap());
        let time = if more.contains(&"--time") { &[][..] } else { &["--time", "5ms"][..] };
        let usual = ["tessera", "profile", "--repository", models, "--out", file, "--cores", "1"];
        parse(&[&usual[..], time, more].concat())
    }

    fn go(&self, more: &[&str]) -> anyhow::Result<Report> {
        self.go_until(more, &AtomicBool::new(false))
    }

    fn go_until(&self, more: &[&str], stop: &AtomicBool) -> anyhow::Result<Report> {
        go(&self.arguments(more), stop)
    }

    fn refusal(&self, more: &[&str]) -> String {
        format!("{:#}", self.go(more).unwrap_err())
    }
}

fn model(max_batch: u32, time: &str) -> String {
    let first = if max_batch > 0 { "-1" } else { "1" };
    let tensor = |name: &str| format!("[{{ name = \"{name}\", datatype = \"FP32\", dims = [{first}, 4] }}]");
    format!("max_batch = {max_batch}\ninputs = {}\noutputs = {}\n[time]\n{time}\n", tensor("x"), tensor("y"))
}

fn parse(words: &[&str]) -> ProfileArgs {
    let Some(Command::Profile(arguments)) = Cli::try_parse_from(words).unwrap().command else {
        panic!("expected profile");
    };
    *arguments
}

fn go(arguments: &ProfileArgs, stop: &AtomicBool) -> anyhow::Result<Report> {
    let sources = Sources { flags: arguments.config.assignments(), ..Sources::default() };
    profile(&Config::load(&sources).unwrap(), arguments, &Environment::default(), stop)
}

fn key(model: &str, batch: u32) -> (String, u32, u32) {
    (model.to_owned(), batch, 1)
}

#[test]
fn every_model_is_measured_and_the_planner_reads_it() {
    let place = Place::new();
    let answer = place.go(&[]).unwrap();
    assert!(!answer.interrupted && answer.failed.is_empty(), "{:?}", answer.failed);
    let keys: Vec<_> = place.cells().into_keys().collect();
    assert_eq!(keys, [key("alone", 1), key("steady", 1), key("steady", 2), key("steady", 4)]);
    let profiles = place.profiles();
    let steady = profiles.iter().find(|profile| profile.model() == "steady").unwrap();
    let header = steady.header();
    assert_eq!(
        (header.device.as_str(), header.engine.as_str(), header.source),
        ("cpu", "synthetic", Origin::Measured)
    );
    assert_eq!(header.model_sha256.as_ref().unwrap().len(), 64);
    assert!(header.note.contains("kernel ") && header.note.ends_with("version 1"), "{}", header.note);
    for (batch, least) in [(1, 400.0), (3, 600.0), (4, 700.0)] {
        let [p50, p95, p99] = [Quantile::P50, Quantile::P95, Quantile::P99]
            .map(|quantile| steady.latency_us(quantile, batch, 1).unwrap());
        assert!(least <= p50 && p50 <= p95 && p95 <= p99, "{batch}: {p50} {p95} {p99}");
    }
    assert!(answer.models.iter().flat_map(|model| &model.cells).all(|cell| cell.cell.count >= 1));
    let text = answer.text();
    for part in ["2 models on", "steady", "rows/s", "at best", "left out"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_profile_carries_its_shapes_and_is_not_continued_with_others() {
    let place = Place::new();
    place.put("wide", &model(4, "alpha_us = 100").replace(", 4]", ", -1, 3]"));
    let wide = ["--model", "wide", "--batches", "1"];
    place.go(&[&wide[..], &["--shape", "x=7x3"]].concat()).unwrap();
    let shapes = |place: &Place| place.profiles()[0].shapes().to_vec();
    let shape = |extents: &[u64], assumed| RowShape {
        inputs: [("x".to_owned(), extents.to_vec())].into(),
        share: None,
        assumed,
    };
    assert_eq!(shapes(&place), [shape(&[7, 3], false)]);
    for same in ["x=7x3", "x=1x7x3"] {
        let answer = place.go(&[&wide[..], &["--shape", same]].concat()).unwrap();
        assert!(answer.text().contains("shapes x=7x3"), "{}", answer.text());
    }
    for other in [&["--shape", "x=9x3"][..], &[]] {
        let said = place.refusal(&[&wide[..], other].concat());
        assert!(said.contains("shapes are `x=7x3`, now they are") && said.contains("--fresh"), "{said}");
    }
    let unknown = place.refusal(&[&wide[..], &["--shape", "y=9"]].concat());
    assert!(unknown.contains("--shape: no input `y`: expected one of x"), "{unknown}");
    place.go(&[&wide[..], &["--fresh"]].concat()).unwrap();
    assert_eq!(shapes(&place), [shape(&[32, 3], true)]);
    place.go(&wide).unwrap();
    let wrong = place.go(&[&wide[..], &["--shape", "x=7x4", "--fresh"]].concat()).unwrap();
    assert!(wrong.failed[0].reason.contains("--shape: input `x`: shape [7, 4]: expected [-1, 3] for a row"));
    assert_eq!(place.refusal(&["--shape", "x=7x3"]), "--shape: expected one --model, got 3");
}

#[test]
fn the_embedded_model_is_measured_without_a_repository() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.jsonl");
    let words = [
        "tessera",
        "profile",
        "--out",
        file.to_str().unwrap(),
        "--time",
        "5ms",
        "--cores",
        "1",
        "--batches",
        "1,4",
    ];
    let answer = go(&parse(&words), &AtomicBool::new(false)).unwrap();
    let [digits] = answer.models.as_slice() else { panic!("{answer:?}") };
    assert_eq!((digits.header.model.as_str(), digits.header.engine.as_str()), ("digits", "tract"));
    assert_eq!(digits.cells.len(), 2);
    assert_eq!(Profile::read(&fs::read_to_string(&file).unwrap()).unwrap()[0].shares(), (1, 1));
}

#[test]
fn a_resumed_run_has_the_cells_of_one_that_was_never_interrupted() {
    let place = Place::new();
    place.go(&[]).unwrap();
    let (whole, all) = (fs::read_to_string(place.file()).unwrap(), place.cells());
    for length in [0, whole.len() / 3, whole.len() / 2, whole.len() - 2, whole.len()] {
        fs::write(place.file(), &whole[..length]).unwrap();
        let answer = place.go(&[]).unwrap();
        let cells = place.cells();
        assert!(cells.keys().eq(all.keys()), "truncated at {length}");
        let kept = whole[..length]
            .lines()
            .filter(|line| line.starts_with("{\"cell\"") && line.ends_with("}}"))
            .count();
        let same = cells.iter().filter(|(key, line)| all.get(key) == Some(line)).count();
        assert!(same >= kept, "truncated at {length}: {kept} cells were there, {same} are the same");
        let measured =
            answer.models.iter().flat_map(|model| &model.cells).filter(|cell| cell.settled.is_some());
        assert_eq!(measured.count(), all.len() - kept, "truncated at {length}");
    }
}

#[test]
fn a_stopped_run_keeps_its_cells_and_goes_on() {
    let place = Place::new();
    let answer = place.go_until(&[], &AtomicBool::new(true)).unwrap();
    assert!(answer.interrupted && answer.models.is_empty() && answer.text().contains("goes on from here"));
    let (stop, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let answer = std::thread::scope(|scope| {
        scope.spawn(|| {
            let has_a_cell = || fs::read_to_string(place.file()).unwrap_or_default().contains("\"cell\"");
            while !has_a_cell() && !ended.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
        // A cell takes longer than it takes to see the one before, so the last is never reached.
        let answer = place.go_until(&["--time", "300ms"], &stop);
        ended.store(true, Ordering::Relaxed);
        answer
    });
    let answer = answer.unwrap();
    let before = place.cells();
    assert!(answer.interrupted && (1..4).contains(&before.len()), "{} cells", before.len());
    let answer = place.go(&[]).unwrap();
    let after = place.cells();
    assert!(!answer.interrupted && after.len() == 4);
    assert!(before.iter().all(|(key, line)| after.get(key) == Some(line)));
}

#[test]
fn a_profile_measured_under_other_conditions_is_not_continued() {
    let place = Place::new();
    place.go(&["--model", "steady", "--batches", "1"]).unwrap();
    let before = fs::read_to_string(place.file()).unwrap();
    place.put("steady", &model(4, "alpha_us = 301\nbeta_us = 100"));
    let said = place.refusal(&[]);
    assert!(
        said.contains("p.jsonl`: model `steady`")
            && said.contains("model_sha256 is")
            && said.contains("--fresh"),
        "{said}"
    );
    for (from, to, says) in [
        ("\"units_total\":", "\"units_total\":9", "units_total is"),
        ("; synthetic of", "; synthetic 7 of", "note is"),
        ("\"source\":\"measured\"", "\"source\":\"typed_in\"", "source is `typed_in`"),
    ] {
        fs::write(place.file(), before.replace(from, to)).unwrap();
        assert!(place.refusal(&[]).contains(says), "{says}");
    }
    place.put("other", &model(0, "alpha_us = 200"));
    fs::write(place.file(), &before).unwrap();
    place.go(&["--model", "other"]).unwrap();
    place.go(&["--model", "steady", "--fresh", "--batches", "2"]).unwrap();
    let keys: Vec<_> = place.cells().into_keys().collect();
    assert_eq!(keys, [key("other", 1), key("steady", 2)]);
}

#[test]
fn an_engine_that_changed_is_seen_once_the_model_is_loaded() {
    let place = Place::new();
    place.go(&["--model", "steady", "--batches", "1"]).unwrap();
    let other = fs::read_to_string(place.file()).unwrap().replace("synthetic", "tract");
    fs::write(place.file(), &other).unwrap();
    let answer = place.go(&["--model", "steady"]).unwrap();
    let [failure] = answer.failed.as_slice() else { panic!("{answer:?}") };
    assert!(failure.reason.contains("engine is `tract`, now it is `synthetic`"), "{}", failure.reason);
    assert_eq!(fs::read_to_string(place.file()).unwrap(), other);
    let said = place.refusal(&["--model", "steady", "--engine", "synthetic"]);
    assert!(said.contains("engine is `tract`, now it is `synthetic`"), "{said}");
}

#[test]
fn mistakes_are_named_before_anything_is_measured() {
    let place = Place::new();
    let there = gpulet::allowed_cores().unwrap().len();
    let too_many = (there + 1).to_string();
    for (arguments, says) in [
        (
            &["--model", "stedy"][..],
            "--model: `stedy` is not in the repository: expected one of `alone`, `steady`",
        ),
        (&["--model", "stedy"][..], "did you mean `steady`?"),
        (&["--cores", too_many.as_str()][..], "the cores that this process may use"),
        (&["--model", "steady", "--batches", "1,8"][..], "--batches: 8: model `steady` takes at most 4 rows"),
    ] {
        let said = place.refusal(arguments);
        assert!(said.contains(says), "{said}");
        assert!(!place.file().exists(), "{said}");
    }
    fs::remove_dir_all(place.0.path().join("models")).unwrap();
    fs::create_dir(place.0.path().join("models")).unwrap();
    assert!(place.refusal(&[]).contains("repository.path: has no model"));
}

#[test]
fn a_model_that_fails_does_not_keep_others_from_being_measured() {
    let place = Place::new();
    place.put(
        "failing",
        &format!("{}[fail]\nevery = 10\nmessage = \"as ordered\"\n", model(2, "alpha_us = 200")),
    );
    place.put("broken", "max_batch = 1");
    let answer = place.go(&[]).unwrap();
    let failed: Vec<_> =
        answer.failed.iter().map(|failure| (failure.model.as_str(), failure.reason.as_str())).collect();
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(failed[0].0 == "broken" && failed[0].1.contains("model.toml"), "{failed:?}");
    assert_eq!(failed[1], ("failing", "batch 1 on 1 core: as ordered"));
    assert_eq!(place.cells().len(), 4);
}

#[test]
fn the_page_and_the_plot_show_every_model() {
    let place = Place::new();
    let answer = place.go(&["--batches", "1,2"]).unwrap();
    let page = page::page(&answer);
    for part in [
        "steady: rows per second",
        "alone: time of a batch",
        "<th scope=\"row\">steady</th>",
        "What batches and cores gain",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("NaN") && page.ends_with("</html>\n"));
    let plot = page::gain(&answer).file();
    assert!(plot.contains("steady, 1 core") && plot.contains("alone, 1 core") && !plot.contains("NaN"));
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!(json["models"][1]["model"], "steady");
    assert_eq!(json["models"][1]["cells"][1]["batch"], 2);
    assert!(json["models"][1]["cells"][1]["left_out"].is_u64());
}

#[test]
fn batches_are_measured_under_contention_with_computing_and_streaming() {
    let place = Place::new();
    let answer = place.go(&["--contention"]).unwrap();
    assert!(!answer.interrupted && answer.failed.is_empty(), "{:?}", answer.failed);
    for (model, batches) in [("alone", &[1][..]), ("steady", &[1, 2, 4])] {
        let known = answer.models.iter().find(|known| known.header.model == model).unwrap();
        let lines: Vec<_> =
            known.contention.iter().map(|line| (line.batch, line.units, line.aggressor)).collect();
        let each = |batch: &u32| contention::AGGRESSORS.map(|aggressor| (*batch, 1, aggressor));
        assert_eq!(lines, batches.iter().flat_map(each).collect::<Vec<_>>(), "{model}");
        for line in &known.contention {
            assert!(line.slowdown > 0.5 && line.pressure > 0.1 && line.count > 0, "{line:?}");
            assert_eq!(line.aggressor_units, answer.units_total - 1);
        }
    }
    let text = answer.text();
    for part in ["slowdown", "compute on ", "stream on "] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(page::page(&answer).contains("Under contention"));
    // They are in the file, which a planner reads, and are not measured again.
    let before = fs::read_to_string(place.file()).unwrap();
    assert_eq!(place.profiles().len(), 2);
    let again = place.go(&["--contention"]).unwrap();
    assert_eq!(fs::read_to_string(place.file()).unwrap(), before);
    assert_eq!(again.contention_rows().len(), 8);
}

#[test]
fn contention_needs_a_free_core() {
    let told = fewest(&[2, 4], 2).unwrap_err().to_string();
    assert!(
        told.starts_with("--contention: expected a free core, got batches on 2 cores and 2 cores"),
        "{told}"
    );
    assert_eq!(fewest(&[1, 2], 2).unwrap(), 1);
}

fn predicted(place: &Place) -> Vec<(String, u32)> {
    let of = |profile: &Profile| {
        let model = profile.model().to_owned();
        profile.predicted().map(|cell| (model.clone(), cell.batch)).collect::<Vec<_>>()
    };
    place.profiles().iter().flat_map(of).collect()
}

#[test]
fn with_a_budget_some_cells_are_measured_and_the_others_predicted() {
    let place = Place::new();
    let answer = place.go(&["--budget", "3", "--fresh"]).unwrap();
    assert!(answer.failed.is_empty() && !answer.interrupted, "{:?}", answer.failed);
    let (all, open) = (place.cells(), predicted(&place));
    assert!(
        all.len() == 4 && !open.is_empty() && open.iter().all(|(model, _)| model == "steady"),
        "{open:?}"
    );
    let text = answer.text();
    assert!(
        text.contains("steady: ") && text.contains(" of 3 cells measured, the others predicted: "),
        "{text}"
    );
    assert!(text.contains("predicted from its own measured cells only: a synthetic model"), "{text}");
    // What was predicted is measured by a run without limits, and then has no interval.
    let answer = place.go(&[]).unwrap();
    let measured = answer.models.iter().flat_map(|model| &model.cells).filter(|cell| cell.settled.is_some());
    assert_eq!((measured.count(), predicted(&place).len()), (open.len(), 0));
    assert_eq!(place.cells().len(), 4);
}

#[test]
fn no_cell_is_measured_after_the_time_is_over_or_twice() {
    let place = Place::new();
    place.go(&["--model", "alone"]).unwrap();
    let answer = place.go(&["--within", "1s", "--model", "steady", "--time", "600ms"]).unwrap();
    assert!(
        answer.text().contains("1 of 3 cells measured, the others predicted: --within has passed"),
        "{}",
        answer.text()
    );
    let again = place.go(&["--within", "1h", "--model", "alone"]).unwrap();
    assert!(again.text().contains("alone: 1 of 1 cells measured"), "{}", again.text());
    assert!(again.models[0].cells[0].settled.is_none(), "it was there");
}

/// Profiles of three models that were measured on this machine as the embedded one was.
fn of_three(own: &str) -> String {
    let profile = |(name, factor): (&str, f64)| {
        let mut known = Profile::read(own).unwrap().remove(0).lines();
        for line in &mut known {
            match line {
                Line::Profile(header) => name.clone_into(&mut header.model),
                Line::Cell(cell) => {
                    for time in [&mut cell.p50_us, &mut cell.p95_us, &mut cell.p99_us] {
                        *time *= factor;
                    }
                }
                _ => {}
            }
        }
        Profile::of_lines(known).unwrap().remove(0).write().unwrap()
    };
    [("a", 0.98), ("b", 1.0), ("c", 1.02)].map(profile).concat()
}

#[test]
fn a_model_that_never_ran_is_predicted_from_others_and_measured_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let go_with = |more: &[&str]| {
        let usual = ["tessera", "profile", "--cores", "1", "--batches", "1,4"];
        go(&parse(&[&usual[..], more].concat()), &AtomicBool::new(false))
    };
    go_with(&["--out", &path("measured.jsonl"), "--time", "5ms"]).unwrap();
    let measured = fs::read_to_string(path("measured.jsonl")).unwrap();
    assert!(measured.contains(r#"{"work":{"class":"matrix_product","operators":3.0"#), "{measured}");
    let out = path("new.jsonl");
    let refusal = format!("{:#}", go_with(&["--out", &out, "--predict"]).unwrap_err());
    assert!(
        refusal.starts_with("--predict: 0 measured models with engine `tract` on this machine"),
        "{refusal}"
    );
    fs::write(path("known.jsonl"), of_three(&measured)).unwrap();
    let known = path("known*.jsonl");
    let answer = go_with(&["--out", &out, "--predict", "--from", &known]).unwrap();
    let text = answer.text();
    assert!(
        text.contains("digits: 2 cells predicted from 3 measured models") && text.contains(" to "),
        "{text}"
    );
    let read = |file: &str| Profile::read(&fs::read_to_string(file).unwrap()).unwrap().remove(0);
    let (guess, truth) = (read(&out), read(&path("measured.jsonl")));
    assert_eq!((guess.header().source, guess.predicted().count()), (Origin::Predicted, 2));
    assert!(guess.weights_bytes().is_some_and(|bytes| bytes > 10_000));
    // A measured arena is memory of the whole process, in which other tests run: tests/lifecycle compares the two.
    assert!(guess.arena_bytes(4) > guess.arena_bytes(1) && guess.arena_bytes(1) > Some(0));
    let ratio =
        guess.expected_us(Quantile::P50, 4, 1).unwrap() / truth.expected_us(Quantile::P50, 4, 1).unwrap();
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
    let planned = guess.latency_us(Quantile::P50, 4, 1).unwrap();
    assert!(planned > guess.expected_us(Quantile::P50, 4, 1).unwrap());
    let refused = go_with(&["--out", &out, "--predict"]).unwrap_err();
    assert!(format!("{refused:#}").contains("0 measured models"));
    assert_eq!(read(&out), guess, "a prediction that cannot be made leaves the one before");
    // Measuring replaces the predicted profile.
    let answer = go_with(&["--out", &out, "--time", "5ms"]).unwrap();
    assert!(answer.failed.is_empty(), "{:?}", answer.failed);
    let now = read(&out);
    assert_eq!((now.header().source, now.predicted().count(), now.cells().len()), (Origin::Measured, 0, 2));
}
