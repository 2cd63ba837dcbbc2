//! One run: what is tried, until the search or a limit ends it, and the comparison with the default settings.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context as _;
use models::{EngineChoice, Format, Loader};
use node::catalog::Source;
use node::config::Config;
use node::environment::Environment;
use node::output;
use tuning::{
    BATCHES, Choice, Engine, Measured, Objective, Reason, Search, Settings, Space, Surface, search,
};

use super::arguments::TuneArgs;
use super::attempts::Attempts;
use super::comparison::{self, surface};
use super::confirmation::{self, Confirmation};
use super::grid_file::{Conditions, GridFile, of_other_model};
use super::report::{Report, Stopped};
use super::trial::Rig;
use crate::profile::machine::{Machine, engine_words};
use crate::profile::progress::Bar;
use crate::profile::subjects::{self, Subject};
use crate::profile::{Halt, INTERRUPTED};

/// What was found out before the first trial.
pub struct Prepared {
    pub space: Space,
    pub conditions: Conditions,
    pub batched: bool,
    pub notes: Vec<String>,
}

/// Tunes a model, or compares searches.
pub fn run(
    config: &Config,
    arguments: &TuneArgs,
    environment: &Environment,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let slo = arguments.slo.or_else(|| config.models.get(&arguments.model).and_then(|model| model.slo));
    let slo = slo.with_context(|| {
        format!("--slo: expected an objective such as `50ms`, here or as `models.{}.slo`", arguments.model)
    })?;
    if let (true, Some(path)) = (arguments.compare, &arguments.grid) {
        comparison::run(arguments, path, slo)?;
        return Ok(ExitCode::SUCCESS);
    }
    let machine = Machine::here()?;
    let source = Source::open(&config.repository)?;
    let names = std::slice::from_ref(&arguments.model);
    let mut subjects = subjects::find(&source, config, "MODEL", names)?;
    let mut subject = subjects.pop().with_context(|| format!("MODEL: no model `{}`", arguments.model))?;
    subject.shapes = subjects::shapes_of_rows(&arguments.shapes, &subject).map_err(anyhow::Error::msg)?;
    let ort = models::engine::ort::discover(config.repository.ort_library.as_deref(), &environment.ort);
    let loader = Loader::new(ort);
    let mut file = GridFile::open(arguments.grid.as_deref())?;
    let bar = Bar::new(environment.stderr_is_terminal);
    bar.say(format!("loading {}", subject.name));
    let rig =
        Rig { source: &source, loader: &loader, machine: &machine, subject: &subject, batch_max: 0, stop };
    let prepared = match prepare(&rig, arguments) {
        Ok(prepared) => prepared,
        Err(Halt::Stopped) => return Ok(ExitCode::from(INTERRUPTED)),
        Err(Halt::Lost(error)) => return Err(error),
        Err(Halt::Failed(reason)) => anyhow::bail!("model `{}`: {reason}", subject.name),
    };
    file.begin(&prepared.conditions)?;
    let Prepared { space, conditions, batched, notes } = prepared;
    let others = arguments.from.iter().map(|path| Ok(surface(&space, &of_other_model(path, &conditions)?)));
    let others: Vec<Surface> = others.collect::<anyhow::Result<_>>()?;
    let mut measured = Measured::default();
    for cell in file.cells() {
        if let Some(index) = cell.configuration().and_then(|configuration| space.index(configuration)) {
            measured.add(index, cell.measurement());
        }
    }
    let known = measured.len();
    let objective = Objective { slo_us: slo.0.as_secs_f64() * 1e6 };
    let settings = Settings { space: &space, objective, seed: arguments.seed, others: &others };
    let mut chosen =
        search(&arguments.search, &settings).map_err(|reason| anyhow::anyhow!("--search: {reason}"))?;
    let rig = Rig { batch_max: space.batches().last().copied().unwrap_or(1), ..rig };
    let mut attempts =
        Attempts { rig, space: &space, objective, time: arguments.time.0, measured, file, bar, loaded: None };
    let begun = Instant::now();
    let stopped = search_on(&mut attempts, chosen.as_mut(), arguments, begun)?;
    let searched = begun.elapsed();
    let trials = attempts.measured.len().saturating_sub(known);
    let confirmation = match stopped {
        Stopped::Interrupted => Confirmation::default(),
        _ => confirmation::confirm(&mut attempts)?,
    };
    let interrupted = stop.load(Ordering::Relaxed);
    attempts.bar.clear();
    let report = Report {
        subject: &subject,
        space: &space,
        measured: &attempts.measured,
        objective,
        slo,
        search: &arguments.search,
        seed: arguments.seed,
        trials,
        known,
        seconds: searched.as_secs_f64(),
        seconds_in_all: begun.elapsed().as_secs_f64(),
        stopped: if interrupted { Stopped::Interrupted } else { stopped },
        confirmation,
        notes,
        batched,
        machine: &machine,
        file: config.file.as_deref().map(|(_, text)| text.as_str()),
    };
    report.deliver(arguments)?;
    Ok(if interrupted {
        ExitCode::from(INTERRUPTED)
    } else if report.winner().is_some() {
        ExitCode::SUCCESS
    } else {
        output::complain(&format!(
            "error: model `{}`: no configuration that was tried meets {slo}: a longer objective, or a larger --budget",
            subject.name
        ));
        ExitCode::FAILURE
    })
}

