//! `--budget` and `--within`: measures the cells whose outcome is expected to change the plan most, and predicts the others. `--predict`
//! measures none.

use std::time::{Duration, Instant};

use estimator::{CHANGE_MIN, Estimate, Network, Objective, Place};
use gpulet_core::profile::{Cell, Header, Interval, Line, Profile, Source};
use models::engine::{ort, tract};
use models::{EngineChoice, Format};

use super::Halt;
use super::bench::{Bench, Recorder};
use super::known_models::{KnownModels, measured, network, operators, place, timing, work_lines};
use super::subjects::{Failure, Subject};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest number of cells of all models.
    pub cells: Option<usize>,
    /// Longest time for all models.
    pub time: Option<Duration>,
}

/// Why a model is not measured further.
enum Reason {
    Complete,
    Settled,
    Cells,
    Time,
}

impl Reason {
    fn words(&self) -> &'static str {
        match self {
            Self::Complete => "nothing is left to measure",
            Self::Settled => "no other measurement is expected to change the plan by 1 % or more",
            Self::Cells => "--budget is used",
            Self::Time => "--within has passed",
        }
    }
}

/// A model with all its cells.
struct Grid<'a> {
    subject: &'a Subject,
    cells: Vec<(u32, u32)>,
    units_total: u32,
}

impl<'a> Grid<'a> {
    fn new(subject: &'a Subject, cores: &[u32], units_total: u32) -> Self {
        let of_units =
            |units: &u32| subject.batches.iter().map(move |batch| (*batch, *units)).collect::<Vec<_>>();
        Self { subject, cells: cores.iter().flat_map(of_units).collect(), units_total }
    }

    fn places(&self) -> Vec<Place> {
        self.cells.iter().map(|(batch, units)| place(*batch, *units, self.units_total)).collect()
    }

    /// Lines for the cells that were not measured.
    fn predicted(&self, estimate: &Estimate<'_>, own: &[Cell], tails: (f64, f64)) -> Vec<Line> {
        let is_open = |(batch, units): &&(u32, u32)| {
            !own.iter().any(|cell| (cell.batch, cell.units) == (*batch, *units))
        };
        let line = |(batch, units): &(u32, u32)| {
            let predicted = estimate.at(place(*batch, *units, self.units_total));
            let p50_us = predicted.time_us;
            Line::Cell(Cell {
                batch: *batch,
                units: *units,
                p50_us,
                p95_us: tails.0 * p50_us,
                p99_us: tails.1 * p50_us,
                count: 0,
                left_out: None,
                doubt: None,
                predicted: Some(Interval { low_us: predicted.low_us, high_us: predicted.high_us }),
            })
        };
        self.cells.iter().filter(is_open).map(line).collect()
    }
}

/// Measures models within limits. `others` are further profiles of this machine. Returns true if it was interrupted.
pub fn measure(
    bench: &Bench<'_>,
    subjects: &[Subject],
    (cores, others): (&[u32], &[Profile]),
    limits: Limits,
    recorder: &mut Recorder<'_>,
    failed: &mut Vec<Failure>,
) -> anyhow::Result<bool> {
    let began = Instant::now();
    let (mut used, mut before) = (0, None);
    let all: usize = subjects.iter().map(|subject| subject.batches.len().saturating_mul(cores.len())).sum();
    recorder.bar.expect(limits.cells.map_or(all, |cells| cells.min(all)));
    if let Some(time) = limits.time {
        recorder.bar.within(time);
    }
    for (at, subject) in subjects.iter().enumerate() {
        // What earlier models did not use is divided among the later ones.
        let models = subjects.len().saturating_sub(at).max(1);
        let limits = Limits {
            cells: limits.cells.map(|cells| cells.saturating_sub(used).div_ceil(models)),
            time: limits
                .time
                .map(|time| time.saturating_sub(began.elapsed()) / u32::try_from(models).unwrap_or(u32::MAX)),
        };
        let grid = Grid::new(subject, cores, bench.machine.units());
        let work = match subject.read(bench.source).and_then(|files| operators(subject, &files, bench.loader))
        {
            Ok(operators) => Some(network(&operators)),
            Err(reason) => {
                let note = format!("{}: predicted from its own measured cells only: {reason}", subject.name);
                recorder.findings.notes.insert(note);
                None
            }
        };
        let mut search = Search { bench, grid, work, limits, used: 0 };
        let outcome = search.run(others, &mut before, recorder);
        used += search.used;
        match outcome {
            Ok(()) => {}
            Err(Halt::Stopped) => return Ok(true),
            Err(Halt::Lost(error)) => return Err(error),
            Err(Halt::Failed(reason)) => failed.push(Failure { model: subject.name.to_string(), reason }),
        }
    }
    Ok(false)
}

