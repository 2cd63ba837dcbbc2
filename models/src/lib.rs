//! Model repository, model configuration, engines and their measured profiles.
//!
//! The way of a model from disk to a lane: [`repository`] finds it and reads its files once,
//! [`inspect`] tells what it takes and gives, [`EffectiveConfig`] settles how it is served, a [`Loader`] turns
//! the files into a session of one of the [`engine`]s, and [`warm_and_profile`] runs and measures it before it gets
//! traffic.

mod batching;
mod effective;
pub mod engine;
mod error;
mod files;
mod giving_way;
mod identity;
mod loader;
mod made_up;
mod memory;
mod onnx;
mod reference;
pub mod repository;
mod sample;
mod settings;
mod signature;
mod stopwatch;
mod time_span;
mod warm;

pub use batching::DEFAULT_MAX_BATCH;
pub use effective::EffectiveConfig;
pub use error::{ConfigError, EngineFailure, LoadError};
pub use files::{ContentHash, Format, ModelFiles};
pub use giving_way::give_way;
pub use identity::{InvalidName, ModelName, Version};
pub use loader::{EngineChoice, Known, LoadOptions, Loader, UnknownEngine, inspect};
pub use made_up::MadeUp;
pub use memory::{give_back_large_blocks, release_unused_memory};
pub use reference::Reference;
pub use settings::{BatchingSettings, LaneChoice, ModelSettings, VersionPolicy};
pub use signature::{Dim, Signature, TensorSpec};
pub use time_span::{InvalidTimeSpan, TimeSpan};
pub use warm::{warm, warm_and_profile, warm_for};
