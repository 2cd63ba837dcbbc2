//! The report as tables and as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use charts::{number, percent};
use gpulet_core::profile::{
    ArenaLine, Cell, ContentionLine, Header, Interval, Line, Profile, Utilisation, UtilisationLine,
    listed_shapes,
};
use node::output;
use serde::Serialize;

use super::bench::{Findings, cores_words};
use super::contention::word;
use super::machine::{DEVICE, Machine};
use super::record::Record;
use super::runs::Measured;
use super::subjects::{Failure, Subject};

/// Fraction of runs left out, or of waiting in counted runs, above which a cell is unreliable.
const DISTURBED: f64 = 0.1;

/// All requested cells that are in the file.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub file: String,
    pub device: &'static str,
    /// Cores that this process may use.
    pub units_total: u32,
    /// The processor and the kernel.
    pub machine: String,
    pub interrupted: bool,
    /// Models with at least one cell, by name.
    pub models: Vec<ModelReport>,
    /// Models that could not be measured completely.
    pub failed: Vec<Failure>,
    /// Notes on the reliability of the figures.
    pub notes: Vec<String>,
}

/// One model.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// Header of its profile.
    #[serde(flatten)]
    pub header: Header,
    /// By cores, then by batch.
    pub cells: Vec<CellReport>,
    /// Memory of batches up to a size, in addition to the weights.
    pub arenas: Vec<ArenaLine>,
    /// Measurements under contention, by cores, batch and type of load; empty without `--contention`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contention: Vec<ContentionLine>,
    /// Use of memory bandwidth by batch, if known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub utilisation: Vec<UtilisationLine>,
}

/// One batch size on a number of cores.
#[derive(Clone, Debug, Serialize)]
pub struct CellReport {
    /// As in the file.
    #[serde(flatten)]
    pub cell: Cell,
    /// Rows per second, one batch after the other.
    pub rows_per_s: f64,
    /// Speed-up over the smallest measured number of cores.
    pub speed_up: f64,
    /// Speed-up per core: 1 if twice the cores take half the time.
    pub speed_up_per_core: f64,
    /// Whether it was warm before it was measured; `None` for a cell of an earlier run.
    pub settled: Option<bool>,
}

impl Report {
    /// The cells of these models in the file, with the findings of this run.
    pub fn new(
        file: &Path,
        machine: &Machine,
        subjects: &[Subject],
        record: &Record,
        findings: Findings,
        failed: Vec<Failure>,
        interrupted: bool,
    ) -> Self {
        let models = subjects.iter().filter_map(|subject| {
            let name = subject.name.as_str();
            Some(ModelReport::new(record.header(name)?, record.lines(name), &findings.measured))
        });
        let models: Vec<ModelReport> = models.collect();
        let mut notes: Vec<String> =
            findings.measured.iter().flat_map(|(cell, measured)| remarks(cell, measured)).collect();
        notes.extend(left_out(findings.measured.values()));
        notes.extend(subjects.iter().filter_map(|subject| repairs(record.lines(subject.name.as_str()))));
        notes.extend(findings.notes);
        Self {
            file: file.display().to_string(),
            device: DEVICE,
            units_total: machine.units(),
            machine: machine.words.clone(),
            interrupted,
            models,
            failed,
            notes,
        }
    }

    /// Prints every cell, the best of each model, and notes.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.headline());
        if !self.models.is_empty() {
            text.push_str(&output::table(&HEADER, self.rows()));
            text.push('\n');
        }
        let contention = self.contention_rows();
        if !contention.is_empty() {
            text.push_str(&output::table(&CONTENTION_HEADER, contention));
            text.push('\n');
        }
        for model in &self.models {
            let _ = writeln!(text, "{}: {}", model.header.model, model.best());
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        if self.interrupted {
            text.push_str("stopped: the same command goes on from here\n");
        }
        text
    }

    /// One line about the models and the machine.
    pub fn headline(&self) -> String {
        let models = match self.models.len() {
            1 => "1 model".to_owned(),
            count => format!("{count} models"),
        };
        format!("{}: {models} on {} ({})", self.file, cores_words(self.units_total), self.machine)
    }

    /// Rows of the table, below [`HEADER`].
    pub fn rows(&self) -> Vec<Vec<String>> {
        let rows = self.models.iter().flat_map(|model| {
            model.cells.iter().map(|answer| {
                let cell = &answer.cell;
                let [p50, p95, p99] = [cell.p50_us, cell.p95_us, cell.p99_us].map(|time| number(time / 1e3));
                vec![
                    model.header.model.clone(),
                    cell.batch.to_string(),
                    cell.units.to_string(),
                    p50,
                    p95,
                    p99,
                    number(answer.rows_per_s),
                    format!("{:.2}", answer.speed_up),
                    format!("{:.2}", answer.speed_up_per_core),
                    match &cell.predicted {
                        None => number(cell.count as f64),
                        Some(_) => "predicted".to_owned(),
                    },
                    match (&cell.predicted, cell.left_out) {
                        (Some(Interval { low_us, high_us }), _) => {
                            format!("{} to {} ms", number(low_us / 1e3), number(high_us / 1e3))
                        }
                        (None, Some(count)) => number(count as f64),
                        (None, None) => "-".to_owned(),
                    },
                ]
            })
        });
        rows.collect()
    }

