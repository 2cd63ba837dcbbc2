//! The flags of `tessera profile`.

use std::path::PathBuf;

use clap::Args;
use gpulet_core::profile::{BATCH_MAX, CELLS_MAX, UNITS_MAX};
use models::TimeSpan;
use node::config::ConfigArgs;

use crate::rest::CredentialArgs;

/// Options of `profile`.
#[derive(Args, Clone, Debug)]
pub struct ProfileArgs {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// A model of the repository; may be repeated. Default: all models.
    #[arg(long = "model", short, value_name = "NAME")]
    pub models: Vec<String>,
    /// File of profiles. Cells that it holds are not measured again.
    #[arg(long, short, value_name = "FILE.jsonl", default_value = "profile.jsonl")]
    pub out: PathBuf,
    /// Batch sizes in rows. Default: 1, 2, 4, 8, 16, 32 up to the model's largest batch.
    #[arg(long, value_name = "ROWS,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(BATCH_MAX)))]
    pub batches: Vec<u32>,
    /// Shape of an input for one row, as in `image=3x224x224`; may be repeated. Needs one --model. Default: free dimensions
    /// get the first extent that the model accepts.
    #[arg(long = "shape", value_name = "INPUT=NxN...", value_parser = shape)]
    pub shapes: Vec<(String, Vec<u64>)>,
    /// Measure the commonest shapes, at most 4, of the requests that the server at this address has seen, in proportion to
    /// their number. Only models with free dimensions have several.
    #[arg(long, value_name = "URL", conflicts_with = "shapes")]
    pub from_traffic: Option<String>,
    #[command(flatten)]
    pub credentials: CredentialArgs,
    /// Numbers of cores for a batch. Default: 1, 2, 3, 4, 6, 8, 12, and all cores that this process may use.
    #[arg(long, value_name = "CORES,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(UNITS_MAX)))]
    pub cores: Vec<u32>,
    /// Time for which each batch is run, and at least 100 times. If that would take ten times as long, at least 20 times.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    pub time: TimeSpan,
    /// Also measure each batch on the smallest of the --cores under contention: with synthetic load on all other cores
    /// that computes, and that streams through memory. Needs at least one more core. Takes about five times as long.
    #[arg(long)]
    pub contention: bool,
    /// Measure at most this many cells, those whose outcome is expected to change a plan most, and predict the others with intervals. Ends
    /// earlier when no other measurement is expected to change the plan. The plan has the objective of `models.NAME.slo`.
    #[arg(long, value_name = "CELLS", value_parser = clap::value_parser!(u32).range(1..=CELLS_MAX as i64), conflicts_with = "contention")]
    pub budget: Option<u32>,
    /// The same, for at most this time.
    #[arg(long, value_name = "TIME", value_parser = within, conflicts_with = "contention")]
    pub within: Option<TimeSpan>,
    /// Measure nothing: predict all cells from the operators of the model and from measured models of this machine. Needs at least 3 of these, with
    /// the same engine, in the --out file or in those of --from.
    #[arg(long, conflicts_with_all = ["budget", "within", "contention", "fresh"])]
    pub predict: bool,
    /// Files with profiles of measured models of this machine, from which cells are predicted in addition to those of the --out file; the last
    /// component may contain one `*`. May be repeated.
    #[arg(long, value_name = "FILE.jsonl")]
    pub from: Vec<String>,
    /// Measure these models again from the start; profiles of others stay in the file.
    #[arg(long)]
    pub fresh: bool,
    /// Write a self-contained HTML page with plots.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Write a plot of the speed-up by batch size and cores.
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Examples and exit codes, below the options.
pub const PROFILE_EXAMPLES: &str = "\
Examples:
  tessera profile                                        the embedded model, into profile.jsonl
  tessera profile --repository ./models --report profile.html
  tessera profile --repository ./models --model resnet50 --batches 1,8 --cores 1,2 --time 500ms
  tessera profile --repository ./models --model minilm --shape input_ids=128 --shape attention_mask=128
  tessera profile --repository ./models --from-traffic http://127.0.0.1:8000
  tessera profile --repository ./models --within 2m      the cells that matter for plans; the others are predicted
  tessera profile --repository ./models --model new --predict

Each batch is run until three successive medians agree within 5 %, then measured with changing inputs. Runs during
which threads waited for a core are left out and counted. Measure on an idle machine.

Ctrl-C stops the run; the same command resumes it. `tessera plan` reads the file.
Exit code 0: success. 1: a model could not be measured. 2: wrong usage. 130: stopped by Ctrl-C.";

/// A name and extents of 1 and more. The last `=` counts: names may have one.
pub fn shape(text: &str) -> Result<(String, Vec<u64>), String> {
    let wrong = || format!("expected an input and its shape such as `image=3x224x224`, got `{text}`");
    let (name, extents) = text.rsplit_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    let extent = |word: &str| word.parse::<u64>().ok().filter(|extent| *extent > 0);
    let extents = extents
        .split(['x', ','])
        .map(|word| extent(word.trim()))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(wrong)?;
    Ok((name.to_owned(), extents))
}

/// Shortest and longest time that a batch may be run for.
const SHORTEST: TimeSpan = TimeSpan(std::time::Duration::from_millis(1));
const LONGEST: TimeSpan = TimeSpan(std::time::Duration::from_secs(600));

pub fn time(text: &str) -> Result<TimeSpan, String> {
    let span: TimeSpan = text.parse().map_err(|error: models::InvalidTimeSpan| error.to_string())?;
    if (SHORTEST..=LONGEST).contains(&span) {
        return Ok(span);
    }
    Err(format!("expected {SHORTEST} to {LONGEST}, got {span}"))
}

/// Shortest and longest time for a whole run.
const WITHIN: (TimeSpan, TimeSpan) =
    (TimeSpan(std::time::Duration::from_secs(1)), TimeSpan(std::time::Duration::from_secs(86_400)));

fn within(text: &str) -> Result<TimeSpan, String> {
    let span: TimeSpan = text.parse().map_err(|error: models::InvalidTimeSpan| error.to_string())?;
    if (WITHIN.0..=WITHIN.1).contains(&span) {
        return Ok(span);
    }
    Err(format!("expected {} to {}, got {span}", WITHIN.0, WITHIN.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_a_name_and_extents() {
        assert_eq!(shape("x=1x48x192").unwrap(), ("x".to_owned(), vec![1, 48, 192]));
        assert_eq!(shape("a=b=7").unwrap(), ("a=b".to_owned(), vec![7]));
        assert_eq!(shape("x=1,128").unwrap(), ("x".to_owned(), vec![1, 128]), "as `tessera load` takes it");
        for text in ["x", "=3", "x=", "x=3x0", "x=3;4", "x=3x"] {
            assert!(shape(text).unwrap_err().contains("such as `image=3x224x224`"), "{text}");
        }
    }

    #[test]
    fn a_time_has_bounds() {
        assert_eq!(time("500ms").unwrap().0.as_millis(), 500);
        for (text, says) in [("0s", "expected 1ms to 10m"), ("11m", "got 11m"), ("2", "expected a duration")]
        {
            assert!(time(text).unwrap_err().contains(says), "{text}");
        }
    }
}
