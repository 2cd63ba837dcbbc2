//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::question::{self, Question};

/// What a child of the program is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Ask a question.
    Ask(Question),
    /// Run a batch on each of two gpulets, then a kernel that faults on the first.
    Fault,
    /// Ask a table for an entry beyond its end.
    Index,
    /// Ask of models what `libraries` asks, in a process that has a share of the GPU under MPS.
    Share,
    /// Run one batch: how long a process takes from its start to that is what a restart costs.
    Health,
}

impl Errand {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ask(question) => question.word(),
            Self::Fault => "fault",
            Self::Index => "index",
            Self::Share => "share",
            Self::Health => "health",
        }
    }
}

impl std::str::FromStr for Errand {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let questions = Question::ALL.into_iter().map(Self::Ask);
        let mut all = questions.chain([Self::Fault, Self::Index, Self::Share, Self::Health]);
        all.find(|errand| errand.word() == word).ok_or_else(|| format!("unknown errand `{word}`"))
    }
}

/// Asks an NVIDIA GPU what gpulets on it can do.
///
/// One JSON line an answer on standard output, progress on standard error. No setting of the GPU is changed. Every
/// question is asked by a process of its own, which is ended when its time is over.
#[derive(Clone, Debug, Parser)]
#[command(version, after_help = question::table(), max_term_width = 110)]
pub struct Arguments {
    /// Questions to ask, in this order.
    #[arg(required_unless_present_any = ["all", "probe", "child"], conflicts_with_all = ["all", "probe"])]
    pub questions: Vec<Question>,
    /// All questions, in less than 8 minutes.
    #[arg(long)]
    pub all: bool,
    /// Only says which GPU there is.
    #[arg(long, conflicts_with = "all")]
    pub probe: bool,
    /// Which GPU, by the driver's number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: u32,
    /// A file that the lines are appended to as well.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Folder with a folder for each model: `model.onnx` and, to be compared with, `reference.json`.
    #[arg(long, value_name = "FOLDER", default_value = "models")]
    pub models: PathBuf,
    /// Profile file that `profile` appends to and `mix` plans with.
    #[arg(long, value_name = "FILE", default_value = "gpucheck-profile.jsonl")]
    pub profiles: PathBuf,
    /// ONNX Runtime with a CUDA provider; without it `libonnxruntime.so` is looked for as the server does.
    #[arg(long, value_name = "FILE", env = "ORT_DYLIB_PATH")]
    pub onnxruntime: Option<PathBuf>,
    /// Seconds for each question, in place of its own.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
    /// What this process does for another one of this program.
    #[arg(long, hide = true)]
    pub child: Option<Errand>,
}

impl Arguments {
    /// The questions to ask, in order.
    pub fn asked(&self) -> Vec<Question> {
        if self.all { Question::ALL.to_vec() } else { self.questions.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once("gpucheck").chain(words.split_whitespace()))
    }

    #[test]
    fn what_is_asked_is_said_in_one_way() {
        assert_eq!(parsed("facts mix --device 1").unwrap().asked(), [Question::Facts, Question::Mix]);
        assert_eq!(parsed("--all").unwrap().asked(), Question::ALL);
        assert!(parsed("--probe").unwrap().asked().is_empty());
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
    fn errands_are_told_by_their_words() {
        for errand in
            [Errand::Ask(Question::Resize), Errand::Fault, Errand::Index, Errand::Share, Errand::Health]
        {
            assert_eq!(errand.word().parse(), Ok(errand));
        }
        assert!("speed".parse::<Errand>().is_err());
    }
}
