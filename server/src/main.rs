//! The `tessera` binary: reads the command line and its surroundings, and leaves the rest to the library.

use std::process::ExitCode;

use clap::Parser as _;
use server::cli::Cli;
use server::surroundings::Surroundings;

/// Returns the memory of a burst of large bodies to the system, which glibc's allocator keeps.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    server::commands::run(Cli::parse(), &Surroundings::read())
}
