//! The endpoint picker of a fleet: chooses the server of each request for Envoy and other gateways.
//!
//! [`fleet_core::pick`] decides, and [`chooser`] adds what it does not know: addresses, tickets and what to do without views. One task
//! owns both ([`actor`]). Around it are the two services that gateways call ([`ext_proc`], [`plain`]) and a stream of signals from
//! each node ([`follow`]). Pickers ask each other for requests whose lanes they own ([`peers`]).

#![forbid(unsafe_code)]

mod actor;
mod answers;
mod asked;
mod askers;
mod attempts;
mod chooser;
pub mod demand;
mod ext_proc;
pub mod follow;
mod headers;
mod measures;
pub mod nodes;
mod owners;
pub mod peers;
mod pick_request;
mod plain;
mod proto;
mod refusal;
pub mod service;
mod timer;
