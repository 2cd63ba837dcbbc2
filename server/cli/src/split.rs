//! `tessera split` splits an ONNX model into stages, compares them with the model, and writes them as an ensemble.
//!
//! The graph decides where a split point is possible ([`model_split`]), times of parts of the model decide which split points are best, and nothing is
//! written unless the stages give the outputs of the whole.

pub mod arguments;
mod candidates;
mod equality;
mod inputs;
mod pipeline;
mod report;
mod search;
mod timing;
mod writing;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use model_split::Stage;
use models::engine::{Batch, Session};
use models::split::{PipelineConfig, SplitModel};
use models::{EngineChoice, LoadOptions, Loader, ModelName, Signature};
use node::catalog::Source;
use node::config::Config;
use node::environment::Environment;
use node::output;

use crate::profile::subjects;
use arguments::SplitArgs;
use candidates::Candidates;
use equality::Equality;
use inputs::Generator;
use pipeline::Pipeline;
use report::{Report, StageReport};
use timing::Clock;
use writing::Writer;

/// Batches of different values with which parts are timed.
const TIMED_BATCHES: u32 = 4;
/// Runs of all stages and of the whole, in turn, of which the report has the medians.
const ROUNDS_MIN: usize = 5;
const ROUNDS_MAX: usize = 500;
/// Multiple of an equal share above which the report says how to get more split points.
const UNBALANCED: f64 = 1.25;

/// Splits a model and prints the report.
pub fn run(config: &Config, arguments: &SplitArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    let report = split(config, arguments, environment)?;
    if arguments.json {
        output::line(&serde_json::to_string(&report)?);
    } else {
        output::write(report.text().as_bytes());
    }
    if report.equality.holds() {
        return Ok(ExitCode::SUCCESS);
    }
    let Equality { largest, tolerance, .. } = report.equality;
    let told = format!(
        "error: model `{}`: the stages differ from the whole by {largest:.1e} of its largest value, and nothing was written: expected at \
         most {tolerance} (--tolerance)",
        report.model
    );
    output::complain(&told);
    Ok(ExitCode::FAILURE)
}

/// The model, and how it is loaded.
pub struct Subject<'a> {
    pub name: &'a ModelName,
    pub loader: &'a Loader,
    /// How the whole is loaded.
    pub options: LoadOptions,
    /// The engine that loaded the whole.
    pub engine: &'static str,
    /// Inputs and outputs of the whole.
    pub signature: Signature,
    /// Time for which parts are run.
    pub time: Duration,
    /// How runs are timed.
    pub clock: Clock,
}

impl Subject<'_> {
    /// Whether the model takes batches.
    pub fn is_batched(&self) -> bool {
        self.signature.max_batch > 0
    }

    /// Those inputs of a batch that a part gets, in its order.
    pub fn inputs_of(&self, batch: &Batch, names: &[String]) -> Batch {
        let tensor =
            |name: &String| batch.inputs.iter().flatten().find(|tensor| tensor.name == *name).cloned();
        Batch { inputs: names.iter().map(tensor).collect(), rows: batch.rows }
    }

    /// Loads all stages. The error has the index of the stage that cannot be loaded.
    fn load_stages(
        &self,
        model: &SplitModel,
        stages: &[Stage],
        names: &[ModelName],
    ) -> Result<Vec<Box<dyn Session>>, (usize, anyhow::Error)> {
        let load = |(index, (stage, name)): (usize, (&Stage, &ModelName))| {
            let files = model.stage(stage, name).map_err(|error| (index, error.into()))?;
            self.load_stage(&files).map_err(|error| (index, error))
        };
        stages.iter().zip(names).enumerate().map(load).collect()
    }

    /// Loads a stage as the server will: with checks, and with batches as large as those of the whole.
    fn load_stage(&self, files: &models::ModelFiles) -> anyhow::Result<Box<dyn Session>> {
        let engine = EngineChoice::Named(self.engine);
        let max_batch = Some(self.signature.max_batch);
        let options = LoadOptions { engine, max_batch, free_batch: false, ..self.options.clone() };
        Ok(self.loader.load(files, &options)?)
    }
}

