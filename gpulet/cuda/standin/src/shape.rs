//! The GPUs that the stand-in simulates.

use std::fmt;
use std::str::FromStr;

/// The GPUs and the driver of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of GPUs, all alike.
    pub devices: u32,
    /// SMs of each GPU.
    pub sms: u32,
    /// Fewest SMs of a group.
    pub min: u32,
    /// Groups have a multiple of this number of SMs.
    pub align: u32,
    /// Most groups of a split, as if clusters were fragmented; 0: no limit.
    pub groups_max: u32,
    /// Driver version as `cuDriverGetVersion` returns it: 13000 is 13.0.
    pub driver: u32,
    /// Compute capability times ten: 90 is 9.0.
    pub capability: u32,
    /// Memory of each GPU, in bytes.
    pub memory_bytes: u64,
    /// Memory of a primary context, in bytes.
    pub context_bytes: u64,
    /// Name of the GPUs, with underscores for spaces.
    pub name: String,
    /// Whether an event of the primary context may be recorded on a stream of a green context.
    pub primary_events: bool,
    /// Whether the SM resource reports its granularity, as drivers from 13.0 on do.
    pub granularity: bool,
    /// MIG instances of the first GPU; 0: MIG is off.
    pub instances: u32,
    /// Most green contexts at the same time; 0: no limit.
    pub greens_max: u32,
}

impl Default for Shape {
    /// One GPU of 132 SMs in 16 groups of 8. How many groups a card of this kind has depends on which SMs are in use: see
    /// [`h200`](Self::h200).
    fn default() -> Self {
        Self {
            devices: 1,
            sms: 132,
            min: 8,
            align: 8,
            groups_max: 0,
            driver: 13_000,
            capability: 90,
            memory_bytes: 80 << 30,
            context_bytes: 512 << 20,
            name: "Stand-in_GPU".to_owned(),
            primary_events: true,
            granularity: true,
            instances: 0,
            greens_max: 0,
        }
    }
}

impl Shape {
    /// An H200 as its driver splits it (580.159, on one card): fifteen units, and twelve SMs that are not next to each other.
    #[must_use]
    pub fn h200() -> Self {
        Self {
            groups_max: 15,
            memory_bytes: 150_109_880_320,
            name: "NVIDIA H200".to_owned(),
            ..Self::default()
        }
    }

    /// One GPU with this number of SMs, in groups of a multiple of `align` and at least `min`.
    #[must_use]
    pub fn with_sms(sms: u32, min: u32, align: u32) -> Self {
        Self { sms, min, align, ..Self::default() }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "devices={} sms={} min={} align={} groups_max={} driver={} capability={} memory_bytes={} \
             context_bytes={} name={} primary_events={} granularity={} instances={} greens_max={}",
            self.devices,
            self.sms,
            self.min,
            self.align,
            self.groups_max,
            self.driver,
            self.capability,
            self.memory_bytes,
            self.context_bytes,
            self.name.replace(' ', "_"),
            self.primary_events,
            self.granularity,
            self.instances,
            self.greens_max,
        )
    }
}

/// A setting is not one of a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a setting such as `sms=132`, got `{0}`")]
pub struct BadShape(String);

impl FromStr for Shape {
    type Err = BadShape;

    fn from_str(text: &str) -> Result<Self, BadShape> {
        let mut shape = Self::default();
        for word in text.split_whitespace() {
            shape.set(word).ok_or_else(|| BadShape(word.to_owned()))?;
        }
        Ok(shape)
    }
}

impl Shape {
    fn set(&mut self, word: &str) -> Option<()> {
        let (key, value) = word.split_once('=')?;
        let number = || value.parse::<u32>().ok();
        match key {
            "devices" => self.devices = number()?,
            "sms" => self.sms = number()?,
            "min" => self.min = number()?.max(1),
            "align" => self.align = number()?.max(1),
            "groups_max" => self.groups_max = number()?,
            "driver" => self.driver = number()?,
            "capability" => self.capability = number()?,
            "memory_bytes" => self.memory_bytes = value.parse().ok()?,
            "context_bytes" => self.context_bytes = value.parse().ok()?,
            "name" => self.name = value.to_owned(),
            "primary_events" => self.primary_events = value.parse().ok()?,
            "granularity" => self.granularity = value.parse().ok()?,
            "instances" => self.instances = number()?,
            "greens_max" => self.greens_max = number()?,
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_survives_the_environment() {
        let shape = Shape {
            devices: 2,
            primary_events: false,
            instances: 2,
            greens_max: 3,
            ..Shape::with_sms(108, 4, 2)
        };
        assert_eq!(shape.to_string().parse(), Ok(shape));
    }

    #[test]
    fn an_unknown_setting_is_refused() {
        assert_eq!("sms=12 colour=red".parse::<Shape>(), Err(BadShape("colour=red".to_owned())));
    }
}
