//! What the checks do, one module each.

mod facts;
mod faults;
mod interference;
mod isolation;
mod libraries;
mod mix;
mod profile;
mod resize;
mod sharing;

use crate::bench::{Bench, Stop};
use crate::check::Check;

pub(crate) use faults::{fault_task, health_task, index_task};
pub(crate) use libraries::share_task;

/// Runs a check, which reports its facts.
///
/// # Errors
/// Why it was aborted. Facts that were reported before are valid.
pub fn run(check: Check, bench: &mut Bench<'_>) -> Result<(), Stop> {
    match check {
        Check::Facts => facts::run(bench),
        Check::Libraries => libraries::run(bench),
        Check::Isolation => isolation::run(bench),
        Check::Resize => resize::run(bench),
        Check::Sharing => sharing::run(bench),
        Check::Interference => interference::run(bench),
        Check::Profile => profile::run(bench),
        Check::Faults => faults::run(bench),
        Check::Mix => mix::run(bench),
    }
}
