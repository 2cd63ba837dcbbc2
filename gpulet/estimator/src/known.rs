//! Models whose batch times are known.

use crate::network::Network;

/// A batch size on a share of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Rows, at least 1.
    pub batch: u32,
    /// Share of the device, above 0 and at most 1.
    pub share: f64,
}

/// A measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// What was measured.
    pub place: Place,
    /// Median time of a batch, microseconds, from a nanosecond to an hour.
    pub time_us: f64,
}

/// A model that was measured on the same device.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Its operators.
    pub network: Network,
    /// Its times.
    pub timings: Vec<Timing>,
}

/// Shortest and longest time, microseconds.
const TIME_US: (f64, f64) = (1e-3, 3.6e9);

impl Place {
    pub(crate) fn is_valid(&self) -> bool {
        self.batch > 0 && self.share > 0.0 && self.share <= 1.0
    }

    /// Logarithms of batch and share: the coordinates in which times are smooth.
    pub(crate) fn logs(&self) -> (f64, f64) {
        (f64::from(self.batch.max(1)).ln(), self.share.clamp(1e-6, 1.0).ln())
    }
}

impl Timing {
    pub(crate) fn is_valid(&self) -> bool {
        self.place.is_valid() && (TIME_US.0..=TIME_US.1).contains(&self.time_us)
    }
}
