//! The flags of `tessera tune`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gpulet_core::profile::BATCH_MAX;
use models::TimeSpan;
use node::config::ConfigArgs;

use crate::profile::arguments::{shape, time};

/// Most trials of a run.
const TRIALS_MAX: i64 = 100_000;

/// Options of `tune`.
#[derive(Args, Clone, Debug)]
pub struct TuneArgs {
    /// The model of the repository to tune.
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Objective: a request must be answered within this time. Default: `models.MODEL.slo`.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub slo: Option<TimeSpan>,
    /// How to search: tessera, bo, morphling, rrl, q-learning, autodeep, random or grid (docs/tuning.md).
    #[arg(long, value_name = "WORD", default_value = "tessera", value_parser = word)]
    pub search: String,
    /// Most trials of this run. Cells of the --grid file are not counted.
    #[arg(long, value_name = "TRIALS", default_value = "60", value_parser = clap::value_parser!(u32).range(1..=TRIALS_MAX))]
    pub budget: u32,
    /// Start no trial after this time.
    #[arg(long, value_name = "TIME", value_parser = within)]
    pub within: Option<TimeSpan>,
    /// Seed of random choices.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Time for which each trial runs, after its warm-up, and at least 4 batches on each lane.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = time)]
    pub time: TimeSpan,
    /// Batch sizes to try. Default: 1 to 12, then to 32 in larger steps, as far as the model takes them.
    #[arg(long, value_name = "ROWS,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(BATCH_MAX)))]
    pub batches: Vec<u32>,
    /// Shape of an input for one row, as in `image=3x224x224`; may be repeated. Default: free dimensions get the first extent that the model
    /// accepts.
    #[arg(long = "shape", value_name = "INPUT=NxN...", value_parser = shape)]
    pub shapes: Vec<(String, Vec<u64>)>,
    /// File of trials. Cells that it holds are not measured again, so an interrupted run resumes with the same file.
    #[arg(long, value_name = "FILE.jsonl")]
    pub grid: Option<PathBuf>,
    /// Files of trials of other models on this machine, from which `tessera` and `morphling` learn. May be repeated.
    #[arg(long, value_name = "FILE.jsonl")]
    pub from: Vec<PathBuf>,
    /// Measure nothing: run all searches on the trials of the --grid file, which must have all configurations, and compare them. --svg draws the best
    /// so far of each.
    #[arg(long, requires = "grid", conflicts_with_all = ["out", "report", "within"])]
    pub compare: bool,
    /// Write the settings to this file instead of standard output.
    #[arg(long, short, value_name = "FILE.toml")]
    pub out: Option<PathBuf>,
    /// Write a picture of the path of the search.
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Write a self-contained HTML page.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Examples and exit codes, below the options.
pub const TUNE_EXAMPLES: &str = "\
Examples:
  tessera tune resnet50 --repository ./models --slo 100ms
  tessera tune resnet50 --repository ./models --slo 100ms --out tuned.toml --svg path.svg
  tessera tune minilm --config tessera.toml --shape input_ids=128 --shape attention_mask=128 --within 5m
  tessera tune minilm --config tessera.toml --grid minilm.jsonl --budget 20
  tessera tune minilm --slo 50ms --grid minilm.jsonl --compare --svg searches.svg
  tessera serve --repository ./models --config tuned.toml

Each trial runs full batches on all lanes at the same time, pinned as lanes of `tessera serve` are. Its capacity is its rows per second if two
batches, at their 99th percentile, end within the objective. The best configuration is then measured longer, next to the default
settings. Measure on an idle machine.

Ctrl-C stops the run; with --grid, the same command resumes it.
Exit code 0: success. 1: the model could not be measured, or no configuration meets the objective. 2: wrong usage. 130: stopped by Ctrl-C.";

/// Shortest and longest time for a whole run.
const WITHIN: (TimeSpan, TimeSpan) =
    (TimeSpan(Duration::from_secs(1)), TimeSpan(Duration::from_secs(86_400)));

fn within(text: &str) -> Result<TimeSpan, String> {
    let span: TimeSpan = text.parse().map_err(|error: models::InvalidTimeSpan| error.to_string())?;
    if (WITHIN.0..=WITHIN.1).contains(&span) {
        return Ok(span);
    }
    Err(format!("expected {} to {}, got {span}", WITHIN.0, WITHIN.1))
}

fn word(text: &str) -> Result<String, String> {
    let words: Vec<&str> = tuning::WORDS.iter().map(|(word, _)| *word).collect();
    if words.contains(&text) {
        return Ok(text.to_owned());
    }
    let near = units::nearest(text, &words).map(|near| format!(", did you mean `{near}`?"));
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    Err(format!("expected one of {}{}", words.join(", "), near.unwrap_or_default()))
}