fn split(config: &Config, arguments: &SplitArgs, environment: &Environment) -> anyhow::Result<Report> {
    let count = usize::from(arguments.stages);
    let speeds = if arguments.speeds.is_empty() { vec![1.0; count] } else { arguments.speeds.clone() };
    anyhow::ensure!(
        speeds.len() == count,
        "--speeds: expected a speed for each of {count} stages, got {}",
        speeds.len()
    );
    let source = Source::open(&config.repository)?;
    let asked = std::slice::from_ref(&arguments.model);
    let found = subjects::find(&source, config, "MODEL", asked)?;
    let found = found.into_iter().next().context("expected a model")?;
    let files = found.read(&source).map_err(anyhow::Error::msg)?;
    let stage_names = (1..=count).map(|number| ModelName::new(&format!("{}-{number}", found.name)));
    let stage_names = stage_names.collect::<Result<Vec<_>, _>>()?;
    let repository = config.repository.path.as_deref();
    let writer = arguments.out.as_deref().map(|out| Writer { out, force: arguments.force, repository });
    if let Some(writer) = &writer {
        writer.check(&found.name, &stage_names)?;
    }
    let mut model = SplitModel::read(&files, found.config.free_batch)?;
    enough_points(&model, arguments)?;

    let cores = cores(arguments.cores)?;
    let ort = models::engine::ort::discover(config.repository.ort_library.as_deref(), &environment.ort);
    let loader = Loader::new(ort);
    let options = LoadOptions { reshapes: Vec::new(), ..found.config.load_options(&cores, false) };
    let mut whole = loader.load(&files, &options)?;
    let signature = whole.signature().clone();
    let subject = Subject {
        name: &found.name,
        loader: &loader,
        options,
        engine: whole.engine(),
        signature: signature.clone(),
        time: arguments.time.0,
        clock: Clock::of(arguments.cores),
    };
    let config_of = |stages| PipelineConfig {
        name: &found.name,
        source: found.config.written.as_deref(),
        engine: found.config.engine,
        whole: &signature,
        stages,
    };
    config_of(&[]).check()?;
    let generator = Generator::new(whole.as_mut(), &arguments.shapes, &arguments.ranges)?;
    let recorded = arguments.data.as_deref().map(|path| inputs::recorded(path, &signature)).transpose()?;
    let recorded = recorded.unwrap_or_default();
    let timed = timed_batches(&generator, &signature, arguments.batch)?;

    if subject.is_batched() {
        model.set_batched();
    }
    let probes = generator.probes(whole.as_mut())?;
    let candidates = Candidates::find(&mut model, &subject, arguments.crossing.into(), &probes)?;
    enough_candidates(&candidates, arguments)?;
    let searched = search::search(&model, &subject, &candidates, &timed, (whole.as_mut(), &speeds))?;
    let mut ruled_out = BTreeSet::new();
    let (stages, mut pipeline) = loop {
        let chosen = searched.best(&candidates, &speeds, &ruled_out)?;
        let points = chosen.iter().filter_map(|index| candidates.points.get(*index));
        let positions: Vec<usize> = points.map(|point| point.position).collect();
        let stages = model.graph().stages(&positions)?;
        match subject.load_stages(&model, &stages, &stage_names) {
            Ok(sessions) => break (stages, Pipeline { stages: sessions, clock: subject.clock }),
            Err((stage, error)) => {
                // The tensors before it make the difference to the whole, which was loaded.
                let blamed = chosen.get(stage.saturating_sub(1)).copied();
                if blamed.is_none_or(|index| !ruled_out.insert(index))
                    || searched.parts().saturating_sub(ruled_out.len()) < count - 1
                {
                    return Err(error);
                }
            }
        }
    };
    let mut equality =
        Equality { tolerance: arguments.tolerance, recorded: recorded.len(), ..Equality::default() };
    for rows in rows(arguments, &signature)? {
        let batches = generator.batches(rows, arguments.seeds)?;
        equality.generated = equality.generated.saturating_add(batches.len());
        equality.compare(whole.as_mut(), &mut pipeline, &batches)?;
    }
    equality.compare(whole.as_mut(), &mut pipeline, &recorded)?;

    let (whole_time, times) = median_times(whole.as_mut(), &mut pipeline, &timed, subject.time)?;
    let signatures: Vec<(ModelName, Signature)> = stage_names
        .iter()
        .cloned()
        .zip(pipeline.stages.iter().map(|session| session.signature().clone()))
        .collect();
    let pipeline_config = config_of(&signatures);
    let mut notes = pipeline_config.left_out();
    if model.graph().dead_nodes() > 0 {
        notes.push(format!("{} nodes lead to no output and are left out", model.graph().dead_nodes()));
    }
    if candidates.unbatched > 0 {
        notes.push(format!(
            "{} split points are ruled out, because a crossing tensor does not have the batch as its first dimension",
            candidates.unbatched
        ));
    }
    let written = writer.as_ref().filter(|_| equality.holds());
    if let Some(writer) = written {
        writer.write(&model, &stages, &pipeline_config, &source)?;
    }
    if !ruled_out.is_empty() {
        notes.push(format!(
            "{} split points are ruled out, because a stage cannot be loaded",
            ruled_out.len()
        ));
    }
    let stages = stage_reports(&model, &stages, &stage_names, &candidates, (&times, &speeds));
    let slowest_share = stages.iter().map(|stage| stage.share).fold(0.0, f64::max);
    if slowest_share * count as f64 > UNBALANCED {
        notes.extend(more_points(&model, arguments));
    }
    Ok(Report {
        model: found.name.to_string(),
        version: found.version.0,
        engine: subject.engine.to_owned(),
        batch: arguments.batch.min(signature.max_batch.max(1)),
        cores: arguments.cores,
        slowest_share,
        stages,
        whole_ms: whole_time.as_secs_f64() * 1e3,
        possible_points: candidates.points.len(),
        timed_parts: searched.parts(),
        equality,
        out: written.map(|writer| writer.out.display().to_string()),
        notes,
    })
}

