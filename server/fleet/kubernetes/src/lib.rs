//! Kubernetes as the store and elector of a fleet of servers.
//!
//! - [`resources`]: the kinds `Model`, `ServingPool` and `NodePlan`.
//! - [`manifests`]: their definitions as YAML, for `deploy/crds`.
//! - [`election`]: elects one leader with a Lease.
//! - [`leader`]: watches models and nodes, and writes plans and status.
//! - [`members`]: follows the nodes behind a Service, for pickers.
//! - [`agent`]: applies the plan of one node to the server next to it.

#![forbid(unsafe_code)]

pub mod agent;
pub mod election;
pub mod leader;
pub mod manifests;
pub mod members;
pub mod pacing;
pub mod requests;
pub mod resources;
pub mod watches;
