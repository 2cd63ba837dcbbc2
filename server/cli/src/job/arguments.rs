//! Options of `tessera job`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jobs::Format;

use crate::rest::ServerArgs;

/// Examples for `tessera job --help`.
pub const JOB_EXAMPLES: &str = "\
Examples:
  tessera job submit --model minilm --input texts.jsonl --output embeddings.jsonl
  tessera job submit --model minilm --input texts.jsonl --by 06:00
  tessera job list
  tessera job watch 7
  tessera job results 7 --output embeddings.jsonl
  tessera job submit --model ranker --input features.parquet --output scores.parquet
  tessera job submit --model resnet50 --input images.npy --outputs logits --output logits.npy

JSON lines: each line of the input is an object with the model's inputs by name, or an inference request. Line n of the results is
the answer to line n, or {\"error\": ...}. Parquet: a column for each input and each output, and a column `error`. NumPy: an array, or
arrays by name (.npz), whose first dimension is the rows; a row without an answer ends the job.

Exit code 0: success. 1: the server refused or did not respond, or a job that was waited for is not done. 2: wrong usage.";

fn format(word: &str) -> Result<Format, String> {
    word.parse().map_err(|error| format!("{error}"))
}

/// Options of `job`.
#[derive(Args, Clone, Debug)]
pub struct JobArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Print the result as JSON; `watch` prints a line each second.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub action: JobAction,
}

/// What to do with jobs.
#[derive(Clone, Debug, Subcommand)]
pub enum JobAction {
    /// Send a file whose rows run through a model as best effort.
    Submit(SubmitArgs),
    /// List jobs: how far they are, and when they will end.
    List,
    /// Show one job.
    Show {
        /// Number of the job.
        job: u64,
    },
    /// Follow a job to its end.
    Watch {
        /// Number of the job.
        job: u64,
    },
    /// End a job. Its results until then are kept.
    Cancel {
        /// Number of the job.
        job: u64,
    },
    /// Fetch the results of a job, as far as they are.
    Results {
        /// Number of the job.
        job: u64,
        /// File for the results. Default: standard output.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// Options of `job submit`.
#[derive(Args, Clone, Debug)]
pub struct SubmitArgs {
    /// Name of the model.
    #[arg(long, short, value_name = "NAME")]
    pub model: String,
    /// Version of the model. Default: the one that requests without a version get.
    #[arg(long, value_name = "NUMBER")]
    pub version: Option<u64>,
    /// Outputs that the results have, separated by commas. Default: all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub outputs: Vec<String>,
    /// File with the rows; `-` is standard input.
    #[arg(long, short, value_name = "FILE")]
    pub input: PathBuf,
    /// Format of the input: `jsonl`, `npy`, `npz` or `parquet`. Default: as the file's name ends, or JSON lines.
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub input_format: Option<Format>,
    /// Format of the results: `jsonl`, `npy`, `npz` or `parquet`. Default: as the name of `--output` ends, or that of the input.
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub output_format: Option<Format>,
    /// When the job should have ended: a time such as `06:00`, a date and time such as `2026-12-01T06:00:00Z`, or a time from now such as
    /// `8h`. Jobs with the earliest time run first; `list` says whether they will make it.
    #[arg(long, value_name = "TIME")]
    pub by: Option<String>,
    /// Wait for the end, and write the results to this file.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Wait for the end.
    #[arg(long)]
    pub watch: bool,
}
