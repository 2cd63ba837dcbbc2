//! Tessera's load generator: requests at times that were fixed beforehand, over HTTP and gRPC, from the same workload
//! files as the simulator.
//!
//! Latency counts from when a request was *due*, not from when it was sent, so a server (or a client) that stalls
//! cannot hide its own stall: the omission that is usual otherwise is called coordinated omission (G. Tene, "How NOT
//! to Measure Latency", 2013).

mod api;
mod capacity;
mod clock;
pub mod compare;
mod connection;
mod error;
mod figures;
mod gathered;
pub mod hdr_log;
mod histogram;
mod keeping_up;
mod outcome;
pub mod page;
mod payload;
mod plan;
mod record;
pub mod report;
pub mod seconds_csv;
mod sender;
mod session;
mod statistics;
mod story;
pub mod table;
mod target;
mod timing;
mod values;

#[cfg(test)]
mod fixture;

pub use capacity::Watch;
pub use error::LoadError;
pub use payload::{Payloads, Samples};
pub use report::Report;
pub use session::{Drive, Live, Session, Settings};
pub use target::{BadEndpoint, Endpoint, Protocol, Tensors};
pub use timing::Timing;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
