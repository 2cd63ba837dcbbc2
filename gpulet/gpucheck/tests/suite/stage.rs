//! Shared by the tests: a check in this process, and the program in its own.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use gpucheck::bench::{Bench, Stop};
use gpucheck::check::Check;
use gpucheck::checks;
use gpucheck::report::{Fact, Report};
use gpulet_cuda::probe;

/// Runs a check on the first GPU and returns its facts.
pub fn checked(check: Check, engine: gpucheck::Engine, folder: &Path, time: Duration) -> Vec<Fact> {
    let mut lines: Vec<u8> = Vec::new();
    let result: Result<(), Stop> = checks::run(
        check,
        &mut Bench {
            found: probe().unwrap().remove(0),
            report: Report::new(&mut lines),
            until: Instant::now() + time,
            engine,
            models: folder.join("models"),
            profiles: folder.join("profiles.jsonl"),
            onnxruntime: None,
        },
    );
    result.unwrap();
    facts(&lines)
}

/// Runs a check without models.
pub fn checked_without_models(check: Check, time: Duration) -> Vec<Fact> {
    checked(check, Err("no engine in this test".to_owned()), Path::new("/nonexistent"), time)
}

/// The lines as facts; fails on any other line.
pub fn facts(lines: &[u8]) -> Vec<Fact> {
    let text = std::str::from_utf8(lines).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

pub fn fact<'a>(facts: &'a [Fact], name: &str) -> &'a Fact {
    facts.iter().find(|fact| fact.fact == name).unwrap_or_else(|| panic!("no `{name}` in {facts:#?}"))
}

/// Facts that are not as required.
pub fn wrong(facts: &[Fact]) -> Vec<&Fact> {
    facts.iter().filter(|fact| fact.ok == Some(false)).collect()
}

/// Runs the program in a folder.
pub fn program(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpucheck"));
    command.args(words).current_dir(folder).env_remove("ORT_DYLIB_PATH").env_remove("VIRTUAL_ENV");
    command.output().unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
