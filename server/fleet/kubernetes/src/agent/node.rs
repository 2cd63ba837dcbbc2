//! The server that an agent manages.

use std::collections::BTreeMap;
use std::future::Future;

use thiserror::Error;

use crate::resources::model::Source;
use crate::resources::node_plan::Device;

/// A server that did not do what the agent asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct NodeError(pub String);

/// State of a model on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelState {
    /// It takes requests.
    Ready,
    /// It is being loaded.
    Loading,
    /// It is being unloaded and still takes memory.
    Unloading,
}

/// What a server has. Models that are neither ready nor about to change are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// State of its models.
    pub models: BTreeMap<String, ModelState>,
    /// Sources of the models that were loaded from one.
    pub sources: BTreeMap<String, Source>,
    /// Its devices.
    pub devices: Vec<Device>,
    /// Rows per second that it can take, by model, where it was measured.
    pub capacity: BTreeMap<String, f64>,
}

/// A server: its models can be listed, loaded and unloaded.
pub trait Node: Send + Sync + 'static {
    /// What the server has now.
    fn list(&self) -> impl Future<Output = Result<Listing, NodeError>> + Send;
    /// Loads a model, with the files of its source if it has one, and returns when it is ready.
    fn load(
        &self,
        model: &str,
        source: Option<&Source>,
    ) -> impl Future<Output = Result<(), NodeError>> + Send;
    /// Unloads a model after its requests are answered.
    fn unload(&self, model: &str) -> impl Future<Output = Result<(), NodeError>> + Send;
}