    /// Rows of the table of measurements under contention, below [`CONTENTION_HEADER`].
    pub fn contention_rows(&self) -> Vec<Vec<String>> {
        let rows = self.models.iter().flat_map(|model| {
            model.contention.iter().map(|line| {
                let used = model.utilisation.iter().find(|known| known.batch == line.batch);
                vec![
                    model.header.model.clone(),
                    line.batch.to_string(),
                    line.units.to_string(),
                    format!("{} on {}", word(line.aggressor), cores_words(line.aggressor_units)),
                    format!("{:.3}", line.slowdown),
                    format!("{:.3}", line.pressure),
                    used.map_or_else(
                        || "-".to_owned(),
                        |UtilisationLine { used: Utilisation { bandwidth, .. }, .. }| percent(*bandwidth),
                    ),
                ]
            })
        });
        rows.collect()
    }
}

/// Columns of the table of measurements under contention.
pub const CONTENTION_HEADER: [&str; 7] =
    ["model", "batch", "cores", "load", "slowdown", "pressure", "memory"];

/// Columns of the table.
pub const HEADER: [&str; 11] = [
    "model", "batch", "cores", "p50 ms", "p95 ms", "p99 ms", "rows/s", "speed-up", "per core", "runs",
    "left out",
];

impl ModelReport {
    fn new(header: &Header, lines: &[Line], measured: &BTreeMap<(String, u32, u32), Measured>) -> Self {
        // A later line of the same batch and cores replaces an earlier one.
        let (mut known, mut arenas) = (BTreeMap::new(), BTreeMap::new());
        let (mut contention, mut utilisation) = (BTreeMap::new(), BTreeMap::new());
        for line in lines {
            match line {
                Line::Cell(cell) => {
                    known.insert((cell.units, cell.batch), cell.clone());
                }
                Line::Arena(arena) => {
                    arenas.insert(arena.batch, *arena);
                }
                Line::Contention(line) => {
                    contention.insert((line.units, line.batch, line.aggressor), *line);
                }
                Line::Utilisation(line) => {
                    utilisation.insert(line.batch, *line);
                }
                Line::Profile(_) | Line::Coefficients(_) | Line::Work(_) => {}
            }
        }
        let cells = known.values().map(|cell| {
            let fewest =
                known.values().filter(|other| other.batch == cell.batch).min_by_key(|other| other.units);
            let fewest = fewest.unwrap_or(cell);
            let speed_up = fewest.p50_us / cell.p50_us;
            let now = measured.get(&(header.model.clone(), cell.batch, cell.units));
            CellReport {
                cell: cell.clone(),
                rows_per_s: f64::from(cell.batch) * 1e6 / cell.p50_us,
                speed_up,
                speed_up_per_core: speed_up * f64::from(fewest.units) / f64::from(cell.units),
                settled: now.map(|measured| measured.settled),
            }
        });
        Self {
            header: header.clone(),
            cells: cells.collect(),
            arenas: arenas.into_values().collect(),
            contention: contention.into_values().collect(),
            utilisation: utilisation.into_values().collect(),
        }
    }

    /// The cell with the most rows per second, of the measured ones if there are any; the first if there are several.
    pub fn fastest(&self) -> Option<&CellReport> {
        let some_measured = self.cells.iter().any(|cell| cell.cell.predicted.is_none());
        let counted = self.cells.iter().filter(|cell| cell.cell.predicted.is_none() || !some_measured);
        counted.reduce(|best, cell| if cell.rows_per_s > best.rows_per_s { cell } else { best })
    }

    /// Describes the highest throughput and the memory of the model.
    pub fn best(&self) -> String {
        let mut words = match self.fastest() {
            Some(best) => format!(
                "at best {} rows/s, batch {} on {}",
                number(best.rows_per_s),
                best.cell.batch,
                cores_words(best.cell.units)
            ),
            None => "nothing measured".to_owned(),
        };
        if let Some(bytes) = self.header.weights_bytes {
            let _ = write!(words, "; {} MiB loaded", mebibytes(bytes));
        }
        if let Some(arena) = self.arenas.last() {
            let _ = write!(words, "; {} MiB more for batches up to {}", mebibytes(arena.bytes), arena.batch);
        }
        let _ = write!(words, "; engine {}", self.header.engine);
        if !self.header.shapes.is_empty() {
            let _ = write!(words, "; shapes {}", listed_shapes(&self.header.shapes));
        }
        words
    }
}

fn mebibytes(bytes: u64) -> String {
    number(bytes as f64 / f64::from(1 << 20))
}

