//! The `tessera-fleet` binary.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod crds;

/// Run many Tessera servers as one fleet on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "tessera-fleet", version)]
struct Cli {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the definitions of the kinds Model, NodePlan and ServingPool for Kubernetes.
    Crds {
        /// Folder to write one file for each kind to, instead of standard output.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Crds { out } => crds::run(out.as_deref()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
