//! Finds NVIDIA GPUs. Every missing part is an error that names it.
//!
//! **\[open\]**, to be checked on a GPU: that the name of a MIG instance contains the word `MIG`. The driver shows a
//! process at most one instance, and no other GPU then.

use serde::Serialize;

use crate::driver::{Driver, DriverError, LibraryError};

/// The first driver with streams in green contexts: 12.5.
const GREEN_VERSION: u32 = 12_050;
/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: u32 = 100;

/// Why no GPU can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The driver is missing.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The driver does not initialise.
    #[error("the NVIDIA driver does not start: {0}")]
    Start(DriverError),
    /// The driver sees no GPU.
    #[error("the NVIDIA driver sees no GPU (`CUDA_VISIBLE_DEVICES` and containers can hide them)")]
    NoDevice,
    /// The driver cannot describe a GPU.
    #[error("gpu{ordinal}: {error}")]
    Device {
        /// The driver's number for the GPU.
        ordinal: i32,
        /// The error of the driver.
        error: DriverError,
    },
}

/// Why a driver does not support green contexts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum GreenMissing {
    /// The driver is too old.
    #[error("driver {} has no streams in green contexts: expected 12.5 or later", dotted(*.version))]
    Old {
        /// Version as the driver gives it.
        version: u32,
    },
    /// The driver is new enough but lacks calls.
    #[error("driver {} lacks {}", dotted(*.version), .calls.join(", "))]
    Calls {
        /// Version as the driver gives it.
        version: u32,
        /// The missing calls.
        calls: Vec<&'static str>,
    },
}

/// A driver version in the usual form: 12050 is `12.5`.
pub fn dotted(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// A GPU that the driver sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The driver's number for it.
    pub ordinal: i32,
    /// As profiles call GPUs like it: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// As `nvidia-smi -L` writes it.
    pub uuid: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Number of SMs.
    pub sms: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The driver's version: 13000 is 13.0.
    pub driver_version: u32,
    /// Whether it can be split into green contexts, or why not.
    pub green: Result<(), GreenMissing>,
    /// Whether it is a MIG instance.
    pub mig: bool,
}

/// Lists the GPUs, in the driver's order. Creates no context.
///
/// # Errors
/// The first part that is missing.
pub fn probe() -> Result<Vec<Found>, ProbeError> {
    let driver = Driver::load()?;
    let version = driver.version().map_err(ProbeError::Start)?;
    driver.init().map_err(|error| match error.code {
        NO_DEVICE => ProbeError::NoDevice,
        _ => ProbeError::Start(error),
    })?;
    let count = driver.device_count().map_err(ProbeError::Start)?;
    if count < 1 {
        return Err(ProbeError::NoDevice);
    }
    let green = green(driver, version);
    let find = |ordinal| {
        describe(driver, ordinal, version, &green).map_err(|error| ProbeError::Device { ordinal, error })
    };
    (0..count).map(find).collect()
}

fn green(driver: &Driver, version: u32) -> Result<(), GreenMissing> {
    let calls = driver.missing_green_calls();
    if version < GREEN_VERSION {
        return Err(GreenMissing::Old { version });
    }
    if calls.is_empty() { Ok(()) } else { Err(GreenMissing::Calls { version, calls: calls.to_vec() }) }
}

fn describe(
    driver: &Driver,
    ordinal: i32,
    version: u32,
    green: &Result<(), GreenMissing>,
) -> Result<Found, DriverError> {
    let device = driver.device(ordinal)?;
    let name = driver.device_name(device)?;
    let mig = name.split_whitespace().any(|word| word == "MIG");
    Ok(Found {
        ordinal,
        uuid: uuid_text(driver.device_uuid(device)?, mig),
        capability: driver.capability(device)?,
        sms: driver.sm_count(device)?,
        memory_bytes: driver.total_memory(device)?,
        driver_version: version,
        green: green.clone(),
        mig,
        name,
    })
}

/// A UUID in the form of NVIDIA's tools.
fn uuid_text(uuid: [u8; 16], mig: bool) -> String {
    let mut text = String::from(if mig { "MIG" } else { "GPU" });
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_uuids_have_the_vendors_form() {
        assert_eq!(
            (dotted(12_050), dotted(13_000), dotted(12_090)),
            ("12.5".into(), "13.0".into(), "12.9".into())
        );
        let uuid = std::array::from_fn(|byte| u8::try_from(byte).unwrap());
        assert_eq!(uuid_text(uuid, false), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