/// The measurement of one model.
struct Search<'a> {
    bench: &'a Bench<'a>,
    grid: Grid<'a>,
    work: Option<Network>,
    limits: Limits,
    /// Cells measured so far.
    used: usize,
}

impl Search<'_> {
    fn run(
        &mut self,
        others: &[Profile],
        before: &mut Option<KnownModels>,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Halt> {
        let began = Instant::now();
        let model = self.grid.subject.name.as_str();
        let like = recorder.record.header(model).cloned();
        let like = like.unwrap_or_else(|| {
            self.bench.header_of(self.grid.subject, engine(self.bench, self.grid.subject))
        });
        let known = known(self.bench, &like, others, before.take(), recorder);
        let mut own = measured(recorder.record.lines(model));
        let mut longest = Duration::ZERO;
        let reason = loop {
            let timings: Vec<_> = own.iter().map(|cell| timing(cell, self.grid.units_total)).collect();
            let estimate = known.estimator.estimate(self.work.as_ref(), &timings);
            let slo_us = self.grid.subject.config.slo.map_or(f64::INFINITY, |slo| slo.as_secs_f64() * 1e6);
            let objective = Objective { slo_us, rate_per_s: None, tail: known.tails_of(own.iter()).1 };
            let Some(next) = estimate.next(&objective, &self.grid.places()) else { break Reason::Complete };
            if !own.is_empty() && next.change < CHANGE_MIN {
                break Reason::Settled;
            }
            if self.limits.cells.is_some_and(|cells| self.used >= cells) {
                break Reason::Cells;
            }
            if self.limits.time.is_some_and(|time| began.elapsed().saturating_add(longest) > time) {
                break Reason::Time;
            }
            let found = self.grid.cells.iter().copied();
            let found = found.zip(self.grid.places()).find(|(_, place)| *place == next.place);
            let Some(((batch, units), _)) = found else { break Reason::Complete };
            let started = Instant::now();
            self.bench.measure(self.grid.subject, units, &[batch], recorder)?;
            longest = longest.max(started.elapsed());
            own = measured(recorder.record.lines(model));
            if own.iter().any(|cell| (cell.batch, cell.units) == (batch, units)) {
                self.used += 1;
            } else {
                // Larger than the session takes, which was noted.
                self.grid.cells.retain(|(rows, _)| *rows < batch);
            }
        };
        self.finish(&known, &own, &reason, recorder)?;
        *before = Some(known);
        Ok(())
    }

    /// Predicts the other cells, and says why they were not measured.
    fn finish(
        &self,
        known: &KnownModels,
        own: &[Cell],
        reason: &Reason,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Halt> {
        let model = self.grid.subject.name.as_str();
        let timings: Vec<_> = own.iter().map(|cell| timing(cell, self.grid.units_total)).collect();
        let estimate = known.estimator.estimate(self.work.as_ref(), &timings);
        let lines = self.grid.predicted(&estimate, own, known.tails_of(own.iter()));
        if own.is_empty() {
            return Err(Halt::Failed(format!(
                "no cell was measured: {}: allow more, or predict it with --predict",
                reason.words()
            )));
        }
        let mut note = format!("{model}: {} of {} cells measured", own.len(), self.grid.cells.len());
        if !lines.is_empty() {
            note.push_str(", the others predicted: ");
            note.push_str(reason.words());
        }
        recorder.findings.notes.insert(note);
        let Some(header) = recorder.record.header(model).cloned() else { return Ok(()) };
        if lines.is_empty() { Ok(()) } else { recorder.record.add(&header, &lines).map_err(Halt::Lost) }
    }
}

/// What the profiles of the file and others say about a model like this.
fn known(
    bench: &Bench<'_>,
    like: &Header,
    others: &[Profile],
    before: Option<KnownModels>,
    recorder: &Recorder<'_>,
) -> KnownModels {
    let mut profiles = others.to_vec();
    profiles.extend(recorder.record.profiles());
    KnownModels::of(&profiles, like, &bench.note_prefix(&like.engine), before)
}

/// The engine that runs a model, as far as it is known without loading it.
fn engine(bench: &Bench<'_>, subject: &Subject) -> &'static str {
    match subject.config.engine {
        EngineChoice::Named(name) => name,
        EngineChoice::Auto if bench.loader.ort.is_ok() => ort::NAME,
        EngineChoice::Auto => tract::NAME,
    }
}

/// Predicts all cells that were not measured.
pub fn predict(
    bench: &Bench<'_>,
    subjects: &[Subject],
    (cores, others): (&[u32], &[Profile]),
    recorder: &mut Recorder<'_>,
    failed: &mut Vec<Failure>,
) -> anyhow::Result<()> {
    let mut before = None;
    for subject in subjects {
        let model = subject.name.as_str();
        let files = subject.read(bench.source);
        let described = files.and_then(|files| {
            let size = files.size();
            Ok((operators(subject, &files, bench.loader)?, size))
        });
        let (operators, size) = match described {
            Ok(described) => described,
            Err(reason) => {
                failed.push(Failure { model: model.to_owned(), reason });
                continue;
            }
        };
        let work = network(&operators);
        let there =
            recorder.record.header(model).filter(|header| header.source != Source::Predicted).cloned();
        let header = there.clone().unwrap_or_else(|| {
            bench.predicted_header(subject, engine(bench, subject), operators.rows.clone(), size)
        });
        let known = known(bench, &header, others, before.take(), recorder);
        anyhow::ensure!(
            known.estimator.knows_operators(),
            "--predict: {} measured models with engine `{}` on this machine in the profiles: expected {} or more: measure some first, or name \
             files of profiles with --from",
            known.len(),
            header.engine,
            estimator::MODELS_MIN
        );
        let own = measured(recorder.record.lines(model));
        let timings: Vec<_> = own.iter().map(|cell| timing(cell, bench.machine.units())).collect();
        let estimate = known.estimator.estimate(Some(&work), &timings);
        let grid = Grid::new(subject, cores, bench.machine.units());
        let mut lines = grid.predicted(&estimate, &own, known.tails_of(own.iter()));
        recorder.findings.notes.insert(format!(
            "{model}: {} cells predicted from {} measured models; the first batches will show how long they take",
            lines.len(),
            known.len()
        ));
        if there.is_none() {
            lines.extend(work_lines(&work));
            lines.extend(known.arena_lines(&work, &subject.batches));
        }
        recorder.record.forget_predictions(std::iter::once(model))?;
        if !lines.is_empty() {
            recorder.record.add(&header, &lines)?;
        }
        before = Some(known);
    }
    Ok(())
}

/// Adds the work of operators to the profiles of models that were measured, so that others can be predicted from them.
pub fn add_work(bench: &Bench<'_>, subjects: &[Subject], recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    for subject in subjects {
        let model = subject.name.as_str();
        let has_work = recorder.record.lines(model).iter().any(|line| matches!(line, Line::Work(_)));
        let Some(header) = recorder.record.header(model).cloned().filter(|_| !has_work) else { continue };
        let Ok(files) = subject.read(bench.source) else { continue };
        if files.format != Format::Onnx {
            continue;
        }
        let mut shaped = subject.clone();
        shaped.shapes.clone_from(&header.shapes);
        match operators(&shaped, &files, bench.loader) {
            Ok(operators) => recorder.record.add(&header, &work_lines(&network(&operators)))?,
            Err(reason) => {
                recorder
                    .findings
                    .notes
                    .insert(format!("{model}: no other model is predicted from it: {reason}"));
            }
        }
    }
    Ok(())
}
