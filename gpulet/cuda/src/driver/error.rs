//! Errors of the driver.

use serde::Serialize;

/// What an error affects. A client's mistake is not among these: the engine refuses it before the driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The batch: a smaller batch or a larger gpulet may work.
    Batch,
    /// The gpulet: it gets no more work.
    Gpulet,
    /// The device, for this process: every later call fails too, and only a new process can use the device.
    Sticky,
    /// The machine: the device cannot be used until an operator repairs something.
    Machine,
}

impl ErrorClass {
    /// The class of a `CUresult` of the driver. An unknown code fails only the gpulet; if its cause is the device, the
    /// next gpulet fails too.
    pub fn of(code: u32) -> Self {
        match code {
            // Out of memory, of launch resources, of space for a cooperative grid or a cluster.
            2 | 701 | 720 | 912 => Self::Batch,
            // Uncorrectable memory or link errors, contained faults, destroyed context, faulted kernels, timeouts, a
            // fault of another MPS client, an external device, a thread or process that the driver abandoned.
            4 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 806 | 810 | 911 | 999 => {
                Self::Sticky
            }
            // No driver, no device, no licence, versions that do not match, exclusive to another process, no MPS server.
            3 | 34 | 36 | 46 | 100..=102 | 802..=805 | 807..=809 => Self::Machine,
            _ => Self::Gpulet,
        }
    }
}

/// A call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {name} ({code})")]
pub struct DriverError {
    /// The call.
    pub call: &'static str,
    /// The driver's code.
    pub code: u32,
    /// The driver's name for the code.
    pub name: String,
    /// What the error affects.
    pub class: ErrorClass,
}

impl DriverError {
    /// Whether this process can never use the device again.
    pub fn is_sticky(&self) -> bool {
        self.class == ErrorClass::Sticky
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_sticky_and_a_lack_of_memory_is_not() {
        for code in [700, 716, 715, 710, 719, 214, 999] {
            assert_eq!(ErrorClass::of(code), ErrorClass::Sticky, "{code}");
        }
        assert_eq!(ErrorClass::of(2), ErrorClass::Batch);
        assert_eq!(ErrorClass::of(803), ErrorClass::Machine);
        assert_eq!(ErrorClass::of(1), ErrorClass::Gpulet);
        assert_eq!(ErrorClass::of(4_000_000_000), ErrorClass::Gpulet);
    }
}
