//! The flags of `tessera load`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use http::HeaderName;
use loadtest::Endpoint;
use models::TimeSpan;
use workload::Stage;

use crate::rest::CredentialArgs;

/// Options of `load`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct LoadArgs {
    /// What to do instead of a run.
    #[command(subcommand)]
    pub action: Option<LoadAction>,
    /// Workload file in TOML, as for `tessera simulate` (loadtest/workload/README.md). Alternative: one model with
    /// --model.
    #[arg(value_name = "WORKLOAD.toml", required_unless_present = "model")]
    pub workload: Option<PathBuf>,
    /// Address of the server: http://HOST:PORT, http2://HOST:PORT or grpc://HOST:PORT; with TLS https, https2 or grpcs.
    #[arg(long, short, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub url: Endpoint,

    /// One model instead of a workload file.
    #[arg(long, short, value_name = "NAME", conflicts_with = "workload", help_heading = "One model")]
    pub model: Option<String>,
    /// Requests per second.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 10.0,
        conflicts_with = "workload",
        help_heading = "One model"
    )]
    pub rate: f64,
    /// Latency objective of a response.
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

    /// Duration of the run. Default: the workload's; 10 s with --model.
    #[arg(long, value_name = "TIME", value_parser = span, help_heading = "How requests are sent")]
    pub duration: Option<TimeSpan>,
    /// Time at the start that is left out of the results. Default: the workload's; 1 s with --model.
    #[arg(long, value_name = "TIME", value_parser = span, help_heading = "How requests are sent")]
    pub warmup: Option<TimeSpan>,
    /// Multiply the workload's rate by this factor.
    #[arg(long, value_name = "FACTOR", help_heading = "How requests are sent")]
    pub rate_scale: Option<f64>,
    /// Seed of the requests. Default: the workload's.
    #[arg(long, value_name = "NUMBER", help_heading = "How requests are sent")]
    pub seed: Option<u64>,
    /// A stage at a multiple of the rate, or with a linear ramp: `30s:2`, `10s:0..1`. May be repeated; the run consists of
    /// all stages.
    #[arg(long = "stage", value_name = "TIME:FACTOR[..FACTOR]", conflicts_with_all = ["duration", "concurrency", "find_capacity"], help_heading = "How requests are sent")]
    pub stages: Vec<Stage>,
    /// Closed loop: keep this many requests in flight instead of sending them on schedule. Measures throughput, not the
    /// behaviour under overload.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100_000), conflicts_with_all = ["find_capacity", "rate_scale"], help_heading = "How requests are sent")]
    pub concurrency: Option<u32>,
    /// Search for the highest rate that keeps --attainment, to 2 %. The duration is that of each trial.
    #[arg(long, help_heading = "How requests are sent")]
    pub find_capacity: bool,
    /// Attainment for --find-capacity: share of requests with a correct response in time.
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.99,
        requires = "find_capacity",
        help_heading = "How requests are sent"
    )]
    pub attainment: f64,

    /// Options of the client.
    #[command(flatten)]
    pub client: ClientArgs,

    /// Print the result as JSON.
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// Write a self-contained HTML page with plots.
    #[arg(long, value_name = "FILE.html", help_heading = "Results")]
    pub report: Option<PathBuf>,
    /// Write a row for each second.
    #[arg(long, value_name = "FILE.csv", help_heading = "Results")]
    pub csv: Option<PathBuf>,
    /// Write the latencies of each second, and of each model, as an HDR histogram log.
    #[arg(long, value_name = "FILE.hlog", help_heading = "Results")]
    pub hdr: Option<PathBuf>,
}

/// Options of the client.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    /// Encoding of tensors.
    #[arg(long, value_enum, default_value_t = Encoding::Binary, help_heading = "What is sent")]
    pub tensors: Encoding,
    /// Name on the server of a model of the workload; may be repeated.
    #[arg(long = "map", value_name = "MODEL=NAME", value_parser = pair, help_heading = "What is sent")]
    pub maps: Vec<(String, String)>,
    /// Shape of an input with free dimensions for one row, with or without the batch: `image=3x224x224`, or for one model
    /// `bert/input_ids=1x128`; may be repeated.
    #[arg(long = "shape", value_name = "INPUT=NxN...", value_parser = pair, help_heading = "What is sent")]
    pub shapes: Vec<(String, String)>,
    /// Range of an input's values, both ends included: `input_ids=0..30000`; may be repeated.
    #[arg(long = "range", value_name = "INPUT=LOW..HIGH", value_parser = pair, help_heading = "What is sent")]
    pub ranges: Vec<(String, String)>,
    /// File of recorded requests to send instead of generated ones: JSON lines, each the body of an inference request, with
    /// `"expect": [outputs]` if the response is known. For all models, or for one; may be repeated.
    #[arg(long = "samples", value_name = "[MODEL=]FILE", help_heading = "What is sent")]
    pub samples: Vec<String>,
    /// Header in which requests name the tenant that the workload gives them, as `server.tenant_header` of the server.
    /// Default: they name none.
    #[arg(long, value_name = "NAME", help_heading = "What is sent")]
    pub tenant_header: Option<HeaderName>,
    /// Largest difference from an expected value, absolute or relative.
    #[arg(long, value_name = "NUMBER", default_value_t = 1e-3, help_heading = "What is sent")]
    pub tolerance: f64,

    #[command(flatten)]
    pub credentials: CredentialArgs,
    /// Maximum number of connections. HTTP/1.1 needs one for each request in flight. HTTP/2 and gRPC open another one when
    /// the server takes no more requests on the open ones.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=60_000), help_heading = "This client")]
    pub connections: u32,
    /// Number of sending threads.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "This client")]
    pub threads: u32,
    /// Timeout of a request.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = span, help_heading = "This client")]
    pub timeout: TimeSpan,
}

/// Actions of `load` other than a run.
#[derive(Clone, Debug, Subcommand)]
pub enum LoadAction {
    /// Compare two runs: ratios, and whether they exceed the noise.
    #[command(
        after_help = "Example:\n  tessera load mine.toml --json > before.json\n  tessera load mine.toml --json > after.json\n  tessera load compare before.json after.json"
    )]
    Compare {
        /// Output of `tessera load --json`.
        before: PathBuf,
        /// Output of another run.
        after: PathBuf,
        /// Print the result as JSON.
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

/// Encoding of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Encoding {
    /// Binary tensor extension.
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
  tessera load --model bert --range input_ids=0..30000 --shape input_ids=128 --concurrency 8
  tessera load compare before.json after.json

Open loop: requests are sent on schedule, whether or not earlier ones have been answered. Latency counts
from the scheduled time. If this client cannot keep up, it reports since when.
Exit code 0: success. 1: failure. 2: wrong usage. 3: the run completed, but this client could not keep up.
130: stopped by Ctrl-C; the results until then are written.";

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
