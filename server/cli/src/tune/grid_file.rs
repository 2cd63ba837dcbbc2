//! The file of trials: one model on one machine. Each trial is written as soon as it is measured, so an interrupted run resumes.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gpulet_core::profile::RowShape;
use node::files::read_text;
use serde::{Deserialize, Serialize};
use tuning::{Configuration, Engine, Level, Measurement, Setup};

use crate::journal;

/// How every file of trials begins.
const FIRST: &str = "{\"conditions\":";
/// Largest file.
const FILE_BYTES: u64 = 64 << 20;

/// What trials depend on. Trials of files that differ in it are not mixed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// Name of the model.
    pub model: String,
    /// Hash of its main file.
    pub model_sha256: String,
    /// Processor and kernel.
    pub machine: String,
    /// Cores that lanes may use.
    pub cores: u32,
    /// Engines with their versions.
    pub engines: Vec<String>,
    /// Time of a trial, milliseconds.
    pub time_ms: u64,
    /// Shapes of a row, where inputs are open.
    pub shapes: Vec<RowShape>,
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    pub engine: String,
    pub lanes: u32,
    pub threads: u32,
    pub level: String,
    pub spinning: bool,
    pub batch: u32,
    /// 99th percentile of the time of a batch; `None`: the configuration does not run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99_us: Option<f64>,
    /// Rows per second of all lanes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rows_per_s: Option<f64>,
    /// Batches that it is from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub runs: Option<u64>,
    /// Why the configuration does not run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Conditions(Conditions),
    Cell(Cell),
}

impl Cell {
    /// A trial that ran.
    pub fn new(of: Configuration, measurement: Measurement, runs: usize) -> Self {
        let rounded = |value: f64| (value * 10.0).round() / 10.0;
        Self {
            p99_us: Some(rounded(measurement.p99_us)),
            rows_per_s: Some(rounded(measurement.rows_per_s * 100.0) / 100.0),
            runs: Some(runs as u64),
            ..Self::without_result(of)
        }
    }

    /// A configuration that does not run.
    pub fn failed(of: Configuration, reason: String) -> Self {
        Self { failed: Some(reason), ..Self::without_result(of) }
    }

    fn without_result(Configuration { setup, batch }: Configuration) -> Self {
        Self {
            engine: setup.engine.as_str().to_owned(),
            lanes: setup.lanes,
            threads: setup.threads,
            level: setup.level.as_str().to_owned(),
            spinning: setup.spinning,
            batch,
            p99_us: None,
            rows_per_s: None,
            runs: None,
            failed: None,
        }
    }

    /// What it is a trial of; `None` for words of another version.
    pub fn configuration(&self) -> Option<Configuration> {
        let engine = Engine::EACH.into_iter().find(|engine| engine.as_str() == self.engine)?;
        let level = Level::EACH.into_iter().find(|level| level.as_str() == self.level)?;
        let setup =
            Setup { engine, lanes: self.lanes, threads: self.threads, level, spinning: self.spinning };
        Some(Configuration { setup, batch: self.batch })
    }

    /// What was measured; `None` if it does not run.
    pub fn measurement(&self) -> Option<Measurement> {
        Some(Measurement { p99_us: self.p99_us?, rows_per_s: self.rows_per_s? })
    }
}

/// A file that this process alone writes to, or only memory.
#[derive(Debug)]
pub struct GridFile {
    file: Option<(PathBuf, File)>,
    conditions: Option<Conditions>,
    cells: Vec<Cell>,
}

