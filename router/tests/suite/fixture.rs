//! A model of one byte a row, its requests, and lanes for it.

use std::sync::Arc;
use std::time::Duration;

use gpulet::{DeviceError, LaneConfig, LaneHandle, Member, Partition, spawn_lane};
use models::engine::Session;
use models::{Dim, LoadOptions, ModelFiles, Signature, TensorSpec};
use oip::{Datatype, Shape, Tensor};
use router::{Job, RouterHandle};
use router_core::batch::Policy;
use router_core::{Class, LaneClass, ModelId, ModelLanes, ModelSpec, ShapeKey, Tenant};

pub const MODEL: ModelId = ModelId(0);

/// A gpulet on no cores in particular, for sessions that are made elsewhere.
struct Anywhere;

impl Partition for Anywhere {
    fn cores(&self) -> &[usize] {
        &[]
    }

    fn load(&self, _: &ModelFiles, _: &LoadOptions) -> Result<Box<dyn Session>, DeviceError> {
        unreachable!("the test installs its own")
    }
}

/// A lane that reports to the router.
pub fn lane(router: &RouterHandle, id: u32, run_here_max: Duration) -> LaneHandle {
    let config = LaneConfig { id, partition: Arc::new(Anywhere), mailbox: 8, lane_class: 0, run_here_max };
    spawn_lane(config, router.lane_sink()).unwrap()
}

/// One byte a row in and out.
pub fn signature() -> Signature {
    let dims = vec![Dim::Free, Dim::Fixed(1)];
    let spec = TensorSpec { name: "x".to_owned(), datatype: Datatype::Uint8, dims, optional: false };
    Signature { inputs: vec![spec.clone()], outputs: vec![spec], max_batch: 8 }
}

/// [`MODEL`] on all lanes with the default policy.
pub fn model() -> ModelSpec {
    ModelSpec {
        measured_on: LaneClass::default(),
        preemptible: true,
        model: MODEL,
        max_batch: 8,
        queue_limit: 100,
        class_limits: Vec::new(),
        rate_limit: Default::default(),
        policy: Policy::default(),
        lanes: ModelLanes::All,
        profile: Vec::new(),
    }
}

/// A request of one row without a deadline.
pub fn job(value: u8) -> Job {
    let shape = Shape::from_extents(&[1, 1]);
    let tensor = Tensor { name: "x".to_owned(), datatype: Datatype::Uint8, shape, data: vec![value].into() };
    Job {
        model: MODEL,
        class: Class::default(),
        tenant: Tenant::default(),
        shape: ShapeKey(0),
        member: Member::of(vec![Some(tensor)], 1),
        bytes: 1,
        deadline: None,
        timeout_action: Default::default(),
        sequence: None,
        gather: None,
        stage: None,
        family: None,
    }
}
