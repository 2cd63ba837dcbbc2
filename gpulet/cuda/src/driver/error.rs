//! What the driver says when it cannot.

use serde::Serialize;

/// How much is broken, and thereby what is to be done about it. A request's own mistake is not among them: the driver
/// never sees one, the engine refuses it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// What one batch needed: less of it, or a larger gpulet, may do.
    Batch,
    /// This gpulet: nothing more is sent to it.
    Gpulet,
    /// The device for this process: every later call fails as well, and only another process gets well.
    Sticky,
    /// The machine: the device cannot be used until somebody repairs something.
    Machine,
}

impl ErrorClass {
    /// The class of a code of the driver (`CUresult`). Codes that nobody knows yet are the gpulet's: it is given up,
    /// and the device if its next gpulet fails too.
    pub fn of(code: u32) -> Self {
        match code {
            // Out of memory, of launch resources, of room for a cooperative grid or a cluster.
            2 | 701 | 720 | 912 => Self::Batch,
            // Uncorrectable memory or link, contained faults, context destroyed, every kind of faulted kernel, timeouts,
            // a fault of a neighbour under MPS, an external device, a thread or process that the driver has given up.
            4 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 806 | 810 | 911 | 999 => {
                Self::Sticky
            }
            // No driver, no device, not licensed, not matching, exclusive to another, no MPS server.
            3 | 34 | 36 | 46 | 100..=102 | 802..=805 | 807..=809 => Self::Machine,
            _ => Self::Gpulet,
        }
    }
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {name} ({code})")]
pub struct DriverError {
    /// Which call.
    pub call: &'static str,
    /// The driver's number for it.
    pub code: u32,
    /// The driver's name for it.
    pub name: String,
    /// How much is broken.
    pub class: ErrorClass,
}

impl DriverError {
    /// Whether nothing on this device will ever work again in this process.
    pub fn is_sticky(&self) -> bool {
        self.class == ErrorClass::Sticky
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_ends_the_process_and_a_lack_of_memory_does_not() {
        for code in [700, 716, 715, 710, 719, 214, 999] {
            assert_eq!(ErrorClass::of(code), ErrorClass::Sticky, "{code}");
        }
        assert_eq!(ErrorClass::of(2), ErrorClass::Batch);
        assert_eq!(ErrorClass::of(803), ErrorClass::Machine);
        assert_eq!(ErrorClass::of(1), ErrorClass::Gpulet);
        assert_eq!(ErrorClass::of(4_000_000_000), ErrorClass::Gpulet);
    }
}
