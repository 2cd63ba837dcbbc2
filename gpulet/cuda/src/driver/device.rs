//! What the driver says of itself and of devices, before a context exists.

use std::ffi::{CStr, c_char, c_int};

use super::library::{Answer, Driver, call, fetch};
use super::sys::{self, CUdevice, CUdevice_attribute};

impl Driver {
    /// `cuInit`. May be called again.
    pub(crate) fn init(&self) -> Answer<()> {
        // SAFETY: takes nothing but flags.
        unsafe { call!(self, cuInit(0)) }
    }

    /// `cuDriverGetVersion`: 12050 is 12.5.
    pub(crate) fn version(&self) -> Answer<u32> {
        // SAFETY: writes one number.
        let version = unsafe { fetch!(self, cuDriverGetVersion(0)) }?;
        Ok(u32::try_from(version).unwrap_or(0))
    }

    /// `cuDeviceGetCount`.
    pub(crate) fn device_count(&self) -> Answer<i32> {
        // SAFETY: writes one number.
        unsafe { fetch!(self, cuDeviceGetCount(0)) }
    }

    /// `cuDeviceGet`: the handle of an ordinal. Handles of devices are numbers, which the driver checks.
    pub(crate) fn device(&self, ordinal: i32) -> Answer<CUdevice> {
        // SAFETY: writes one number.
        unsafe { fetch!(self, cuDeviceGet(0, ordinal)) }
    }

    /// `cuDeviceGetName`.
    pub(crate) fn device_name(&self, device: CUdevice) -> Answer<String> {
        let mut name = [0_u8; 256];
        let length = c_int::try_from(name.len()).unwrap_or(0);
        // SAFETY: writes at most `length` bytes.
        unsafe { call!(self, cuDeviceGetName(name.as_mut_ptr().cast(), length, device)) }?;
        let text = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// `cuDeviceGetUuid`: of the MIG instance if the device is one.
    pub(crate) fn device_uuid(&self, device: CUdevice) -> Answer<[u8; 16]> {
        // SAFETY: writes sixteen bytes.
        let uuid = unsafe { fetch!(self, cuDeviceGetUuid_v2(sys::CUuuid { bytes: [0; 16] }, device)) }?;
        Ok(uuid.bytes.map(c_char::cast_unsigned))
    }

    fn attribute(&self, attribute: CUdevice_attribute, device: CUdevice) -> Answer<u32> {
        // SAFETY: writes one number.
        let value = unsafe { fetch!(self, cuDeviceGetAttribute(0, attribute, device)) }?;
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
        // SAFETY: writes one number.
        let bytes = unsafe { fetch!(self, cuDeviceTotalMem_v2(0, device)) }?;
        Ok(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}
