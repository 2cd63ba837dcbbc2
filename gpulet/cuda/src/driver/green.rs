//! SM resources, split once; descriptors that join them; green contexts on them.

use std::ffi::c_uint;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::DriverError;
use super::library::{call, fetch};
use super::primary::Primary;
use super::sys::{self, CUdevResourceDesc, CUgreenCtx, Resource};
use crate::units::{Granularity, Grid, GridError, UnitRange};

/// Some SMs, as the driver returned them.
#[derive(Clone, Copy)]
pub struct SmResource {
    raw: Resource,
    sms: u32,
}

impl SmResource {
    fn of(raw: Resource) -> Option<Self> {
        raw.sms().map(|(sms, ..)| Self { raw, sms })
    }

    /// The number of SMs.
    pub fn sms(&self) -> u32 {
        self.sms
    }
}

/// Why a device could not be split into units.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// The driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The device is too small.
    #[error(transparent)]
    Grid(#[from] GridError),
    /// The device was split before.
    #[error("the device is already split: a second split would assign the same SMs again")]
    Again,
}

/// The units of a device: the groups of its only split.
pub struct Split {
    primary: Arc<Primary>,
    units: Vec<SmResource>,
    remainder: Option<SmResource>,
    grid: Grid,
}

impl Split {
    /// Splits the device into as many units as possible. `capability` (major, minor) determines the size of a unit where
    /// the driver does not report it, as before 13.0. Without co-scheduling a unit has 2 SMs, and kernels that need
    /// clusters of blocks cannot run.
    ///
    /// # Errors
    /// The driver failed, the device is too small for a unit, or it was split before.
    pub fn once(
        primary: &Arc<Primary>,
        capability: (u32, u32),
        ignore_coscheduling: bool,
    ) -> Result<Self, SplitError> {
        if !primary.may_split() {
            return Err(SplitError::Again);
        }
        let driver = primary.driver();
        let calls = driver.green()?;
        let mut whole = Resource::NONE;
        let (device, place) = (primary.device(), whole.as_mut_ptr());
        // SAFETY: writes one resource there.
        unsafe { call!(driver, calls, cuDeviceGetDevResource(device, place, sys::CU_DEV_RESOURCE_TYPE_SM)) }?;
        let (sms, min, align) = whole.sms().unwrap_or_default();
        let (granularity, flags) = if ignore_coscheduling {
            (Granularity { min: 2, align: 2 }, sys::IGNORE_COSCHEDULING)
        } else {
            (Granularity::of(min, align, capability), 0)
        };
        let least = granularity.unit_sms();
        if sms < least {
            return Err(GridError { sms, least }.into());
        }
        let mut groups: c_uint = 0;
        let (count, whole) = (&raw mut groups, whole.as_ptr());
        // SAFETY: without a target for groups it writes their number and nothing else.
        unsafe {
            call!(
                driver,
                calls,
                cuDevSmResourceSplitByCount(null_mut(), count, whole, null_mut(), flags, least)
            )
        }?;
        let mut parts = vec![Resource::NONE; usize::try_from(groups).unwrap_or(0)];
        let mut remainder = Resource::NONE;
        let (place, rest) = (parts.as_mut_ptr().cast(), remainder.as_mut_ptr());
        // SAFETY: `parts` has space for that many groups; `Resource` has the layout of the driver's type.
        unsafe {
            call!(driver, calls, cuDevSmResourceSplitByCount(place, count, whole, rest, flags, least))
        }?;
        parts.truncate(usize::try_from(groups).unwrap_or(0));
        let units: Vec<_> = parts.into_iter().filter_map(SmResource::of).collect();
        let remainder = SmResource::of(remainder);
        let sizes: Vec<u32> = units.iter().map(SmResource::sms).collect();
        let grid = Grid::new(&sizes, remainder.map_or(0, |rest| rest.sms)).ok_or(GridError { sms, least })?;
        Ok(Self { primary: Arc::clone(primary), units, remainder, grid })
    }

    /// The units and their SMs.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Joins the resources of a gpulet's units, and the remainder if the gpulet gets it. Descriptors are never freed: the
    /// driver has no call for it.
    ///
    /// # Errors
    /// The driver failed.
    pub fn describe(&self, range: UnitRange) -> Result<Descriptor, DriverError> {
        let units = self.units.get(range.indices()).unwrap_or(&[]);
        let remainder = self.remainder.iter().filter(|_| self.grid.takes_remainder(range));
        let mut parts: Vec<_> = units.iter().chain(remainder).map(|part| part.raw).collect();
        let count = c_uint::try_from(parts.len()).unwrap_or(0);
        let (driver, parts) = (self.primary.driver(), parts.as_mut_ptr().cast());
        // SAFETY: `count` resources are there, and it writes one pointer.
        let raw =
            unsafe { fetch!(driver, driver.green()?, cuDevResourceGenerateDesc(null_mut(), parts, count)) }?;
        Ok(Descriptor { raw, primary: Arc::clone(&self.primary) })
    }
}

/// Joined SMs for one green context.
pub struct Descriptor {
    raw: CUdevResourceDesc,
    primary: Arc<Primary>,
}

struct Raw(CUgreenCtx);

// SAFETY: the driver allows one thread at a time, which need not be the same one; the mutex around it ensures that.
unsafe impl Send for Raw {}

/// A context whose work runs on its own SMs only.
pub struct GreenContext {
    raw: Mutex<Raw>,
    sms: u32,
    primary: Arc<Primary>,
}

impl GreenContext {
    /// Creates one and reads back how many SMs it has, which may differ from what was requested.
    ///
    /// # Errors
    /// The driver failed; nothing is left behind.
    pub fn create(descriptor: Descriptor) -> Result<Arc<Self>, DriverError> {
        let Descriptor { raw, primary } = descriptor;
        let (driver, device) = (primary.driver(), primary.device());
        let calls = driver.green()?;
        // SAFETY: the driver returned the descriptor, and the context keeps the primary one alive; writes one pointer.
        let context = unsafe {
            fetch!(driver, calls, cuGreenCtxCreate(null_mut(), raw, device, sys::GREEN_DEFAULT_STREAM))
        }?;
        let mut green = Self { raw: Mutex::new(Raw(context)), sms: 0, primary };
        let mut granted = Resource::NONE;
        let place = granted.as_mut_ptr();
        // SAFETY: the context is alive, and no other code has it yet; writes one resource.
        unsafe {
            call!(driver, calls, cuGreenCtxGetDevResource(context, place, sys::CU_DEV_RESOURCE_TYPE_SM))
        }?;
        green.sms = granted.sms().map_or(0, |(sms, ..)| sms);
        Ok(Arc::new(green))
    }

    /// SMs that the driver assigned.
    pub fn sms(&self) -> u32 {
        self.sms
    }

    pub(super) fn primary(&self) -> &Arc<Primary> {
        &self.primary
    }

    /// Makes a call with the handle while no other thread uses it.
    pub(super) fn with<T>(&self, call: impl FnOnce(CUgreenCtx) -> T) -> T {
        call(self.lock().0)
    }

    fn lock(&self) -> MutexGuard<'_, Raw> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GreenContext {
    fn drop(&mut self) {
        let driver = self.primary.driver();
        let Ok(calls) = driver.green() else { return };
        // SAFETY: its streams kept this alive, so they are destroyed. An error here cannot be handled.
        let _ = self.with(|context| unsafe { call!(driver, calls, cuGreenCtxDestroy(context)) });
    }
}
