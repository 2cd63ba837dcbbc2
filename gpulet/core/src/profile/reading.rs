//! Parses, checks and combines the lines of profile files.

use std::collections::BTreeMap;
use std::fmt;

use super::{
    Aggressor, BATCH_MAX, Cell, Coefficients, ContentionLine, Header, Interval, Line, Outside, Profile,
    Quantile, Repair, SHAPES_MAX, Source, Surface, Times, WorkLine,
};

/// Largest number of cells in a profile.
pub const CELLS_MAX: usize = 65_536;
/// Largest number of profiles in a file.
pub const PROFILES_MAX: usize = 4_096;
/// Largest number of units of a device.
pub const UNITS_MAX: u32 = 4_096;
/// Longest time of a batch, microseconds: one hour.
const TIME_MAX_US: f64 = 3.6e9;
/// Longest doubt about a cell, bytes.
const DOUBT_MAX: usize = 1_024;
/// Largest slowdown of a batch or a synthetic load.
const SLOWDOWN_MAX: f64 = 1e3;
/// Largest number of runs that count as weight of a cell, so that no cell outweighs all others.
const COUNT_MAX: u64 = 1_000_000;

/// An invalid profile: where, and what would be valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ProfileError {
    /// Line of the file, from 1; `None` for lines without a file.
    pub line: Option<usize>,
    /// Name of the field, such as `cell.p50_us`.
    pub field: String,
    /// What is wrong, and what would be valid.
    pub problem: String,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{}: {}", self.field, self.problem)
    }
}

/// Largest number of classes of operators, and longest name of one, bytes.
const CLASSES_MAX: usize = 64;
const CLASS_MAX: usize = 64;
/// Weight of a predicted cell: any measured one that contradicts it decides.
const PREDICTED: f64 = 1e-3;

/// How far plans go from the expected time of a predicted cell to the upper end of its 90 % interval, in logarithms. 80 % of cells
/// take at most this, if the logarithms of errors are normally distributed. docs/estimator.md has plans made with expected times,
/// upper ends and this.
pub(crate) const PLANNED: f64 = 0.5;

impl Cell {
    /// Planned time divided by the median: what the doubt about the cell costs; 1 for a measured one.
    fn planned(&self) -> f64 {
        self.predicted.map_or(1.0, |interval| (interval.high_us / self.p50_us).powf(PLANNED))
    }
}

