//! The flags of `tessera colocate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use colocation::interference::Interference;
use colocation::muxflow::PLACEMENTS;
use colocation::policy::{self, POLICIES};
use colocation::salus::Order;
use units::TimeSpan;

/// Arguments of `tessera colocate`.
#[derive(Args, Clone, Debug)]
pub struct ColocateArgs {
    /// What shares what.
    #[command(subcommand)]
    pub action: ColocateAction,
}

/// What shares what.
#[derive(Clone, Debug, Subcommand)]
pub enum ColocateAction {
    /// One GPU: an online model and models of best effort, kernel by kernel (Orion, REEF, TGS, MuxFlow's SM shares, streams).
    #[command(after_help = kernels_examples())]
    Kernels(KernelsArgs),
    /// One GPU: training jobs that share its memory (Salus).
    #[command(after_help = jobs_examples())]
    Jobs(JobsArgs),
    /// Many GPUs with online models, to which offline jobs are matched (MuxFlow).
    #[command(after_help = cluster_examples())]
    Cluster(ClusterArgs),
}

/// Options of `kernels`.
#[derive(Args, Clone, Debug)]
pub struct KernelsArgs {
    /// Folder with Orion's data: `model_kernels/*.csv`, and `inter_arrival_times.json` for `--recorded`.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Policy, or `all`; may be repeated to compare several.
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = policy_word)]
    pub policy: Vec<String>,
    /// The online model: the start of a kernel list's name, such as `resnet50`, or `resnet50-training`.
    #[arg(long, value_name = "MODEL")]
    pub online: String,
    /// A model of best effort, without pauses between its requests; may be repeated.
    #[arg(long, value_name = "MODEL", required = true)]
    pub best_effort: Vec<String>,
    /// Online requests a second, with independent arrivals.
    #[arg(long, value_name = "NUMBER", default_value_t = 15.0, value_parser = positive)]
    pub rps: f64,
    /// Online requests arrive as in `inter_arrival_times.json`, from a place that the seed draws.
    #[arg(long, conflicts_with = "rps")]
    pub recorded: bool,
    /// Online requests follow each other without pause, as in training.
    #[arg(long, conflicts_with_all = ["rps", "recorded"])]
    pub back_to_back: bool,
    /// Time in which online requests arrive.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub duration: TimeSpan,
    /// Time at the start that is not counted.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub warm_up: TimeSpan,
    /// How kernels that run together slow each other down: `fitted` to Orion's table 2, `pairs`, or `sms-only`.
    #[arg(long, value_name = "NAME", default_value = "fitted", value_parser = interference)]
    pub interference: Interference,
    /// Time in which a host launches a kernel.
    #[arg(long, value_name = "TIME", default_value = "26us")]
    pub launch: TimeSpan,
    /// Time between two polls of `reef-policy`.
    #[arg(long, value_name = "TIME", default_value = "1us")]
    pub poll: TimeSpan,
    #[command(flatten)]
    pub runs: RunsArgs,
}

/// Options of `jobs`.
#[derive(Args, Clone, Debug)]
pub struct JobsArgs {
    /// Salus's list of jobs: `workload,seconds,peak_memory_mb,iterations`.
    #[arg(long, value_name = "FILE.csv")]
    pub data: PathBuf,
    /// Order of jobs, or `all`; may be repeated to compare several.
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = order_word)]
    pub policy: Vec<String>,
    /// Number of jobs drawn from the list. Default: each of the list once.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub jobs: Option<u16>,
    /// Draw log-normal times with a mean of 3 minutes and this coefficient of variation, instead of those of the list.
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    pub cv: Option<f64>,
    /// Time over which jobs arrive, evenly spaced. Default: all at once.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub arrive: TimeSpan,
    /// Memory of the GPU in MB.
    #[arg(long, value_name = "MB", default_value_t = colocation::salus::MEMORY_MB, value_parser = positive)]
    pub memory: f64,
    #[command(flatten)]
    pub runs: RunsArgs,
}

