//! A few kernels and jobs, typed in from the public lists, and scenarios of them.

use colocation::arrivals::Arrivals;
use colocation::interference::Interference;
use colocation::kernel::{Class, Kernel, Program};
use colocation::simulation::{Job, LAUNCH_NS, POLL_NS, Scenario, V100_SMS};

pub const SECOND: u64 = 1_000_000_000;

pub fn kernel(class: Class, sms: u32, duration_ns: u64) -> Kernel {
    Kernel { class, sms, duration_ns }
}

fn program(name: &str, kernels: Vec<Kernel>) -> Program {
    Program { name: name.to_owned(), kernels: kernels.into() }
}

/// The first 14 kernels of a forward pass of ResNet50 with 4 images on a V100, five times (eth-easl/orion, commit aded65d,
/// `benchmarking/model_kernels/resnet50_4_fwd`).
pub fn inference() -> Program {
    use Class::{Compute, Memory, Unknown};
    let kernels = [
        kernel(Compute, 98, 100_480),
        kernel(Memory, 64, 40_480),
        kernel(Memory, 392, 32_512),
        kernel(Memory, 392, 34_464),
        kernel(Compute, 25, 28_447),
        kernel(Memory, 64, 9_856),
        kernel(Unknown, 98, 6_976),
        kernel(Compute, 112, 59_776),
        kernel(Memory, 64, 10_112),
        kernel(Unknown, 98, 7_072),
        kernel(Compute, 98, 55_904),
        kernel(Memory, 256, 38_528),
        kernel(Compute, 98, 57_312),
        kernel(Memory, 256, 38_303),
    ];
    program("inference", kernels.repeat(5))
}

/// Kernels 407 to 421 of a training iteration of ResNet50 with 32 images on a V100, five times (the same source,
/// `resnet50_32_fb1`).
pub fn training() -> Program {
    use Class::{Compute, Memory};
    let kernels = [
        kernel(Compute, 52, 368_477),
        kernel(Compute, 512, 420_765),
        kernel(Memory, 128, 16_224),
        kernel(Memory, 98, 16_064),
        kernel(Memory, 171, 21_887),
        kernel(Memory, 1, 4_192),
        kernel(Memory, 1, 4_320),
        kernel(Compute, 72, 187_231),
        kernel(Compute, 288, 175_839),
        kernel(Memory, 288, 37_183),
        kernel(Memory, 98, 15_360),
        kernel(Memory, 171, 21_312),
        kernel(Memory, 1, 4_256),
        kernel(Memory, 1, 4_992),
        kernel(Compute, 342, 522_109),
    ];
    program("training", kernels.repeat(5))
}

/// An online model at a rate of independent requests a second, and one of best effort without pause.
pub fn scenario(online: Program, rate: f64, best_effort: Program, seed: u64) -> Scenario {
    Scenario {
        online: Job { program: online, arrivals: Arrivals::Poisson { rate } },
        best_effort: vec![Job { program: best_effort, arrivals: Arrivals::BackToBack }],
        duration_ns: 20 * SECOND,
        warm_up_ns: SECOND,
        seed,
        sms: V100_SMS,
        interference: Interference::Fitted,
        launch_ns: LAUNCH_NS,
        poll_ns: POLL_NS,
    }
}
