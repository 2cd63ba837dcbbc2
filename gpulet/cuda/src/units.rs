//! Units, in which a gpulet's share of a GPU is counted. Nothing here calls the driver.
//!
//! A GPU is split once into groups of SMs that the hardware can schedule together, and a remainder. Each group is a
//! unit. The units of a gpulet determine everything else: how many SMs it has, and whether it has the remainder too.
//! Equal unit ranges are therefore equal gpulets, so profiles stay valid and contexts can be reused.

use std::fmt;
use std::ops::Range;

/// The device type in profiles: the GPU's model, and the units that its shares are counted in. Two cards of one model may
/// have different numbers of units, because different SMs of their chips are in use.
pub fn device_type(model: &str, units: u32) -> String {
    format!("{model} ({units} {})", if units == 1 { "unit" } else { "units" })
}

/// The steps in which a GPU can be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// Fewest SMs of a group.
    pub min: u32,
    /// Groups have a multiple of this number of SMs.
    pub align: u32,
}

impl Granularity {
    /// The driver's values, or those of the GPU's generation if the driver reports zeros. `capability` is major, minor.
    pub fn of(min: u32, align: u32, capability: (u32, u32)) -> Self {
        if min > 0 && align > 0 {
            return Self { min, align };
        }
        match capability.0 {
            0..=6 => Self { min: 1, align: 1 },
            7 => Self { min: 2, align: 2 },
            8 => Self { min: 4, align: 2 },
            _ => Self { min: 8, align: 8 },
        }
    }

    /// SMs of a unit, the smallest possible group.
    pub fn unit_sms(self) -> u32 {
        let align = self.align.max(1);
        self.min.max(align).checked_next_multiple_of(align).unwrap_or(u32::MAX)
    }
}

/// Sizes in percent are multiples of this. Finer ones differ by less than the driver's rounding.
const PERCENT_STEP: u32 = 5;

/// A GPU is too small for one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device has {sms} SMs: expected at least {least}")]
pub struct GridError {
    /// SMs of the device.
    pub sms: u32,
    /// SMs of a unit.
    pub least: u32,
}

/// Consecutive units of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitRange {
    first: u32,
    count: u32,
}

impl UnitRange {
    /// The first unit.
    pub fn first(self) -> u32 {
        self.first
    }

    /// The number of units.
    pub fn count(self) -> u32 {
        self.count
    }

    /// One past the last unit.
    pub fn end(self) -> u32 {
        self.first.saturating_add(self.count)
    }

    /// Indices into a list of all units.
    pub(crate) fn indices(self) -> Range<usize> {
        let place = |unit| usize::try_from(unit).unwrap_or(usize::MAX);
        place(self.first)..place(self.end())
    }
}

impl fmt::Display for UnitRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(f, "unit {}", self.first),
            _ => write!(f, "units {} to {}", self.first, self.end().saturating_sub(1)),
        }
    }
}

/// A range is not within the units of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{count} units from unit {first} on: expected at least 1, and no unit beyond the last, {}", .units - 1)]
pub struct NoSuchUnits {
    /// First unit of the range.
    pub first: u32,
    /// Length of the range.
    pub count: u32,
    /// Units of the device, 1 or more.
    pub units: u32,
}

/// The units of a device and the SMs in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// SMs of each unit; never empty.
    units: Vec<u32>,
    remainder: u32,
    /// Sizes are multiples of this number of units.
    step: u32,
}

impl Grid {
    /// A grid from the SMs of each group and those of the remainder. None without groups.
    pub fn new(unit_sms: &[u32], remainder: u32) -> Option<Self> {
        let sound = !unit_sms.is_empty() && u32::try_from(unit_sms.len()).is_ok();
        sound.then(|| Self { units: unit_sms.to_vec(), remainder, step: 1 })
    }

    /// A hundred units of about one percent of the SMs each. If their number is not a multiple of 100, some units have
    /// one SM more than others.
    pub fn in_percent(sms: u32) -> Self {
        let before = |unit: u32| sms.saturating_mul(unit) / 100;
        let units = (0..100).map(|unit| before(unit + 1) - before(unit)).collect();
        Self { units, remainder: 0, step: PERCENT_STEP }
    }

    /// The number of units.
    pub fn units(&self) -> u32 {
        u32::try_from(self.units.len()).unwrap_or(u32::MAX)
    }

    /// SMs that belong to no unit.
    pub fn remainder(&self) -> u32 {
        self.remainder
    }

    /// Sizes that a gpulet may have, in units.
    pub fn sizes(&self) -> Vec<u32> {
        (1..=self.units()).filter(|units| units.is_multiple_of(self.step)).collect()
    }

    /// A range of units.
    ///
    /// # Errors
    /// The range is empty or exceeds the last unit.
    pub fn range(&self, first: u32, count: u32) -> Result<UnitRange, NoSuchUnits> {
        let fits = count > 0 && first.checked_add(count).is_some_and(|end| end <= self.units());
        if fits {
            Ok(UnitRange { first, count })
        } else {
            Err(NoSuchUnits { first, count, units: self.units() })
        }
    }

    /// Whether a gpulet on these units has the remainder too. Blocks on the remainder may not be scheduled together, so
    /// only the largest gpulet gets it: the one with more than half of the units, if there is one.
    pub fn takes_remainder(&self, range: UnitRange) -> bool {
        self.remainder > 0 && range.count > self.units() - range.count.min(self.units())
    }

    /// SMs of a gpulet on these units.
    pub fn sms(&self, range: UnitRange) -> u32 {
        let own: u32 = self.units.get(range.indices()).unwrap_or(&[]).iter().sum();
        if self.takes_remainder(range) { own + self.remainder } else { own }
    }
}
