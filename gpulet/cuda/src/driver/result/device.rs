//! Devices and their primary contexts.

use std::ffi::{CStr, c_char, c_int};

use super::super::sys::{self, CUcontext, CUdevice, CUdevice_attribute};
use super::{Answer, Driver};

impl Driver {
    /// `cuInit`. May be called again.
    pub(crate) fn init(&self) -> Answer<()> {
        // SAFETY: takes nothing but flags.
        unsafe { call!(self, self.base, cuInit(0)) }
    }

    /// `cuDriverGetVersion`: 12050 is 12.5.
    pub(crate) fn version(&self) -> Answer<u32> {
        let mut version: c_int = 0;
        // SAFETY: writes one number there.
        unsafe { call!(self, self.base, cuDriverGetVersion(&raw mut version)) }?;
        Ok(u32::try_from(version).unwrap_or(0))
    }

    /// `cuDeviceGetCount`.
    pub(crate) fn device_count(&self) -> Answer<i32> {
        let mut count = 0;
        // SAFETY: writes one number there.
        unsafe { call!(self, self.base, cuDeviceGetCount(&raw mut count)) }?;
        Ok(count)
    }

    /// `cuDeviceGet`: the handle of an ordinal. Handles of devices are numbers, which the driver checks.
    pub(crate) fn device(&self, ordinal: i32) -> Answer<CUdevice> {
        let mut device = 0;
        // SAFETY: writes one number there.
        unsafe { call!(self, self.base, cuDeviceGet(&raw mut device, ordinal)) }?;
        Ok(device)
    }

    /// `cuDeviceGetName`.
    pub(crate) fn device_name(&self, device: CUdevice) -> Answer<String> {
        let mut name = [0_u8; 256];
        let length = c_int::try_from(name.len()).unwrap_or(0);
        // SAFETY: writes at most `length` bytes.
        unsafe { call!(self, self.base, cuDeviceGetName(name.as_mut_ptr().cast(), length, device)) }?;
        let text = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// `cuDeviceGetUuid`: of the MIG instance if the device is one.
    pub(crate) fn device_uuid(&self, device: CUdevice) -> Answer<[u8; 16]> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: writes sixteen bytes there.
        unsafe { call!(self, self.base, cuDeviceGetUuid_v2(&raw mut uuid, device)) }?;
        Ok(uuid.bytes.map(c_char::cast_unsigned))
    }

    fn attribute(&self, attribute: CUdevice_attribute, device: CUdevice) -> Answer<u32> {
        let mut value = 0;
        // SAFETY: writes one number there.
        unsafe { call!(self, self.base, cuDeviceGetAttribute(&raw mut value, attribute, device)) }?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// `cuDeviceGetAttribute`: number of SMs.
    pub(crate) fn sm_count(&self, device: CUdevice) -> Answer<u32> {
        self.attribute(sys::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)
    }

    /// `cuDeviceGetAttribute`: compute capability, major and minor.
    pub(crate) fn capability(&self, device: CUdevice) -> Answer<(u32, u32)> {
        let major = self.attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)?;
        Ok((major, self.attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)?))
    }

    /// `cuDeviceTotalMem`, in bytes.
    pub(crate) fn total_memory(&self, device: CUdevice) -> Answer<u64> {
        let mut bytes = 0_usize;
        // SAFETY: writes one number there.
        unsafe { call!(self, self.base, cuDeviceTotalMem_v2(&raw mut bytes, device)) }?;
        Ok(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// `cuDevicePrimaryCtxRetain`: needs as many releases.
    pub(in crate::driver) fn retain_primary(&self, device: CUdevice) -> Answer<CUcontext> {
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one pointer there.
        unsafe { call!(self, self.base, cuDevicePrimaryCtxRetain(&raw mut context, device)) }?;
        Ok(context)
    }

    /// `cuDevicePrimaryCtxRelease`.
    ///
    /// # Safety
    /// The context was retained, and nothing of it is used after the last release.
    pub(in crate::driver) unsafe fn release_primary(&self, device: CUdevice) -> Answer<()> {
        // SAFETY: as the caller ensures.
        unsafe { call!(self, self.base, cuDevicePrimaryCtxRelease_v2(device)) }
    }

    /// `cuCtxSetCurrent`: for the calling thread.
    ///
    /// # Safety
    /// The context is retained.
    pub(in crate::driver) unsafe fn set_current(&self, context: CUcontext) -> Answer<()> {
        // SAFETY: as the caller ensures.
        unsafe { call!(self, self.base, cuCtxSetCurrent(context)) }
    }

    /// `cuCtxGetStreamPriorityRange`: least and greatest; smaller numbers are more urgent.
    pub(in crate::driver) fn priority_range(&self) -> Answer<(i32, i32)> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two numbers there.
        unsafe { call!(self, self.base, cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest)) }?;
        Ok((least, greatest))
    }

    /// `cuMemGetInfo` of the current context's device: free and total bytes.
    pub(in crate::driver) fn memory(&self) -> Answer<(u64, u64)> {
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: writes two numbers there.
        unsafe { call!(self, self.base, cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok((u64::try_from(free).unwrap_or(0), u64::try_from(total).unwrap_or(0)))
    }
}
