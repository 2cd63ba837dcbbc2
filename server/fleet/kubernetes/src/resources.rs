//! The kinds of `tessera.dev/v1alpha1`.
//!
//! Each field has one writer. Users write the specs of [`model::Model`] and [`serving_pool::ServingPool`]; the leader of the fleet writes
//! their status and the specs of [`node_plan::NodePlan`]; each node writes the status of its own plan.

pub mod condition;
pub mod model;
#[expect(clippy::duplicated_attributes, reason = "columns of the same type repeat their type")]
pub mod node_plan;
#[expect(clippy::duplicated_attributes, reason = "columns of the same type repeat their type")]
pub mod serving_pool;
