//! What tests share: a question asked in this process, and the program in one of its own.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use gpucheck::answer::{Answers, Fact};
use gpucheck::bench::{Bench, Stop};
use gpucheck::question::Question;
use gpulet_cuda::probe;

/// Asks a question of the first GPU; what it said.
pub fn asked(question: Question, engine: gpucheck::Engine, folder: &Path, time: Duration) -> Vec<Fact> {
    let mut lines: Vec<u8> = Vec::new();
    let result: Result<(), Stop> = question.ask(&mut Bench {
        found: probe().unwrap().remove(0),
        answers: Answers::new(&mut lines),
        until: Instant::now() + time,
        engine,
        models: folder.join("models"),
        profiles: folder.join("profiles.jsonl"),
        onnxruntime: None,
    });
    result.unwrap();
    facts(&lines)
}

/// Without models.
pub fn kernels_asked(question: Question, time: Duration) -> Vec<Fact> {
    asked(question, Err("no engine in this test".to_owned()), Path::new("/nonexistent"), time)
}

/// The lines as facts; every one of them must be one.
pub fn facts(lines: &[u8]) -> Vec<Fact> {
    let text = std::str::from_utf8(lines).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

pub fn fact<'a>(facts: &'a [Fact], name: &str) -> &'a Fact {
    facts.iter().find(|fact| fact.fact == name).unwrap_or_else(|| panic!("no `{name}` in {facts:#?}"))
}

/// Everything that is said to be wrong.
pub fn wrong(facts: &[Fact]) -> Vec<&Fact> {
    facts.iter().filter(|fact| fact.ok == Some(false)).collect()
}

/// Runs the program in a folder.
pub fn program(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpucheck"));
    command.args(words).current_dir(folder).env_remove("ORT_DYLIB_PATH").env_remove("VIRTUAL_ENV");
    command.output().unwrap()
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
