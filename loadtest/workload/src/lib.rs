//! Workload files and the traffic that they stand for, without I/O.
//!
//! A workload says which models there are, how fast a batch of each runs, what latency each promises and how
//! requests for it arrive. The simulator replays it in virtual time, the load generator against a live server;
//! both get the same arrivals, for they are a function of the file and its seed alone.
//!
//! Text comes in, and a closure that resolves the names of traces and profiles; the format is described in this
//! crate's README. [`Arrivals`] yields what is offered, [`Stages`] ramp it, [`ExecutionNoise`] says how long batches
//! truly take.

#![forbid(unsafe_code)]

mod arrivals;
mod document;
mod draws;
mod lanes;
mod locate;
mod noise;
mod overhead;
mod partition;
mod process;
mod profile;
mod reading;
mod seeds;
mod shares;
mod spans;
mod stages;
mod stream;
mod trace;
mod workload;

pub use arrivals::{Arrivals, Offered};
pub use lanes::{LaneChange, Lanes, Noise, Stalls};
pub use locate::Lines;
pub use noise::ExecutionNoise;
pub use overhead::{RequestOverhead, Spans};
pub use partition::{DEVICES_MAX, Devices, Named, Partition};
pub use profile::{Profile, sizes};
pub use reading::parse_toml;
pub use shares::Shares;
pub use stages::{Stage, Stages};
pub use units::{Fault as WorkloadError, nearest};
pub use workload::{DURATION_MAX, Extent, LANES_MAX, MODELS_MAX, Model, REQUESTS_MAX, Tenant, Workload};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
