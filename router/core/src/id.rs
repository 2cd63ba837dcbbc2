//! Identifiers inside the core.

use serde::Serialize;

/// A request: a slot in the caller's payload slab and the slot's generation, so that a stale id never
/// names a newer request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RequestId(u64);

impl RequestId {
    /// From a slot (unique among unfinished requests, below `RouterConfig::max_requests`) and a generation that
    /// changes whenever the slot is reused.
    pub const fn new(slot: u32, generation: u32) -> Self {
        Self(((generation as u64) << 32) | slot as u64)
    }

    /// The slot.
    pub const fn slot(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }

    /// The generation.
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// One loaded version of one model. The caller may reuse a number after `Effect::Retired` named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ModelId(pub u32);

/// A lane, which runs one batch after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LaneId(pub u32);

/// Lanes of one class take equally long for the same batch: the same share of the same device type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LaneClass(pub u32);

/// A batch in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct BatchId(pub u64);

/// Requests with equal keys (and equal model) may share a batch. The caller guarantees that different shapes
/// have different keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ShapeKey(pub u64);

/// Priority class: 0 is served first, strictly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Class(u8);

impl Class {
    /// Number of classes.
    pub const COUNT: usize = 64;
    /// The least urgent class with a level.
    pub(crate) const LAST: Self = Self(Self::COUNT as u8 - 1);
    /// Requests that run only on lanes that no other request wants, after all levels, and count as no load. Their batches are
    /// preempted for others where the model allows it.
    pub const BEST_EFFORT: Self = Self(Self::COUNT as u8);
    /// All classes.
    pub(crate) const NUMBERS: usize = Self::COUNT + 1;

    /// The class of a level. Levels beyond the last become the last.
    pub const fn new(level: u8) -> Self {
        if level as usize >= Self::COUNT { Self::LAST } else { Self(level) }
    }

    /// Whether it is [`Class::BEST_EFFORT`].
    pub fn is_best_effort(self) -> bool {
        self == Self::BEST_EFFORT
    }

    /// 0 is the most urgent.
    pub const fn level(self) -> u8 {
        self.0
    }
}

/// The sender of a request. Requests of different tenants share batches. Under overload tenants share lanes by weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Tenant(u16);

impl Tenant {
    /// Number of tenants that are told apart.
    pub const COUNT: usize = 1_024;

    /// The tenant of a number. Numbers beyond the last become the last.
    pub const fn new(number: u16) -> Self {
        if number as usize >= Self::COUNT { Self(Self::COUNT as u16 - 1) } else { Self(number) }
    }

    /// Its number.
    pub const fn number(self) -> u16 {
        self.0
    }
}
