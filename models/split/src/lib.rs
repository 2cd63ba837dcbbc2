//! Splits a graph of operators into stages that run one after the other.
//!
//! A [`Graph`] has nodes in topological order. A [`SplitPoint`] is a position in that order, with the tensors that cross it: everything that
//! the nodes after the position read from before it. With one crossing tensor, that tensor dominates the outputs: every path from
//! an input to an output goes through it. [`Graph::stages`] says which nodes, inputs, outputs and constants each stage has, and
//! [`choose`] picks the split points that make the slowest stage as fast as possible.
//!
//! The crate knows names and sizes, and neither files nor engines. The crate `models` describes ONNX models for it and writes the
//! stages.

#![forbid(unsafe_code)]

mod balance;
mod error;
mod graph;
mod split_point;
mod stage;

pub use balance::{CANDIDATES_MAX, Candidate, Choice, choose, without_noise};
pub use error::{BalanceError, GraphError, SplitError};
pub use graph::{Description, Graph, NODES_MAX, Node, TENSORS_MAX};
pub use split_point::{STAGES_MAX, SplitPoint};
pub use stage::Stage;