impl GridFile {
    /// Opens a file, or starts one; without a path, trials are kept in memory.
    ///
    /// # Errors
    /// When it cannot be read or written, is not a file of trials, or is being written by another run.
    pub fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self { file: None, conditions: None, cells: Vec::new() }) };
        let file = journal::lock("--grid", path)?;
        let text = read_text(path, FILE_BYTES)?;
        let incomplete = journal::incomplete_line(&text, FIRST);
        let whole = incomplete.and_then(|begin| text.get(..begin)).unwrap_or(&text);
        let (conditions, cells) = parsed("--grid", path, whole)?;
        if incomplete.is_some() {
            let place = || format!("--grid: cannot write `{}`", path.display());
            file.set_len(whole.len() as u64).with_context(place)?;
        }
        Ok(Self { file: Some((path.to_owned(), file)), conditions, cells })
    }

    /// Checks that trials under these conditions can be added, and begins the file with them if it is empty.
    ///
    /// # Errors
    /// Lists the differences.
    pub fn begin(&mut self, now: &Conditions) -> anyhow::Result<()> {
        let Some(found) = &self.conditions else {
            self.conditions = Some(now.clone());
            return self.write(&Line::Conditions(now.clone()));
        };
        let differ = differences(found, now);
        let path = self.file.as_ref().map(|(path, _)| path.display().to_string()).unwrap_or_default();
        anyhow::ensure!(
            differ.is_empty(),
            "--grid: the trials in `{path}` were measured under other conditions: {}: name another file",
            differ.join(", ")
        );
        Ok(())
    }

    /// The trials.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Adds a trial, and writes it at once.
    pub fn add(&mut self, cell: Cell) -> anyhow::Result<()> {
        self.write(&Line::Cell(cell.clone()))?;
        self.cells.push(cell);
        Ok(())
    }

    fn write(&mut self, line: &Line) -> anyhow::Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let text = format!("{}\n", serde_json::to_string(line)?);
        let written = file.write_all(text.as_bytes()).and_then(|()| file.flush());
        written.with_context(|| format!("cannot write `{}`", path.display()))
    }
}

/// Reads a file of trials. `option` names it on the command line.
///
/// # Errors
/// When it cannot be read, or is not a file of trials.
pub fn read(option: &str, path: &Path) -> anyhow::Result<(Conditions, Vec<Cell>)> {
    let text =
        read_text(path, FILE_BYTES).with_context(|| format!("{option}: cannot read `{}`", path.display()))?;
    let (conditions, cells) = parsed(option, path, &text)?;
    let conditions = conditions.with_context(|| format!("{option}: `{}` has no trials", path.display()))?;
    Ok((conditions, cells))
}

/// Reads a file of trials of another model, which must be of this machine.
///
/// # Errors
/// When it cannot be read, is not a file of trials, or is of another machine.
pub fn of_other_model(path: &Path, now: &Conditions) -> anyhow::Result<Vec<Cell>> {
    let (conditions, cells) = read("--from", path)?;
    let shown = path.display();
    anyhow::ensure!(
        conditions.machine == now.machine && conditions.cores == now.cores,
        "--from: `{shown}` is of another machine: `{}` with {} cores, this is `{}` with {}",
        conditions.machine,
        conditions.cores,
        now.machine,
        now.cores
    );
    anyhow::ensure!(
        conditions.model != now.model,
        "--from: `{shown}` has trials of model `{}` itself: expected other models; --grid continues its own trials",
        now.model
    );
    Ok(cells)
}

fn parsed(option: &str, path: &Path, text: &str) -> anyhow::Result<(Option<Conditions>, Vec<Cell>)> {
    let (mut conditions, mut cells) = (None, Vec::new());
    for (number, line) in text.lines().enumerate() {
        let place = || format!("{option}: `{}`, line {}", path.display(), number.saturating_add(1));
        let expected = || format!("{}: expected a file of trials of `tessera tune`", place());
        match serde_json::from_str::<Line>(line).with_context(expected)? {
            Line::Conditions(found) => {
                anyhow::ensure!(number == 0, "{}: expected one model per file", place());
                conditions = Some(found);
            }
            Line::Cell(cell) => {
                anyhow::ensure!(conditions.is_some(), "{}: expected a line with conditions first", place());
                anyhow::ensure!(cell.configuration().is_some(), "{}: unknown engine or level", place());
                cells.push(cell);
            }
        }
    }
    Ok((conditions, cells))
}

