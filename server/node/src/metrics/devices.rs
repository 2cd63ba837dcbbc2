//! Whether plans use a device.

use gpulet_core::id::DeviceId;

use super::names;

/// Sets whether plans use a device.
pub fn device_up(device: &DeviceId, is_up: bool) {
    metrics::gauge!(names::DEVICE_UP.name, names::DEVICE => device.to_string())
        .set(f64::from(u8::from(is_up)));
}
