//! Published policies for sharing a GPU between online and best-effort work, in virtual time: kernel by kernel ([`policy`],
//! [`simulation`]), training jobs by memory ([`salus`]) and offline jobs over many GPUs ([`muxflow`]).
//!
//! Nothing here runs on a GPU. How kernels slow each other down is a model with few parameters ([`interference`]); figures that only
//! hardware can give are not produced.

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod figures;
pub mod gpu;
pub mod interference;
pub mod kernel;
pub mod matching;
pub mod muxflow;
pub mod orion_data;
pub mod policy;
pub mod salus;
pub mod simulation;
