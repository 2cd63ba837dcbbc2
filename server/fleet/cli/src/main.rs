//! The `tessera-fleet` binary: leader, endpoint picker and agents of a fleet of servers.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod agent;
mod crds;
mod fleet;
mod observed;
mod pick;
mod planner;
mod process;

/// Run many Tessera servers as one fleet.
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
  tessera-fleet fleet --namespace models --service tessera-nodes --pickers tessera-pickers
  tessera-fleet pick --namespace models --service tessera-nodes
  tessera-fleet pick --node a=10.0.0.1:8000,10.0.0.1:8001 --node b=10.0.0.2:8000,10.0.0.2:8001
  tessera-fleet agent --namespace models --node worker-1 --admin 127.0.0.1:8003

On SIGTERM or Ctrl-C, a leader releases its Lease, so that a standby leads within seconds.
A picker answers the requests that wait.

Exit code 0: stopped by a signal, or done. 1: it could not start, or failed. 2: wrong usage.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Take part in the election of the leader, and plan for all nodes while leading.
    Fleet(fleet::FleetArgs),
    /// Choose the node of each request, for Envoy and other gateways.
    Pick(pick::PickArgs),
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
        Command::Pick(arguments) => process::run(pick::run(arguments)),
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
