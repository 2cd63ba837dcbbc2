//! Gpulets as processes with a share of the SMs under MPS. The share belongs to the process, which refuses gpulets of
//! other sizes.

use std::sync::Arc;

use cuda_standin::{Shape, with_driver};
use gpulet::{Compute, Device, FaultDomain, Resize};
use gpulet_cuda::{Backend, CudaDevice, CudaOptions, Grid, probe};
use models::LoadOptions;
use proptest::prelude::*;

use crate::stage::{Failures, Tracer, model, sms_of, spec};

/// The first GPU, in a process with this percentage of it.
fn with_share(mps_share: Option<u32>) -> CudaDevice {
    let found = probe().unwrap().remove(0);
    let options = CudaOptions { mps_share, ..CudaOptions::default() };
    CudaDevice::take(&found, Backend::CudaMps, Arc::new(Tracer::default()), &options).unwrap()
}

#[test]
fn units_are_percent_and_sizes_are_steps_of_five() {
    with_driver("shares::units_are_percent_and_sizes_are_steps_of_five", Shape::default(), |_| {
        let device = with_share(None);
        let info = device.info();
        assert_eq!((info.backend, info.units), ("cuda-mps", 100));
        assert_eq!((info.sizes.first(), info.sizes.last(), info.sizes.len()), (Some(&5), Some(&100), 20));
        let guarantees = info.guarantees;
        assert_eq!((guarantees.compute, guarantees.resize), (Compute::UpperBound, Resize::NewProcess));
        assert_eq!(guarantees.fault_domain, FaultDomain::Device, "a fault of one client ends all of them");
    });
}

#[test]
fn a_gpulet_of_another_size_than_the_process_share_is_refused() {
    let test = "shares::a_gpulet_of_another_size_than_the_process_share_is_refused";
    // Unlike the driver, the stand-in ignores the share: it reports all SMs.
    with_driver(test, Shape::default(), |_| {
        for (given, asked, refusal) in
            [(Some(40), 40, None), (Some(40), 60, Some("a share of 40 %")), (None, 60, Some("no share"))]
        {
            let device = with_share(given);
            let opened = device.open(&spec(3, 20, asked), Failures::new());
            let Some(has) = refusal else {
                let session = opened.unwrap().load(&model("m"), &LoadOptions::default());
                drop(session.unwrap());
                continue;
            };
            assert_eq!(
                opened.err().unwrap().to_string(),
                format!(
                    "gpu0: gpulet 3: units 20 to 79: this process was started with {has} of the GPU: expected \
                     CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60"
                )
            );
        }
    });
}

#[test]
fn a_gpulet_of_the_whole_gpu_runs() {
    with_driver("shares::a_gpulet_of_the_whole_gpu_runs", Shape::default(), |_| {
        let device = with_share(Some(100));
        let gpulet = device.open(&spec(0, 0, 100), Failures::new()).unwrap();
        let mut session = gpulet.load(&model("m"), &LoadOptions::default()).unwrap();
        assert_eq!(sms_of(session.as_mut()).len(), 132);
    });
}

proptest! {
    #[test]
    fn consecutive_shares_have_all_sms_once(sms in 1_u32..300, inner in prop::collection::vec(1_u32..100, 0..8)) {
        let grid = Grid::in_percent(sms);
        prop_assert_eq!((grid.units(), grid.sms(grid.range(0, grid.units()).unwrap())), (100, sms));
        let mut borders = vec![0, 100];
        borders.extend(inner);
        borders.sort_unstable();
        borders.dedup();
        let shares: Vec<_> = borders.windows(2).map(|pair| grid.range(pair[0], pair[1] - pair[0]).unwrap()).collect();
        let percent: u32 = shares.iter().map(|share| share.count()).sum();
        let given: u32 = shares.iter().map(|share| grid.sms(*share)).sum();
        prop_assert_eq!((percent, given), (100, sms));
        for share in shares {
            let exact = f64::from(sms) * f64::from(share.count()) / 100.0;
            prop_assert!((f64::from(grid.sms(share)) - exact).abs() < 1.0);
        }
    }
}
