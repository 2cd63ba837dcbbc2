//! Kubernetes as the store and elector of a fleet of servers.
//!
//! - [`resources`]: the kinds `Model`, `ServingPool` and `NodePlan`.
//! - [`manifests`]: their definitions as YAML, for `deploy/crds`.

#![forbid(unsafe_code)]

pub mod manifests;
pub mod resources;
