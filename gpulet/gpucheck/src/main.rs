//! The program: see the library.

use std::process::ExitCode;

use clap::Parser;
use gpucheck::arguments::Arguments;
use gpucheck::{child, exit, supervision};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let code = match arguments.child {
        Some(task) => child::run(task, &arguments),
        None => supervision::supervise(&arguments, &mut std::io::stdout()),
    };
    match code {
        Ok(code) => ExitCode::from(code),
        Err(problem) => {
            eprintln!("gpucheck: {problem}");
            ExitCode::from(exit::MISUSE)
        }
    }
}
