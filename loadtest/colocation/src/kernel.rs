//! Kernels: what a model asks of a GPU, in the order in which it asks.

use std::sync::Arc;

/// Which resource of the GPU limits a kernel: the verdict of a roofline, or the side above 60 % of use (Orion, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The arithmetic units limit it, as in a convolution.
    Compute,
    /// The memory bandwidth limits it, as in a batch normalisation.
    Memory,
    /// The profiler could not decide; such kernels are short.
    Unknown,
}

impl Class {
    /// Whether Orion runs kernels of these classes at the same time: opposite classes, or one that is not known.
    #[must_use]
    pub fn complements(self, other: Self) -> bool {
        self != other || self == Self::Unknown
    }
}

/// One kernel of a model, as a profile on an idle GPU describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernel {
    /// What limits it.
    pub class: Class,
    /// SMs that its blocks fill, at least 1: blocks divided by the blocks that fit on an SM. More than the GPU has means waves.
    pub sms: u32,
    /// Time from start to end on an idle GPU, in nanoseconds, at least 1.
    pub duration_ns: u64,
}

/// The kernels of one request of a model, or of one training iteration.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name of the file that lists the kernels, without its ending.
    pub name: String,
    /// Kernels in the order of their launch; never empty.
    pub kernels: Arc<[Kernel]>,
}

impl Program {
    /// Sum of the kernels' times on an idle GPU, in nanoseconds.
    #[must_use]
    pub fn device_ns(&self) -> u64 {
        self.kernels.iter().map(|kernel| kernel.duration_ns).sum()
    }

    /// Share of the SMs of a GPU that the program holds while one of its kernels runs, from 0 to 1.
    #[must_use]
    pub fn sm_share(&self, gpu_sms: u32) -> f64 {
        let held = |kernel: &Kernel| kernel.duration_ns as f64 * f64::from(kernel.sms.min(gpu_sms));
        self.kernels.iter().map(held).sum::<f64>() / (self.device_ns() as f64 * f64::from(gpu_sms))
    }

    /// Share of the program's time in kernels of a class, from 0 to 1.
    #[must_use]
    pub fn class_share(&self, class: Class) -> f64 {
        let of_class = self.kernels.iter().filter(|kernel| kernel.class == class);
        of_class.map(|kernel| kernel.duration_ns).sum::<u64>() as f64 / self.device_ns() as f64
    }
}
