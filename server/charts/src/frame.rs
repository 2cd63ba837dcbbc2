//! The area in which a plot draws its lines.

use crate::axis::Axis;

/// Height up to which the lines reach.
pub(crate) const TOP: f64 = 40.0;

/// The axes of a plot and its edges.
pub(crate) struct Frame {
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}
