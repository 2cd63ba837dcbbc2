//! SM resources and green contexts.

use std::ffi::c_uint;

use super::super::sys::{self, CUdevResourceDesc, CUdevice, CUevent, CUgreenCtx, CUstream, Resource};
use super::{Answer, Driver};

impl Driver {
    /// `cuDeviceGetDevResource`: all SMs of the device.
    pub(in crate::driver) fn sm_resource(&self, device: CUdevice) -> Answer<Resource> {
        let green = self.green()?;
        let mut resource = Resource::NONE;
        let place = resource.as_mut_ptr();
        // SAFETY: writes one resource there.
        unsafe { call!(self, green, cuDeviceGetDevResource(device, place, sys::CU_DEV_RESOURCE_TYPE_SM)) }?;
        Ok(resource)
    }

    /// `cuDevSmResourceSplitByCount` without a target: the number of groups of at least `least` SMs.
    pub(in crate::driver) fn count_groups(&self, whole: &Resource, flags: c_uint, least: u32) -> Answer<u32> {
        let green = self.green()?;
        let mut groups: c_uint = 0;
        let (none, whole) = (std::ptr::null_mut(), whole.as_ptr());
        // SAFETY: without a target for groups it writes their number and nothing else.
        unsafe {
            call!(self, green, cuDevSmResourceSplitByCount(none, &raw mut groups, whole, none, flags, least))
        }?;
        Ok(groups)
    }

    /// `cuDevSmResourceSplitByCount`: at most `groups` groups, and the remainder.
    pub(in crate::driver) fn split(
        &self,
        whole: &Resource,
        groups: u32,
        flags: c_uint,
        least: u32,
    ) -> Answer<(Vec<Resource>, Resource)> {
        let green = self.green()?;
        let count = usize::try_from(groups).unwrap_or(0);
        let mut parts = vec![Resource::NONE; count];
        let mut remainder = Resource::NONE;
        let mut made: c_uint = groups;
        // SAFETY: `parts` has space for `made` groups; `Resource` has the layout of the driver's type.
        unsafe {
            let place = parts.as_mut_ptr().cast();
            let rest = remainder.as_mut_ptr();
            let whole = whole.as_ptr();
            call!(self, green, cuDevSmResourceSplitByCount(place, &raw mut made, whole, rest, flags, least))
        }?;
        parts.truncate(usize::try_from(made).unwrap_or(0));
        Ok((parts, remainder))
    }

    /// `cuDevResourceGenerateDesc`. Descriptors are never freed: the driver has no call for it.
    pub(in crate::driver) fn describe(&self, mut parts: Vec<Resource>) -> Answer<CUdevResourceDesc> {
        let green = self.green()?;
        let count = c_uint::try_from(parts.len()).unwrap_or(0);
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: `count` resources are there, and it writes one pointer.
        unsafe {
            let parts = parts.as_mut_ptr().cast();
            call!(self, green, cuDevResourceGenerateDesc(&raw mut descriptor, parts, count))
        }?;
        Ok(descriptor)
    }

    /// `cuGreenCtxCreate`, with the flag that is mandatory up to 13.0.
    ///
    /// # Safety
    /// The descriptor came from the driver, and the device's primary context is retained until this one is destroyed.
    pub(in crate::driver) unsafe fn create_green(
        &self,
        descriptor: CUdevResourceDesc,
        device: CUdevice,
    ) -> Answer<CUgreenCtx> {
        let green = self.green()?;
        let mut context = std::ptr::null_mut();
        let flags = sys::GREEN_DEFAULT_STREAM;
        // SAFETY: as the caller ensures; writes one pointer.
        unsafe { call!(self, green, cuGreenCtxCreate(&raw mut context, descriptor, device, flags)) }?;
        Ok(context)
    }

    /// `cuGreenCtxDestroy`.
    ///
    /// # Safety
    /// The context is alive, and neither it nor its streams are used afterwards.
    pub(in crate::driver) unsafe fn destroy_green(&self, context: CUgreenCtx) -> Answer<()> {
        let green = self.green()?;
        // SAFETY: as the caller ensures.
        unsafe { call!(self, green, cuGreenCtxDestroy(context)) }
    }

    /// `cuGreenCtxGetDevResource`: the SMs that a green context really has.
    ///
    /// # Safety
    /// The context is alive.
    pub(in crate::driver) unsafe fn green_resource(&self, context: CUgreenCtx) -> Answer<Resource> {
        let green = self.green()?;
        let mut resource = Resource::NONE;
        let place = resource.as_mut_ptr();
        // SAFETY: as the caller ensures; writes one resource.
        unsafe {
            call!(self, green, cuGreenCtxGetDevResource(context, place, sys::CU_DEV_RESOURCE_TYPE_SM))
        }?;
        Ok(resource)
    }

    /// `cuGreenCtxStreamCreate`: a stream that never waits for the null stream.
    ///
    /// # Safety
    /// The context is alive until the stream is destroyed.
    pub(in crate::driver) unsafe fn create_green_stream(
        &self,
        context: CUgreenCtx,
        priority: i32,
    ) -> Answer<CUstream> {
        let green = self.green()?;
        let mut stream = std::ptr::null_mut();
        let flags = sys::NON_BLOCKING;
        // SAFETY: as the caller ensures; writes one pointer.
        unsafe { call!(self, green, cuGreenCtxStreamCreate(&raw mut stream, context, flags, priority)) }?;
        Ok(stream)
    }

    /// `cuGreenCtxRecordEvent`.
    ///
    /// # Safety
    /// Both are alive, and no other thread uses the context.
    pub(in crate::driver) unsafe fn record_green(&self, context: CUgreenCtx, event: CUevent) -> Answer<()> {
        let green = self.green()?;
        // SAFETY: as the caller ensures.
        unsafe { call!(self, green, cuGreenCtxRecordEvent(context, event)) }
    }
}