/// Options of `cluster`.
#[derive(Args, Clone, Debug)]
pub struct ClusterArgs {
    /// Folder with Orion's data: `model_kernels/*.csv`.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Placement of offline jobs, or `all`; may be repeated to compare several.
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = placement_word)]
    pub policy: Vec<String>,
    /// Number of GPUs; the seed draws the online model and the load of each.
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub gpus: u8,
    /// Number of offline jobs, which the seed draws.
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// Time to simulate.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub duration: TimeSpan,
    /// How kernels that run together slow each other down: `fitted`, `pairs` or `sms-only`.
    #[arg(long, value_name = "NAME", default_value = "fitted", value_parser = interference)]
    pub interference: Interference,
    #[command(flatten)]
    pub runs: RunsArgs,
}

/// Seeds and output.
#[derive(Args, Clone, Debug)]
pub struct RunsArgs {
    /// First seed.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Number of seeds, from `--seed` on.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub seeds: u64,
    /// Print every run as JSON.
    #[arg(long)]
    pub json: bool,
}

impl RunsArgs {
    /// The seeds of the runs.
    pub fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.seed;
        (0..self.seeds).map(move |place| first.wrapping_add(place))
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

fn interference(word: &str) -> Result<Interference, String> {
    let found = Interference::ALL.iter().find(|(name, _)| *name == word);
    let names: Vec<&str> = Interference::ALL.iter().map(|(name, _)| *name).collect();
    found.map(|(_, found)| *found).ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

fn policy_word(word: &str) -> Result<String, String> {
    if word != "all" {
        policy::check(word)?;
    }
    Ok(word.to_owned())
}

fn order_word(word: &str) -> Result<String, String> {
    if word != "all" {
        Order::find(word)?;
    }
    Ok(word.to_owned())
}

fn placement_word(word: &str) -> Result<String, String> {
    let known = |name: &&str| *name == word;
    let names: Vec<&str> = PLACEMENTS.iter().map(|(name, _)| *name).chain(["all"]).collect();
    if names.iter().any(known) {
        Ok(word.to_owned())
    } else {
        Err(format!("expected one of {}", names.join(", ")))
    }
}

const END: &str = "
Everything is simulated: how kernels slow each other down is a model (docs/colocation.md).
The same data, seed and version of tessera give exactly the same figures.
Exit code 0: success. 1: failure. 2: wrong usage.";

/// Examples of `tessera colocate`, below the options.
pub const COLOCATE_EXAMPLES: &str = "\
Examples:
  tessera colocate kernels --data orion --online resnet50 --best-effort resnet50-training
  tessera colocate jobs --data salus/workloads.csv --policy srtf --policy fifo --seeds 5
  tessera colocate cluster --data orion --policy all

Exit code 0: success. 1: failure. 2: wrong usage.";

fn list<'a>(words: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    words.map(|(word, meaning)| format!("  {word:<16} {meaning}\n")).collect()
}

fn kernels_examples() -> String {
    let policies = list(POLICIES.iter().map(|(word, meaning, _)| (*word, *meaning)));
    format!(
        "Examples:
  tessera colocate kernels --data orion --online resnet50 --best-effort resnet50-training --recorded
  tessera colocate kernels --data orion --online mobilenet --best-effort bert --rps 40 --policy orion --json

Policies:
{policies}{END}"
    )
}

fn jobs_examples() -> String {
    let orders = list(Order::ALL.iter().map(|(word, _, meaning)| (*word, *meaning)));
    format!(
        "Examples:
  tessera colocate jobs --data salus/workloads.csv --seeds 5
  tessera colocate jobs --data salus/workloads.csv --jobs 100 --cv 3 --policy srtf --policy fifo

Policies:
{orders}{END}"
    )
}

fn cluster_examples() -> String {
    let placements = list(PLACEMENTS.iter().copied());
    format!(
        "Examples:
  tessera colocate cluster --data orion --gpus 8 --jobs 8
  tessera colocate cluster --data orion --policy muxflow --json

Policies:
{placements}{END}"
    )
}
