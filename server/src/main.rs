//! The `tessera` binary: reads the command line and its surroundings, and leaves the rest to the library.

use std::process::ExitCode;

use clap::Parser as _;
use server::cli::Cli;
use server::surroundings::Surroundings;

fn main() -> ExitCode {
    models::give_back_large_blocks();
    server::commands::run(Cli::parse(), &Surroundings::read())
}
