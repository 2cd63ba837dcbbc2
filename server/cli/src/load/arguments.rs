//! The flags of `tessera load`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use loadtest::Endpoint;
use models::TimeSpan;
use workload::Stage;

/// Options of `load`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct LoadArgs {
    /// Something else than a run.
    #[command(subcommand)]
    pub action: Option<LoadAction>,
    /// What is sent to which models: a TOML file, as `tessera simulate` takes it (loadtest/workload/README.md). Or
    /// name one model with --model.
    #[arg(value_name = "WORKLOAD.toml", required_unless_present = "model")]
    pub workload: Option<PathBuf>,
    /// Where the server is: http://HOST:PORT, http2://HOST:PORT or grpc://HOST:PORT.
    #[arg(long, short, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub url: Endpoint,

    /// One model instead of a workload file.
    #[arg(long, short, value_name = "NAME", conflicts_with = "workload", help_heading = "One model")]
    pub model: Option<String>,
    /// Requests a second.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 10.0,
        conflicts_with = "workload",
        help_heading = "One model"
    )]
    pub rate: f64,
    /// Time that an answer may take.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = span, conflicts_with = "workload", help_heading = "One model")]
    pub slo: TimeSpan,
    /// How requests arrive.
    #[arg(long, value_enum, default_value_t = Process::Poisson, conflicts_with = "workload", help_heading = "One model")]
    pub arrivals: Process,
    /// Rows of a request.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        conflicts_with = "workload",
        help_heading = "One model"
    )]
    pub rows: u32,

    /// Send for so long instead of the workload's duration; 10 s with --model.
    #[arg(long, value_name = "TIME", value_parser = span, help_heading = "How requests are sent")]
    pub duration: Option<TimeSpan>,
    /// Leave the start out of the figures instead of the workload's warmup; 1 s with --model.
    #[arg(long, value_name = "TIME", value_parser = span, help_heading = "How requests are sent")]
    pub warmup: Option<TimeSpan>,
    /// Send so many times the workload's rate.
    #[arg(long, value_name = "FACTOR", help_heading = "How requests are sent")]
    pub rate_scale: Option<f64>,
    /// Draw other requests than the workload's seed does.
    #[arg(long, value_name = "NUMBER", help_heading = "How requests are sent")]
    pub seed: Option<u64>,
    /// A stretch of time at a multiple of the rate, or at one that rises or falls evenly: `30s:2`, `10s:0..1`. May be
    /// repeated; together they are the run.
    #[arg(long = "stage", value_name = "TIME:FACTOR[..FACTOR]", conflicts_with_all = ["duration", "concurrency", "find_capacity"], help_heading = "How requests are sent")]
    pub stages: Vec<Stage>,
    /// Keep so many requests under way instead of sending them when they are due. Says how fast answers can follow
    /// each other, and nothing about how a server stands more clients than it can answer.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100_000), conflicts_with_all = ["find_capacity", "rate_scale"], help_heading = "How requests are sent")]
    pub concurrency: Option<u32>,
    /// Look for the highest rate with enough right answers in time, to 2 %; the duration is that of each trial.
    #[arg(long, help_heading = "How requests are sent")]
    pub find_capacity: bool,
    /// Share of the answers that is enough for --find-capacity.
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.99,
        requires = "find_capacity",
        help_heading = "How requests are sent"
    )]
    pub attainment: f64,

    /// What is sent, and by whom.
    #[command(flatten)]
    pub client: ClientArgs,

    /// Answer in JSON.
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// Write a page with plots, for a browser; needs nothing else and can be mailed.
    #[arg(long, value_name = "FILE.html", help_heading = "Results")]
    pub report: Option<PathBuf>,
    /// Write a row for each second.
    #[arg(long, value_name = "FILE.csv", help_heading = "Results")]
    pub csv: Option<PathBuf>,
    /// Write the latencies of each second, and of each model, as an HDR histogram log.
    #[arg(long, value_name = "FILE.hlog", help_heading = "Results")]
    pub hdr: Option<PathBuf>,
}

