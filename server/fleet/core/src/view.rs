//! What nodes last said about themselves.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a request of one row of a model would meet on a node, when the node wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelView {
    /// Whether the node takes requests of it.
    pub ready: bool,
    /// Models of a node with the same number share their lanes.
    pub pool: u32,
    /// Lanes that run it.
    pub lanes: u32,
    /// Time until one of these lanes is free; zero if one is.
    pub free_in: Duration,
    /// Lane time of all rows that wait for these lanes.
    pub backlog: Duration,
    /// Lane time of one more row in a batch of the best size. Zero: never measured.
    pub row_time: Duration,
    /// Time of a batch of one row. Zero: never measured.
    pub single_time: Duration,
    /// Rows of this model that wait.
    pub queued: u64,
    /// Largest batch in rows.
    pub max_batch: u32,
}
