//! The flags of `tessera plan`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use gpulet_core::placement::Policy;
use gpulet_core::problem::DEVICES_MAX;
use variant_plan::published;

/// Options of `plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// Problem file in TOML: workloads, devices and profiles (docs/plan.md).
    #[arg(value_name = "PROBLEM.toml")]
    pub problem: PathBuf,
    /// Placement policy; may be repeated to compare several. With families, also a published policy that chooses variants.
    /// Default: `tessera`.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Policy::NAMES.iter().copied().chain(published::names())), hide_possible_values = true)]
    pub policy: Vec<String>,
    /// Compare all policies, the best first, and show the plan of the best.
    #[arg(long, conflicts_with = "policy")]
    pub compare: bool,
    /// Explain the share and batch size of each workload, and what limits it. With families, also what each variant costs on each
    /// device, what more quality would cost, and what the loss of a spot device does.
    #[arg(long)]
    pub explain: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write a picture of the plan: share by time for each device, one colour per model.
    #[arg(long, value_name = "OUT.svg")]
    pub svg: Option<PathBuf>,
    /// Number of devices instead of the file's. With a name if the file has several [devices.NAME]; may be
    /// repeated.
    #[arg(long, value_name = "[NAME=]NUMBER", value_parser = count)]
    pub devices: Vec<Count>,
}

/// Another number of devices than the file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Name of the section; `None` for the only one.
    pub section: Option<String>,
    /// Number of devices, at least 1.
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
  tessera plan gpulet/variants/examples/images.toml --explain --compare
  tessera plan gpulet/core/examples/igniter-12.toml --json | jq .policies[0].devices_used

A problem file:

  profiles = \"profiles/*.jsonl\"     what `tessera profile` measured
  interference = \"none\"             interference model: none, gpulet, contention, igniter

  [devices.v100]
  count = 4
  memory = \"16GiB\"

  [workloads.resnet50]
  slo = \"50ms\"
  rate = 400

Families (docs/choices.md): variants = { small = 0.9, large = \"large/quality.json\" }, quality_min or quality_mean, and devices with
cost, and loss_per_hour for spot devices.

Policies:
";

const CODES: &str = "
A validator that shares no code with the policies checks every plan.
The same file and version of tessera give the same result, byte for byte.
Exit code 0: a plan that keeps every objective. 1: no plan, or one that breaks an objective, which is named.
2: wrong usage, or a mistake in the file, named with its line and key.";

/// Examples, policies and exit codes, below the options.
pub fn plan_examples() -> String {
    let named = Policy::NAMES.iter().filter_map(|name| Policy::named(name));
    let policies = named.map(|policy| format!("  {:<12} {}\n", policy.name(), policy.about()));
    let of_families = published::names().filter_map(|name| Some((name, published::about(name)?)));
    let of_families = of_families.map(|(name, about)| format!("  {name:<12} {about}\n"));
    let (policies, of_families) = (policies.collect::<String>(), of_families.collect::<String>());
    format!(
        "{EXAMPLES}{policies}\nPolicies that choose variants, with [families.NAME] only:\n{of_families}{CODES}"
    )
}
