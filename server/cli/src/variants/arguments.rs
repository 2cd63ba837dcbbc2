//! The flags of `tessera variants`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use node::config::ConfigArgs;
use units::TimeSpan;

/// Options of `variants`.
#[derive(Args, Clone, Debug)]
pub struct VariantsArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: VariantsAction,
}

impl VariantsArgs {
    /// Where the configuration comes from.
    pub fn config(&self) -> &ConfigArgs {
        match &self.action {
            VariantsAction::Measure(arguments) => &arguments.models.config,
            VariantsAction::Vote(arguments) => &arguments.models.config,
            VariantsAction::Make(arguments) => &arguments.config,
        }
    }
}

/// What to do with variants.
#[derive(Clone, Debug, Subcommand)]
pub enum VariantsAction {
    /// Measure the quality of models on labelled rows, or how often they agree with another model, and store it in their folders.
    #[command(after_help = MEASURE_EXAMPLES)]
    Measure(Box<MeasureArgs>),
    /// Measure how accurate a vote of models is, and how many of them need to vote for an accuracy.
    #[command(after_help = VOTE_EXAMPLES)]
    Vote(Box<VoteArgs>),
    /// Make variants of an ONNX model with 8-bit or 16-bit numbers.
    #[command(after_help = MAKE_EXAMPLES)]
    Make(Box<MakeArgs>),
}

/// Models that classify the rows of a file.
#[derive(Args, Clone, Debug)]
pub struct RowsArgs {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Models of the repository, or families of the configuration.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Name of the right classes in --labelled: whole numbers.
    #[arg(long, value_name = "NAME", default_value = "label")]
    pub label: String,
    /// The output with the class of a row: a whole number, or a number for each class, of which the largest counts. Default: the only
    /// output.
    #[arg(long, value_name = "NAME")]
    pub output: Option<String>,
    /// Number of cores.
    #[arg(long, value_name = "CORES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cores: u32,
}

/// Options of `variants measure`.
#[derive(Args, Clone, Debug)]
pub struct MeasureArgs {
    /// Which models, and how they classify.
    #[command(flatten)]
    pub models: RowsArgs,
    /// File (.npz or .parquet) with the inputs by name, and the right class of each row.
    #[arg(long, value_name = "FILE", required_unless_present = "data", conflicts_with_all = ["data", "reference"])]
    pub labelled: Option<PathBuf>,
    /// File (.npz or .parquet) with the inputs by name, for rows without labels.
    #[arg(long, value_name = "FILE", requires = "reference")]
    pub data: Option<PathBuf>,
    /// The model whose answers to the rows of --data are taken as right. The result is called agreement, not accuracy.
    #[arg(long, value_name = "MODEL", requires = "data")]
    pub reference: Option<String>,
    /// Store nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `variants vote`.
#[derive(Args, Clone, Debug)]
pub struct VoteArgs {
    /// Which models, and how they classify.
    #[command(flatten)]
    pub models: RowsArgs,
    /// File (.npz or .parquet) with the inputs by name, and the right class of each row: other rows than those that the weights were
    /// measured on.
    #[arg(long, value_name = "FILE")]
    pub labelled: PathBuf,
    /// Accuracy of the vote from 0 to 1: models leave while it exceeds this by 2 points, and join again below it.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub target: Option<f64>,
    /// Rows after which a model may leave or join.
    #[arg(long, value_name = "ROWS", default_value_t = 100, requires = "target", value_parser = clap::value_parser!(u32).range(1..))]
    pub interval: u32,
    /// Longest time of a batch of at most 64 rows: slower models do not vote. Default: all vote.
    #[arg(long, value_name = "TIME", requires = "target")]
    pub objective: Option<TimeSpan>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("expected 0 to 1, got `{text}`"))
}

/// Options of `variants make`.
#[derive(Args, Clone, Debug)]
pub struct MakeArgs {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Name of an ONNX model of the repository.
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Make `MODEL-int8`: weights of matrices with 8 bits (ONNX Runtime's dynamic quantization).
    #[arg(long, required_unless_present = "fp16")]
    pub int8: bool,
    /// Make `MODEL-fp16`: weights with 16 bits. Inputs and outputs stay as they are.
    #[arg(long)]
    pub fp16: bool,
    /// Repository folder to write to. Default: the model's own.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Python with the packages `onnx`, `onnxruntime` and, for --fp16, `onnxconverter-common`.
    #[arg(long, value_name = "FILE", default_value = "python3")]
    pub python: PathBuf,
    /// Replace variants that are there.
    #[arg(long)]
    pub force: bool,
}

/// Examples and exit codes, below the actions.
pub const VARIANTS_EXAMPLES: &str = "\
Examples:
  tessera variants make digits-m --repository ./models --int8
  tessera variants measure digits --config tessera.toml --labelled digits.npz

Exit code 0: success. 1: failure. 2: wrong usage.";

const MEASURE_EXAMPLES: &str = "\
Examples:
  tessera variants measure digits --config tessera.toml --labelled digits.npz
  tessera variants measure minilm minilm-int8 --repository ./models --data texts.npz --reference minilm

Exit code 0: success. 1: failure. 2: wrong usage.";

const VOTE_EXAMPLES: &str = "\
Examples:
  tessera variants vote digits-s digits-m digits-l --repository ./models --labelled test.npz
  tessera variants vote digits --config tessera.toml --labelled test.npz --target 0.95 --interval 50

Exit code 0: success. 1: failure. 2: wrong usage.";

const MAKE_EXAMPLES: &str = "\
Examples:
  tessera variants make digits-m --repository ./models --int8
  tessera variants make resnet50 --repository ./models --int8 --fp16 --python venv/bin/python

Exit code 0: success. 1: failure. 2: wrong usage.";
