//! The flags of `tessera parallel`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use model_parallel::Objective;
use model_parallel::placement::policy::POLICIES;
use units::{Size, TimeSpan};

/// Arguments of `tessera parallel`.
#[derive(Args, Clone, Debug)]
pub struct ParallelArgs {
    /// What to plan.
    #[command(subcommand)]
    pub action: ParallelAction,
}

/// What to plan.
#[derive(Clone, Debug, Subcommand)]
pub enum ParallelAction {
    /// Many models on equal devices: groups of devices, their layouts and copies, simulated on bursty requests (AlpaServe).
    #[command(after_help = place_examples())]
    Place(Box<PlaceArgs>),
    /// One chain of layers on equal or unequal devices: where to split it.
    #[command(after_help = split_examples())]
    Split(SplitArgs),
    /// One transformer on unequal GPUs: stages with different numbers of layers and GPUs (HexGen).
    #[command(after_help = layout_examples())]
    Layout(LayoutArgs),
}

/// Options of `place`.
#[derive(Args, Clone, Debug)]
pub struct PlaceArgs {
    /// Stage times by layout: `operator_parallel,pipeline_stages,batch,stage,latency_s`. May be repeated: models use the profiles in rotation.
    #[arg(long, value_name = "FILE.csv", required = true)]
    pub profile: Vec<PathBuf>,
    /// Weights of a model, such as `2626000000B`, for each profile; divided evenly over the devices of a layout.
    #[arg(long, value_name = "SIZE", required = true)]
    pub weights: Vec<Size>,
    /// Factor for all times of the profiles, for a larger or smaller model of the same structure.
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0, value_parser = positive)]
    pub latency_scale: f64,
    /// Layouts to use: `all` of the profile, or `pure`, without those that have several stages and several devices a stage.
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = ["all", "pure"])]
    pub layouts: String,
    /// Policy, or `all`; may be repeated to compare several.
    #[arg(long, value_name = "NAME", default_values = ["replication", "alpaserve"], value_parser = placement_word)]
    pub policy: Vec<String>,
    /// Number of models.
    #[arg(long, value_name = "NUMBER", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub models: u16,
    /// Number of devices.
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub devices: u16,
    /// Memory for weights on each device.
    #[arg(long, value_name = "SIZE", default_value = "13GiB")]
    pub memory: Size,
    /// Requests a second of all models together.
    #[arg(long, value_name = "NUMBER", default_value_t = 40.0, value_parser = positive)]
    pub rate: f64,
    /// Model `i` gets a share of the requests proportional to `i` to the power of minus this. 0: equal shares.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.5, value_parser = not_negative)]
    pub exponent: f64,
    /// Coefficient of variation of the gaps between requests of a model, which are gamma-distributed.
    #[arg(long, value_name = "NUMBER", default_value_t = 4.0, value_parser = positive)]
    pub cv: f64,
    /// Objective of a model, as a multiple of its time on one device.
    #[arg(long, value_name = "NUMBER", default_value_t = 5.0, value_parser = positive)]
    pub slo_scale: f64,
    /// Time in which requests arrive. The first and the last 10 s are not counted if it is longer than 40 s.
    #[arg(long, value_name = "TIME", default_value = "200s")]
    pub duration: TimeSpan,
    /// Seed of the requests with which placements are searched. They last for 30,000 requests, and at least for 100 s.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub plan_seed: u64,
    /// Requests to simulate instead of random ones: `at_s,model` with models from 0 on, in order of time.
    #[arg(long, value_name = "FILE.csv")]
    pub requests: Option<PathBuf>,
    #[command(flatten)]
    pub runs: RunsArgs,
}

