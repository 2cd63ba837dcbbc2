//! What a file says about batches that run on the same device at the same time.
//!
//! `tessera serve`, `plan` and `simulate` read the same `interference` section, so all three refuse the same mistakes
//! with the same words.

#![forbid(unsafe_code)]

mod interference;
mod section;

pub use interference::{interference, interference_on};
pub use section::{InterferenceSection, PowerSection};
