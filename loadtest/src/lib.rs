//! Tessera's load generator: sends requests at predetermined times over HTTP and gRPC, from the same workload files as
//! the simulator.
//!
//! Latency counts from the time a request was *due*, not from when it was sent. A server or a client that stalls therefore
//! cannot hide the stall. Otherwise it would: this is coordinated omission (G. Tene, "How NOT to Measure Latency", 2013).

mod api;
mod capacity;
mod clock;
mod collector;
pub mod compare;
mod connection;
mod drive;
mod error;
mod figures;
pub mod hdr_log;
mod histogram;
mod keeping_up;
mod model_config;
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
mod suggestion;
mod summary;
pub mod table;
mod target;
mod timing;
mod values;

#[cfg(test)]
mod fixture;

pub use capacity::Watch;
pub use collector::Live;
pub use drive::Drive;
pub use error::{LoadError, MissingShapes};
pub use payload::{Payloads, Samples};
pub use report::Report;
pub use session::{Credentials, Session, Settings};
pub use target::{BadEndpoint, Endpoint, Protocol, Tensors};
pub use timing::Timing;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