/// Tries what the search wants, as far as the limits allow.
fn search_on(
    attempts: &mut Attempts<'_>,
    search: &mut dyn Search,
    arguments: &TuneArgs,
    begun: Instant,
) -> anyhow::Result<Stopped> {
    let budget = usize::try_from(arguments.budget).unwrap_or(usize::MAX);
    let open = attempts.space.len().saturating_sub(attempts.measured.len());
    attempts.bar.expect(budget.min(open));
    let mut trials = 0_usize;
    loop {
        let index = match search.next(&attempts.measured) {
            Choice::Try(index) => index,
            Choice::Stop(Reason::Exhausted) => return Ok(Stopped::Exhausted),
            Choice::Stop(Reason::NoGain { expected }) => return Ok(Stopped::NoGain { expected }),
        };
        if trials >= budget {
            return Ok(Stopped::Budget);
        }
        if arguments.within.is_some_and(|limit| begun.elapsed() >= limit.0) {
            return Ok(Stopped::Time);
        }
        match attempts.attempt(index) {
            Ok(()) => trials = trials.saturating_add(1),
            Err(Halt::Stopped) => return Ok(Stopped::Interrupted),
            Err(Halt::Lost(error)) => return Err(error),
            Err(Halt::Failed(reason)) => anyhow::bail!("model `{}`: {reason}", attempts.rig.subject.name),
        }
    }
}

/// Loads the model on each engine, and makes the space of those that run it.
fn prepare(rig: &Rig<'_>, arguments: &TuneArgs) -> Result<Prepared, Halt> {
    let (subject, machine) = (rig.subject, rig.machine);
    let files = subject.read(rig.source).map_err(Halt::Failed)?;
    if files.format != Format::Onnx {
        let format = files.format.as_str();
        return Err(Halt::Failed(format!(
            "is a {format} model: expected an ONNX model, which has settings to tune"
        )));
    }
    if !subject.config.ort.accelerators.is_empty() {
        return Err(Halt::Failed(
            "config.pbtxt: optimization.execution_accelerators: trials run on cores: expected none"
                .to_owned(),
        ));
    }
    drop(files);
    let (mut engines, mut notes, mut found) = (Vec::new(), Vec::new(), None);
    let mut reasons = Vec::new();
    for engine in wanted(subject) {
        let single = Space::new(machine.units(), &[1], &[engine]);
        let Some(setup) = single.setups().first() else { continue };
        match rig.load(*setup) {
            Ok(loaded) => {
                engines.push(engine);
                found.get_or_insert((loaded.batch_max(), loaded.shapes(&subject.shapes)));
            }
            Err(Halt::Failed(reason)) => {
                notes.push(format!("engine `{}` is not tried: {reason}", engine.as_str()));
                reasons.push(reason);
            }
            Err(halt) => return Err(halt),
        }
    }
    let (most, shapes) = found.ok_or_else(|| Halt::Failed(reasons.join("; ")))?;
    let batches = batches(&arguments.batches, subject, most).map_err(Halt::Failed)?;
    let conditions = Conditions {
        model: subject.name.to_string(),
        model_sha256: subject.hash.to_string(),
        machine: machine.words.clone(),
        cores: machine.units(),
        engines: engines.iter().map(|engine| engine_words(engine.as_str(), rig.loader)).collect(),
        time_ms: u64::try_from(arguments.time.0.as_millis()).unwrap_or(u64::MAX),
        shapes,
    };
    let space = Space::new(machine.units(), &batches, &engines);
    Ok(Prepared { space, conditions, batched: most > 0, notes })
}

/// Engines that the configuration allows.
fn wanted(subject: &Subject) -> Vec<Engine> {
    let all = Engine::EACH.into_iter();
    match subject.config.engine {
        EngineChoice::Auto => all.collect(),
        EngineChoice::Named(name) => all.filter(|engine| engine.as_str() == name).collect(),
    }
}

fn batches(asked: &[u32], subject: &Subject, most: u32) -> Result<Vec<u32>, String> {
    if most == 0 {
        return match asked.iter().find(|rows| **rows > 1) {
            Some(rows) => {
                Err(format!("--batches: {rows}: the model is not batched: expected 1, or no --batches"))
            }
            None => Ok(vec![1]),
        };
    }
    if let Some(rows) = asked.iter().find(|rows| **rows > most) {
        return Err(format!(
            "--batches: {rows}: it takes at most {most} rows: leave it out, or raise `models.{}.max_batch`",
            subject.name
        ));
    }
    let usual = BATCHES.into_iter().filter(|rows| *rows <= most);
    Ok(if asked.is_empty() { usual.collect() } else { asked.to_vec() })
}
