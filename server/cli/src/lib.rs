//! The tools of the `tessera` binary: everything but serving.

mod arguments;
mod check;
mod colocate;
mod commands;
mod config_command;
mod doctor;
mod explain;
mod explain_request;
mod health;
mod job;
mod journal;
mod key;
mod load;
mod models_command;
mod parallel;
mod parity;
mod plan;
mod profile;
mod progress;
mod rest;
mod rollout_report;
mod simulate;
mod split;
mod split_setting;
#[cfg(test)]
mod testing;
mod tune;
mod variants;

pub use commands::{Command, EXAMPLES, run};
