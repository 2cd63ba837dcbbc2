//! The flags of `tessera split`.

use std::path::PathBuf;

use clap::Args;
use model_split::STAGES_MAX;
use models::TimeSpan;
use node::config::ConfigArgs;

use crate::profile::arguments::{shape, time};

/// Options of `split`.
#[derive(Args, Clone, Debug)]
pub struct SplitArgs {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Name of an ONNX model of the repository.
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Number of stages.
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=STAGES_MAX as i64))]
    pub stages: u8,
    /// Repository folder to write the stages and the ensemble to; it is made if it does not exist. Without it, nothing is written.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace stages of this model that are in --out.
    #[arg(long, requires = "out")]
    pub force: bool,
    /// Most tensors that may cross from one side of a split point to the other, inputs of the model included.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub crossing: u16,
    /// Relative speeds of the devices that will run the stages, such as `2,1`. Default: all are equal.
    #[arg(long, value_name = "SPEED,...", value_delimiter = ',', value_parser = speed)]
    pub speeds: Vec<f64>,

    /// Rows of the batches with which stages are timed.
    #[arg(long, value_name = "ROWS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Timing")]
    pub batch: u32,
    /// Number of cores on which stages are timed.
    #[arg(long, value_name = "CORES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Timing")]
    pub cores: u32,
    /// Time for which each part of the model is run, and at least 5 times.
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = time, help_heading = "Timing")]
    pub time: TimeSpan,

    /// Number of generated inputs of each batch size, each from a seed of its own.
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Equality")]
    pub seeds: u32,
    /// Rows of the generated inputs. Default: 1, 2 and 4, as far as the model takes them.
    #[arg(long, value_name = "ROWS,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Equality")]
    pub batches: Vec<u32>,
    /// Shape of an input for one row, as in `image=3x224x224`; may be repeated. Default: free dimensions get the first extent that
    /// the model accepts.
    #[arg(long = "shape", value_name = "INPUT=NxN...", value_parser = shape, help_heading = "Equality")]
    pub shapes: Vec<(String, Vec<u64>)>,
    /// Range of an input's values, both ends included: `input_ids=0..30000`; may be repeated. Default: numbers from -0.5 to 0.5, and
    /// whole numbers 0 and 1.
    #[arg(long = "range", value_name = "INPUT=LOW..HIGH", value_parser = range, help_heading = "Equality")]
    pub ranges: Vec<(String, (f64, f64))>,
    /// File of recorded requests to run as well: JSON lines, each the body of an inference request, as `tessera load --samples` takes
    /// them.
    #[arg(long, value_name = "FILE.jsonl", help_heading = "Equality")]
    pub data: Option<PathBuf>,
    /// Largest difference between the stages and the whole, as a share of the largest value of an output. 0: bit for bit.
    #[arg(long, value_name = "SHARE", default_value_t = 1e-5, value_parser = tolerance, help_heading = "Equality")]
    pub tolerance: f64,

    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Examples and exit codes, below the options.
pub const SPLIT_EXAMPLES: &str = "\
Examples:
  tessera split resnet50 --repository ./models                   show the best split point, write nothing
  tessera split resnet50 --repository ./models --out ./pipelines
  tessera split minilm --repository ./models --crossing 2 --range input_ids=0..30000 --shape input_ids=128
  tessera split resnet50 --repository ./models --stages 3 --speeds 2,1,1 --tolerance 0 --data requests.jsonl

The model is split where the fewest tensors cross, so that the slowest stage is as fast as possible: parts of the model from
its beginning up to possible split points are timed. Then the stages, one after the other, are compared with the whole model.
--out gets a model for each stage (NAME-1, NAME-2, ...) and an ensemble with the model's own name that chains them.

Exit code 0: success. 1: the model cannot be split, or the stages differ from it; nothing is written. 2: wrong usage.";

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.trim().parse::<f64>().ok().filter(|speed| speed.is_finite() && *speed > 0.0);
    speed.ok_or_else(|| format!("expected a number above 0 such as `2` or `0.5`, got `{text}`"))
}

fn tolerance(text: &str) -> Result<f64, String> {
    let share = text.trim().parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("expected a share from 0 to 1 such as `1e-5`, got `{text}`"))
}

/// A name and two numbers. The last `=` counts: names may have one.
fn range(text: &str) -> Result<(String, (f64, f64)), String> {
    let parsed = || {
        let (name, ends) = text.rsplit_once('=').filter(|(name, _)| !name.is_empty())?;
        let (low, high) = ends.split_once("..")?;
        let (low, high): (f64, f64) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        (low.is_finite() && high.is_finite() && low <= high).then(|| (name.to_owned(), (low, high)))
    };
    parsed()
        .ok_or_else(|| format!("expected an input and its range such as `input_ids=0..30000`, got `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_make_no_sense_say_what_would() {
        assert_eq!(range("a=b=-1..2.5").unwrap(), ("a=b".to_owned(), (-1.0, 2.5)));
        for text in ["x", "=0..1", "x=1", "x=2..1", "x=0..inf"] {
            assert!(range(text).unwrap_err().contains("such as `input_ids=0..30000`"), "{text}");
        }
        assert_eq!((speed("0.5").unwrap(), tolerance("1e-5").unwrap()), (0.5, 1e-5));
        assert_eq!(speed("0").unwrap_err(), "expected a number above 0 such as `2` or `0.5`, got `0`");
        assert_eq!(tolerance("-1").unwrap_err(), "expected a share from 0 to 1 such as `1e-5`, got `-1`");
    }
}
