//! Measures a session, pinned to its cores like a lane of `tessera serve`, one batch size after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use gpulet_core::profile::{ArenaLine, Cell, Header, Line, RowShape, Source as Origin, listed_shapes};
use models::engine::Session;
use models::{EngineChoice, Loader, SampleInputs};
use node::catalog::Source;

use super::Halt;
use super::cpu_wait::{self, CpuWait};
use super::machine::{DEVICE, Machine, engine_words};
use super::progress::Bar;
use super::record::{Record, differences};
use super::repeat::Repeat;
use super::resident;
use super::rotation::{self, INPUT_BYTES_MAX, Shaped};
use super::runs::Measured;
use super::subjects::Subject;

/// Findings of this run that are not in the file.
#[derive(Debug, Default)]
pub struct Findings {
    /// Cells measured in this run, by model, batch and cores.
    pub measured: BTreeMap<(String, u32, u32), Measured>,
    /// Notes on the reliability of the figures.
    pub notes: BTreeSet<String>,
}

/// Destinations of measurements.
#[derive(Debug)]
pub struct Recorder<'a> {
    pub record: &'a mut Record,
    pub bar: &'a mut Bar,
    /// Findings that are not written to the file.
    pub findings: &'a mut Findings,
}

/// What all measurements share.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    /// Where models come from.
    pub source: &'a Source,
    /// Loads sessions of the engines.
    pub loader: &'a Loader,
    pub machine: &'a Machine,
    /// Time of a cell.
    pub time: Duration,
    /// Set by Ctrl-C.
    pub stop: &'a AtomicBool,
}

/// A session to be measured.
pub struct Loaded {
    pub session: Box<dyn Session>,
    /// Sample inputs of each shape, at least one.
    pub shapes: Vec<Shaped>,
    /// Its threads; `None` if the kernel does not report waits.
    pub waiting: Option<CpuWait>,
    /// Memory of the process before the first batch; `None` if the kernel does not report it.
    idle: Option<u64>,
    weights: Option<u64>,
}

