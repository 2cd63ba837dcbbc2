//! The `interference` section of configuration files: how co-located batches slow each other down.
//!
//! `tessera serve`, `plan` and `simulate` read the same `interference` section, so all three reject the same errors
//! with the same messages.

#![forbid(unsafe_code)]

mod interference;
mod section;

pub use interference::{interference, interference_on};
pub use section::{InterferenceSection, PowerSection};
