use super::*;
use gpulet_core::profile::{Cell, Source};

fn header(model: &str, device: &str) -> Header {
    Header {
        version: 1,
        model: model.to_owned(),
        model_sha256: Some("ab".repeat(32)),
        device: device.to_owned(),
        engine: "tract".to_owned(),
        source: Source::Measured,
        note: "a machine".to_owned(),
        shapes: Vec::new(),
        units_total: 4,
        weights_bytes: None,
        load_us_per_row: 0.0,
    }
}

fn cell(batch: u32, units: u32) -> Line {
    Line::Cell(Cell {
        batch,
        units,
        p50_us: 1.5,
        p95_us: 2.0,
        p99_us: 2.5,
        count: 100,
        left_out: None,
        doubt: None,
        predicted: None,
    })
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.jsonl");
    (folder, path)
}

fn models(path: &Path) -> Vec<(String, usize)> {
    let read = Profile::read(&fs::read_to_string(path).unwrap()).unwrap();
    read.iter().map(|profile| (profile.model().to_owned(), profile.lines().len() - 1)).collect()
}

#[test]
fn the_file_can_be_read_after_every_cell() {
    let (_folder, path) = file();
    let mut record = Record::open(&path).unwrap();
    for (number, model) in ["a", "a", "b", "a", "c", "b"].into_iter().enumerate() {
        record.add(&header(model, DEVICE), &[cell(1 << number, 1)]).unwrap();
        let known: usize = models(&path).iter().map(|(_, cells)| cells).sum();
        assert_eq!(known, number + 1);
    }
    assert_eq!(models(&path), [("a".to_owned(), 3), ("c".to_owned(), 1), ("b".to_owned(), 2)]);
    drop(record);
    let record = Record::open(&path).unwrap();
    assert_eq!(record.cells("a"), BTreeSet::from([(1, 1), (2, 1), (8, 1)]));
    assert_eq!(record.header("b"), Some(&header("b", DEVICE)));
    assert!(record.cells("d").is_empty() && record.header("d").is_none());
}

#[test]
fn a_truncated_file_loses_only_its_incomplete_line() {
    let (_folder, path) = file();
    let mut record = Record::open(&path).unwrap();
    for model in ["a", "b"] {
        record.add(&header(model, DEVICE), &[cell(1, 1)]).unwrap();
        record.add(&header(model, DEVICE), &[cell(2, 1)]).unwrap();
    }
    drop(record);
    let whole = fs::read_to_string(&path).unwrap();
    for length in 0..=whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let record = Record::open(&path).unwrap();
        let cells = record.cells("a").len() + record.cells("b").len();
        // A line without its end is a line if it can be read.
        let kept =
            whole[..length].lines().filter(|line| line.starts_with("{\"cell\"") && line.ends_with("}}"));
        assert_eq!(cells, kept.count(), "truncated at {length}");
        drop(record);
        let left = fs::read_to_string(&path).unwrap();
        assert!(
            Profile::read(&left).is_ok() && (left.is_empty() || left.ends_with('\n')),
            "truncated at {length}"
        );
    }
}

#[test]
fn profiles_of_other_devices_and_models_are_left_alone() {
    let (_folder, path) = file();
    let mut record = Record::open(&path).unwrap();
    record.add(&header("a", DEVICE), &[cell(1, 1)]).unwrap();
    record.add(&header("b", DEVICE), &[cell(1, 1)]).unwrap();
    drop(record);
    let other = fs::read_to_string(&path).unwrap().replace("\"device\":\"cpu\"", "\"device\":\"v100\"");
    fs::write(&path, &other).unwrap();
    let mut record = Record::open(&path).unwrap();
    assert!(record.header("a").is_none());
    record.forget(["a", "b"].into_iter()).unwrap();
    record.add(&header("a", DEVICE), &[cell(4, 2)]).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with(&other) && record.cells("a") == BTreeSet::from([(4, 2)]), "{text}");
    record.forget(["a"].into_iter()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), other);
}

#[test]
fn other_files_are_refused_and_not_changed() {
    let (folder, path) = file();
    for (text, says) in [
        ("hello\n", "line 1"),
        (
            "{\"cell\":{\"batch\":1,\"units\":1,\"p50_us\":1,\"p95_us\":1,\"p99_us\":1,\"count\":1}}\n",
            "before all others",
        ),
        ("{\"profile\":{\"version\":2}}\n", "line 1"),
    ] {
        fs::write(&path, text).unwrap();
        let said = format!("{:#}", Record::open(&path).unwrap_err());
        assert!(said.contains("expected a file of profiles") && said.contains(says), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    for path in [folder.path().to_owned(), folder.path().join("none/p.jsonl")] {
        let said = format!("{:#}", Record::open(&path).unwrap_err());
        assert!(said.contains("--out: cannot write"), "{said}");
    }
}

#[test]
fn two_runs_never_write_one_file() {
    let (_folder, path) = file();
    let mut first = Record::open(&path).unwrap();
    for model in ["a", "b", "a"] {
        first.add(&header(model, DEVICE), &[cell(1, 1)]).unwrap();
        let said = format!("{:#}", Record::open(&path).unwrap_err());
        assert!(said.contains("being written by another run"), "{said}");
    }
    drop(first);
    Record::open(&path).unwrap();
}

#[test]
fn what_differs_is_named() {
    let found = header("a", DEVICE);
    assert!(differences(&found, &Header { weights_bytes: Some(7), ..found.clone() }).is_empty());
    let now = Header {
        model_sha256: Some("cd".repeat(32)),
        engine: "ort".to_owned(),
        units_total: 2,
        source: Source::TypedIn,
        note: "another machine".to_owned(),
        ..found.clone()
    };
    assert_eq!(
        differences(&found, &now),
        [
            "model_sha256 is `abababababab`, now it is `cdcdcdcdcdcd`",
            "source is `measured`, now it is `typed_in`",
            "engine is `tract`, now it is `ort`",
            "units_total is `4`, now it is `2`",
            "note is `a machine`, now it is `another machine`",
        ]
    );
}

#[test]
fn a_line_of_another_program_stays() {
    let (_folder, path) = file();
    for text in ["notes", "{\"name\": \"a\"}"] {
        fs::write(&path, text).unwrap();
        let said = Record::open(&path).unwrap_err().to_string();
        assert!(said.contains("expected a file of profiles"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
