//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::check::{self, Check};
use crate::operator::Operator;

/// What a child process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Runs a check.
    Check(Check),
    /// Runs a batch on each of two gpulets, then a kernel that faults on the first.
    Fault,
    /// Requests entries beyond the end of a table from a model of this operator.
    Index(Operator),
    /// Runs the models of the `libraries` check with a share of the GPU under MPS.
    Share,
    /// Runs one batch: from process start to its end is the cost of a restart.
    Health,
}

impl Task {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check(check) => check.name(),
            Self::Fault => "fault",
            Self::Index(operator) => operator.name(),
            Self::Share => "share",
            Self::Health => "health",
        }
    }
}

impl std::str::FromStr for Task {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let checks = Check::ALL.into_iter().map(Self::Check);
        let operators = Operator::ALL.into_iter().map(Self::Index);
        let mut all = checks.chain(operators).chain([Self::Fault, Self::Share, Self::Health]);
        all.find(|task| task.name() == name).ok_or_else(|| format!("unknown task `{name}`"))
    }
}

/// Checks what gpulets can do on an NVIDIA GPU.
///
/// Writes one JSON line per fact to standard output, and progress to standard error. Changes no setting of the GPU. Every
/// check runs in its own process, which is killed when its time is over.
#[derive(Clone, Debug, Parser)]
#[command(version, after_help = check::table(), max_term_width = 110)]
pub struct Arguments {
    /// Checks to run, in this order.
    #[arg(required_unless_present_any = ["all", "probe", "child"], conflicts_with_all = ["all", "probe"])]
    pub checks: Vec<Check>,
    /// Runs all checks, in less than 8 minutes.
    #[arg(long)]
    pub all: bool,
    /// Only reports the GPU.
    #[arg(long, conflicts_with = "all")]
    pub probe: bool,
    /// The GPU, by the driver's number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: u32,
    /// A file to append the lines to as well.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Folder with a folder per model: `model.onnx` and, to compare results, `reference.json`.
    #[arg(long, value_name = "FOLDER", default_value = "models")]
    pub models: PathBuf,
    /// Profile file that `profile` appends to and `mix` plans with.
    #[arg(long, value_name = "FILE", default_value = "gpucheck-profile.jsonl")]
    pub profiles: PathBuf,
    /// ONNX Runtime with a CUDA provider; by default `libonnxruntime.so` is searched as the server does.
    #[arg(long, value_name = "FILE", env = "ORT_DYLIB_PATH")]
    pub onnxruntime: Option<PathBuf>,
    /// Seconds per check, instead of its own time.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
    /// What this process does as a child of another one.
    #[arg(long, hide = true)]
    pub child: Option<Task>,
}

impl Arguments {
    /// The checks to run, in order.
    pub fn checks(&self) -> Vec<Check> {
        if self.all { Check::ALL.to_vec() } else { self.checks.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once("gpucheck").chain(words.split_whitespace()))
    }

    #[test]
    fn checks_are_chosen_by_name_or_with_all() {
        assert_eq!(parsed("facts mix --device 1").unwrap().checks(), [Check::Facts, Check::Mix]);
        assert_eq!(parsed("--all").unwrap().checks(), Check::ALL);
        assert!(parsed("--probe").unwrap().checks().is_empty());
        for misuse in [
            "",
            "--all facts",
            "--probe facts",
            "--all --probe",
            "speed",
            "facts --device -1",
            "facts --seconds 0",
        ] {
            assert_eq!(parsed(misuse).unwrap_err().exit_code(), i32::from(crate::exit::MISUSE), "{misuse}");
        }
    }

    #[test]
    fn tasks_are_parsed_by_name() {
        for task in [
            Task::Check(Check::Resize),
            Task::Fault,
            Task::Index(Operator::GatherNd),
            Task::Share,
            Task::Health,
        ] {
            assert_eq!(task.name().parse(), Ok(task));
        }
        assert!("speed".parse::<Task>().is_err());
    }
}
