//! Model repository, model configuration, engines and their measured profiles.
//!
//! From disk to a lane: [`repository`] finds a model and reads its files once, [`inspect`] reads its signature,
//! [`EffectiveConfig`] combines its settings, a [`Loader`] makes a session of one of the [`engine`]s, and
//! [`warm_and_profile`] runs and measures it before it gets traffic.

mod agreement;
mod background;
mod batching;
mod classes;
mod effective;
pub mod engine;
mod ensemble;
mod error;
mod files;
mod identity;
mod loader;
mod memory;
mod onnx;
mod operators;
mod ort_table;
mod padding;
mod reference;
pub mod repository;
mod reshape;
mod rollout_settings;
mod sample;
mod settings;
mod signature;
pub mod split;
mod stopwatch;
mod warm;

pub use agreement::{Difference, agree, largest_difference};
pub use background::{enter_background, enter_idle_priority};
pub use batching::DEFAULT_MAX_BATCH;
pub use classes::{classes, whole_number};
pub use effective::{EffectiveConfig, SettingChange};
pub use engine::{EngineChoice, Known, LoadOptions, UnknownEngine};
pub use ensemble::{Ensemble, EnsembleError, EnsembleStep, EnsembleTensor, VOTE_CLASS, VOTE_SHARE};
pub use error::{ConfigError, EngineFailure, LoadError, Problem};
pub use files::{ContentHash, FolderGuard, Format, ModelFiles};
pub use identity::{InvalidName, ModelName, Version};
pub use loader::{Loader, inspect};
pub use memory::{give_back_large_blocks, release_unused_memory};
pub use operators::{OperatorWork, Operators, operators};
pub use ort_table::OrtTable;
pub use padding::{Padded, Padding};
pub use reference::Reference;
pub use rollout_settings::{RolloutSettings, Share};
pub use sample::SampleInputs;
pub use settings::{BatchingSettings, LaneChoice, ModelClass, ModelSettings, PaddingSettings, VersionPolicy};
pub use signature::{Dim, Reshape, Signature, TensorSpec};
pub use units::{InvalidTimeSpan, TimeSpan};
pub use warm::{WarmTimes, profile_padded, warm, warm_and_profile, warm_for};
