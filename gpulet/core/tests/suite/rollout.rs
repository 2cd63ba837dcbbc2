//! From one plan to the next: stories with one event after the other, and an emulated world in which everything that
//! can fail does.

mod chance;
mod devices;
mod plans;
mod properties;
mod script;
mod stories;
mod storm;
mod waves;
mod world;
