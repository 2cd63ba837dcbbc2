//! Jobs: many rows through one model, behind the requests of clients. `(now, event)` in, effects out.
//!
//! The rows of a job are requests of best effort, so the router decides when they run. Here is decided which row of which job is sent
//! next, which results are written and committed, and when a job will end.

#![forbid(unsafe_code)]

mod forecast;
mod job;
mod scheduler;

pub use forecast::{Forecast, Verdict};
pub use job::{JobId, Millis, Spec};
pub use scheduler::{Effect, Event, Progress, Scheduler};
