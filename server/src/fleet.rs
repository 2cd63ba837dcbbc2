//! What a server does in a fleet: it tells others how busy it is, follows the other servers of a static list, and forwards requests
//! for models that only they have. On Kubernetes, it runs the agent that applies its plan.

mod agent;
mod batch_mark;
mod client;
mod follow;
mod forward;
mod headers;
mod program;
mod sampler;
mod signals;
mod views;

pub use agent::AgentProcess;
pub use batch_mark::BatchMarks;
pub use forward::{Answer, Candidates, Interface, Onward, Peers, arrival};
pub use headers::elapsed;
pub use program::{missing_program, program};
pub use sampler::{SignalSource, Watching};
pub use signals::Sample;

/// The generated service and its messages.
#[expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    missing_docs,
    reason = "generated code"
)]
pub mod proto {
    tonic::include_proto!("tessera.fleet.v1");

    /// The compiled `.proto` file (a `google.protobuf.FileDescriptorSet`), for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/fleet.fds"));

    /// The source of the service; its comments describe the methods.
    pub const SOURCE: &str = include_str!("../fleet/proto/fleet.proto");
}
