//! The tools of the `tessera` binary: everything but serving.

pub mod arguments;
pub mod check;
pub mod commands;
pub mod doctor;
pub mod load;
pub mod models_command;
pub mod parity;
pub mod plan;
pub mod profile;
pub mod simulate;
#[cfg(test)]
mod testing;

pub use commands::{Command, EXAMPLES, run};
