//! How long batches take, from profiles.

use gpulet_core::control::Model;
use gpulet_core::interference::{Interference, Load, Runner};
use gpulet_core::profile::{Profile, Quantile};
use router_core::Nanos;

/// Median time of a batch on a gpulet with this many units, without contention; of predicted cells the expected one. `None` if the profile knows no batch
/// on that many units.
///
/// A batch larger than any measured one on that many units runs as several: as many of the largest as fit, and the
/// rest. A batch smaller than the smallest measured one takes as long as that one.
pub fn batch_time(profile: &Profile, rows: u32, units: u32) -> Option<Nanos> {
    let (least, most) = profile.batches();
    let rows = rows.max(least).max(1);
    if let Some(time) = measured(profile, rows, units) {
        return Some(time);
    }
    let largest = (1..=rows.min(most)).rev().find(|rows| measured(profile, *rows, units).is_some())?;
    let full = measured(profile, largest, units)?.0.saturating_mul(u64::from(rows / largest));
    let rest = match rows % largest {
        0 => 0,
        rest => measured(profile, rest.max(least), units)?.0,
    };
    Some(Nanos(full.saturating_add(rest)))
}

/// The largest factor that [`slowdown`] returns, so that every batch ends.
const SLOWDOWN_MAX: f64 = 1_000.0;

/// Factor on the time of a batch while the other batches run on the same device; 1 to 1,000.
pub fn slowdown<'a>(
    interference: &Interference,
    own: &Runner<'_>,
    others: impl IntoIterator<Item = Runner<'a>>,
) -> f64 {
    let loads: Vec<[Load; 1]> = others.into_iter().map(|other| [Load::of(&other)]).collect();
    let loads: Vec<&[Load]> = loads.iter().map(<[Load; 1]>::as_slice).collect();
    interference.slowdown(own, &loads).min(SLOWDOWN_MAX)
}

/// Rows and median times at powers of two and at the largest batch, ascending, as far as the profile knows them.
pub(crate) fn points(model: &Model, device_type: &str, units: u32) -> Vec<(u32, Nanos)> {
    let profiles = model.profiles.as_deref().unwrap_or_default();
    let Some(profile) = profiles.iter().find(|profile| profile.device() == device_type) else {
        return Vec::new();
    };
    let largest = model.batch_max.min(profile.batches().1);
    let sizes = (0..u32::BITS).map(|log| 1 << log).take_while(|rows| *rows < largest).chain([largest]);
    sizes.filter_map(|rows| Some((rows, measured(profile, rows, units)?))).collect()
}

fn measured(profile: &Profile, rows: u32, units: u32) -> Option<Nanos> {
    profile.expected_us(Quantile::P50, rows, units).ok().map(nanos)
}

/// Microseconds as whole nanoseconds, at least 1.
pub(crate) fn nanos(micros: f64) -> Nanos {
    Nanos(((micros * 1e3).round() as u64).max(1))
}
