//! Loads models and runs them on devices: catalog, control loop, supervision, devices, metrics and configuration. The
//! server and the tools use it.

pub mod activity;
pub mod batching;
pub mod bundled;
pub mod catalog;
pub mod config;
mod control;
pub mod devices;
pub mod environment;
pub mod files;
pub mod in_force;
pub mod lanes;
pub mod logs;
pub mod metrics;
mod node;
pub mod objectives;
pub mod output;
pub mod profiles;
pub mod rate_limits;
pub mod reason;
pub mod reload;
pub mod request_log;
mod supervisor;
pub mod tenants;
#[cfg(test)]
mod testing;

pub use node::{Node, Startup};
pub use objectives::MARGIN;
