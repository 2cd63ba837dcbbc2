//! The async shell of the front door: Open Inference Protocol over HTTP and gRPC, in front of one service
//! function; configuration, start-up, drain; and the commands of the `tessera` binary.

pub mod banner;
pub mod batching;
pub mod budget;
pub mod bundled;
pub mod catalog;
pub mod check;
pub mod classification;
pub mod cli;
pub mod commands;
pub mod config;
mod control;
mod devices;
pub mod doctor;
pub mod errors;
pub mod front;
pub mod grpc;
pub mod http;
pub mod lanes;
pub mod listener;
pub mod load;
pub mod logs;
pub mod metrics;
pub mod model_config;
pub mod model_metadata;
pub mod models_command;
pub mod output;
pub mod parity;
pub mod plan;
pub mod profile;
pub mod reason;
pub mod request_id;
pub mod serve;
pub mod service;
pub mod settings;
pub mod shared_memory;
pub mod simulate;
mod supervisor;
pub mod surroundings;
#[cfg(test)]
mod testing;
pub mod timing_headers;
pub mod validate;