type Fault = (&'static str, String);
/// Reads one of a cell's times.
type TimeOf = fn(&Cell) -> f64;

fn within(field: &'static str, value: u64, most: u32) -> Result<(), Fault> {
    if (1..=u64::from(most)).contains(&value) {
        return Ok(());
    }
    Err((field, format!("expected 1 to {most}, got {value}")))
}

fn check_header(header: &Header) -> Result<(), Fault> {
    if header.version != 1 {
        return Err(("profile.version", format!("expected 1, got {}", header.version)));
    }
    for (field, text) in [("profile.model", &header.model), ("profile.device", &header.device)] {
        if text.is_empty() {
            return Err((field, "expected a name, got an empty text".to_owned()));
        }
    }
    within("profile.units_total", u64::from(header.units_total), UNITS_MAX)?;
    if !(0.0..=TIME_MAX_US).contains(&header.load_us_per_row) {
        return Err(("profile.load_us_per_row", format!("expected 0 to {TIME_MAX_US} microseconds")));
    }
    if header.shapes.len() > SHAPES_MAX {
        return Err(("profile.shapes", format!("expected at most {SHAPES_MAX} shapes")));
    }
    for share in header.shapes.iter().filter_map(|shape| shape.share) {
        if !(0.0..=1.0).contains(&share) {
            return Err(("profile.shapes", format!("expected shares from 0 to 1, got {share}")));
        }
    }
    Ok(())
}

fn check_cell(cell: &Cell, units_total: u32) -> Result<(), Fault> {
    within("cell.batch", u64::from(cell.batch), BATCH_MAX)?;
    within("cell.units", u64::from(cell.units), units_total)?;
    match cell.predicted {
        None if cell.count == 0 => return Err(("cell.count", "expected at least 1 run, got 0".to_owned())),
        Some(_) if cell.count > 0 => {
            return Err(("cell.count", format!("expected 0 runs of a predicted cell, got {}", cell.count)));
        }
        Some(Interval { low_us, high_us })
            if !(low_us > 0.0
                && low_us <= cell.p50_us
                && cell.p50_us <= high_us
                && high_us <= TIME_MAX_US) =>
        {
            let problem = format!(
                "expected above 0 and low_us <= p50_us <= high_us, at most {TIME_MAX_US}, got {low_us}, {} and {high_us}",
                cell.p50_us
            );
            return Err(("cell.low_us", problem));
        }
        None | Some(_) => {}
    }
    for (field, time) in
        [("cell.p50_us", cell.p50_us), ("cell.p95_us", cell.p95_us), ("cell.p99_us", cell.p99_us)]
    {
        if !(time > 0.0 && time <= TIME_MAX_US) {
            return Err((
                field,
                format!("expected above 0 and at most {TIME_MAX_US} microseconds, got {time}"),
            ));
        }
    }
    if cell.doubt.as_ref().is_some_and(|doubt| doubt.len() > DOUBT_MAX) {
        return Err(("cell.doubt", format!("expected at most {DOUBT_MAX} bytes")));
    }
    if cell.p50_us > cell.p95_us || cell.p95_us > cell.p99_us {
        return Err(("cell.p95_us", "expected p50_us <= p95_us <= p99_us".to_owned()));
    }
    Ok(())
}

fn check_contention(line: &ContentionLine, units_total: u32) -> Result<(), Fault> {
    within("contention.batch", u64::from(line.batch), BATCH_MAX)?;
    within("contention.units", u64::from(line.units), units_total)?;
    let left = units_total.saturating_sub(line.units);
    if !(1..=left).contains(&line.aggressor_units) {
        let problem =
            format!("expected 1 to {left}, the units that the batch leaves, got {}", line.aggressor_units);
        return Err(("contention.aggressor_units", problem));
    }
    for (field, factor) in [("contention.slowdown", line.slowdown), ("contention.pressure", line.pressure)] {
        if !(factor > 0.0 && factor <= SLOWDOWN_MAX) {
            return Err((field, format!("expected above 0 and at most {SLOWDOWN_MAX}, got {factor}")));
        }
    }
    if line.count == 0 {
        return Err(("contention.count", "expected at least 1 run, got 0".to_owned()));
    }
    Ok(())
}

fn check_work(work: &WorkLine) -> Result<(), Fault> {
    if work.class.is_empty() || work.class.len() > CLASS_MAX {
        return Err(("work.class", format!("expected 1 to {CLASS_MAX} bytes")));
    }
    for (field, amount) in [
        ("work.operators", work.operators),
        ("work.macs", work.macs),
        ("work.weight_bytes", work.weight_bytes),
        ("work.activation_bytes", work.activation_bytes),
        ("work.path", work.path),
    ] {
        if !(amount >= 0.0 && amount.is_finite()) {
            return Err((field, format!("expected 0 or more, got {amount}")));
        }
    }
    Ok(())
}

/// A profile under construction.
struct Draft {
    header: Header,
    cells: BTreeMap<(u32, u32), Cell>,
    arenas: BTreeMap<u32, super::ArenaLine>,
    utilisation: BTreeMap<u32, super::UtilisationLine>,
    contention: BTreeMap<(u32, u32, Aggressor), ContentionLine>,
    coefficients: Option<Coefficients>,
    work: BTreeMap<String, WorkLine>,
}

impl Draft {
    fn new(header: Header) -> Result<Self, Fault> {
        check_header(&header)?;
        Ok(Self {
            header,
            cells: BTreeMap::new(),
            arenas: BTreeMap::new(),
            utilisation: BTreeMap::new(),
            contention: BTreeMap::new(),
            coefficients: None,
            work: BTreeMap::new(),
        })
    }

    fn add(&mut self, line: Line) -> Result<(), Fault> {
        match line {
            Line::Profile(_) => return Err(("profile", "expected lines of the profile above".to_owned())),
            Line::Cell(cell) => {
                check_cell(&cell, self.header.units_total)?;
                self.cells.insert((cell.units, cell.batch), cell);
                if self.cells.len() > CELLS_MAX {
                    return Err(("cell", format!("expected at most {CELLS_MAX} cells a profile")));
                }
            }
            Line::Arena(arena) => {
                within("arena.batch", u64::from(arena.batch), BATCH_MAX)?;
                self.arenas.insert(arena.batch, arena);
            }
            Line::Utilisation(line) => {
                within("utilisation.batch", u64::from(line.batch), BATCH_MAX)?;
                for (field, share) in
                    [("utilisation.cache", line.used.cache), ("utilisation.bandwidth", line.used.bandwidth)]
                {
                    if !(0.0..=1.0).contains(&share) {
                        return Err((field, format!("expected a share from 0 to 1, got {share}")));
                    }
                }
                self.utilisation.insert(line.batch, line);
            }
            Line::Contention(line) => {
                check_contention(&line, self.header.units_total)?;
                self.contention.insert((line.units, line.batch, line.aggressor), line);
                if self.contention.len() > CELLS_MAX {
                    return Err(("contention", format!("expected at most {CELLS_MAX} lines a profile")));
                }
            }
            Line::Coefficients(coefficients) => {
                if let Some((field, problem)) = coefficients.fault() {
                    return Err(("coefficients", format!("{field}: {problem}")));
                }
                self.coefficients = Some(coefficients);
            }
            Line::Work(work) => {
                check_work(&work)?;
                self.work.insert(work.class.clone(), work);
                if self.work.len() > CLASSES_MAX {
                    return Err(("work", format!("expected at most {CLASSES_MAX} classes a profile")));
                }
            }
        }
        Ok(())
    }

    /// Times of all cells; those that were predicted are multiplied by `factor`.
    fn surface(&self, time: TimeOf, factor: fn(&Cell) -> f64) -> Surface {
        let weight = |cell: &Cell| {
            let runs = u32::try_from(cell.count.min(COUNT_MAX)).unwrap_or(u32::MAX);
            if cell.predicted.is_some() { PREDICTED } else { f64::from(runs) }
        };
        let value = |cell: &Cell| (factor(cell) * time(cell), weight(cell));
        Surface::new(&self.cells.iter().map(|(key, cell)| (*key, value(cell))).collect())
    }

    fn done(self) -> Result<Profile, Fault> {
        if self.cells.is_empty() && self.coefficients.is_none() {
            return Err(("profile", format!("`{}` has neither cells nor coefficients", self.header.model)));
        }
        let of: [(Quantile, TimeOf); 3] = [
            (Quantile::P50, |cell| cell.p50_us),
            (Quantile::P95, |cell| cell.p95_us),
            (Quantile::P99, |cell| cell.p99_us),
        ];
        let mut repairs = Vec::new();
        let mut times = Times::Analytic;
        let mut expected = None;
        if !self.cells.is_empty() {
            let surfaces = of.map(|(_, time)| self.surface(time, Cell::planned));
            if self.cells.values().any(|cell| cell.predicted.is_some()) {
                expected = Some(Box::new(of.map(|(_, time)| self.surface(time, |_| 1.0))));
            }
            for (surface, (quantile, time)) in surfaces.iter().zip(of) {
                // Measured cells need not be measured again because a predicted one contradicts them.
                let measured = self.cells.values().filter(|cell| cell.predicted.is_none());
                repairs.extend(measured.filter_map(|cell| {
                    let (measured_us, used_us) = (time(cell), surface.at(cell.batch, cell.units)?);
                    let moved = (used_us - measured_us).abs() > 1e-9 * measured_us;
                    moved.then_some(Repair {
                        batch: cell.batch,
                        units: cell.units,
                        quantile,
                        measured_us,
                        used_us,
                    })
                }));
            }
            times = Times::Table(Box::new(surfaces));
        }
        Ok(Profile {
            header: self.header,
            cells: self.cells.into_values().collect(),
            arenas: self.arenas.into_values().collect(),
            utilisation: self.utilisation.into_values().collect(),
            contention: self.contention.into_values().collect(),
            coefficients: self.coefficients,
            work: self.work.into_values().collect(),
            times,
            expected,
            repairs,
        })
    }
}

impl Profile {
    /// Reads the profiles of a file. Repairs cells that contradict each other; see [`Profile::repairs`].
    ///
    /// # Errors
    /// The first line that is not a valid line of a profile.
    pub fn read(text: &str) -> Result<Vec<Self>, ProfileError> {
        let parsed =
            text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(|(at, line)| {
                let number = Some(at.saturating_add(1));
                let broken = |error: serde_json::Error| ProfileError {
                    line: number,
                    field: "line".to_owned(),
                    problem: format!("expected a JSON object like {{\"cell\": ...}}: {error}"),
                };
                Ok((number, serde_json::from_str(line).map_err(broken)?))
            });
        Self::gather(parsed)
    }

    /// Builds the profile of a model on a device that cannot be divided, from microseconds by batch size.
    ///
    /// # Errors
    /// A batch size or time that is not valid.
    pub fn undivided(
        model: &str,
        device: &str,
        weights_bytes: u64,
        times: impl IntoIterator<Item = (u32, f64)>,
    ) -> Result<Self, ProfileError> {
        let fault = |(field, problem): Fault| ProfileError { line: None, field: field.to_owned(), problem };
        let mut draft = Draft::new(Header {
            version: 1,
            model: model.to_owned(),
            model_sha256: None,
            device: device.to_owned(),
            engine: String::new(),
            source: Source::Synthesised,
            note: String::new(),
            shapes: Vec::new(),
            units_total: 1,
            weights_bytes: Some(weights_bytes),
            load_us_per_row: 0.0,
        })
        .map_err(fault)?;
        for (batch, time) in times {
            let (p50_us, p95_us, p99_us) = (time, time, time);
            let cell = Cell {
                batch,
                units: 1,
                p50_us,
                p95_us,
                p99_us,
                count: 1,
                left_out: None,
                doubt: None,
                predicted: None,
            };
            draft.add(Line::Cell(cell)).map_err(fault)?;
        }
        draft.done().map_err(fault)
    }

    /// Builds profiles from lines without a file.
    ///
    /// # Errors
    /// The first line that is not valid.
    pub fn of_lines(lines: impl IntoIterator<Item = Line>) -> Result<Vec<Self>, ProfileError> {
        Self::gather(lines.into_iter().map(|line| Ok((None, line))))
    }

    fn gather(
        lines: impl Iterator<Item = Result<(Option<usize>, Line), ProfileError>>,
    ) -> Result<Vec<Self>, ProfileError> {
        let mut done = Vec::new();
        let mut draft: Option<Draft> = None;
        let mut number = None;
        let at = |line: Option<usize>| {
            move |(field, problem): Fault| ProfileError { line, field: field.to_owned(), problem }
        };
        for line in lines {
            let (position, line) = line?;
            number = position;
            match (line, &mut draft) {
                (Line::Profile(header), _) => {
                    let next = Draft::new(header).map_err(at(number))?;
                    if let Some(last) = draft.replace(next) {
                        done.push(last.done().map_err(at(number))?);
                    }
                    if done.len() >= PROFILES_MAX {
                        let problem = format!("expected at most {PROFILES_MAX} profiles a file");
                        return Err(at(number)(("profile", problem)));
                    }
                }
                (line, Some(draft)) => draft.add(line).map_err(at(number))?,
                (_, None) => {
                    return Err(at(number)((
                        "profile",
                        "expected a profile line before all others".to_owned(),
                    )));
                }
            }
        }
        if let Some(last) = draft {
            done.push(last.done().map_err(at(number))?);
        }
        Ok(done)
    }

    /// Returns the lines of this profile, in the file's order. [`Profile::read`] reads them as the same profile, to
    /// 15 digits of each time.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::Profile(self.header.clone())];
        lines.extend(self.cells.iter().cloned().map(Line::Cell));
        lines.extend(self.arenas.iter().copied().map(Line::Arena));
        lines.extend(self.utilisation.iter().copied().map(Line::Utilisation));
        lines.extend(self.contention.iter().copied().map(Line::Contention));
        lines.extend(self.coefficients.map(Line::Coefficients));
        lines.extend(self.work.iter().cloned().map(Line::Work));
        lines
    }

    /// Returns the profile with every time multiplied by `factor`, and with predicted cells replaced by measured mean times in microseconds, by units and
    /// batch, to which the factor does not apply. A profile that would be invalid stays as it is.
    #[must_use]
    pub fn corrected(&self, factor: f64, measured: &BTreeMap<(u32, u32), f64>) -> Self {
        let times = |cell: Cell, factor: f64| Cell {
            p50_us: cell.p50_us * factor,
            p95_us: cell.p95_us * factor,
            p99_us: cell.p99_us * factor,
            predicted: cell.predicted.map(|interval| Interval {
                low_us: interval.low_us * factor,
                high_us: interval.high_us * factor,
            }),
            ..cell
        };
        let of_cell = |cell: Cell| match measured.get(&(cell.units, cell.batch)) {
            Some(mean_us) if cell.predicted.is_some() => {
                let ratio = mean_us / cell.p50_us;
                Cell { count: 1, predicted: None, ..times(cell, ratio) }
            }
            _ => times(cell, factor),
        };
        let line = |line: Line| match line {
            Line::Cell(cell) => Line::Cell(of_cell(cell)),
            Line::Coefficients(coefficients) => Line::Coefficients(coefficients.slowed(factor)),
            other => other,
        };
        let corrected = Self::of_lines(self.lines().into_iter().map(line)).ok();
        corrected.and_then(|all| all.into_iter().next()).unwrap_or_else(|| self.clone())
    }

    /// Returns the text of a file with this profile, with a final newline.
    ///
    /// # Errors
    /// Fails only for values that a profile cannot hold.
    pub fn write(&self) -> Result<String, ProfileError> {
        let mut text = String::new();
        for line in self.lines() {
            let line = serde_json::to_string(&line).map_err(|error| ProfileError {
                line: None,
                field: "profile".to_owned(),
                problem: error.to_string(),
            })?;
            text.push_str(&line);
            text.push('\n');
        }
        Ok(text)
    }

    /// Checks that the latency of the batch on those units is known.
    ///
    /// # Errors
    /// As [`Profile::latency_us`].
    pub fn knows(&self, batch: u32, units: u32) -> Result<(), Outside> {
        self.latency_us(Quantile::P99, batch, units).map(|_| ())
    }
}
