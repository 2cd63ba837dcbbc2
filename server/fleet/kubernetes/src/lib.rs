//! Kubernetes as the store and elector of a fleet of servers.
//!
//! - [`resources`]: the kinds `Model`, `ServingPool` and `NodePlan`.
//! - [`manifests`]: their definitions as YAML, for `deploy/crds`.
//! - [`agent`]: applies the plan of one node to the server next to it.

#![forbid(unsafe_code)]

pub mod agent;
pub mod manifests;
pub mod pacing;
pub mod requests;
pub mod resources;