impl Bench<'_> {
    /// Measures batches of a model on the first `units` cores. After an error, the cells until then are in the file.
    pub fn measure(
        &self,
        subject: &Subject,
        units: u32,
        batches: &[u32],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Halt> {
        in_a_thread(|| self.pinned(subject, units, batches, recorder))
    }

    fn pinned(
        &self,
        subject: &Subject,
        units: u32,
        batches: &[u32],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Halt> {
        let model = subject.name.as_str();
        let cores = usize::try_from(units).ok().and_then(|count| self.machine.cores.get(..count));
        let cores = cores.ok_or_else(|| Halt::Failed(format!("{units} cores are not there")))?;
        let mut loaded = self.load_on(subject, units, cores, recorder)?;
        let header = self.header(subject, &loaded);
        recorder.findings.notes.extend(notes(model, units, &loaded));
        let most = loaded.session.signature().max_batch.max(1);
        for &batch in batches {
            if batch > most {
                let note = format!(
                    "{model}: batches of more than {most} rows are not measured: they change its answers"
                );
                recorder.findings.notes.insert(note);
            } else {
                recorder.bar.say(format!("{model}, batch {batch} on {}", cores_words(units)));
                let (measured, arena) =
                    self.cell(&mut loaded, batch, recorder.bar).map_err(|halt| match halt {
                        Halt::Failed(reason) => {
                            Halt::Failed(format!("batch {batch} on {}: {reason}", cores_words(units)))
                        }
                        other => other,
                    })?;
                let mut lines = vec![cell_line(batch, units, &measured)];
                lines.extend(arena.and_then(|bytes| arena_line(recorder.record.lines(model), batch, bytes)));
                recorder.record.add(&header, &lines).map_err(Halt::Lost)?;
                recorder.findings.measured.insert((model.to_owned(), batch, units), measured);
            }
            recorder.bar.finish_cell();
        }
        Ok(())
    }

    /// Pins the thread to the cores and loads the model, which must be as it was when the profile that is there was begun.
    pub fn load_on(
        &self,
        subject: &Subject,
        units: u32,
        cores: &[usize],
        recorder: &Recorder<'_>,
    ) -> Result<Loaded, Halt> {
        let model = subject.name.as_str();
        gpulet::pin_this_thread(cores).map_err(|error| Halt::Failed(error.to_string()))?;
        recorder.bar.say(format!("loading {model} for {}", cores_words(units)));
        let loaded = self.load(subject, cores)?;
        if let Some(found) = recorder.record.header(model) {
            let differ = differences(found, &self.header(subject, &loaded));
            if !differ.is_empty() {
                return Err(Halt::Failed(refusal(&differ)));
            }
        }
        Ok(loaded)
    }

    fn load(&self, subject: &Subject, cores: &[usize]) -> Result<Loaded, Halt> {
        let threads = cpu_wait::threads();
        models::release_unused_memory();
        let before = resident::own();
        let files = subject.read(self.source).map_err(Halt::Failed)?;
        let options = subject.config.load_options(cores, false);
        let loaded = self.loader.load(&files, &options);
        let mut session = loaded.map_err(|error| Halt::Failed(error.to_string()))?;
        drop(files);
        session.trim();
        let shapes = samples_of(session.as_mut(), &subject.shapes)?;
        models::release_unused_memory();
        let (idle, own) = (resident::now(), resident::own());
        let weights = own.zip(before).and_then(|(after, before)| after.checked_sub(before));
        let helpers: BTreeSet<u32> = cpu_wait::threads().difference(&threads).copied().collect();
        Ok(Loaded {
            session,
            shapes,
            waiting: CpuWait::of(&helpers),
            idle,
            weights: weights.filter(|bytes| *bytes > 0),
        })
    }

    /// Header of the profile of a model.
    pub fn header(&self, subject: &Subject, loaded: &Loaded) -> Header {
        let engine = loaded.session.engine();
        Header {
            note: format!("{}version {}", self.note_prefix(engine), subject.version),
            shapes: measured_shapes(&subject.shapes, &loaded.shapes),
            weights_bytes: loaded.weights,
            ..self.header_of(subject, engine)
        }
    }

    /// Header of the profile of a model that was never loaded. `rows` are the shapes that it is predicted at, `bytes` the size of its files.
    pub fn predicted_header(
        &self,
        subject: &Subject,
        engine: &str,
        rows: BTreeMap<String, Vec<u64>>,
        bytes: u64,
    ) -> Header {
        let assumed = RowShape { inputs: rows, share: None, assumed: true };
        let shapes = match subject.shapes.as_slice() {
            [] if assumed.inputs.is_empty() => Vec::new(),
            [] => vec![assumed],
            named => named.to_vec(),
        };
        Header {
            source: Origin::Predicted,
            note: format!(
                "{}version {}; weights: size of its files",
                self.note_prefix(engine),
                subject.version
            ),
            shapes,
            weights_bytes: Some(bytes),
            ..self.header_of(subject, engine)
        }
    }

    /// The fields of the header that are known before the model is loaded.
    pub fn header_of(&self, subject: &Subject, engine: &str) -> Header {
        Header {
            version: 1,
            model: subject.name.to_string(),
            model_sha256: Some(subject.hash.to_string()),
            device: DEVICE.to_owned(),
            engine: engine.to_owned(),
            source: Origin::Measured,
            note: self.note_prefix(engine),
            shapes: Vec::new(),
            units_total: self.machine.units(),
            weights_bytes: None,
            load_us_per_row: 0.0,
        }
    }

    /// What all profiles of this machine and engine begin their notes with.
    pub fn note_prefix(&self, engine: &str) -> String {
        format!("{}; {}; ", self.machine.words, engine_words(engine, self.loader))
    }

    /// Checks that an existing profile can be continued, as far as is known without loading the model. The error lists the
    /// differences.
    pub fn check(&self, subject: &Subject, found: &Header) -> Result<(), String> {
        let engine = match subject.config.engine {
            EngineChoice::Named(name) => name,
            EngineChoice::Auto => found.engine.as_str(),
        };
        let mut now = self.header_of(subject, engine);
        if found.note.starts_with(&now.note) {
            now.note.clone_from(&found.note);
        }
        let mut differ = differences(found, &now);
        differ.extend(other_shapes(&subject.shapes, &found.shapes));
        if differ.is_empty() { Ok(()) } else { Err(refusal(&differ)) }
    }

    /// Runs a batch until it is warm, then often enough. Returns its times, and the memory that it needs in addition to
    /// the session, if the kernel reports it.
    fn cell(&self, loaded: &mut Loaded, batch: u32, bar: &mut Bar) -> Result<(Measured, Option<u64>), Halt> {
        let Loaded { session, shapes, waiting, idle, .. } = loaded;
        let batches = rotation::batches(shapes, batch).ok_or_else(|| {
            Halt::Failed(format!(
                "its inputs would be larger than {INPUT_BYTES_MAX} bytes: leave it out of --batches"
            ))
        })?;
        let inputs = batches.iter().flat_map(|batch| batch.inputs.iter().flatten());
        let input_bytes: u64 = inputs.map(|tensor| tensor.data.len() as u64).sum();
        models::release_unused_memory();
        let peak_is_new = resident::forget_peak();
        let mut repeat = Repeat::new(session.as_mut(), waiting.as_ref(), &batches, self.stop);
        let usual = repeat.warm_up(self.time)?;
        let peak = peak_is_new.and_then(|()| resident::peak());
        let arena = peak.zip(*idle).and_then(|(peak, idle)| peak.checked_sub(idle)?.checked_sub(input_bytes));
        let measured = repeat.measure(usual, self.time, |done| bar.show(done))?;
        Ok((measured, arena.filter(|bytes| *bytes > 0)))
    }
}

/// Runs work that pins its thread.
pub fn in_a_thread(work: impl FnOnce() -> Result<(), Halt> + Send) -> Result<(), Halt> {
    thread::scope(|scope| {
        // A thread of its own: what is pinned stays pinned.
        let thread = thread::Builder::new().name("profile".to_owned()).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| Halt::Failed(format!("cannot start a thread: {error}")))?;
        thread.join().unwrap_or_else(|_| Err(Halt::Failed("the thread that measured it panicked".to_owned())))
    })
}

