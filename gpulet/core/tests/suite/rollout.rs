//! From one plan to the next: scenarios with one event after the other, and an emulated world in which everything that
//! can fail does.

mod chance;
mod devices;
mod plans;
mod properties;
mod scenarios;
mod script;
mod storm;
mod waves;
mod world;
