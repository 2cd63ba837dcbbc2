//! Devices and the link between them.

use crate::error::{ParallelError, not_negative, positive};

/// A device that runs one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The name in reports.
    pub name: String,
    /// Speed relative to the device on which latencies were measured: 2 takes half the time.
    pub speed: f64,
    /// Memory that a stage may use, in bytes.
    pub memory_bytes: u64,
}

impl Device {
    pub(crate) fn check(&self, place: usize) -> Result<(), ParallelError> {
        positive(format!("devices.{place}.speed"), self.speed)
    }
}

/// How tensors get from one stage to the next. All pairs of devices have the same link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Time of an empty message, in seconds.
    pub latency_s: f64,
    /// Bytes a second. Infinite: tensors take no time.
    pub bytes_per_second: f64,
}

impl Link {
    /// A link that takes no time.
    pub const INSTANT: Self = Self { latency_s: 0.0, bytes_per_second: f64::INFINITY };

    pub(crate) fn check(&self) -> Result<(), ParallelError> {
        not_negative("link.latency_s", self.latency_s)?;
        if self.bytes_per_second > 0.0 {
            return Ok(());
        }
        Err(ParallelError::invalid("link.bytes_per_second", "a number above 0", self.bytes_per_second))
    }

    /// Seconds until a message has arrived.
    pub fn time_s(&self, bytes: u64) -> f64 {
        self.latency_s + bytes as f64 / self.bytes_per_second
    }
}
