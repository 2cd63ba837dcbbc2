//! A front end over a real service with the bundled model, for tests of both transports.

use std::sync::Arc;

use identity::Identity;
use models::engine::ort::OrtMissing;
use node::config::{Assignment, ConfigSource, Origin};
use node::{Node, Startup};

use crate::front::{Front, FrontLimits};
use crate::gate::Gate;
use crate::reloads::Reloads;
use crate::service::Service;
use crate::trace::Traces;

/// Limits that are small enough to be hit.
pub fn limits() -> FrontLimits {
    FrontLimits {
        protocol: oip::Limits { body_bytes: 1 << 20, tensor_bytes: 1 << 20, ..oip::Limits::default() },
        bodies: 4 << 20,
        body_timeout: std::time::Duration::from_secs(5),
        stream_requests: 4,
    }
}

/// Nothing is loaded: every model is unknown or not ready.
pub async fn front() -> Arc<Front> {
    front_with(limits(), &[]).await
}

/// The same with other limits, and with some options set.
pub async fn front_with(limits: FrontLimits, options: &[(&str, &str)]) -> Arc<Front> {
    gated_front(limits, options, Gate::open(true)).await
}

/// The same with a gate.
pub async fn gated_front(limits: FrontLimits, options: &[(&str, &str)], gate: Gate) -> Arc<Front> {
    let flags = options.iter().map(|(path, raw)| Assignment {
        path: (*path).to_owned(),
        raw: (*raw).to_owned(),
        origin: Origin::Flag("--set"),
    });
    let config_source = ConfigSource::with_file(flags.collect(), || None);
    let config = config_source.read().unwrap();
    let traces = Traces::new(&config.trace).unwrap();
    let cores = gpulet::allowed_cores().unwrap();
    let startup = Startup {
        config,
        lanes: vec![vec![cores[0]]],
        ort: Err(OrtMissing::default()),
        spans: None,
        config_source,
    };
    let service = Service::new(Node::start(startup).await.unwrap());
    let identity = Arc::new(Identity::load(identity::Settings::default()).unwrap());
    let reloads = Arc::new(Reloads::new(Arc::clone(&service), identity, String::new()));
    Arc::new(Front::new(service, reloads, true, limits, traces, gate))
}

/// The bundled model is ready.
pub async fn serving_front() -> Arc<Front> {
    let front = front().await;
    front.service.node.load_at_start().await;
    front
}
