//! Tessera's decision core for a fleet of servers, without I/O.
//!
//! A *node* is a server with its devices. A [`node_plan::NodePlan`] names the models of one node, and a [`view::ModelView`] is what
//! a node last said about one of them. The picker, the leader, the nodes and the simulator run this code; they bring the clock, the
//! network and the storage.

#![forbid(unsafe_code)]

pub mod batch_times;
pub mod epoch;
pub mod lease;
pub mod moves;
pub mod node_plan;
pub mod pick;
pub mod planner;
pub mod traffic;
pub mod view;
