//! `[families.NAME]` of problem files: which variants serve, on which devices, and at what cost.

mod explain;
mod read;
mod report;
mod study;

pub use self::read::{read, spot, unused};
pub use self::report::{FamiliesLine, text};
pub use self::study::{FamilyStudy, PLACED, names, study};
