//! Prints the table of docs/switching.md: how long sessions of each model of a repository take to make, and the memory of the
//! second one. `cargo run --release -p models --example switching -- target/zoo`.
//!
//! Each model is measured in a process of its own, on one thread.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use models::engine::Session;
use models::engine::ort::{Environment, PreparedModel, discover};
use models::repository::Repository;
use models::{
    EffectiveConfig, Known, LoadOptions, Loader, ModelFiles, ModelName, ModelSettings, Reference, inspect,
    release_unused_memory,
};

type Failure = Box<dyn std::error::Error>;

/// Sessions made to find the shortest time of one: everything else that happens on the machine only adds.
const SESSIONS: usize = 9;

/// Name of the variable that makes a process measure one model.
const ONE: &str = "TESSERA_SWITCHING_MODEL";

fn main() -> ExitCode {
    let Some(repository) = std::env::args().nth(1) else {
        eprintln!("expected the folder of a model repository");
        return ExitCode::FAILURE;
    };
    let done = match std::env::var(ONE) {
        Ok(model) => measure(Path::new(&repository), &model),
        Err(_) => measure_all(&repository),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure_all(repository: &str) -> Result<(), Failure> {
    println!(
        "| model | weights, MiB | cold, ms | without sharing, ms | warm, ms | with the first answer, ms | second session, MiB | % of weights | without sharing, MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let itself = std::env::current_exe()?;
    for name in Repository::open(Path::new(repository))?.scan()?.models.keys() {
        let status = Command::new(&itself).arg(repository).env(ONE, name.as_str()).status()?;
        if !status.success() {
            eprintln!("model `{name}` was not measured");
        }
    }
    Ok(())
}

fn measure(repository: &Path, model: &str) -> Result<(), Failure> {
    models::give_back_large_blocks();
    let environment = Environment::of_variables(|name| std::env::var_os(name));
    let loader = Loader::new(discover(None, &environment));
    let settings = settings(repository, model)?;
    let started = Instant::now();
    let files = read(repository, model)?;
    let signature = inspect(&files, &EffectiveConfig::inspection(&settings))?;
    let config = EffectiveConfig::resolve(&files.name, None, &settings, &signature)?;
    let options = LoadOptions { share_weights: true, ..config.load_options(&[], false) };
    let mut first = loader.load(&files, &options)?;
    let cold = started.elapsed();
    let known = Known { engine: first.engine(), signature: first.signature().clone() };
    let prepared = first.prepared().ok_or("its weights are not shared")?;
    let shared = LoadOptions { known: Some(known), ..options };
    let unshared = LoadOptions { share_weights: false, ..shared.clone() };
    let reference = Reference::of(first.as_mut());

    let warm = shortest(|| drop(loader.load_prepared(&prepared, &shared)))?;
    let alone = shortest(|| drop(loader.load(&files, &unshared)))?;
    let answered = match &reference {
        Some(reference) => Some(shortest(|| answer(&loader, &prepared, &shared, reference))?),
        None => None,
    };
    let second = growth(|| loader.load_prepared(&prepared, &shared))?;
    let own = growth(|| loader.load(&files, &unshared))?;

    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let answered = answered.map_or("no sample runs".to_owned(), |time| format!("{:.1}", ms(time)));
    let weights = prepared.bytes();
    println!(
        "| {model} | {:.1} | {:.0} | {:.1} | {:.1} | {answered} | {:.2} | {:.1} | {:.2} |",
        mib(weights),
        ms(cold),
        ms(alone),
        ms(warm),
        mib(second),
        second as f64 * 100.0 / weights as f64,
        mib(own),
    );
    Ok(())
}

/// The settings of a model in the repository's `tessera.toml`, if it has one.
fn settings(repository: &Path, model: &str) -> Result<ModelSettings, Failure> {
    let Ok(text) = std::fs::read_to_string(repository.join("tessera.toml")) else {
        return Ok(ModelSettings::default());
    };
    let file: toml::Table = text.parse()?;
    let own = file.get("models").and_then(|models| models.get(model)).cloned();
    Ok(own.map(toml::Value::try_into).transpose()?.unwrap_or_default())
}

fn read(repository: &Path, model: &str) -> Result<ModelFiles, Failure> {
    let (repository, name) = (Repository::open(repository)?, ModelName::new(model)?);
    let found = repository.find(&name).ok_or("is not in the repository")?;
    let version = found.versions.last().ok_or("has no version")?;
    Ok(repository.read(&name, *version, None)?)
}

/// Makes a session and lets it answer one row.
fn answer(loader: &Loader, prepared: &PreparedModel, options: &LoadOptions, reference: &Reference) {
    if let Ok(mut session) = loader.load_prepared(prepared, options) {
        // A session whose answers differ fails the tests.
        let _ = reference.verify(session.as_mut());
    }
}

fn shortest(mut work: impl FnMut()) -> Result<Duration, Failure> {
    let times = (0..SESSIONS).map(|_| {
        let started = Instant::now();
        work();
        started.elapsed()
    });
    times.min().ok_or_else(|| "no session was made".into())
}

/// Bytes by which the process grows with one more session.
fn growth<E: Into<Failure>>(session: impl FnOnce() -> Result<Box<dyn Session>, E>) -> Result<u64, Failure> {
    let before = proportional_bytes()?;
    let session = session().map_err(Into::into)?;
    let with = proportional_bytes()?;
    drop(session);
    Ok(with.saturating_sub(before))
}

/// Memory of this process, with its share of memory that others map too (`Pss`).
fn proportional_bytes() -> Result<u64, Failure> {
    release_unused_memory();
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line =
        rollup.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("the kernel reports no Pss")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib.saturating_mul(1024))
}
