//! How many lanes there may be, and which of their numbers are free.

/// Lanes for each unit of a device. While plans change, a unit can belong to a gpulet in force, to one that is being
/// prepared, and to others that still finish their last batch.
pub const LANES_PER_UNIT: u32 = 4;

/// The largest number of lanes, however many units the devices have.
pub const LANES_MAX: u32 = 65_536;

/// Every lane number is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all {0} lanes are in use")]
pub struct LanesInUse(pub u32);

/// The number of lanes that a router needs for devices with these units, of which `start` lanes exist from the start.
pub fn lanes_max(units: impl IntoIterator<Item = u32>, start: u32) -> u32 {
    let units = units.into_iter().fold(0, u32::saturating_add);
    let start = start.max(1);
    units.saturating_mul(LANES_PER_UNIT).clamp(start, LANES_MAX.max(start))
}

/// The lowest lane number that is not taken.
///
/// # Errors
/// [`LanesInUse`] if all of them are.
pub fn free_lane(lanes_max: u32, is_taken: impl Fn(u32) -> bool) -> Result<u32, LanesInUse> {
    (0..lanes_max).find(|lane| !is_taken(*lane)).ok_or(LanesInUse(lanes_max))
}
