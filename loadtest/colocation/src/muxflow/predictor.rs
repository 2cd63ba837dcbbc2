//! Predicts how fast an offline job runs next to an online model, from profiles of both alone.
//!
//! MuxFlow trains a network on measured pairs. We have no measurements, so ours is a formula over the kernel lists.

use crate::interference::Interference;
use crate::kernel::{Class, Kernel, Program};
use crate::policy::muxflow_sms;
use crate::simulation::{LAUNCH_NS, V100_SMS};

const CLASSES: [Class; 3] = [Class::Compute, Class::Memory, Class::Unknown];

/// Speed of a job next to an online model with a rate in requests a second, relative to a GPU of its own: from 0 to 1.
#[must_use]
pub fn speed(online: &Program, rate: f64, job: &Program, interference: Interference) -> f64 {
    let online_share = online.sm_share(V100_SMS);
    let busy = (rate * online.device_ns() as f64 / 1e9).min(1.0);
    let limit = muxflow_sms(busy * online_share, V100_SMS);
    let left = (f64::from(V100_SMS) * (1.0 - online_share)) as u32;
    let alone = iteration_ns(job, V100_SMS, 1.0);
    let without = alone / iteration_ns(job, limit, 1.0);
    let with =
        alone / iteration_ns(job, limit.min(left.max(1)), slowdown(online, online_share, job, interference));
    (1.0 - busy) * without + busy * with
}

/// Time of an iteration on some SMs, in nanoseconds, with kernels that take `slowdown` times as long. The host launches at most one
/// kernel every [`LAUNCH_NS`].
fn iteration_ns(job: &Program, sms: u32, slowdown: f64) -> f64 {
    let waves = |kernel: &Kernel, sms: u32| f64::from(kernel.sms.div_ceil(sms.max(1)));
    let device =
        |kernel: &Kernel| kernel.duration_ns as f64 * waves(kernel, sms) / waves(kernel, V100_SMS) * slowdown;
    let mut end: f64 = 0.0;
    for (place, kernel) in job.kernels.iter().enumerate() {
        end = end.max((place as u64 + 1) as f64 * LAUNCH_NS as f64) + device(kernel);
    }
    end
}

fn slowdown(online: &Program, online_share: f64, job: &Program, interference: Interference) -> f64 {
    let mut added = 0.0;
    for own in CLASSES {
        for other in CLASSES {
            let together = job.class_share(own) * online.class_share(other);
            added += together * interference.weight(own, other) * online_share;
        }
    }
    1.0 + added
}