/// Pins this thread to the first cores that the process may use.
pub fn cores(count: u32) -> anyhow::Result<Vec<usize>> {
    let mut cores = gpulet::allowed_cores().context("cannot measure")?;
    let allowed = cores.len();
    let count = usize::try_from(count)?;
    anyhow::ensure!(count <= allowed, "--cores: expected 1 to {allowed}, got {count}");
    cores.truncate(count);
    gpulet::pin_this_thread(&cores)?;
    Ok(cores)
}

/// Checks that the graph has as many split points as are wanted.
fn enough_points(model: &SplitModel, arguments: &SplitArgs) -> anyhow::Result<()> {
    let (wanted, crossing) = (usize::from(arguments.stages) - 1, usize::from(arguments.crossing));
    let graph = model.graph();
    let found = graph.split_points(crossing).len();
    if found >= wanted {
        return Ok(());
    }
    let needed = graph.crossing_needed(wanted).with_context(|| {
        format!(
            "--stages: the model has {} nodes that can be separated: expected fewer stages",
            graph.steps()
        )
    })?;
    let narrowest = graph.narrowest().map(|point| point.crossing.join("`, `")).unwrap_or_default();
    anyhow::bail!(
        "--crossing: {wanted} split points are needed, and at most {crossing} tensors cross at {found} positions: expected --crossing \
         {needed}, the smallest with enough positions; at the narrowest, `{narrowest}` cross"
    )
}