/// Notes on one cell.
fn remarks((model, batch, units): &(String, u32, u32), measured: &Measured) -> Vec<String> {
    let place = format!("{model}, batch {batch} on {}", cores_words(*units));
    let mut remarks = Vec::new();
    if !measured.settled {
        remarks.push(format!("{place}: its times never settled; measured all the same"));
    }
    if measured.is_thin() {
        let runs = if measured.count == 1 { "1 run" } else { "few runs" };
        remarks.push(format!("{place}: {runs} ({}); p99 is the longest of them", measured.count));
    }
    let waited = measured.waited / f64::from((*units).max(1));
    if measured.left_out_share() > DISTURBED || waited > DISTURBED {
        remarks.push(format!(
            "{place}: other processes used its cores ({} of the runs left out, {} of the others' time waited): measure again on an \
             idle machine",
            percent(measured.left_out_share()),
            percent(waited)
        ));
    }
    remarks
}

/// Note on how many runs were left out, over all cells.
fn left_out<'a>(measured: impl Iterator<Item = &'a Measured>) -> Option<String> {
    let (left_out, kept) = measured.fold((0_usize, 0_usize), |(left_out, kept), cell| {
        (left_out.saturating_add(cell.left_out), kept.saturating_add(cell.count))
    });
    let all = left_out.saturating_add(kept);
    (all > 0).then(|| {
        format!(
            "{} of {} runs ({}) left out: their threads waited for cores that ran something else",
            number(left_out as f64),
            number(all as f64),
            percent(left_out as f64 / all as f64)
        )
    })
}

/// Note on cells that contradict each other, and by how much plans adjust them.
fn repairs(lines: &[Line]) -> Option<String> {
    let read = Profile::of_lines(lines.iter().cloned()).ok()?;
    let profile = read.first()?;
    let cells: BTreeSet<_> = profile.repairs().iter().map(|repair| (repair.batch, repair.units)).collect();
    let furthest = profile
        .repairs()
        .iter()
        .map(|repair| (repair.used_us - repair.measured_us).abs() / repair.measured_us)
        .fold(0.0, f64::max);
    (!cells.is_empty()).then(|| {
        format!(
            "{}: {} cells contradict others (more rows sooner, or more cores later); plans use times up to {} away",
            profile.model(),
            cells.len(),
            percent(furthest)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulet_core::profile::Source;

    fn header() -> Header {
        Header {
            version: 1,
            model: "m".to_owned(),
            model_sha256: None,
            device: DEVICE.to_owned(),
            engine: "tract".to_owned(),
            source: Source::Measured,
            note: String::new(),
            shapes: Vec::new(),
            units_total: 2,
            weights_bytes: Some(3 << 20),
            load_us_per_row: 0.0,
        }
    }

    fn cell(batch: u32, units: u32, time: f64) -> Line {
        Line::Cell(Cell {
            batch,
            units,
            p50_us: time,
            p95_us: time,
            p99_us: 2.0 * time,
            count: 100,
            left_out: None,
            doubt: None,
            predicted: None,
        })
    }

    fn measured() -> Measured {
        Measured { p50_us: 1.0, p95_us: 1.0, p99_us: 1.0, count: 90, left_out: 0, waited: 0.0, settled: true }
    }

    #[test]
    fn speed_ups_are_against_the_fewest_cores() {
        let lines = [cell(1, 1, 1000.0), cell(4, 1, 3000.0), cell(4, 2, 2000.0), cell(8, 2, 4000.0)];
        let model = ModelReport::new(&header(), &lines, &BTreeMap::new());
        let found: Vec<_> = model
            .cells
            .iter()
            .map(|c| (c.cell.units, c.cell.batch, c.speed_up, c.speed_up_per_core))
            .collect();
        assert_eq!(found, [(1, 1, 1.0, 1.0), (1, 4, 1.0, 1.0), (2, 4, 1.5, 0.75), (2, 8, 1.0, 1.0)]);
        assert_eq!(model.best(), "at best 2,000 rows/s, batch 4 on 2 cores; 3 MiB loaded; engine tract");
    }

    #[test]
    fn what_makes_a_cell_doubtful_is_said() {
        let cell = ("m".to_owned(), 4, 2);
        assert!(remarks(&cell, &measured()).is_empty());
        for (measured, says) in [
            (Measured { settled: false, ..measured() }, "never settled"),
            (Measured { count: 5, ..measured() }, "few runs (5)"),
            (Measured { left_out: 11, ..measured() }, "10.89 % of the runs left out"),
            (Measured { waited: 0.4, ..measured() }, "20.00 % of the others' time waited"),
        ] {
            let said = remarks(&cell, &measured);
            assert!(
                said.len() == 1 && said[0].contains(says) && said[0].contains("m, batch 4 on 2 cores"),
                "{said:?}"
            );
        }
    }

    #[test]
    fn runs_left_out_are_counted_over_all_cells() {
        let cells = [Measured { left_out: 10, ..measured() }, measured()];
        assert!(left_out(cells.iter()).unwrap().starts_with("10 of 190 runs (5.26 %) left out"));
        assert_eq!(left_out([].iter()), None);
    }

    #[test]
    fn contradictions_are_said() {
        let lines = |second| [Line::Profile(header()), cell(1, 1, 1000.0), cell(2, 1, second)];
        assert_eq!(repairs(&lines(1500.0)), None);
        let said = repairs(&lines(500.0)).unwrap();
        assert!(said.starts_with("m: 2 cells contradict") && said.contains("50.00 % away"), "{said}");
    }
}
