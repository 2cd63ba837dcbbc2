//! Units: what a gpulet's share of a GPU is counted in. Numbers only; nothing here talks to a driver.
//!
//! A GPU is split once into groups of SMs that the hardware can schedule together, and what is left over. Each group
//! is a unit. Which units a gpulet has decides everything else: how many SMs it is given, and whether the left-over
//! ones are its own. Equal unit ranges are therefore equal gpulets, so that profiles hold and contexts can be reused.

use std::fmt;
use std::ops::Range;

/// In which steps a GPU can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// Fewest SMs of a part.
    pub min: u32,
    /// Parts are multiples of so many SMs.
    pub align: u32,
}

impl Granularity {
    /// As the driver says, or, where it says nothing, as the generations of GPUs have it (`capability` is major,
    /// minor).
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

    /// SMs of a unit: the smallest part that can be had.
    pub fn unit_sms(self) -> u32 {
        let align = self.align.max(1);
        self.min.max(align).checked_next_multiple_of(align).unwrap_or(u32::MAX)
    }
}

/// Sizes in percent are multiples of this: finer ones differ by fewer SMs than the driver rounds to.
const PERCENT_STEP: u32 = 5;

/// A GPU that is too small to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device has {sms} SMs, and a gpulet of it needs at least {least}")]
pub struct GridError {
    /// SMs that it has.
    pub sms: u32,
    /// SMs of a unit.
    pub least: u32,
}

/// Neighbouring units of one device.
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

    /// How many.
    pub fn count(self) -> u32 {
        self.count
    }

    /// One past the last unit.
    pub fn end(self) -> u32 {
        self.first.saturating_add(self.count)
    }

    /// Whether some unit is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.first < other.end() && other.first < self.end()
    }

    /// Places in a list of all units.
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

/// Units that a device does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{count} units from unit {first} on: expected at least 1, and no unit beyond the last, {}", .units - 1)]
pub struct NoSuchUnits {
    /// First unit asked for.
    pub first: u32,
    /// How many were asked for.
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
    /// Sizes are multiples of so many units.
    step: u32,
}

impl Grid {
    /// From the groups that a split gave and what it left over. `None`: there are none.
    pub fn new(unit_sms: &[u32], remainder: u32) -> Option<Self> {
        let sound = !unit_sms.is_empty() && u32::try_from(unit_sms.len()).is_ok();
        sound.then(|| Self { units: unit_sms.to_vec(), remainder, step: 1 })
    }

    /// A hundred units, each a hundredth of the SMs, for ways of sharing that count in percent. Where SMs do not go
    /// round, some units have one more than others.
    pub fn in_percent(sms: u32) -> Self {
        let before = |unit: u32| sms.saturating_mul(unit) / 100;
        let units = (0..100).map(|unit| before(unit + 1) - before(unit)).collect();
        Self { units, remainder: 0, step: PERCENT_STEP }
    }

    /// What a split of so many SMs gives where they lie well: fewer groups and a larger remainder are possible.
    ///
    /// # Errors
    /// If there are fewer SMs than one unit has.
    pub fn planned(sms: u32, granularity: Granularity) -> Result<Self, GridError> {
        let least = granularity.unit_sms();
        let groups = sms.checked_div(least).unwrap_or(0);
        let units = vec![least; usize::try_from(groups).unwrap_or(0)];
        Self::new(&units, sms % least).ok_or(GridError { sms, least })
    }

    /// How many units there are.
    pub fn units(&self) -> u32 {
        u32::try_from(self.units.len()).unwrap_or(u32::MAX)
    }

    /// SMs that belong to no unit.
    pub fn remainder(&self) -> u32 {
        self.remainder
    }

    /// Units that a gpulet may have: any number, or multiples of some where units are percent.
    pub fn sizes(&self) -> Vec<u32> {
        (1..=self.units()).filter(|units| units.is_multiple_of(self.step)).collect()
    }

    /// All units.
    pub fn whole(&self) -> UnitRange {
        UnitRange { first: 0, count: self.units() }
    }

    /// Some units.
    ///
    /// # Errors
    /// If there are none of them, or some are beyond the last.
    pub fn range(&self, first: u32, count: u32) -> Result<UnitRange, NoSuchUnits> {
        let fits = count > 0 && first.checked_add(count).is_some_and(|end| end <= self.units());
        if fits {
            Ok(UnitRange { first, count })
        } else {
            Err(NoSuchUnits { first, count, units: self.units() })
        }
    }

    /// Whether a gpulet on these units has the remainder too. It carries no promise of scheduling blocks together, so
    /// that only the largest gpulet is to have it; one with more than half of the units is the largest whatever the
    /// others are, and there cannot be two.
    pub fn takes_remainder(&self, range: UnitRange) -> bool {
        self.remainder > 0 && range.count > self.units() - range.count.min(self.units())
    }

    /// SMs that a gpulet on these units is to have.
    pub fn sms(&self, range: UnitRange) -> u32 {
        let own: u32 = self.units.get(range.indices()).unwrap_or(&[]).iter().sum();
        if self.takes_remainder(range) { own + self.remainder } else { own }
    }

    /// Free units for a gpulet of this size. Blocks that begin at a multiple of their size (rounded up to a power of
    /// two) come first, and of those the one whose neighbourhood is fullest: few distinct ranges come to be used, and
    /// large blocks stay whole. `None`: there are not so many free units side by side.
    pub fn place(&self, count: u32, taken: &[UnitRange]) -> Option<UnitRange> {
        let step = count.checked_next_power_of_two()?;
        let free = |range: &UnitRange| !taken.iter().any(|other| other.overlaps(*range));
        let last = self.units().checked_sub(count).filter(|_| count > 0)?;
        let ranges = || (0..=last).map(|first| UnitRange { first, count }).filter(free);
        let aligned = ranges().filter(|range| range.first % step == 0);
        let neighbours = |range: &UnitRange| {
            let block = range.first - range.first % step.saturating_mul(2);
            let around = UnitRange { first: block, count: step.saturating_mul(2) };
            taken.iter().filter(|other| other.overlaps(around)).count()
        };
        let fullest = |best: UnitRange, next: UnitRange| {
            if neighbours(&next) > neighbours(&best) { next } else { best }
        };
        aligned.reduce(fullest).or_else(|| ranges().next())
    }
}