/// Options of `split`.
#[derive(Args, Clone, Debug)]
pub struct SplitArgs {
    /// The layers in order: `name,latency_s,memory_bytes,output_bytes`.
    #[arg(long, value_name = "FILE.csv")]
    pub layers: PathBuf,
    /// A device as speed and memory, such as `1:16GiB`; a device of speed 2 takes half the time. To be repeated for each device.
    #[arg(long, value_name = "SPEED:SIZE", required = true, value_parser = device)]
    pub device: Vec<(f64, Size)>,
    /// Number of stages. Default: one for each device.
    #[arg(long, value_name = "NUMBER")]
    pub stages: Option<u16>,
    /// What to minimize: `bottleneck`, the slowest stage, or `latency`, the time of all stages.
    #[arg(long, value_name = "NAME", default_value = "bottleneck", value_parser = objective)]
    pub objective: Objective,
    /// Bytes a second between devices. Default: tensors take no time.
    #[arg(long, value_name = "SIZE")]
    pub bandwidth: Option<Size>,
    /// Time of an empty message between devices.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub link_latency: TimeSpan,
    /// Search, or `all`; may be repeated to compare several.
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = split_word)]
    pub policy: Vec<String>,
    #[command(flatten)]
    pub runs: RunsArgs,
}

/// Options of `layout`.
#[derive(Args, Clone, Debug)]
pub struct LayoutArgs {
    /// A machine as type and number of GPUs, such as `a6000x4`. To be repeated for each machine.
    #[arg(long, value_name = "TYPExNUMBER", required = true, value_parser = machine)]
    pub machine: Vec<(String, usize)>,
    /// Number of layers. The defaults are those of Llama-2 70B in fp16.
    #[arg(long, value_name = "NUMBER", default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub layers: u16,
    /// Weights of a layer.
    #[arg(long, value_name = "SIZE", default_value = "1711276032B")]
    pub layer_bytes: Size,
    /// Width of the activations.
    #[arg(long, value_name = "NUMBER", default_value_t = 8_192, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub hidden: u32,
    /// Keys and values of a token in a layer.
    #[arg(long, value_name = "SIZE", default_value = "4096B")]
    pub cache_bytes: Size,
    /// Tokens of a prompt.
    #[arg(long, value_name = "NUMBER", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub prompt: u32,
    /// Tokens that a request generates.
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub output: u32,
    /// Requests whose keys and values are in memory at the same time.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub concurrent: u32,
    /// What a pipeline minimizes: `bottleneck`, the slowest stage, or `latency`, the time of all stages.
    #[arg(long, value_name = "NAME", default_value = "bottleneck", value_parser = objective)]
    pub objective: Objective,
    /// Bytes a second between machines.
    #[arg(long, value_name = "SIZE", default_value = "1250000000B")]
    pub bandwidth: Size,
    /// Time of an empty message between machines.
    #[arg(long, value_name = "TIME", default_value = "100us")]
    pub link_latency: TimeSpan,
    /// Requests a second, for searches that divide the GPUs into groups.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.5, value_parser = positive)]
    pub rate: f64,
    /// Coefficient of variation of the gaps between requests.
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0, value_parser = positive)]
    pub cv: f64,
    /// Objective of a request, for searches that divide the GPUs into groups.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub slo: TimeSpan,
    /// Time in which requests arrive.
    #[arg(long, value_name = "TIME", default_value = "300s")]
    pub duration: TimeSpan,
    /// Search, or `all`; may be repeated to compare several.
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = layout_word)]
    pub policy: Vec<String>,
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

/// Searches for a split.
pub const SPLIT_SEARCHES: [(&str, &str); 3] = [
    ("optimum", "dynamic program over split points and devices; optimal for chains"),
    ("ap2", "genetic search over split points and devices; ours, named after AP2"),
    ("even", "the same number of layers in every stage, on the devices in order"),
];

/// Searches for a layout.
pub const LAYOUT_SEARCHES: [(&str, &str); 5] = [
    ("optimum", "one pipeline over all GPUs; stages of 1, 2, 4, ... GPUs of a machine; dynamic program"),
    ("whole-machines", "one pipeline over all GPUs; each machine is one stage; dynamic program"),
    ("symmetric", "one pipeline over all GPUs; equal stages, for every number of stages"),
    ("hexgen", "groups of GPUs by HexGen's genetic search, a pipeline for each"),
    ("best-groups", "groups of GPUs by enumeration, a pipeline for each; small pools only"),
];

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a number of at least 0".to_owned())
}

