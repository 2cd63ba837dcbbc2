//! The front door: Open Inference Protocol over HTTP and gRPC, in front of one service function, over a node that runs
//! the models; start-up and drain.

pub mod audit;
pub mod banner;
pub mod budget;
pub mod classification;
pub mod errors;
pub mod flat_json;
pub mod fleet;
pub mod front;
pub mod gate;
pub mod grpc;
pub mod http;
pub mod identity_watch;
pub mod in_flight;
pub mod job_rows;
mod job_tensors;
pub mod listener;
pub mod metrics_endpoint;
pub mod model_config;
pub mod model_metadata;
pub mod reference;
pub mod reloads;
pub mod request_id;
#[cfg(test)]
mod secure_tests;
pub mod serve;
pub mod service;
pub mod settings;
pub mod shared_memory;
pub mod systemd;
pub mod telemetry_export;
pub mod tenant;
#[cfg(test)]
mod testing;
pub mod timing_headers;
pub mod trace;
pub mod validate;
#[cfg(feature = "tools")]
pub mod what_if;