/// What is sent, and by whom.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    /// How tensors travel.
    #[arg(long, value_enum, default_value_t = Encoding::Binary, help_heading = "What is sent")]
    pub tensors: Encoding,
    /// What the server calls a model of the workload; may be repeated.
    #[arg(long = "map", value_name = "MODEL=NAME", value_parser = pair, help_heading = "What is sent")]
    pub maps: Vec<(String, String)>,
    /// Extents of an input that its metadata leaves open, batch included: `input_ids=1,128`, or for one model
    /// `bert/input_ids=1,128`; may be repeated.
    #[arg(long = "shape", value_name = "INPUT=N,N,...", value_parser = pair, help_heading = "What is sent")]
    pub shapes: Vec<(String, String)>,
    /// Values of an input, both ends included: `input_ids=0..30000`; may be repeated.
    #[arg(long = "range", value_name = "INPUT=LOW..HIGH", value_parser = pair, help_heading = "What is sent")]
    pub ranges: Vec<(String, String)>,
    /// Recorded requests instead of generated ones: a file of JSON lines, each the body of an inference request, with
    /// `"expect": [outputs]` if the answer is known; for all models, or for one; may be repeated.
    #[arg(long = "samples", value_name = "[MODEL=]FILE", help_heading = "What is sent")]
    pub samples: Vec<String>,
    /// How far a value may be from the expected one, absolute or relative to it.
    #[arg(long, value_name = "NUMBER", default_value_t = 1e-3, help_heading = "What is sent")]
    pub tolerance: f64,

    /// Connections at most. HTTP/1.1 needs one for each request under way, HTTP/2 and gRPC open another when the
    /// server takes no more requests on those there are.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=60_000), help_heading = "This client")]
    pub connections: u32,
    /// Threads that send.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "This client")]
    pub threads: u32,
    /// How long an answer is waited for.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = span, help_heading = "This client")]
    pub timeout: TimeSpan,
}

/// What `load` does beside runs.
#[derive(Clone, Debug, Subcommand)]
pub enum LoadAction {
    /// Set two runs side by side: ratios, and whether they exceed the noise.
    #[command(
        after_help = "Example:\n  tessera load mine.toml --json > before.json\n  tessera load mine.toml --json > after.json\n  tessera load compare before.json after.json"
    )]
    Compare {
        /// Answer of `tessera load --json`.
        before: PathBuf,
        /// Another one.
        after: PathBuf,
        /// Answer in JSON.
        #[arg(long)]
        json: bool,
    },
}

/// How requests for one model arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Process {
    /// Independently of each other.
    Poisson,
    /// Evenly spaced.
    Uniform,
}

/// How tensors travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Encoding {
    /// As they lie in memory.
    Binary,
    /// As JSON; not over gRPC.
    Json,
}

/// Examples and exit codes, below the options.
pub const LOAD_EXAMPLES: &str = "\
Examples:
  tessera load --model digits --rate 500                     one model, 10 s, Poisson arrivals
  tessera load mine.toml --report mine.html                  the workload that `tessera simulate` takes
  tessera load mine.toml --url grpc://127.0.0.1:8001 --find-capacity
  tessera load mine.toml --stage 10s:0..1 --stage 30s:1 --stage 10s:2
  tessera load --model bert --range input_ids=0..30000 --shape input_ids=1,128 --concurrency 8
  tessera load compare before.json after.json

Requests are sent when they are due, whatever became of those before, and latency counts from
then (open loop). If this client cannot keep up, it says from when on.
Exit code 0: it ran. 1: it could not run. 2: wrong usage. 3: it ran, and this client could not
keep up. 130: stopped by Ctrl-C; what was measured until then is written.";

fn span(text: &str) -> Result<TimeSpan, String> {
    text.parse().map_err(|error: models::InvalidTimeSpan| error.to_string())
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() || value.is_empty() {
        return Err("expected NAME=VALUE".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}
