//! Tessera's discrete-event simulator: a workload through the decision core of the server, unchanged, in virtual
//! time.
//!
//! ```
//! let mut files = |name: &str| Err(format!("no file {name}"));
//! let workload = workload::Workload::parse(
//!     r#"
//!     name = "one"
//!     duration = "10s"
//!     [lanes]
//!     count = 2
//!     [models.resnet]
//!     slo = "25ms"
//!     profile = { alpha = "1.053ms", beta = "5.072ms", max_batch = 64 }
//!     rate = 360.0
//!     "#,
//!     &mut files,
//! )?;
//! let report = sim::Simulation::new(&workload, &sim::Setup::default())?.run(&mut |_| {})?;
//! assert!(report.attainment > 0.99 && report.offered_rate > 330.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod abreast;
mod bound;
mod capacity;
mod digest;
mod error;
mod estimate;
mod figures;
pub mod fleet;
mod inflight;
mod lanes;
pub mod league;
mod objectives;
pub mod page;
mod partition;
pub mod report;
mod rollouts;
mod series;
mod setup;
mod simulation;
mod splits;
mod summary;
mod timeline;
mod units;
mod watch;

pub use abreast::abreast;
pub use bound::{Bound, bound};
pub use capacity::{Capacity, Search, Trial, capacity};
pub use error::{Broken, SimError};
pub use estimate::Estimate;
pub use partition::{check, least_devices};
pub use report::Report;
pub use setup::{Setup, whole_weights};
pub use simulation::{Progress, Simulation};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
