//! The flags of `tessera simulate` and `tessera arena`.

use std::path::PathBuf;

use clap::Args;
use router_core::batch::Policy;
use workload::random;

/// Options of `simulate`.
#[derive(Args, Clone, Debug)]
pub struct SimulateArgs {
    /// Workload file in TOML: models, requests and lanes (loadtest/workload/README.md); or `random:SEED`, one of the
    /// random workloads of `tessera arena --random`; `fleet:NODES:SEED`, one of a fleet; or
    /// `unequal-fleet:NODES:SEED`, one of a fleet with devices of unequal speed.
    #[arg(value_name = "WORKLOAD.toml")]
    pub workload: PathBuf,
    /// A policy, with options after a colon: `triton:max_delay=2ms,preferred=4|8`; may be repeated to compare
    /// several. Default: `deadline`.
    #[arg(long, value_name = "NAME[:OPTIONS]")]
    pub policy: Vec<String>,
    /// Compare all policies, the best first. For a fleet, all methods of spreading requests over its nodes.
    #[arg(long, conflicts_with = "policy")]
    pub compare: bool,
    /// Placement policy instead of the workload's, for workloads with a `partition` section; may be repeated to compare several.
    #[arg(long, value_name = "NAME")]
    pub placement: Vec<String>,
    /// Scaler instead of the workload's, for workloads with a `partition` section; may be repeated to compare several.
    #[arg(long, value_name = "NAME")]
    pub scaling: Vec<String>,
    /// Policy for the variants of families instead of the workload's, for workloads with a `partition` section; may be repeated to
    /// compare several.
    #[arg(long, value_name = "NAME")]
    pub variants: Vec<String>,
    /// Number of seeds for each policy, from the workload's on. More than one gives confidence intervals.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub seeds: u64,
    /// Multiply the workload's rate by this factor.
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true)]
    pub rate_scale: Option<f64>,
    /// Number of lanes. Default: the workload's.
    #[arg(long, value_name = "NUMBER")]
    pub lanes: Option<u32>,
    /// Also find the highest rate with at least 99 % attainment, to 1 %.
    #[arg(long)]
    pub find_capacity: bool,
    /// Write a self-contained HTML page with plots. Also runs each policy at other rates.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Check every invariant of the scheduler after every event; slow.
    #[arg(long)]
    pub check: bool,
    /// Stop a run after this number of scheduler events. The report says so.
    #[arg(long, value_name = "NUMBER", default_value_t = EVENTS_MAX, value_parser = clap::value_parser!(u64).range(1..))]
    pub max_events: u64,
    /// Number of parallel runs. Default: one for each core.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub threads: Option<u16>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Default of `--max-events`: some minutes of simulation.
pub const EVENTS_MAX: u64 = 1_000_000_000;

const EXAMPLES: &str = "\
Examples:
  tessera simulate loadtest/arena/one-model.toml
  tessera simulate loadtest/arena/ten-models.toml --compare --seeds 5 --report ten.html
  tessera simulate mine.toml --find-capacity --lanes 4
  tessera simulate random:37 --compare
  tessera simulate fleet:100:1 --compare     100 nodes and their pickers against one machine
  tessera simulate loadtest/partition/shifting-devices.toml --scaling attainment --scaling static
  tessera simulate mine.toml --policy deadline --policy 'triton:max_delay=2ms,preferred=4|8'

Policies:
";

const OPTIONS: &str = "
Options of a policy, if it takes them:
  max_delay=TIME            longest wait of a request for others (triton, aimd)
  preferred=ROWS[|ROWS...]  batch sizes that start at once, ascending (triton); one
                            size instead of the planned ones (nexus)
  drop=WHEN                 early: when a deadline cannot be met any more; lazy: when it has
                            passed (nexus)

The same workload, seed and version of tessera give exactly the same figures.
Exit code 0: success. 1: failure. 2: wrong usage.";

/// Examples, policies and exit codes, below the options.
pub fn simulate_examples() -> String {
    let policies = Policy::ALL.iter().map(|(name, summary)| format!("  {name:<10} {summary}\n"));
    format!("{EXAMPLES}{}{OPTIONS}", policies.collect::<String>())
}

/// Options of `arena`.
#[derive(Args, Clone, Debug)]
pub struct ArenaArgs {
    /// Folder with the workloads.
    #[arg(long, value_name = "DIR", default_value = "loadtest/arena")]
    pub workloads: PathBuf,
    /// The page to write, in Markdown. Plots go to a folder of the same name next to it. Default: docs/arena.md;
    /// with `--random` none.
    #[arg(long, value_name = "FILE.md")]
    pub out: Option<PathBuf>,
    /// Run this number of random workloads instead, each once, and print a league table.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["workloads", "seeds"], value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub random: Option<u64>,
    /// Seed of the first random workload; the next ones follow.
    #[arg(long, value_name = "SEED", default_value_t = 0, requires = "random", value_parser = clap::value_parser!(u64).range(..=random::SEED_MAX))]
    pub seed: u64,
    /// Print the league of random workloads as JSON.
    #[arg(long, requires = "random")]
    pub json: bool,
    /// Number of seeds for each policy and workload.
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub seeds: u64,
    /// Number of parallel runs. Default: one for each core.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub threads: Option<u16>,
}

/// Examples, below the options.
pub const ARENA_EXAMPLES: &str = "\
Examples:
  tessera arena --seeds 5 --threads 2       from the root of the repository: writes docs/arena.md
  tessera arena --random 100 --seed 1000    a league over the random workloads 1000 to 1099
  tessera simulate random:1037 --compare    one of them, with all settings of all policies

Takes several minutes, and a random workload some seconds. The same version of tessera writes the same page, byte for byte.
Exit code 0: success. 1: failure. 2: wrong usage.";

/// Number of parallel runs: the given one, or one for each core.
pub fn threads(asked: Option<u16>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    asked.map_or_else(cores, usize::from)
}