/// What differs between the conditions of a file and those of now.
fn differences(found: &Conditions, now: &Conditions) -> Vec<String> {
    let short = |hash: &str| hash.chars().take(12).collect::<String>();
    let shapes = |of: &Conditions| gpulet_core::profile::listed_shapes(&of.shapes);
    let pairs = [
        ("model", found.model.clone(), now.model.clone()),
        ("model_sha256", short(&found.model_sha256), short(&now.model_sha256)),
        ("machine", found.machine.clone(), now.machine.clone()),
        ("cores", found.cores.to_string(), now.cores.to_string()),
        ("engines", found.engines.join(", "), now.engines.join(", ")),
        ("--time", format!("{} ms", found.time_ms), format!("{} ms", now.time_ms)),
        ("shapes", shapes(found), shapes(now)),
    ];
    let differ = pairs.into_iter().filter(|(_, before, after)| before != after);
    differ.map(|(field, before, after)| format!("{field} is `{before}`, now it is `{after}`")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn conditions() -> Conditions {
        Conditions {
            model: "m".to_owned(),
            model_sha256: "0123456789abcdef".to_owned(),
            machine: "some CPU; kernel 6".to_owned(),
            cores: 2,
            engines: vec!["tract of tessera 0".to_owned()],
            time_ms: 500,
            shapes: Vec::new(),
        }
    }

    fn cell(batch: u32) -> Cell {
        let setup = Setup { engine: Engine::Tract, lanes: 2, threads: 1, level: Level::All, spinning: false };
        let measurement = Measurement { p99_us: 12.345, rows_per_s: 6.789 };
        Cell::new(Configuration { setup, batch }, measurement, 9)
    }

    #[test]
    fn a_file_is_continued_under_the_same_conditions_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        let mut file = GridFile::open(Some(&path)).unwrap();
        file.begin(&conditions()).unwrap();
        file.add(cell(3)).unwrap();
        let busy = GridFile::open(Some(&path)).unwrap_err().to_string();
        assert!(busy.contains("is being written by another run"), "{busy}");
        drop(file);
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"cell\":{\"eng");
        fs::write(&path, text).unwrap();
        let mut file = GridFile::open(Some(&path)).unwrap();
        assert_eq!(file.cells(), [cell(3)]);
        assert_eq!(file.cells()[0].measurement().unwrap(), Measurement { p99_us: 12.3, rows_per_s: 6.789 });
        file.begin(&conditions()).unwrap();
        let other = Conditions { cores: 4, model_sha256: "f".repeat(64), ..conditions() };
        let said = file.begin(&other).unwrap_err().to_string();
        for part in ["cores is `2`, now it is `4`", "model_sha256 is `0123456789ab`", "name another file"] {
            assert!(said.contains(part), "{said}");
        }
        file.add(Cell::failed(cell(4).configuration().unwrap(), "no".to_owned())).unwrap();
        drop(file);
        assert_eq!(GridFile::open(Some(&path)).unwrap().cells().len(), 2, "the incomplete line is dropped");
    }

    #[test]
    fn other_files_and_other_machines_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.jsonl");
        for text in ["{\"profile\":{}}\n", "notes", "# Notes\nmore"] {
            fs::write(&path, text).unwrap();
            let said = format!("{:#}", GridFile::open(Some(&path)).unwrap_err());
            assert!(said.contains("line 1: expected a file of trials"), "{said}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "another program's file stays as it is");
        }
        fs::remove_file(&path).unwrap();
        GridFile::open(Some(&path)).unwrap().begin(&conditions()).unwrap();
        let now = |model: &str, cores| Conditions { model: model.to_owned(), cores, ..conditions() };
        assert_eq!(of_other_model(&path, &now("n", 2)).unwrap(), []);
        assert!(of_other_model(&path, &now("m", 2)).unwrap_err().to_string().contains("of model `m` itself"));
        assert!(of_other_model(&path, &now("n", 4)).unwrap_err().to_string().contains("another machine"));
    }
}