/// Sample inputs of the shapes; of any that the session accepts if no shape is given.
pub fn samples_of(session: &mut dyn Session, shapes: &[RowShape]) -> Result<Vec<Shaped>, Halt> {
    if shapes.is_empty() {
        let none = || {
            Halt::Failed(
                "no sample input runs, so it cannot be measured: name a shape that it accepts, for example --shape INPUT=3x224x224"
                    .to_owned(),
            )
        };
        return Ok(vec![Shaped { samples: SampleInputs::of(session).ok_or_else(none)?, share: 1.0 }]);
    }
    let samples = shapes.iter().map(|shape| {
        let named: Vec<(String, Vec<u64>)> =
            shape.inputs.iter().map(|(name, row)| (name.clone(), row.clone())).collect();
        let option = if shape.share.is_some() { "--from-traffic" } else { "--shape" };
        let failed = |reason| Halt::Failed(format!("{option}: {reason}"));
        let samples = SampleInputs::with_shapes(session, &named).map_err(failed)?;
        Ok(Shaped { samples, share: shape.share.unwrap_or(1.0) })
    });
    samples.collect()
}

/// The shapes as the header has them: every input that is open.
pub fn measured_shapes(wanted: &[RowShape], shaped: &[Shaped]) -> Vec<RowShape> {
    let shapes = shaped.iter().enumerate().map(|(place, shaped)| {
        let wanted = wanted.get(place);
        RowShape {
            inputs: shaped.samples.open_shapes(),
            share: wanted.and_then(|wanted| wanted.share),
            assumed: wanted.is_none(),
        }
    });
    shapes.filter(|shape| !shape.inputs.is_empty()).collect()
}

