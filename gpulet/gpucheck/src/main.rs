//! The program: see the library.

use std::process::ExitCode;

use clap::Parser;
use gpucheck::arguments::Arguments;
use gpucheck::{ask, exit, supervision};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let code = match arguments.child {
        Some(errand) => ask(errand, &arguments),
        None => supervision::supervise(&arguments, &mut std::io::stdout()),
    };
    match code {
        Ok(code) => ExitCode::from(code),
        Err(misuse) => {
            eprintln!("gpucheck: {misuse}");
            ExitCode::from(exit::MISUSE)
        }
    }
}
