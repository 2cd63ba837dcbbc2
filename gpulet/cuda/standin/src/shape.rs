//! What GPUs the stand-in pretends to have.

use std::fmt;
use std::str::FromStr;

/// The GPUs and the driver, as a test wants them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// GPUs, all alike.
    pub devices: u32,
    /// SMs of each.
    pub sms: u32,
    /// Fewest SMs of a partition.
    pub min: u32,
    /// Partitions are multiples of so many SMs.
    pub align: u32,
    /// Bound on the groups that a split gives, as clusters that lie badly have it; 0: as many as the SMs allow.
    pub groups_max: u32,
    /// Driver version as `cuDriverGetVersion` gives it: 13000 is 13.0.
    pub driver: u32,
    /// Compute capability times ten: 90 is 9.0.
    pub capability: u32,
    /// Bytes of memory of each GPU.
    pub memory_bytes: u64,
    /// Bytes that the primary context takes.
    pub context_bytes: u64,
    /// Name of the GPUs; no spaces, they are written as underscores.
    pub name: String,
    /// Whether an event of the primary context may be recorded on a stream of a green context.
    pub primary_events: bool,
    /// Whether the SM resource names its granularity, as drivers from 13.0 on do.
    pub granularity: bool,
    /// Instances that MIG made of the first GPU, as the management library lists them; 0: MIG is off.
    pub instances: u32,
    /// Green contexts that may exist at once; 0: any number.
    pub greens_max: u32,
}

impl Default for Shape {
    /// One GPU of 132 SMs in groups of 8.
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
    /// One GPU of so many SMs, cut in multiples of `align` and no less than `min`.
    #[must_use]
    pub fn cut(sms: u32, min: u32, align: u32) -> Self {
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

/// A word that says nothing of a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: expected words such as `sms=132`")]
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
        let shape =
            Shape { devices: 2, primary_events: false, instances: 2, greens_max: 3, ..Shape::cut(108, 4, 2) };
        assert_eq!(shape.to_string().parse(), Ok(shape));
    }

    #[test]
    fn a_word_that_says_nothing_is_named() {
        assert_eq!("sms=12 colour=red".parse::<Shape>(), Err(BadShape("colour=red".to_owned())));
    }
}
