//! The `tessera-fleet` binary: the parts of a fleet of servers that need Kubernetes.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod agent;
mod crds;
mod fleet;
mod planner;
mod process;

/// Run many Tessera servers as one fleet on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "tessera-fleet", version, after_help = EXAMPLES)]
struct Cli {
    /// What to do.
    #[command(subcommand)]
    command: Command,
    /// Write logs as JSON.
    #[arg(long, global = true)]
    log_json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tessera-fleet crds --out deploy/crds
  tessera-fleet fleet --namespace models
  tessera-fleet agent --namespace models --node worker-1 --admin 127.0.0.1:8003

On SIGTERM or Ctrl-C, a leader releases its Lease, so that a standby leads within seconds.

Exit code 0: stopped by a signal, or done. 1: it could not start, or failed. 2: wrong usage.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Take part in the election of the leader, and plan for all nodes while leading.
    Fleet(fleet::FleetArgs),
    /// Apply the plan of one node to the server next to this process.
    Agent(agent::AgentArgs),
    /// Print the definitions of the kinds Model, NodePlan and ServingPool for Kubernetes.
    Crds {
        /// Folder to write one file for each kind to, instead of standard output.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    process::start_logs(cli.log_json);
    let done = match cli.command {
        Command::Fleet(arguments) => process::run(fleet::run(arguments)),
        Command::Agent(arguments) => process::run(agent::run(arguments)),
        Command::Crds { out } => crds::run(out.as_deref()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", fleet_kubernetes::requests::chain(&*error));
            ExitCode::FAILURE
        }
    }
}
