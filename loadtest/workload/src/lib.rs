//! Workload files and the traffic that they describe, without I/O.
//!
//! A workload describes models, how fast their batches run, their latency objectives and how their requests arrive.
//! The simulator replays it in virtual time, the load generator against a live server. Both get the same arrivals,
//! which depend only on the file and its seed.
//!
//! The caller passes the text of the file and a closure that resolves the names of traces and profiles. This crate's
//! README describes the format. [`Arrivals`] yields the requests, [`Stages`] change their rate, and [`ExecutionNoise`]
//! gives the true execution times of batches.

#![forbid(unsafe_code)]

mod arrivals;
mod document;
mod draws;
mod family;
mod files;
mod fleet;
mod gamma_arrivals;
mod lanes;
mod limits;
mod names;
mod noise;
mod not_simulated;
mod overhead;
mod partition;
mod pipeline;
mod process;
mod profile;
pub mod random;
mod reading;
mod request_overhead;
mod rollout;
mod seeds;
mod shares;
mod spans;
mod stages;
mod stream;
mod tenant_section;
mod trace;
mod workload;

pub use arrivals::{Arrivals, Offered};
pub use document::{Paths, SplitSection, SplitWord, StageSection};
pub use family::{Family, FamilyVariant};
pub use fleet::{Fleet, FleetFault, FleetPart, NODES_MAX, NodeType};
pub use gamma_arrivals::GammaArrivals;
pub use lanes::{LaneChange, Lanes, Noise, Stalls};
pub use limits::{DURATION_MAX, LANES_MAX, MODELS_MAX, REQUESTS_MAX};
pub use noise::ExecutionNoise;
pub use not_simulated::{not_simulated, parse_document};
pub use overhead::Spans;
pub use partition::{DEVICES_MAX, Devices, Named, Partition};
pub use pipeline::{Deadlines, ObjectiveSplit, Pipeline, PipelineStage, mean_rows};
pub use profile::{Profile, sizes};
pub use reading::read_stages;
pub use request_overhead::RequestOverhead;
pub use rollout::{NewVersion, RolloutPlan, VersionDraws};
pub use shares::Shares;
pub use stages::{Stage, Stages};
pub use units::Lines;
pub use units::{Fault as WorkloadError, flags, nearest};
pub use workload::{Allowance, Extent, Model, Quota, Tenant, Workload};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