/// How the shapes of a profile differ from those that are asked for. Shares may differ: traffic goes on.
fn other_shapes(wanted: &[RowShape], found: &[RowShape]) -> Option<String> {
    let same = |wanted: &RowShape, found: &RowShape| {
        let fits = |(name, row): (&String, &Vec<u64>)| match found.inputs.get(name) {
            // The shape of a row may have the batch before it.
            Some(known) => known == row || row.split_first() == Some((&1, known)),
            None => true,
        };
        wanted.share.is_some() == found.share.is_some() && wanted.inputs.iter().all(fits)
    };
    let as_before = match (wanted, found) {
        (_, []) => true,
        ([], [only]) => only.assumed,
        _ => {
            let is_there = |one: &RowShape| found.iter().any(|known| same(one, known));
            wanted.len() == found.len() && wanted.iter().all(is_there)
        }
    };
    (!as_before)
        .then(|| format!("shapes are `{}`, now they are `{}`", listed_shapes(found), listed_shapes(wanted)))
}

/// A number of cores as text.
pub fn cores_words(units: u32) -> String {
    if units == 1 { "1 core".to_owned() } else { format!("{units} cores") }
}

fn refusal(differ: &[String]) -> String {
    format!(
        "the existing profile was measured under other conditions: {}: name another file with --out, or measure again with \
         --fresh",
        differ.join(", ")
    )
}

fn notes(model: &str, units: u32, loaded: &Loaded) -> Vec<String> {
    let mut notes = Vec::new();
    if units > 1 && loaded.session.engine() == models::engine::tract::NAME {
        notes.push(format!("{model}: engine `tract` runs a batch on one thread: more cores change nothing"));
    }
    if loaded.waiting.is_none() {
        notes.push(
            "the kernel does not report how long threads wait for cores: no disturbed runs are left out"
                .to_owned(),
        );
    }
    notes
}

fn cell_line(batch: u32, units: u32, measured: &Measured) -> Line {
    Line::Cell(Cell {
        batch,
        units,
        p50_us: measured.p50_us,
        p95_us: measured.p95_us,
        p99_us: measured.p99_us,
        count: measured.count as u64,
        left_out: Some(measured.left_out as u64),
        doubt: None,
        predicted: None,
    })
}

/// The line that says what batches up to that size need, if it says more than those that are there: a smaller batch
/// needs no more than a larger one, and the most of all numbers of cores counts.
fn arena_line(known: &[Line], batch: u32, bytes: u64) -> Option<Line> {
    let arenas = || {
        known.iter().filter_map(|line| match line {
            Line::Arena(arena) => Some(*arena),
            _ => None,
        })
    };
    let most = arenas().filter(|arena| arena.batch <= batch).map(|arena| arena.bytes).max().unwrap_or(0);
    let said = arenas().filter(|arena| arena.batch == batch).map(|arena| arena.bytes).max();
    let bytes = bytes.max(most);
    said.is_none_or(|said| said < bytes).then_some(Line::Arena(ArenaLine { batch, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arenas_only_grow_with_the_batch_and_are_said_once() {
        let arena = |batch, bytes| Line::Arena(ArenaLine { batch, bytes });
        assert_eq!(arena_line(&[], 1, 10), Some(arena(1, 10)));
        let known = [arena(1, 10), arena(2, 30)];
        assert_eq!(arena_line(&known, 4, 20), Some(arena(4, 30)));
        assert_eq!(arena_line(&known, 2, 30), None);
        assert_eq!(arena_line(&known, 2, 31), Some(arena(2, 31)));
        assert_eq!(arena_line(&known, 1, 5), None);
    }
}
