//! The time window of a gpulet as the time quota of its lane.

use gpulet_core::plan::Window;
use gpulet_core::rollout::{Active, GpuletId};
use router_core::{ConfigError, Nanos, QuotaUnits, TimeQuota};

use crate::times::nanos;
use crate::{LaneClasses, Version};

/// Batches that fill a window exactly must not miss it because times were rounded; microseconds.
const ROUNDING_US: f64 = 1.0;

/// Why a lane cannot keep the window of a gpulet as a quota.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// No profile says how many units the device has.
    #[error(
        "gpulet {0}: no profile of its models on this device, expected one, which gives the device's units"
    )]
    NoProfile(GpuletId),
    /// The numbers of the window do not fit together.
    #[error("gpulet {0}: {1}")]
    Invalid(GpuletId, ConfigError),
}

/// The window of a gpulet without one, next to gpulets with windows on its device: all the time.
fn always(active: &Active, table: &[Active]) -> Option<Window> {
    let others = table.iter().filter(|other| other.gpulet.device == active.gpulet.device);
    let period_us = others.filter_map(|other| other.gpulet.window).map(|window| window.period_us).next()?;
    Some(Window { period_us, offset_us: 0.0, length_us: period_us, limit_us: None })
}

/// The time quota of a gpulet with a window. Its largest batch takes the longest budget of its slots, but at most the
/// guaranteed time: a plan may be late, and its batches then delay others.
pub(crate) fn quota(
    active: &Active,
    table: &[Active],
    versions: &[Version<'_>],
    classes: &LaneClasses,
) -> Result<Option<TimeQuota>, QuotaError> {
    let gpulet = &active.gpulet;
    let Some(window) = gpulet.window.or_else(|| always(active, table)) else { return Ok(None) };
    let device_type = classes.device_type(&gpulet.device);
    let profiles = versions.iter().flat_map(|version| version.model.profiles.as_deref().unwrap_or_default());
    let units = profiles
        .filter(|profile| profile.device() == device_type)
        .map(|profile| profile.units_total())
        .next();
    let device_units = units.ok_or(QuotaError::NoProfile(active.id))?;
    let which = if classes.is_on_any_units(&gpulet.device) {
        QuotaUnits::Any
    } else {
        QuotaUnits::From(gpulet.first_unit)
    };
    let period = nanos(window.period_us);
    let offset = if window.offset_us > 0.0 { nanos(window.offset_us) } else { Nanos::ZERO };
    // Places that follow one another in the plan do so after rounding, too.
    let request = nanos(window.offset_us + window.length_us).min(period).since(offset);
    let limit = window.limit_us.map_or(period, nanos).clamp(request, period.max(request));
    let budget_us = gpulet.slots.iter().map(|slot| slot.budget_us).fold(0.0, f64::max);
    let quota = TimeQuota {
        device: classes.number_of(&gpulet.device),
        device_units,
        units: gpulet.units,
        which,
        window: period,
        offset,
        request,
        limit,
        batch: nanos((budget_us - ROUNDING_US).max(0.0)).min(request),
        rows: gpulet.slots.iter().map(|slot| slot.batch).max().unwrap_or(1).max(1),
    };
    quota.checked().map(Some).map_err(|error| QuotaError::Invalid(active.id, error))
}