fn objective(word: &str) -> Result<Objective, String> {
    Objective::find(word).map_err(|error| error.to_string())
}

fn device(text: &str) -> Result<(f64, Size), String> {
    let problem = || "expected speed and memory, such as `1:16GiB`".to_owned();
    let (speed, memory) = text.split_once(':').ok_or_else(problem)?;
    Ok((positive(speed)?, memory.parse().map_err(|error: units::InvalidSize| error.to_string())?))
}

fn machine(text: &str) -> Result<(String, usize), String> {
    let problem = || "expected a type and a number of GPUs, such as `a6000x4`".to_owned();
    let (name, gpus) = text.rsplit_once('x').ok_or_else(problem)?;
    Ok((name.to_owned(), gpus.parse().map_err(|_| problem())?))
}

fn word_of(word: &str, known: impl Iterator<Item = &'static str>) -> Result<String, String> {
    let known: Vec<&str> = known.chain(["all"]).collect();
    if known.contains(&word) {
        return Ok(word.to_owned());
    }
    Err(format!("expected one of {}", known.join(", ")))
}

fn placement_word(word: &str) -> Result<String, String> {
    word_of(word, POLICIES.iter().map(|(name, ..)| *name))
}

fn split_word(word: &str) -> Result<String, String> {
    word_of(word, SPLIT_SEARCHES.iter().map(|(name, _)| *name))
}

fn layout_word(word: &str) -> Result<String, String> {
    word_of(word, LAYOUT_SEARCHES.iter().map(|(name, _)| *name))
}

const END: &str = "
Everything is planned and simulated; tensor parallelism too (docs/parallel.md).
The same data, seed and version of tessera give exactly the same figures.
Exit code 0: success. 1: failure. 2: wrong usage.";

/// Examples of `tessera parallel`, below the options.
pub const PARALLEL_EXAMPLES: &str = "\
Examples:
  tessera parallel place --profile bert.csv --weights 2626000000B --devices 16 --models 24 --rate 60 --slo-scale 5
  tessera parallel split --layers layers.csv --device 1:16GiB --device 2:24GiB
  tessera parallel layout --machine a6000x4 --machine a5000x2 --machine a4000x2

Exit code 0: success. 1: failure. 2: wrong usage.";

fn list<'a>(words: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    words.map(|(word, meaning)| format!("  {word:<16} {meaning}\n")).collect()
}

fn place_examples() -> String {
    let policies = list(POLICIES.iter().map(|(word, meaning, _)| (*word, *meaning)));
    format!(
        "Examples:
  tessera parallel place --profile bert.csv --weights 2626000000B --models 24 --rate 60 --slo-scale 3 --seeds 3
  tessera parallel place --profile bert.csv --weights 2626000000B --models 3 --devices 4 --rate 15 --policy all --json

Policies:
{policies}{END}"
    )
}

fn split_examples() -> String {
    let searches = list(SPLIT_SEARCHES.iter().copied());
    format!(
        "Examples:
  tessera parallel split --layers layers.csv --device 1:16GiB --device 2:24GiB --bandwidth 12GiB
  tessera parallel split --layers layers.csv --device 1:16GiB --device 1:16GiB --objective latency --policy ap2 --seeds 5

Searches:
{searches}{END}"
    )
}

fn layout_examples() -> String {
    let searches = list(LAYOUT_SEARCHES.iter().copied());
    format!(
        "Examples:
  tessera parallel layout --machine a6000x4 --machine a5000x2 --machine a4000x2
  tessera parallel layout --machine a6000x4 --machine a5000x2 --objective latency --policy hexgen --rate 1 --slo 8s

Searches:
{searches}{END}"
    )
}