/// Checks that enough split points are left, now that types and shapes are known.
fn enough_candidates(candidates: &Candidates, arguments: &SplitArgs) -> anyhow::Result<()> {
    let (wanted, found) = (usize::from(arguments.stages) - 1, candidates.points.len());
    anyhow::ensure!(
        found >= wanted,
        "--crossing: {wanted} split points are needed, and {found} of those that at most {} tensors cross are possible: at {} others, a crossing \
         tensor does not have the batch as its first dimension: expected a larger --crossing, or `max_batch = 0` for the model",
        arguments.crossing,
        candidates.unbatched
    );
    Ok(())
}

/// What one more crossing tensor would allow.
fn more_points(model: &SplitModel, arguments: &SplitArgs) -> Option<String> {
    let crossing = usize::from(arguments.crossing);
    let (now, more) =
        (model.graph().split_points(crossing).len(), model.graph().split_points(crossing + 1).len());
    (more > now).then(|| {
        format!(
            "with --crossing {}, there are {more} positions instead of {now}, which may balance better",
            crossing + 1
        )
    })
}

fn timed_batches(generator: &Generator, signature: &Signature, rows: u32) -> anyhow::Result<Vec<Batch>> {
    let most = signature.max_batch.max(1);
    anyhow::ensure!(rows <= most, "--batch: the model takes at most {most} rows, got {rows}");
    generator.batches(rows, TIMED_BATCHES)
}

/// Rows of generated batches.
fn rows(arguments: &SplitArgs, signature: &Signature) -> anyhow::Result<Vec<u32>> {
    let most = signature.max_batch.max(1);
    if let Some(rows) = arguments.batches.iter().find(|rows| **rows > most) {
        anyhow::bail!("--batches: the model takes at most {most} rows, got {rows}");
    }
    let usual = [1, 2, 4].into_iter().filter(|rows| *rows <= most);
    Ok(if arguments.batches.is_empty() { usual.collect() } else { arguments.batches.clone() })
}

/// Median times of the whole and of each stage, in turn, so that other work on the machine affects all alike.
fn median_times(
    whole: &mut dyn Session,
    pipeline: &mut Pipeline,
    batches: &[Batch],
    time: Duration,
) -> anyhow::Result<(Duration, Vec<Duration>)> {
    let signature = whole.signature().clone();
    let mut alone = Vec::new();
    let mut stages = vec![Vec::new(); pipeline.stages.len()];
    let mut total = Duration::ZERO;
    for (round, batch) in batches.iter().cycle().take(ROUNDS_MAX).enumerate() {
        let took = timing::once(whole, batch, pipeline.clock)?;
        let run = pipeline.run(&signature, batch)?;
        alone.push(took);
        stages.iter_mut().zip(&run.times).for_each(|(stage, time)| stage.push(*time));
        total = total.saturating_add(took);
        if round >= ROUNDS_MIN && total >= time {
            break;
        }
    }
    Ok((timing::median(&mut alone), stages.iter_mut().map(|times| timing::median(times)).collect()))
}

fn stage_reports(
    model: &SplitModel,
    stages: &[Stage],
    names: &[ModelName],
    candidates: &Candidates,
    (times, speeds): (&[Duration], &[f64]),
) -> Vec<StageReport> {
    let on_device: Vec<f64> =
        times.iter().zip(speeds).map(|(time, speed)| time.as_secs_f64() / speed).collect();
    let all: f64 = on_device.iter().sum();
    let parts = stages.iter().zip(names).zip(times).zip(speeds).zip(&on_device).enumerate();
    let report = parts.map(|(index, ((((stage, name), time), speed), own))| {
        let crossing = if index == 0 { Vec::new() } else { stage.inputs.clone() };
        let bytes = crossing.iter().filter_map(|tensor| candidates.bytes.get(tensor));
        StageReport {
            name: name.to_string(),
            nodes: stage.nodes.len(),
            weights_bytes: model.weights_bytes(stage),
            crossing_bytes_per_row: bytes.fold(0, |sum, bytes| sum.saturating_add(*bytes)),
            crossing,
            time_ms: time.as_secs_f64() * 1e3,
            speed: *speed,
            share: own / all,
        }
    });
    report.collect()
}
