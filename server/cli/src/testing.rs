//! The command line of the tools, for tests.

use clap::Parser;

use crate::commands::Command;

/// Parses what follows the program's name.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
}
