//! Sections of configuration files about devices: `[devices.NAME]`, and `interference`, which says how co-located
//! batches slow each other down.
//!
//! `tessera serve`, `plan` and `simulate` read the same sections, so they reject the same errors with the same messages.

#![forbid(unsafe_code)]

mod devices;
mod interference;
mod section;

pub use devices::{DeviceSection, REPLACE, known_words};
pub use interference::{interference, interference_on};
pub use section::{InterferenceSection, PowerSection};
