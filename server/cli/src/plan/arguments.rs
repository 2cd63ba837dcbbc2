//! The flags of `tessera plan`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use gpulet_core::placement::Policy;
use gpulet_core::problem::DEVICES_MAX;

/// Options of `plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// Which workloads on which devices, and what is known of them: a TOML file (docs/plan.md).
    #[arg(value_name = "PROBLEM.toml")]
    pub problem: PathBuf,
    /// How to place; may be repeated to compare several. Default: `tessera`.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Policy::NAMES.iter().copied()), hide_possible_values = true)]
    pub policy: Vec<String>,
    /// Compare all policies, the best first, and show the plan of the best.
    #[arg(long, conflicts_with = "policy")]
    pub compare: bool,
    /// Say of each workload why it has the share and the batch that it has, and what binds.
    #[arg(long)]
    pub explain: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    /// Draw the plan: each device as share by time, models by colour.
    #[arg(long, value_name = "OUT.svg")]
    pub svg: Option<PathBuf>,
    /// Plan with so many devices instead of the file's; with a name where the file has several
    /// [devices.NAME]. May be repeated.
    #[arg(long, value_name = "[NAME=]NUMBER", value_parser = count)]
    pub devices: Vec<Count>,
}

/// Another number of devices than the file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Of which section; none for the only one.
    pub section: Option<String>,
    /// How many there are.
    pub devices: usize,
}

fn count(text: &str) -> Result<Count, String> {
    let (section, number) = match text.rsplit_once('=') {
        Some((section, number)) => (Some(section.trim().to_owned()), number),
        None => (None, text),
    };
    let devices = number.trim().parse().ok().filter(|devices| (1..=DEVICES_MAX).contains(devices));
    let devices = devices.ok_or_else(|| format!("expected 1 to {DEVICES_MAX}, like `8` or `v100=8`"))?;
    Ok(Count { section, devices })
}

const EXAMPLES: &str = "\
Examples:
  tessera plan gpulet/core/examples/igniter-12.toml
  tessera plan gpulet/core/examples/igniter-12.toml --explain --svg plan.svg
  tessera plan gpulet/core/examples/igniter-12.toml --compare
  tessera plan gpulet/core/examples/igniter-12.toml --policy igniter --policy exact --devices 8
  tessera plan gpulet/core/examples/igniter-12.toml --json | jq .policies[0].devices_used

A problem says what is wanted:

  profiles = \"profiles/*.jsonl\"     what `tessera profile` measured
  interference = \"none\"             what neighbours do: none, gpulet, contention, igniter

  [devices.v100]
  count = 4
  memory = \"16GiB\"

  [workloads.resnet50]
  slo = \"50ms\"
  rate = 400

Policies:
";

const CODES: &str = "
Whatever a policy says of its plan, a judge that shares no code with it has the last word.
The same file and program give the same answer, byte for byte.
Exit code 0: a plan that keeps every promise. 1: none, or one that breaks a promise; which, is said. 2: wrong
usage, or a file with a mistake; the mistake is named with its line and key.";

/// Examples, policies and exit codes, below the options.
pub fn plan_examples() -> String {
    let named = Policy::NAMES.iter().filter_map(|name| Policy::named(name));
    let policies = named.map(|policy| format!("  {:<11} {}\n", policy.name(), policy.about()));
    format!("{EXAMPLES}{}{CODES}", policies.collect::<String>())
}
